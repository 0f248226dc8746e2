package columnar

import (
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/crash"
)

// Budget bounds the host memory of value columns. The zero value has no bound.
type Budget struct {
	Most int64 // bytes; 0: no bound
	used atomic.Int64
}

// Used is how many bytes are taken.
func (b *Budget) Used() int64 { return b.used.Load() }

// ErrMemory says that Budget.Most is reached.
var ErrMemory = errors.New("the host memory for value columns is used up")

func (b *Budget) take(n int64) error {
	if used := b.used.Add(n); b.Most > 0 && used > b.Most && n > 0 {
		b.used.Add(-n)
		return fmt.Errorf("%w: %d bytes of %d are taken, and %d more were wanted", ErrMemory, used-n, b.Most, n)
	}
	return nil
}

// Segments of columns have so many rows, and chunks of texts so many bytes, or as many as come at once.
const (
	segmentRows = 1 << 12
	chunkBytes  = 4 << 20
	textWidth   = 16 // where a text begins, and its length
)

// rows are value columns in host memory, by the numbers that an index has. Who uses it holds a lock.
type rows struct {
	columns []Column
	cells   []cells
	made    int64   // rows from 0 on that have memory
	begun   int64   // of these, those that were ever used
	free    []int64 // of these, those that are not used
	budget  *Budget
	taken   int64
}

// cells are the rows of a column.
type cells struct {
	form   form
	width  int      // of a row in its segment
	fixed  [][]byte // segments
	valid  [][]byte // bitmaps of these, where there may be nulls
	chunks [][]byte // texts
	live   int64    // bytes of these that rows have
	room   int64    // bytes of these in all
}

func newRows(columns []Column, budget *Budget) *rows {
	r := &rows{columns: columns, budget: budget, cells: make([]cells, len(columns))}
	for i, c := range columns {
		f, _ := formOf(c.Type)
		r.cells[i] = cells{form: f, width: f.width}
		if f.text() {
			r.cells[i].width = textWidth
		}
	}
	return r
}

// segmentBytes is what another segment of all columns takes.
func (r *rows) segmentBytes() (n int64) {
	n = segmentRows * 8 // of free
	for i := range r.cells {
		n += int64(r.cells[i].width) * segmentRows
		if r.columns[i].Nullable {
			n += segmentRows / 8
		}
	}
	return n
}

// take gives n rows that are not used. Errors: ErrMemory.
func (r *rows) take(n int) ([]int64, error) {
	for int64(n) > r.made-r.begun+int64(len(r.free)) {
		bytes := r.segmentBytes()
		if err := r.budget.take(bytes); err != nil {
			return nil, err
		}
		r.taken += bytes
		for i := range r.cells {
			c := &r.cells[i]
			c.fixed = append(c.fixed, make([]byte, c.width*segmentRows))
			if r.columns[i].Nullable {
				c.valid = append(c.valid, make([]byte, segmentRows/8))
			}
		}
		r.made += segmentRows
	}
	out := make([]int64, n)
	for i := range out {
		if last := len(r.free) - 1; last >= 0 {
			out[i], r.free = r.free[last], r.free[:last]
		} else {
			out[i] = r.begun
			r.begun++
		}
	}
	return out, nil
}

// drop gives rows back.
func (r *rows) drop(all ...int64) {
	for _, row := range all {
		for i := range r.cells {
			if c := &r.cells[i]; c.form.text() {
				at := as[int64](c.at(row))
				c.live -= at[1]
				at[0], at[1] = 0, 0
			}
		}
	}
	r.free = append(r.free, all...)
}

func (c *cells) at(row int64) []byte {
	at := int(row%segmentRows) * c.width
	return c.fixed[row/segmentRows][at : at+c.width : at+c.width]
}

func (c *cells) null(row int64) bool {
	return c.valid != nil && c.valid[row/segmentRows][row%segmentRows/8]>>(row%8)&1 == 0
}

// set tells whether a row is no null.
func (c *cells) set(row int64, valid bool) {
	if c.valid == nil {
		return
	}
	b := &c.valid[row/segmentRows][row%segmentRows/8]
	if *b &^= 1 << (row % 8); valid {
		*b |= 1 << (row % 8)
	}
}

// reserve makes room for the texts of a batch, so that write finds it. Errors: ErrMemory, and then nothing is changed.
func (r *rows) reserve(b Batch) error {
	for i := range r.cells {
		c := &r.cells[i]
		if !c.form.text() {
			continue
		}
		if c.room > 2*c.live+2*chunkBytes { // what is dead goes first
			r.compact(c)
		}
		if n := len(b.Columns[i].textBytes(0, b.Rows)); n > c.left() {
			n = chunkFor(n)
			if err := r.budget.take(int64(n)); err != nil {
				return err
			}
			r.taken += int64(n)
			c.open(n)
		}
	}
	return nil
}

