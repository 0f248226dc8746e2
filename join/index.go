package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"slices"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// makers opens the tables that a join needs: keys of 4 or 8 bytes, row numbers of 4 or 8.
type makers struct {
	k4r4 func(d *device.Device, family table.Family, o table.Options) (table.Map[uint32, uint32], error)
	k8r4 func(d *device.Device, family table.Family, o table.Options) (table.Map[uint64, uint32], error)
	k8r8 func(d *device.Device, family table.Family, o table.Options) (table.Map[uint64, uint64], error)
	f4   func(d *device.Device, o table.FilterOptions) (table.Filter[uint32], error)
	f8   func(d *device.Device, o table.FilterOptions) (table.Filter[uint64], error)
}

// opener opens the tables of one join.
type opener struct {
	*makers
	devices []*device.Device // none for makers that need none
	missing error            // why there is none, where a table would need one
	family  table.Family
	filter  Filter
	cores   bool // on a CPU: keys that lie close together get a row number each, and others a table of the join's own
	pinned  int  // keys that a buffer of pinned memory holds; 0 for no such buffers
}

// chunkRows is how many keys go to a table in one call.
const chunkRows = 1 << 20

// level is one table from words to row numbers: for each distinct word, the number of one of its rows, its
// representative.
type level[R uint32 | uint64] interface {
	insertNew(words []uint64, rows []R) (int, error)
	find(words []uint64, rows []R, found []bool) error
	filtered() int64 // words that a filter kept from being looked up
	close() error
}

// filler is a level that is no table of a family, and gets all its words at once: it does what the function fill does.
type filler[R uint32 | uint64] interface {
	fill(words []uint64, ok []bool, always bool) (unique bool, reps []R)
}

// openLevel opens a table for words of so many bytes, of which those count that are ok.
func openLevel[R uint32 | uint64](by opener, bytes int, words []uint64, ok []bool) (level[R], error) {
	if by.cores {
		if l := openNear[R](words, ok, bytes); l != nil {
			return l, nil
		}
		if l, is := any(newOwn()).(level[R]); is {
			return l, nil
		}
	}
	if by.missing != nil {
		return nil, by.missing
	}
	var l any
	var err error
	var row R
	if _, wide := any(row).(uint64); wide {
		l, err = openMaps(by, len(words), by.k8r8, by.f8)
	} else if bytes <= 4 {
		l, err = openMaps(by, len(words), by.k4r4, by.f4)
	} else {
		l, err = openMaps(by, len(words), by.k8r4, by.f8)
	}
	if err != nil {
		return nil, full(err)
	}
	return l.(level[R]), nil
}

// full says what to do about a build side that the device cannot hold.
func full(err error) error {
	var f *table.FullError
	var oom *device.OutOfMemoryError
	if errors.As(err, &f) || errors.As(err, &oom) {
		return fmt.Errorf("the build side's keys do not fit into the device's memory: make the smaller input the "+
			"build side, take stadium, whose tables may lie in host memory, or the CPU device: %w", err)
	}
	return err
}

// index finds the build rows that match a key. Rows of equal keys are listed by representative, in build order:
// list r is rows[start[r]:start[r+1]]. Where all keys differ there are no lists, and a row is its own.
type index[R uint32 | uint64] struct {
	words  [2]level[R] // of keys over 8 bytes: each word's representative (the second only where it is over 4 bytes)
	last   level[R]
	bytes  [2]int
	unique bool
	start  []R
	rows   []R
	wide   []*vec      // the build's wide keys
	both   *own        // where set, the last level's, of two words of a key at once
	pair   [2][]uint64 // the build's, then

	scratch sync.Pool // of *scratch[R]
}

// scratch is what one look-up of a stretch of keys needs.
type scratch[R uint32 | uint64] struct {
	buf, other []R
	found, hit []bool
	comb       []uint64
}

// matcher is an index, whatever its row numbers.
type matcher interface {
	// find sets reps[i] to the representative of key i, or -1. Several goroutines may call it.
	find(keys *packed, reps []int64) error
	// distinct tells that no two build rows have the same key.
	distinct() bool
	// near tells that no key needed a table.
	near() bool
	// usesTables tells that a table of a family has keys.
	usesTables() bool
	// matches tells how many build rows a representative stands for.
	matches(rep int64) int
	// match is the k-th of them, in build order.
	match(rep int64, k int) int64
	// filtered tells how many words a filter kept from being looked up.
	filtered() int64
	close() error
}

