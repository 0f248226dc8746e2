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
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/extensions"
	"github.com/google/uuid"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/unique"
	"github.com/warpmap/warpmap/sketch"
)

// TopOptions say which values Top tells.
type TopOptions struct {
	ColumnOptions
	N      int  // how many, 1 and more
	Approx bool // keep the counts of the most frequent values alone
	// Device, with Approx, counts values that are numbers or dates: see sketch.Top. nil: cores do.
	Device *device.Device
}

// TopValue is a value and how often it came.
type TopValue struct {
	Value string `json:"value"` // as CSV has it, without quotes; a text that is not UTF-8 stays so
	Count int64  `json:"count"` // of an estimate, it came so often at least
}

// TopSummary is what Top found.
type TopSummary struct {
	Rows   int64      `json:"rows"`
	Nulls  int64      `json:"nulls"` // of the rows; they count as no value
	Type   string     `json:"type"`  // of the column
	Values []TopValue `json:"values"`
	// Error says how much more often a value may have come than Count says; 0 where counts are exact.
	Error  int64   `json:"error"`
	Device string  `json:"device,omitempty"` // that has counted
	Total  float64 `json:"total_seconds"`
}

// keptValues is how many values an estimate keeps; twice as many are there at times.
const keptValues = 1 << 20

// Top tells the values of a column that come most often, the most frequent first; of those that come equally often, the
// order is that of the values. Cores do the work, and each distinct value takes memory: see Distinct.
//
// With Approx, Top keeps 2,097,152 values at most, by a Misra-Gries summary, or on cores fewer, where these take
// more than Memory. Counts then are too low by Error at most, which is less than a millionth of the rows, unless
// Memory is so little. So every value is told, if N is large enough, that comes more often than Error; and the counts
// are exact where no more distinct values came than are kept, or on a device half of that. A device takes memory as
// sketch.Top says, for 1,048,576 counters.
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
	var count tops
	defer func() {
		if count != nil {
			err = cmp.Or(err, count.close())
		}
	}()
	c, err := o.scan(ctx, func(c *columnScan) (err error) {
		c.times = true
		if count != nil {
			if err := count.close(); err != nil {
				return err
			}
		}
		count, err = o.counting(c, kept)
		return err
	}, func(x *values) error { return count.take(x) })
	if err != nil {
		return s, err
	}
	s = TopSummary{Rows: c.rows.Load(), Nulls: c.nulls.Load(), Type: c.field.Type.String(), Values: []TopValue{}}
	most, err := count.end(&s, o.N, c.compare)
	if err != nil {
		return TopSummary{}, err
	}
	for _, v := range most {
		s.Values = append(s.Values, TopValue{c.shown(v), int64(v.Times)})
	}
	s.Total = time.Since(start).Seconds()
	return s, nil
}

// tops counts values. end gives the n most frequent, of equal ones those that compare says.
type tops interface {
	take(x *values) error
	end(s *TopSummary, n int, compare func(a, b unique.Count) int) ([]unique.Count, error)
	close() error
}

// counting says where the values of a column are counted.
func (o *TopOptions) counting(c *columnScan, kept int) (tops, error) {
	if o.Approx && o.Device != nil && !c.texts {
		t, err := sketch.NewTop[uint64](o.Device, sketch.TopOptions{Counters: kept})
		if err != nil {
			return nil, err
		}
		return &topsOnDevice{sketch: t, kept: kept, d: o.Device}, nil
	}
	memory := cmp.Or(o.Memory, int64(min(machine(), 1<<62))/2)
	return &topsOnCores{keys: unique.New(c.texts, true), approx: o.Approx, kept: kept, memory: memory, n: o.N}, nil
}

// topsOnCores are all values, or a summary of them.
type topsOnCores struct {
	keys   *unique.Keys
	approx bool
	kept   int
	memory int64
	less   atomic.Uint64

	pruning sync.Mutex
	n       int // values that are asked for
}

func (t *topsOnCores) take(x *values) error {
	t.keys.Add(x.words, x.at, x.times)
	switch {
	case t.approx:
		return t.prune()
	case t.keys.Bytes() > t.memory:
		return &TooManyError{t.keys.Len(), t.memory, "keep the most frequent alone (--approx)"}
	}
	return nil
}

// prune leaves the most frequent values alone, where there are too many, or where they take too much memory.
func (t *topsOnCores) prune() error {
	if t.keys.Len() <= 2*int64(t.kept) && t.keys.Bytes() <= t.memory {
		return nil
	}
	t.pruning.Lock()
	defer t.pruning.Unlock()
	if t.keys.Len() > 2*int64(t.kept) { // else another has done it meanwhile
		t.less.Add(t.keys.Prune(t.kept))
	}
	for t.keys.Bytes() > t.memory {
		n := t.keys.Len()
		if n <= int64(t.n) {
			return &TooManyError{n, t.memory, "ask for fewer"}
		}
		t.less.Add(t.keys.Prune(int(max(n/2, int64(t.n)))))
	}
	return nil
}

func (t *topsOnCores) end(s *TopSummary, n int, compare func(a, b unique.Count) int) ([]unique.Count, error) {
	s.Error = int64(t.less.Load())
	return t.keys.Top(n, compare), nil
}

func (t *topsOnCores) close() error { return nil }

// topsOnDevice are a sketch's.
type topsOnDevice struct {
	d      *device.Device
	sketch *sketch.Top[uint64]
	kept   int

	lock          sync.Mutex
	once          []uint64 // that wait until there are many: those of one row each, and others
	often, counts []uint64
}

func (t *topsOnDevice) take(x *values) error {
	t.lock.Lock()
	defer t.lock.Unlock()
	for i, w := range x.words {
		if x.times == nil || x.times[i] == 1 { // which the sketch counts at a higher rate
			t.once = append(t.once, w)
		} else {
			t.often, t.counts = append(t.often, w), append(t.counts, x.times[i])
		}
	}
	if max(len(t.once), len(t.often)) < manyWords {
		return nil
	}
	return t.flush()
}

func (t *topsOnDevice) flush() error {
	err := cmp.Or(t.sketch.Add(t.once), t.sketch.AddCounts(t.often, t.counts))
	t.once, t.often, t.counts = t.once[:0], t.often[:0], t.counts[:0]
	return err
}

func (t *topsOnDevice) end(s *TopSummary, n int, compare func(a, b unique.Count) int) ([]unique.Count, error) {
	if err := t.flush(); err != nil {
		return nil, err
	}
	stats, err := t.sketch.Stats()
	if err != nil {
		return nil, err
	}
	s.Error, s.Device = int64(stats.Error), t.d.Info().Name
	top, err := t.sketch.Top(min(n+1, t.kept))
	if err == nil && len(top) > n && top[n].Count == top[n-1].Count {
		top, err = t.sketch.Top(t.kept) // all that come as often as the last one
	}
	if err != nil {
		return nil, err
	}
	out := make([]unique.Count, len(top))
	for i, x := range top {
		out[i] = unique.Count{Word: x.Key, Times: x.Count}
	}
	slices.SortFunc(out, func(a, b unique.Count) int {
		return cmp.Or(cmp.Compare(b.Times, a.Times), compare(a, b))
	})
	return out[:min(n, len(out))], nil
}

func (t *topsOnDevice) close() error { return t.sketch.Close() }

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