// chunkFor is the size of a chunk that so many bytes open. Many bytes have one of their own: those that come next would
// not fit behind them, and a table that was read again, in batches of a MiB, would take more than it did.
func chunkFor(n int) int {
	if n > chunkBytes/8 {
		return n
	}
	return chunkBytes
}

// left is how many bytes the last chunk has room for.
func (c *cells) left() int {
	if len(c.chunks) == 0 {
		return 0
	}
	last := c.chunks[len(c.chunks)-1]
	return cap(last) - len(last)
}

// open adds a chunk.
func (c *cells) open(bytes int) {
	c.chunks = append(c.chunks, make([]byte, 0, bytes))
	c.room += int64(bytes)
}

// write puts the rows of a batch at some positions, all where positions is nil, into the rows of those numbers. The
// batch was reserved for.
func (r *rows) write(to []int64, b Batch, positions []int) {
	for i := range r.cells {
		c, d := &r.cells[i], &b.Columns[i]
		for j, row := range to {
			p := j
			if positions != nil {
				p = positions[j]
			}
			null := d.null(p)
			c.set(row, !null)
			switch {
			case !c.form.text():
				copy(c.at(row), d.Fixed[p*c.width:(p+1)*c.width])
			case null:
				c.writeText(row, nil)
			default:
				c.writeText(row, d.textBytes(p, p+1))
			}
		}
	}
}

// swap gives each of two rows what the other has.
func (r *rows) swap(a, b int64) {
	var kept [mostWidth]byte
	for i := range r.cells {
		c := &r.cells[i]
		n := copy(kept[:], c.at(a))
		copy(c.at(a), c.at(b))
		copy(c.at(b), kept[:n])
		was := c.null(a)
		c.set(a, !c.null(b))
		c.set(b, !was)
	}
}

// writeText gives a row a text, where the old one was if it fits there, else at the end of the last chunk.
func (c *cells) writeText(row int64, t []byte) {
	at := as[int64](c.at(row))
	was := at[1]
	c.live += int64(len(t)) - was
	at[1] = int64(len(t))
	switch {
	case len(t) == 0:
		at[0] = 0
	case int64(len(t)) <= was:
		copy(c.textAt(at[0], at[1]), t)
	default:
		last := len(c.chunks) - 1
		at[0] = int64(last)<<32 | int64(len(c.chunks[last]))
		c.chunks[last] = append(c.chunks[last], t...)
	}
}

// textAt is a text's bytes.
func (c *cells) textAt(place, n int64) []byte {
	if n == 0 {
		return nil
	}
	from := place & math.MaxUint32
	return c.chunks[place>>32][from : from+n : from+n]
}

// compact copies the texts that rows have, and lets go of all others. For a moment there are both.
func (r *rows) compact(c *cells) {
	old, before := *c, c.room
	c.chunks, c.live, c.room = nil, 0, 0
	for row := range r.begun {
		at := as[int64](c.at(row))
		t := old.textAt(at[0], at[1])
		if at[0], at[1] = 0, 0; len(t) > c.left() {
			c.open(chunkFor(len(t)))
		}
		c.writeText(row, t)
	}
	r.budget.used.Add(c.room - before)
	r.taken += c.room - before
}

// clear lets go of all rows.
func (r *rows) clear() {
	r.budget.take(-r.taken)
	*r = *newRows(r.columns, r.budget)
}

// textSizes is how many bytes of texts so many rows have; a negative row has none.
func (r *rows) textSizes(numbers []int64) (sizes []int64) {
	for i := range r.cells {
		c := &r.cells[i]
		if !c.form.text() {
			continue
		}
		if sizes == nil {
			sizes = make([]int64, len(numbers))
		}
		for j, row := range numbers {
			if row >= 0 {
				sizes[j] += as[int64](c.at(row))[1]
			}
		}
	}
	return sizes
}

// rowBytes is about what a row takes in a frame, without the texts.
func (r *rows) rowBytes() (n int64) {
	n = 1
	for i := range r.cells {
		switch r.cells[i].form.kind {
		case short:
			n += 4
		case long:
			n += 8
		}
		n += int64(r.cells[i].form.width) + 1
	}
	return n
}

// within is how many rows, from the first on, take so many bytes in a frame; one at least.
func (r *rows) within(numbers []int64, most int64) int {
	each := r.rowBytes()
	sizes := r.textSizes(numbers)
	if sizes == nil {
		return int(min(int64(len(numbers)), max(1, most/each)))
	}
	sum := int64(0)
	for i, n := range sizes {
		if sum += each + n; sum > most && i > 0 {
			return i
		}
	}
	return len(numbers)
}

// pieceRows are so many that a goroutine of their own is worth it.
const pieceRows = 1 << 13