func newIndex(ctx context.Context, by opener, p *keyPlan, keys *packed, progress func(int)) (matcher, error) {
	keys.settle()
	if p.wide && keys.wide == nil { // no row came
		keys.wide = slices.Repeat([]*vec{{width: 8}}, len(p.keys))
	}
	x, err := anyIndex(ctx, by, p, keys, progress)
	for tries := 0; err == errSameHash && tries < 8; tries++ {
		if p.wide {
			p.seed = maphash.MakeSeed()
			p.hash(keys.wide, keys.words[0])
		}
		x, err = anyIndex(ctx, by, p, keys, progress)
	}
	return x, err
}

func anyIndex(ctx context.Context, by opener, p *keyPlan, keys *packed, progress func(int)) (matcher, error) {
	if len(keys.ok) < 1<<32-1 {
		return buildIndex[uint32](ctx, by, p, keys, progress)
	}
	if p.two() {
		return nil, fmt.Errorf("a build side of %d rows with keys over 8 bytes: at most 2³² - 2 rows are possible",
			len(keys.ok))
	}
	return buildIndex[uint64](ctx, by, p, keys, progress)
}

func buildIndex[R uint32 | uint64](ctx context.Context, by opener, p *keyPlan, keys *packed,
	progress func(int)) (_ matcher, err error) {
	n := len(keys.ok)
	x := &index[R]{bytes: p.bytes, unique: true, wide: keys.wide}
	defer func() {
		if err != nil {
			x.close()
		}
	}()
	words, bytes := keys.words[0], p.bytes[0]
	if l := newOwn(); p.two() && by.cores {
		if last, is := any(l).(level[R]); is {
			x.last, x.both, x.pair = last, l, keys.words
			words = make([]uint64, n)
			inPieces(n, func(_, from, to int) {
				for i := from; i < to; i++ {
					words[i] = l.both(keys.words[0][i], keys.words[1][i])
				}
			})
		}
	}
	if p.two() && x.both == nil {
		if x.words[0], err = openLevel[R](by, p.bytes[0], keys.words[0], keys.ok); err != nil {
			return nil, err
		}
		_, first, err := fill(ctx, x.words[0], keys.words[0], keys.ok, true, nil)
		if err != nil {
			return nil, err
		}
		words, bytes = make([]uint64, n), 8
		if p.bytes[1] <= 4 {
			for i, r := range first {
				words[i] = uint64(r)<<32 | keys.words[1][i]
			}
		} else {
			if x.words[1], err = openLevel[R](by, p.bytes[1], keys.words[1], keys.ok); err != nil {
				return nil, err
			}
			_, second, err := fill(ctx, x.words[1], keys.words[1], keys.ok, true, nil)
			if err != nil {
				return nil, err
			}
			for i, r := range first {
				words[i] = uint64(r)<<32 | uint64(second[i])
			}
		}
	}
	if x.last == nil {
		if x.last, err = openLevel[R](by, bytes, words, keys.ok); err != nil {
			return nil, err
		}
	}
	unique, reps, err := fill(ctx, x.last, words, keys.ok, false, progress)
	if err != nil || unique {
		return x, err
	}
	if p.wide || x.both != nil {
		same := slices.Clone(keys.ok)
		x.verify(keys, reps, same)
		if !slices.Equal(same, keys.ok) {
			return nil, errSameHash
		}
	}
	// A counting sort by representative; rows that cannot match stay out.
	x.unique = false
	x.start = make([]R, n+1)
	for i, r := range reps {
		if keys.ok[i] {
			x.start[r+1]++
		}
	}
	for i := range n {
		x.start[i+1] += x.start[i]
	}
	x.rows = make([]R, x.start[n])
	next := append([]R(nil), x.start[:n]...)
	for i, r := range reps {
		if keys.ok[i] {
			x.rows[next[r]] = R(i)
			next[r]++
		}
	}
	return x, nil
}

