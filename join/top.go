package join

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/google/uuid"

	"github.com/warpmap/warpmap/internal/unique"
)

// TopOptions say which values Top tells.
type TopOptions struct {
	ColumnOptions
	N      int  // how many, 1 and more
	Approx bool // keep the counts of the most frequent values alone
}

// TopValue is a value and how often it came.
type TopValue struct {
	Value string `json:"value"` // as CSV has it, without quotes
	Count int64  `json:"count"` // of an estimate, it came so often at least
}

// TopSummary is what Top found.
type TopSummary struct {
	Rows   int64      `json:"rows"`
	Nulls  int64      `json:"nulls"` // of the rows; they count as no value
	Type   string     `json:"type"`  // of the column
	Values []TopValue `json:"values"`
	// Error says how much more often a value may have come than Count says; 0 where counts are exact.
	Error int64   `json:"error"`
	Total float64 `json:"total_seconds"`
}

// keptValues is how many values an estimate keeps; twice as many are there at times.
const keptValues = 1 << 20

// Top tells the values of a column that come most often, the most frequent first; of those that come equally often, the
// order is that of the values. Cores do the work, and each distinct value takes memory: see Distinct.
//
// With Approx, Top keeps 2,097,152 values at most, by a Misra-Gries summary. Counts then are too low by Error at most,
// which is less than a millionth of the rows. So every value is told, if N is large enough, that comes more often than
// Error; and the counts are exact where no more distinct values came.
//
// Errors: as those of Distinct; an *OptionError of N.
func Top(ctx context.Context, o TopOptions) (TopSummary, error) {
	return top(ctx, o, keptValues)
}

func top(ctx context.Context, o TopOptions, kept int) (s TopSummary, err error) {
	start := time.Now()
	if o.N < 1 || o.N > kept {
		return s, &OptionError{fmt.Sprintf("the %d most frequent values: want 1 to %d", o.N, kept)}
	}
	memory := cmp.Or(o.Memory, int64(min(machine(), 1<<62))/2)
	var keys *unique.Keys
	var less atomic.Uint64
	c, err := o.scan(ctx, func(c *columnScan) error {
		c.times, keys = true, unique.New(c.texts, true)
		less.Store(0)
		return nil
	}, func(x *values) error {
		keys.Add(x.words, x.at, x.times)
		if o.Approx && keys.Len() > 2*int64(kept) {
			less.Add(keys.Prune(kept))
		}
		if keys.Bytes() > memory {
			return &TooManyError{keys.Len(), memory}
		}
		return nil
	})
	if err != nil {
		return s, err
	}
	s = TopSummary{Rows: c.rows.Load(), Nulls: c.nulls.Load(), Type: c.field.Type.String(), Error: int64(less.Load()),
		Values: []TopValue{}}
	for _, v := range keys.Top(o.N, c.compare) {
		s.Values = append(s.Values, TopValue{c.shown(v), int64(v.Times)})
	}
	s.Total = time.Since(start).Seconds()
	return s, nil
}

// unsigned is a value as a number, where its type has no sign.
func (c *columnScan) unsigned(word uint64) (n uint64, is bool) {
	switch c.field.Type.ID() {
	case arrow.UINT64:
		return word, true
	case arrow.UINT32:
		return uint64(uint32(word)), true
	}
	return 0, false
}

// compare puts values in their order.
func (c *columnScan) compare(a, b unique.Count) int {
	if x, is := c.unsigned(a.Word); is {
		y, _ := c.unsigned(b.Word)
		return cmp.Compare(x, y)
	}
	switch {
	case c.texts && c.kind == "decimal":
		return decimalOf(a.Text).Cmp(decimalOf(b.Text))
	case c.texts:
		return bytes.Compare(a.Text, b.Text)
	case c.kind == "float":
		return cmp.Compare(math.Float64frombits(a.Word), math.Float64frombits(b.Word))
	}
	return cmp.Compare(int64(a.Word), int64(b.Word))
}

// decimalOf is a decimal of canonical bytes.
func decimalOf(b []byte) *big.Int {
	var words [4]uint64
	for i := range words {
		words[i] = binary.LittleEndian.Uint64(b[8*i:])
	}
	return decimal256.New(words[3], words[2], words[1], words[0]).BigInt()
}

// shown is a value as CSV has it, but for quotes.
func (c *columnScan) shown(v unique.Count) string {
	switch t := c.field.Type.(type) {
	case arrow.DecimalType:
		x := big.NewInt(int64(v.Word))
		if c.texts {
			x = decimalOf(v.Text)
		}
		return string(appendDecimal(nil, x, int(t.GetScale())))
	case *arrow.Float32Type:
		return string(appendFloat(nil, math.Float64frombits(v.Word), 32))
	case *arrow.Float64Type:
		return string(appendFloat(nil, math.Float64frombits(v.Word), 64))
	case *arrow.BooleanType:
		return strconv.FormatBool(v.Word != 0)
	case *extensions.UUIDType:
		return uuid.UUID(v.Text).String()
	}
	switch c.kind {
	case "string":
		return string(v.Text)
	case "binary":
		return base64.StdEncoding.EncodeToString(v.Text)
	}
	width := c.field.Type.(arrow.FixedWidthDataType).BitWidth() / 8
	word := binary.LittleEndian.AppendUint64(nil, v.Word)[:width]
	data := array.NewData(c.field.Type, 1, buffers(nil, word), nil, 0, 0)
	defer data.Release()
	a := array.MakeFromData(data)
	defer a.Release()
	return string(csvCell(a, ',')(nil, 0))
}