// gather copies rows out. A negative number is a null.
func (r *rows) gather(numbers []int64) []Data {
	out := make([]Data, len(r.cells))
	n := len(numbers)
	for i := range r.cells {
		c, d := &r.cells[i], &out[i]
		d.Valid = make([]byte, bitmapBytes(n))
		if c.form.text() {
			d.Text.Offsets = make([]int64, n+1)
			for j, row := range numbers {
				d.Text.Offsets[j+1] = d.Text.Offsets[j]
				if row >= 0 {
					d.Text.Offsets[j+1] += as[int64](c.at(row))[1]
				}
			}
			d.Text.Bytes = make([]byte, d.Text.Offsets[n])
		} else {
			d.Fixed = make([]byte, n*c.width)
		}
	}
	var wg crash.WaitGroup
	pieces := min(runtime.GOMAXPROCS(0), n/pieceRows)
	if pieces <= 1 {
		r.copy(out, numbers, 0, n)
	} else {
		each := (n/pieces + 63) / 64 * 64 // no two write into one byte of a bitmap
		for from := 0; from < n; from += each {
			wg.Go(func() { r.copy(out, numbers, from, min(from+each, n)) })
		}
		wg.Wait()
	}
	for i := range out {
		if out[i].Nulls = n - countBits(out[i].Valid, n); out[i].Nulls == 0 {
			out[i].Valid = nil
		}
	}
	return out
}

// copy is gather's work on some of the rows.
func (r *rows) copy(out []Data, numbers []int64, from, to int) {
	for i := range r.cells {
		c, d := &r.cells[i], &out[i]
		for j := from; j < to; j++ {
			row := numbers[j]
			if row < 0 || c.null(row) {
				continue
			}
			d.Valid[j>>3] |= 1 << (j & 7)
			switch {
			case c.form.text():
				at := as[int64](c.at(row))
				copy(d.Text.Bytes[d.Text.Offsets[j]:], c.textAt(at[0], at[1]))
			case c.width == 8:
				as[int64](d.Fixed)[j] = as[int64](c.fixed[row/segmentRows])[row%segmentRows]
			default:
				copy(d.Fixed[j*c.width:(j+1)*c.width], c.at(row))
			}
		}
	}
}

// combine updates a row's cells by those of a batch at a position: a null changes nothing, and is changed by what
// comes.
func (r *rows) combine(row int64, b Batch, at int, how []combiner) {
	for i := range r.cells {
		c, d := &r.cells[i], &b.Columns[i]
		if d.null(at) {
			continue
		}
		comes := d.Fixed[at*c.width : (at+1)*c.width]
		if to := c.at(row); c.null(row) {
			copy(to, comes)
		} else {
			how[i](to, comes)
		}
		c.set(row, true)
	}
}

// combiner changes a value by another.
type combiner func(to, comes []byte)

type number interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~float32 | ~float64
}

func combinerOf[T number](mode Mode) combiner {
	return func(to, comes []byte) {
		a, b := &as[T](to)[0], as[T](comes)[0]
		switch {
		case mode == Add:
			*a += b
		case mode == Min && b < *a, mode == Max && *a < b:
			*a = b
		}
	}
}

// combiners are those of value columns. Errors: a column that cannot be combined so.
func combiners(columns []Column, mode Mode) (out []combiner, err error) {
	for _, c := range columns {
		var f combiner
		switch c.Type.ID() {
		case arrow.INT8:
			f = combinerOf[int8](mode)
		case arrow.INT16:
			f = combinerOf[int16](mode)
		case arrow.INT32, arrow.DATE32, arrow.TIME32:
			f = combinerOf[int32](mode)
		case arrow.INT64, arrow.DATE64, arrow.TIME64, arrow.TIMESTAMP, arrow.DURATION:
			f = combinerOf[int64](mode)
		case arrow.UINT8:
			f = combinerOf[uint8](mode)
		case arrow.UINT16:
			f = combinerOf[uint16](mode)
		case arrow.UINT32:
			f = combinerOf[uint32](mode)
		case arrow.UINT64:
			f = combinerOf[uint64](mode)
		case arrow.FLOAT32:
			f = combinerOf[float32](mode)
		case arrow.FLOAT64:
			f = combinerOf[float64](mode)
		}
		date := c.Type.ID() == arrow.DATE32 || c.Type.ID() == arrow.DATE64 || c.Type.ID() == arrow.TIMESTAMP ||
			c.Type.ID() == arrow.TIME32 || c.Type.ID() == arrow.TIME64
		if f == nil || date && mode == Add {
			return nil, fmt.Errorf("column %q of type %s has no %s: want numbers, and no dates or times to add",
				c.Name, typeName(c.Type), mode)
		}
		out = append(out, f)
	}
	if len(out) == 0 {
		return nil, errNoValues
	}
	return out, nil
}