// fill puts the words of all rows that can match into a table, and finds each row's representative, if always is set
// or not all words differ.
func fill[R uint32 | uint64](ctx context.Context, l level[R], words []uint64, ok []bool, always bool,
	progress func(int)) (unique bool, reps []R, err error) {
	if n, is := l.(filler[R]); is {
		unique, reps = n.fill(words, ok, always)
		if progress != nil {
			progress(len(words))
		}
		return unique, reps, context.Cause(ctx)
	}
	keys, rows, found := make([]uint64, 0, chunkRows), make([]R, 0, chunkRows), make([]bool, chunkRows)
	// each calls f with chunks of the rows that can match.
	each := func(f func() error, progress func(int)) error {
		for i := 0; i < len(words); {
			keys, rows = keys[:0], rows[:0]
			for ; i < len(words) && len(keys) < chunkRows; i++ {
				if ok[i] {
					keys, rows = append(keys, words[i]), append(rows, R(i))
				}
			}
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if len(keys) > 0 {
				if err := f(); err != nil {
					return err
				}
			}
			if progress != nil {
				progress(i)
			}
		}
		return nil
	}
	added, all := 0, 0
	err = each(func() error {
		n, err := l.insertNew(keys, rows)
		added, all = added+n, all+len(keys)
		return full(err)
	}, progress)
	if err != nil {
		return false, nil, err
	}
	if added == all && !always {
		return true, nil, nil
	}
	reps = make([]R, len(words))
	got := make([]R, chunkRows)
	err = each(func() error {
		if err := l.find(keys, got[:len(keys)], found[:len(keys)]); err != nil {
			return err
		}
		for j, r := range rows {
			if !found[j] {
				return fmt.Errorf("the table lost the key of build row %d: this is a bug", r)
			}
			reps[r] = got[j]
		}
		return nil
	}, nil)
	return added == all, reps, err
}

func (x *index[R]) find(keys *packed, reps []int64) error {
	n := len(keys.ok)
	s, _ := x.scratch.Get().(*scratch[R])
	if s == nil || cap(s.buf) < n {
		s = &scratch[R]{buf: make([]R, n), found: make([]bool, n), hit: make([]bool, n)}
		if x.words[0] != nil || x.both != nil {
			s.other, s.comb = make([]R, n), make([]uint64, n)
		}
	}
	defer x.scratch.Put(s)
	buf, found, hit := s.buf[:n], s.found[:n], s.hit[:n]
	copy(hit, keys.ok)
	words := keys.words[0]
	if x.both != nil {
		words = s.comb[:n]
		for i := range words {
			words[i] = x.both.both(keys.words[0][i], keys.words[1][i])
		}
	}
	if x.words[0] != nil {
		if err := x.words[0].find(keys.words[0], buf, found); err != nil {
			return err
		}
		and(hit, found)
		words = s.comb[:n]
		for i, r := range buf {
			words[i] = uint64(r) << 32
		}
		if x.words[1] == nil {
			for i, w := range keys.words[1] {
				words[i] |= w
			}
		} else {
			other := s.other[:n]
			if err := x.words[1].find(keys.words[1], other, found); err != nil {
				return err
			}
			and(hit, found)
			for i, r := range other {
				words[i] |= uint64(r)
			}
		}
	}
	if err := x.last.find(words, buf, found); err != nil {
		return err
	}
	and(hit, found)
	x.verify(keys, buf, hit)
	for i, r := range buf {
		if reps[i] = -1; hit[i] {
			reps[i] = int64(r)
		}
	}
	return nil
}

// verify takes those rows out of hit whose keys are others than their representatives', where a word does not tell.
func (x *index[R]) verify(keys *packed, reps []R, hit []bool) {
	if x.both != nil {
		for i, r := range reps {
			hit[i] = hit[i] && x.pair[0][r] == keys.words[0][i] && x.pair[1][r] == keys.words[1][i]
		}
	}
	if keys.wide != nil && x.wide != nil {
		verify(x.wide, keys.wide, reps, hit)
	}
}

func and(a, b []bool) {
	for i := range a {
		a[i] = a[i] && b[i]
	}
}

func (x *index[R]) distinct() bool { return x.unique }

func (x *index[R]) near() bool {
	_, all := x.last.(*near[R])
	return all && x.words[0] == nil
}

func (x *index[R]) usesTables() bool {
	return slices.ContainsFunc(x.levels(), func(l level[R]) bool {
		_, filled := l.(filler[R])
		return !filled
	})
}

func (x *index[R]) matches(rep int64) int {
	if x.unique {
		return 1
	}
	return int(x.start[rep+1] - x.start[rep])
}

func (x *index[R]) match(rep int64, k int) int64 {
	if x.unique {
		return rep
	}
	return int64(x.rows[int(x.start[rep])+k])
}

func (x *index[R]) levels() []level[R] {
	return slices.DeleteFunc([]level[R]{x.words[0], x.words[1], x.last}, func(l level[R]) bool { return l == nil })
}

func (x *index[R]) filtered() (n int64) {
	for _, l := range x.levels() {
		n += l.filtered()
	}
	return n
}

func (x *index[R]) close() (err error) {
	for _, l := range x.levels() {
		err = cmp.Or(err, l.close())
	}
	return err
}
