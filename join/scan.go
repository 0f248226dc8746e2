package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"

	"github.com/warpmap/warpmap/internal/crash"
)

// ColumnOptions say which column of which inputs is looked at.
type ColumnOptions struct {
	Inputs []string // as OpenAll takes them
	Format Format   // of the inputs, if names do not tell it
	Column string   // whose type may be any that a key of a join may have
	Text   TextOptions
	// Memory is how many bytes the distinct values may take; 0 for half of the machine's.
	Memory   int64
	Threads  int // see Options
	Progress func(Progress)
}

// columnScan goes over one column of some inputs.
type columnScan struct {
	ColumnOptions
	key   key // the column, as a join with itself would have it
	field arrow.Field
	kind  string // of its domain
	texts bool   // values are texts with hashes, and else words
	times bool   // it is asked how often each came
	high  bool   // words stand in files with the highest byte first
	all   int64  // rows, or -1
	rows  atomic.Int64
	nulls atomic.Int64
	seed  maphash.Seed

	told sync.Mutex
}

// values are those that some rows have: words are they themselves, or of texts their hashes.
type values struct {
	words []uint64
	at    func(i int) []byte // a text; nil where values are words
	times []uint64           // how many rows have each; nil: one, or where nobody asks
}

// scan calls begin once the column is known, and then do for all rows, in any order and from several goroutines. Types
// of CSV are first taken from a glance at it: if that was not enough, all begins anew.
func (o ColumnOptions) scan(ctx context.Context, begin func(c *columnScan) error, do func(x *values) error) (
	c *columnScan, err error) {
	o.Threads = crash.Threads(o.Threads)
	if err := o.Text.check(); err != nil {
		return nil, err
	}
	if len(o.Inputs) == 0 {
		return nil, &OptionError{"no input"}
	}
	if o.Memory < 0 {
		return nil, &OptionError{fmt.Sprintf("memory of %d bytes: want 0 or more", o.Memory)}
	}
	inputs, err := expandAll(o.Format, o.Inputs)
	if err == nil {
		err = once(inputs)
	}
	if err != nil {
		return nil, err
	}
	err = catch(brokeOff, func() error {
		like := Options{Text: o.Text, Count: true}
		if like.glances(inputs) {
			c, err = o.scanOnce(ctx, inputs, true, begin, do)
			if !errors.As(err, new(*InputError)) || ctx.Err() != nil {
				return err
			}
		}
		c, err = o.scanOnce(ctx, inputs, false, begin, do)
		return err
	})
	return c, err
}

func (o ColumnOptions) scanOnce(ctx context.Context, inputs []inputFile, glance bool, begin func(c *columnScan) error,
	do func(x *values) error) (*columnScan, error) {
	o.Text.anyBytes = true // the values of other columns do not matter, and texts are counted as bytes
	if glance {
		o.Text.key, o.Text.alone = func(name string) bool { return name == o.Column }, true
	}
	r, err := openFiles(o.Format, inputs, o.Text)
	if err != nil {
		return nil, err
	}
	defer r.Close()
	if err := o.Text.checkUse(r); err != nil {
		return nil, err
	}
	field, err := o.field(r)
	if err != nil {
		return nil, err
	}
	c := &columnScan{ColumnOptions: o, field: r.schema.Field(field), all: r.Rows(), seed: maphash.MakeSeed()}
	one := arrow.NewSchema([]arrow.Field{c.field}, nil)
	plan, err := planKeys(one, one, []Pair{{o.Column, o.Column}}, false)
	if err != nil {
		return nil, err
	}
	c.key = plan.keys[0]
	c.key.shift, c.key.bytes = 0, 8
	domain, _ := domainOf(c.field.Type)
	c.kind = domain.kind
	stands := r.pq != nil && c.stands(r.pq.flat(field), r.pq.folder(field) != nil)
	c.high = stands && r.pq.flat(field).PhysicalType() == parquet.Types.FixedLenByteArray // decimals
	c.texts = c.kind == "string" || c.kind == "binary" || c.kind == "decimal" && !stands
	if err := begin(c); err != nil {
		return nil, err
	}
	if r.pq != nil {
		err = c.groups(ctx, r.pq, field, stands, do)
	} else {
		r.only([]int{field})
		err = c.batches(ctx, r, do)
	}
	return c, err
}

