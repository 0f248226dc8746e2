package join

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/device"
)

// To find the types of text, all of it is read once before it is read for the join. Where an output is the same
// whatever the types of columns that are no keys, a glance at the first rows will do: the keys get the types that
// these have, and each field is looked at when it is read. If one does not fit, or anything else is wrong with an
// input, the join begins anew, and reads all that it should: so the output and the errors of inputs are the same. Of an
// option and an input that are both wrong, the option comes first.

// glances tells that inputs may be glanced at, because the output is the same and a join can begin anew: they can be
// read again, and nobody has seen anything of an output.
func (o *Options) glances(inputs []inputFile) bool {
	if !o.untyped() || o.Limit > 0 { // a limit may end it before a field is seen that does not fit
		return false
	}
	for _, f := range inputs {
		if f.path == "-" || readOnce(f.path) {
			return false
		}
	}
	if o.Count {
		return true
	}
	about, err := os.Stat(o.Out)
	own, ownErr := os.Stdout.Stat()
	return o.Out != "-" && (errors.Is(err, fs.ErrNotExist) ||
		err == nil && (about.Mode().IsRegular() || about.IsDir()) && (ownErr != nil || !os.SameFile(about, own)))
}

// leastRow is how many bytes of text a row has at least, and mostTaken how many bytes of memory so short a one takes.
const leastRow, mostTaken = 2, 24

// surelyFits tells that the build side fits in memory, however short its rows are. By its first rows alone a larger one
// may seem to fit, and nobody would split it.
func (o *Options) surelyFits(build []inputFile) bool {
	size := int64(0)
	for _, f := range build {
		if about, err := os.Stat(f.path); err == nil {
			size += about.Size()
		}
	}
	return size <= cmp.Or(o.Memory, int64(min(machine(), 1<<62))/2)/mostTaken*leastRow
}

// runGlancing runs a join that glances at its inputs where it may, and once more if that was not enough.
func runGlancing(ctx context.Context, d *device.Device, o Options, t tuning, build, probe []inputFile) (Summary,
	error) {
	var devices *opening
	s, again, err := Summary{}, o.glances(slices.Concat(build, probe)) && o.surelyFits(build), error(nil)
	if again {
		s, again, err = runOnce(ctx, d, o, t, build, probe, true, &devices)
		again = again && errors.As(err, new(*InputError)) && ctx.Err() == nil
	} else {
		again = true
	}
	if again {
		s, _, err = runOnce(ctx, d, o, t, build, probe, false, &devices)
	}
	if e := devices.close(); e != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = e
	}
	return s, err
}

// glance sets the types of columns by the first rows of CSV, and the mean length of a row. It gives what it read, and
// tells whether it is enough: not if that was all, or a key has no value there.
func (f *csvFile) glance(in io.Reader, out *textFile, key func(name string) bool) (first []byte, enough bool,
	err error) {
	b := make([]byte, textBlock)
	n, err := readTo(in, b)
	b = b[:n]
	if err != nil {
		if err == io.EOF {
			err = nil
		}
		return b, false, err
	}
	end := lastRecord(b, f.as)
	t := tokens.Get().(*csvTokens)
	defer tokens.Put(t)
	if end == 0 {
		return b, false, nil
	}
	if _, err := t.scan(b[:end], f.as, len(f.names)); err != nil {
		return b, false, after(err, f.lines)
	}
	some, err := f.classes(t)
	if err != nil {
		return b, false, after(err, f.lines)
	}
	columns := slices.Clone(out.columns)
	for _, s := range some.sightings {
		columns[s.column].see(s, f.lines)
	}
	allowed := make([]int, len(columns))
	for i, c := range columns {
		switch {
		case c.given != nil:
		case !key(c.name):
			columns[i].seen |= csvText
		case c.seen == 0:
			return b, false, nil
		default:
			allowed[i] = alike(c.seen)
		}
	}
	if t.rows == 0 {
		return b, false, nil
	}
	out.columns, f.allowed = columns, allowed
	out.rowBytes = float64(end) / float64(t.rows)
	return b, true, nil
}

// alike is all that the fields of a column may be that leave it the type that it has by what was seen.
func alike(seen int) (allowed int) {
	for class := 1; class <= csvText; class <<= 1 {
		if arrow.TypeEqual(csvType(seen), csvType(seen|class)) {
			allowed |= class
		}
	}
	return allowed
}

// glanced makes a column whose type a glance has found.
func (f *csvFile) glanced(t *csvTokens, c int, typ arrow.DataType) (arrow.Array, error) {
	allowed := f.allowed[c]
	if f.given[c] || allowed&csvText != 0 || allowed == 0 {
		return csvColumn(t, c, typ, f.given[c])
	}
	fits := func(v []byte) bool { return classify(v)&^allowed == 0 }
	if typ.ID() == arrow.INT64 {
		return csvFixed(t, c, typ, func(v []byte) (int64, bool) {
			if n, ok := plainInt(v); ok || !fits(v) {
				return n, ok
			}
			return parseInt(v)
		}, another)
	}
	for r := range t.rows {
		if v, quoted := t.field(r, c); !t.null(v, quoted) && !fits(v) {
			return nil, another(t, r, c, typ)
		}
	}
	return csvColumn(t, c, typ, false)
}

// another is the error of a field that a glance did not foresee, which begins the join anew.
func another(t *csvTokens, r, c int, typ arrow.DataType) error {
	f, _ := t.field(r, c)
	return &lineError{line: 1 + countLines(t.b[:t.place(r, c)]), row: r,
		err: fmt.Errorf("%q is no %s, as the first rows are: name the type (--types)", f[:min(len(f), 100)], typ)}
}

// plainInt reads an integer of up to 18 digits that is spelled as integers are written.
func plainInt(f []byte) (v int64, ok bool) {
	digits := f
	if len(f) > 1 && f[0] == '-' {
		digits = f[1:]
	}
	if len(digits) == 0 || len(digits) > 18 || digits[0] == '0' && len(f) > 1 {
		return 0, false
	}
	return parseInt(f)
}

// checked is column for fields that nobody has looked through.
func (f *csvFile) checked(t *csvTokens, types []arrow.DataType, column func(t *csvTokens, c int,
	typ arrow.DataType) (arrow.Array, error)) (*textBatch, error) {
	if !f.anyBytes && !utf8.Valid(t.b) {
		return nil, f.notText(t)
	}
	return f.columns(t, types, column)
}

// likely is about how many rows a reader has; -1 if nothing tells.
func (r *Reader) likely() int64 {
	if r.rows < 0 && r.text != nil && r.text.rowBytes > 0 {
		return int64(float64(r.size) / r.text.rowBytes)
	}
	return r.rows
}

// glancedAt tells that the reader's types are those of the first rows.
func (r *Reader) glancedAt() bool { return r.text != nil && r.text.rowBytes > 0 }

// rejoin gives what a glance has read back to what is behind it.
func rejoin(first []byte, rest io.Reader) io.Reader {
	return io.MultiReader(bytes.NewReader(first), rest)
}
