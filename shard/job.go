package shard

import (
	"errors"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// columnUse is what becomes of a column of values: bits.
type columnUse int

const (
	none columnUse = 0
	sent columnUse = 1 << (iota - 1) // it goes to the owners, with the keys
	back                             // it comes back from them
)

// job is one operation on a batch of which each device may bring a part. What makes a job makes the widest: what of its
// columns nobody wants back, a cluster leaves out (of).
type job struct {
	sources []source // one a device
	values  columnUse
	counts  bool // values are u32, and come back
	flags   bool // come back
	mixed   bool // marks, the operations, go to the owners, too, and what comes back has room of its own there
	asks    bool // it can be asked of all devices: it changes nothing, or erases
	erases  bool
	owned   bool // its rows go to the owners of their keys in the independent mode, too
	all     bool // every device gets all rows, and what comes back is merged: the first found, or with sum the sum
	sum     bool
	// ordering returns how an owner's table wants that many rows sorted; run has sorted rows then.
	ordering func(owner, rows int) (frame.Ordering, bool)
	order    order // members' calls: that in which they agreed to send rows
	// sums, for members' calls, puts in the sums of this member's rows, if it has any. It takes the place of this job if
	// all members with rows have sums.
	sums *job
	// lists, of which run has nothing then, finds all values of keys. What the source does with them is taken.
	lists finder
	taken func(m *member, p *listRows, first int)
	// run does the operation on rows that are an owner's. It is called for several owners at once.
	run operation
	// full is called, one at a time, when run found no room.
	full func(owner int, e *table.FullError, r received) error
}

// of is the job of these sources, without what none of them wants back.
func (j job) of(sources []source) job {
	values, flags := false, false
	for _, s := range sources {
		values, flags = values || s.out != 0, flags || s.flags != 0
	}
	if !values {
		j.values &^= back
	}
	j.flags = j.flags && flags
	j.sources = sources
	return j
}

// putting describes how rows are put into a table that has each key once.
type putting struct {
	insert  func(why *error) job // the job notes why a table was full
	adds    bool                 // a row has no effect where its key is in
	absence job                  // tells which keys are in; where values come back, with their values
	// again, if not nil, does the refused rows whose keys are in after all, and returns their number. It is called with
	// the lock held.
	again func() (int, error)
	// undone comes with again. It has the refused rows, in case there is no memory to ask which keys are in.
	undone *rest
	// sums, if not nil, returns the sums of a source's rows. ofSums describes how they are put in.
	sums   func(i int, s source) (frame.Sums, error)
	ofSums func() putting
	// over, if not nil, says that counts were too large. Members agree on it.
	over *atomic.Bool
}

// topping is how the keys with the largest counts are found: own gives those of table i, and best sorts out the best.
// In the independent mode own gives all keys. A cluster adds their counts up by sum, which leaves each key once; members
// find them.
type topping struct {
	own  func(i int) (keys, counts []byte, err error)
	best func(keys, counts []byte) ([]byte, []byte)
	sum  func(keys, counts []byte) ([]byte, []byte)
	find job
}

// pairs reports whether rows can go as pairs: they have values, and nothing comes back.
func (j *job) pairs() bool { return !j.asks && j.values&sent != 0 && !j.mixed && !j.comesBack() }

func (j *job) comesBack() bool { return j.values&back != 0 || j.flags || j.lists != nil }

// source is the part of a batch that is on one device. Its columns are addresses there; those that come back may be 0,
// and so may when: the rows of which it is 0 go nowhere, and zeros come back.
type source struct {
	n                   int
	keys, values, marks uint64 // these go to the owners
	out, flags          uint64 // these come back
	when                uint64
	st                  *device.Stream
	slices              *received // the same as slices, where the caller gave such
}

// sourceOf are rows that stay where they are as a source.
func sourceOf(st *device.Stream, r received) source {
	return source{n: r.n, keys: r.keys.Addr(), values: r.values.Addr(), marks: r.marks.Addr(), out: r.out.Addr(),
		flags: r.flags.Addr(), when: r.when.Addr(), st: st, slices: &r}
}

// chosen leaves of positions those that the source does.
func (s source) chosen(positions []int) ([]int, error) {
	if s.when == 0 {
		return positions, nil
	}
	when, err := s.slices.when.Host(s.st)
	return slices.DeleteFunc(positions, func(i int) bool { return when[i] == 0 }), err
}

// received are rows that an owner got, by columns.
type received struct {
	n                               int
	keys, values, marks, out, flags device.Slice[byte]
	when                            device.Slice[byte] // of rows that stay where they are
	sorted                          *frame.Sorted      // how they come, if they are sorted by regions
	untried                         bool               // the owner had no memory for them, and looked at none
}

// valuesOf are the values of rows that came; the zero Slice where there are none.
func valuesOf[V any](r received) device.Slice[V] {
	if r.values.Addr() == 0 {
		return device.Slice[V]{}
	}
	return device.View[V](r.values, 0, r.n)
}

// outOf is where the values of rows that come back go; the zero Slice where none do.
func outOf[V any](r received) device.Slice[V] {
	if r.out.Addr() == 0 {
		return device.Slice[V]{}
	}
	return device.View[V](r.out, 0, r.n)
}

// flagsOf are the flags of rows; the zero Slice where there are none.
func flagsOf(r received) device.Slice[bool] {
	if r.flags.Addr() == 0 {
		return device.Slice[bool]{}
	}
	return device.View[bool](r.flags, 0, r.n)
}

// statusOf are the outcomes of rows of a mixed batch.
func statusOf(r received) device.Slice[table.Status] {
	return device.View[table.Status](r.flags, 0, r.n)
}

// noting notes why a table is full; which keys are not in is asked later.
func noting(why *error) func(int, *table.FullError, received) error {
	return func(_ int, e *table.FullError, _ received) error {
		*why = e.Why
		return nil
	}
}

// isFull tells whether an error says what found no room: all else is done then.
func isFull(err error) bool { return errors.As(err, new(*table.FullError)) }

// errScattered says that a key may be on another device than its owner.
var errScattered = fmt.Errorf("%s: Update, FindOrInsert and Mixed send keys to their owners, and in the independent "+
	"mode other calls have put keys elsewhere (members' inserts, and of one process those of device slices): bring Go "+
	"slices alone, or choose the distributed mode", family)

// split are the parameters of splitting rows of a source, as far as the source tells.
func (w widths) split(j *job, s source, from, rows int) (p splitRows) {
	p.Keys, p.N = s.keys+uint64(from*w.keyBytes), uint64(rows)
	if j.values&sent != 0 {
		p.Values = s.values + uint64(from*w.valueBytes)
	}
	if j.mixed {
		p.Marks = s.marks + uint64(from)
	}
	if s.when != 0 {
		p.When = s.when + uint64(from)
	}
	return p
}

// places sets the owners, and a source's own cursors, one for each of them, which are 0.
func (p *splitRows) places(seed uint64, owners int, cursors uint64) {
	p.Seed, p.Owners = seed, uint64(owners)
	for j := range owners {
		p.Cursors[j] = cursors + uint64(8*j)
	}
}

// to says where the rows of an owner go.
func (p *splitRows) to(owner int, r received) {
	p.OutKeys[owner], p.OutValues[owner], p.OutMarks[owner] = r.keys.Addr(), r.values.Addr(), r.marks.Addr()
}

// gathered are the parameters of bringing results back to rows of a source, as far as the source tells.
func (w widths) gathered(j *job, s source, from, rows int) (p gatherRows) {
	p.N = uint64(rows)
	if s.flags != 0 && j.flags {
		p.OutFlags = s.flags + uint64(from)
	}
	if s.out != 0 && j.values&back != 0 {
		width := w.valueBytes
		if j.counts {
			p.Counts, width = 1, 4
		}
		p.OutValues = s.out + uint64(from*width)
	}
	if s.when != 0 {
		p.When = s.when + uint64(from)
	}
	return p
}

// carried is a column on its way.
type carried struct{ from, to device.Slice[byte] }

// going are the columns that a job sends to the owners, and coming those that it brings back.
func (j *job) going(from, to received) []carried {
	out := []carried{{from.keys, to.keys}}
	if j.values&sent != 0 {
		out = append(out, carried{from.values, to.values})
	}
	if j.mixed {
		out = append(out, carried{from.marks, to.marks})
	}
	return out
}

func (j *job) coming(from, to received) (out []carried) {
	if j.values&back != 0 {
		out = append(out, carried{from.out, to.out})
	}
	if j.flags {
		out = append(out, carried{from.flags, to.flags})
	}
	return out
}

// wanted leaves of rows that an owner got the columns that the job has.
func (j *job) wanted(r received) received {
	if j.values == none {
		r.values = device.Slice[byte]{}
	}
	if j.values&back == 0 {
		r.out = device.Slice[byte]{}
	}
	if !j.flags {
		r.flags = device.Slice[byte]{}
	}
	return r
}

// boxed is how many rows of an outbox so many of a source take: of a job for all, the results of each owner.
func boxed(j *job, rows, owners int) int {
	if j.all {
		rows *= owners
	}
	return rows
}

// toAll are the counts of n rows that every owner gets.
func toAll(n, chunk, owners int) (counts []uint64) {
	for from := 0; from < n; from += chunk {
		for range owners {
			counts = append(counts, uint64(min(chunk, n-from)))
		}
	}
	return counts
}

// noneIn is the FullError of an owner that had no memory for its rows, and so took none in: other owners have taken
// theirs. Of a mixed batch all outcomes are NoRoom then, and there are no results.
func noneIn(st *device.Stream, r received, why error, mixed bool) error {
	outcome := byte(0)
	if mixed {
		outcome = byte(table.NoRoom)
		if r.out.Len() > 0 {
			if err := r.out.Fill(st, 0); err != nil {
				return err
			}
		}
	}
	if r.flags.Len() > 0 {
		if err := r.flags.Fill(st, outcome); err != nil {
			return err
		}
	}
	positions := make([]int, r.n)
	for i := range positions {
		positions[i] = i
	}
	return frame.Full(positions, 0, 0, why)
}