// field finds the column.
func (o ColumnOptions) field(r *Reader) (int, error) {
	at := r.schema.FieldIndices(o.Column)
	switch len(at) {
	case 0:
		names, convert := columnNames(r.schema), ""
		if !utf8.ValidString(names) {
			convert = "; names that are not UTF-8 stay so unless you convert the file, with iconv say"
		}
		return 0, &OptionError{fmt.Sprintf("no column %q; there are: %s%s", o.Column,
			strings.ToValidUTF8(names, "\ufffd"), convert)}
	case 1:
	default:
		return 0, ofInput(fmt.Errorf("%s: there are %d columns named %q: rename all but one", r.path, len(at),
			o.Column))
	}
	if t := r.schema.Field(at[0]).Type; !isKey(t) {
		return 0, ofInput(fmt.Errorf("%s: column %q is %s: want numbers, text, binary values, UUIDs, booleans, dates, "+
			"times, timestamps or durations", r.path, o.Column, t))
	}
	return at[0], nil
}

func isKey(t arrow.DataType) bool { _, is := domainOf(t); return is }

// stands tells that a Parquet column's values are words as they stand in the file: equal ones have equal bytes there,
// but for floats.
func (c *columnScan) stands(col *schema.Column, folder bool) bool {
	if col == nil || folder || c.kind == "string" || c.kind == "binary" || c.kind == "null" {
		return false
	}
	width := widthOf(col)
	return width > 0 && width <= 8
}

// groups goes over the row groups of Parquet, side by side. Where values stand there as words, no others are made.
func (c *columnScan) groups(ctx context.Context, p *parquetFile, field int, stands bool, do func(*values) error) error {
	work, going := crash.WithContext(ctx)
	work.SetLimit(c.Threads)
	text := p.flat(field) != nil && p.folder(field) == nil && (c.kind == "string" || c.kind == "binary")
	for g := range p.groups() {
		work.Go(func() error {
			if going.Err() != nil {
				return context.Cause(going)
			}
			return catch(brokeOff, func() error {
				if !stands && !text {
					arrays, err := p.arrays(g, field)
					defer release(arrays)
					if err != nil {
						return ofInput(err)
					}
					return c.arrays(arrays, do)
				}
				v, err := p.vec(g, field, nil)
				if err != nil {
					return ofInput(err)
				}
				defer v.spare()
				return c.take(v, v.valid, do)
			})
		})
	}
	if err := work.Wait(); err != nil {
		return err
	}
	if c.rows.Load() != p.rows {
		return ofInput(fmt.Errorf("%s: the file is broken: it says that it has %d rows, and has %d", p.path, p.rows,
			c.rows.Load()))
	}
	return nil
}

// batches goes over what is read as record batches, one after the other, and takes them side by side.
func (c *columnScan) batches(ctx context.Context, r *Reader, do func(x *values) error) error {
	work, going := crash.WithContext(ctx)
	work.SetLimit(c.Threads)
	for going.Err() == nil && r.Next() {
		rec := r.RecordBatch()
		rec.Retain()
		work.Go(func() error {
			defer rec.Release()
			return catch(brokeOff, func() error { return c.arrays([]arrow.Array{rec.Column(0)}, do) })
		})
	}
	err := work.Wait()
	if err == nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return cmp.Or(err, r.Err())
}

// arrays takes rows that Arrow has.
func (c *columnScan) arrays(arrays []arrow.Array, do func(x *values) error) error {
	for _, a := range arrays {
		ok := make([]bool, a.Len())
		for i := range ok {
			ok[i] = true
		}
		var v *vec
		if wideKinds[c.kind] {
			var err error
			if v, err = c.key.canonical(a, 0, ok); err != nil {
				return ofInput(err)
			}
			if v.valid != nil {
				ok = v.valid
			}
		} else {
			words := make([]uint64, a.Len())
			c.key.column(a, 1, words, ok)
			v = &vec{n: a.Len(), width: 8, fixed: raw(words)}
		}
		if err := c.take(v, ok, do); err != nil {
			return err
		}
	}
	return nil
}

// take gives the values of some rows to do, of those for which ok is true, or of all where it is nil.
func (c *columnScan) take(v *vec, ok []bool, do func(x *values) error) error {
	n := v.n
	for _, is := range ok {
		if !is {
			n--
		}
	}
	c.nulls.Add(int64(v.n - n))
	if n == v.n {
		ok = nil
	}
	x := &values{}
	switch of := v; {
	case v.dict != nil:
		of = v.dict
		codes := x.entries(v, ok)
		x.words = make([]uint64, len(codes))
		if !c.texts {
			words := c.wordsOf(of)
			for i, code := range codes {
				x.words[i] = words[code]
			}
			break
		}
		x.at = func(i int) []byte { return of.entry(int(codes[i])) }
		for i := range codes {
			x.words[i] = maphash.Bytes(c.seed, x.at(i))
		}
	case c.texts:
		rows := make([]uint32, 0, n)
		for i := range v.n {
			if ok == nil || ok[i] {
				rows = append(rows, uint32(i))
			}
		}
		x.words, x.at = make([]uint64, n), func(i int) []byte { return of.entry(int(rows[i])) }
		for i, r := range rows {
			x.words[i] = maphash.Bytes(c.seed, of.entry(int(r)))
		}
	default:
		x.words = c.wordsOf(v)
		if ok != nil {
			x.words = there(x.words, ok)
		}
		x.runs(c.times)
	}
	if err := do(x); err != nil {
		return err
	}
	done := c.rows.Add(int64(v.n))
	if c.Progress != nil {
		c.told.Lock()
		defer c.told.Unlock()
		c.Progress(Progress{"read", done, c.all})
	}
	return nil
}

// entries are the codes that rows have, each once, and x.times how many have it.
func (x *values) entries(v *vec, ok []bool) (codes []uint32) {
	rows := make([]uint64, max(1, v.dict.n))
	if ok == nil {
		for _, code := range v.codes {
			rows[code]++
		}
	} else {
		for i, code := range v.codes {
			if ok[i] {
				rows[code]++
			}
		}
	}
	for code, n := range rows {
		if n > 0 {
			codes, x.times = append(codes, uint32(code)), append(x.times, n)
		}
	}
	return codes
}

// wordsOf are the values of a vec without a dictionary as words, which may be written over. Equal floats have one.
func (c *columnScan) wordsOf(v *vec) (out []uint64) {
	switch {
	case v.width == 8 && !c.high:
		out = words[uint64](v.fixed)
	case v.width == 4 && !c.high:
		out = make([]uint64, v.n)
		for i, x := range words[uint32](v.fixed) {
			out[i] = uint64(int32(x))
		}
	default:
		out = make([]uint64, v.n)
		for i := range out {
			x := v.entry(i)
			out[i] = uint64(int8(x[0]))
			for _, b := range x[1:] {
				out[i] = out[i]<<8 | uint64(b)
			}
		}
	}
	if c.kind != "float" {
		return out
	}
	if v.width == 4 {
		for i, x := range out {
			out[i] = floatBits(float64(math.Float32frombits(uint32(x))))
		}
		return out
	}
	for i, x := range out {
		out[i] = floatBits(math.Float64frombits(x))
	}
	return out
}

// there are the words of rows that have a value, in the memory of all.
func there(words []uint64, ok []bool) []uint64 {
	n := 0
	for i, w := range words {
		words[n] = w
		if ok[i] {
			n++
		}
	}
	return words[:n]
}

// runs leaves one of equal words that stand side by side. How many there were is told if it is asked.
func (x *values) runs(times bool) {
	w := x.words
	if len(w) == 0 {
		return
	}
	n, last := 0, ^w[0]
	if times {
		x.times = make([]uint64, len(w))
	}
	for _, word := range w {
		if word != last {
			n++
		}
		w[n-1], last = word, word
		if times {
			x.times[n-1]++
		}
	}
	x.words = w[:n]
	if times {
		x.times = x.times[:n]
	}
}
