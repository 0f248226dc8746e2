package classify

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
)

// listed is features in order, with the locations of each in order: those of feature i end at ends[i], and begin where
// those before end.
type listed struct {
	features  []uint32
	ends      []uint64
	locations []uint64
}

// begin is where the locations of feature i begin, which may be the one behind the last.
func (l *listed) begin(i int) uint64 {
	if i == 0 {
		return 0
	}
	return l.ends[i-1]
}

// of is the locations of feature i.
func (l *listed) of(i int) []uint64 { return l.locations[l.begin(i):l.ends[i]] }

// listedAtOnce is how many features are brought from the device at once.
const listedAtOnce = 1 << 22

// list brings to the host what a table has.
func (s *share) list(st *device.Stream, o Options) (*listed, error) {
	features, err := s.table.Keys()
	if err != nil {
		return nil, err
	}
	l := &listed{features: sorted(features, func(f uint32) uint32 { return f })}
	n, err := s.table.Len()
	if err != nil {
		return nil, err
	}
	l.ends, l.locations = make([]uint64, 0, len(features)), make([]uint64, 0, n)
	for part := range slices.Chunk(l.features, listedAtOnce) {
		if err := s.listSome(st, l, part); err != nil {
			return nil, err
		}
	}
	return l, nil
}

// listSome appends the locations of some features.
func (s *share) listSome(st *device.Stream, l *listed, features []uint32) error {
	keys, err := frame.From(s.d, features)
	if err != nil {
		return err
	}
	defer keys.Free()
	at, values, err := s.table.FindAllOn(st, keys)
	if err != nil {
		return err
	}
	defer at.Free()
	defer values.Free()
	p := sortParams{at.Addr(), values.Addr(), uint64(len(features))}
	if err := s.k.sort.Launch(st, device.GridFor(int64(len(features)), threads), &p); err != nil {
		return err
	}
	before, first := len(l.locations), len(l.ends)
	l.ends, l.locations = l.ends[:first+len(features)], slices.Grow(l.locations, values.Len())[:before+values.Len()]
	if err := errors.Join(frame.Download(st, l.ends[first:], at.Slice(1, len(features)+1)),
		frame.Download(st, l.locations[before:], values)); err != nil {
		return err
	}
	for i := range l.ends[first:] {
		l.ends[first+i] += uint64(before)
	}
	return nil
}

// Database makes a database of the references, in host memory. If a feature has more locations than
// Options.MaxLocations, the first in the order of targets and windows are kept. Cost: a sort of the features; on a GPU,
// a walk over its table.
//
// Errors: *genome.InputError if nothing tells a taxon of any reference that Add has read, or if none has a feature,
// because such a database would leave all reads unclassified; *device.OutOfMemoryError.
func (b *Builder) Database() (*Database, error) {
	if err := b.knowsNothing(); err != nil {
		return nil, &genome.InputError{Input: "references", Err: err}
	}
	db := &Database{Options: b.o, taxonomy: b.taxonomy, targets: slices.Clone(b.targets), letters: b.letters}
	all := slices.Clone(b.full)
	for _, s := range b.shares {
		if s.table == nil {
			continue
		}
		l, err := s.list(s.work[0].st, b.o)
		if err != nil {
			return nil, err
		}
		all = append(all, l)
	}
	if len(b.pairs) > 0 {
		b.pairs = sorted(b.pairs, func(p pair) uint32 { return p.feature })
		all = append(all, listPairs(b.pairs))
	}
	db.merge(all)
	if b.read > 0 && len(db.features) == 0 {
		return nil, &genome.InputError{Input: "references", Err: fmt.Errorf("%d sequences with %d letters have no %d "+
			"letters of A, C, G and T in a row, "+
			"and so they would tell nothing of reads: want genomes", b.read, b.letters, b.o.K)}
	}
	return db, nil
}

// listPairs lists pairs, which are in the order of their features.
func listPairs(pairs []pair) *listed {
	l := &listed{locations: make([]uint64, len(pairs))}
	for i, p := range pairs {
		l.locations[i] = p.location
		if i > 0 && pairs[i-1].feature == p.feature {
			l.ends[len(l.ends)-1]++
			continue
		}
		l.features, l.ends = append(l.features, p.feature), append(l.ends, uint64(i+1))
	}
	for i := range l.features {
		if x := l.of(i); len(x) > 1 {
			slices.Sort(x)
		}
	}
	return l
}

// merge puts lists together. Ranges of features go beside one another, twice: to know where each begins, then to write
// it there, for memory that is new takes longer than to go over the lists.
func (db *Database) merge(all []*listed) {
	n := 4 * runtime.GOMAXPROCS(0)
	begins := make([]struct{ features, locations int }, n+1)
	bound := bounds(all, n)
	most := db.Options.MaxLocations
	ranges(n, 1, func(i, _ int) error {
		features, locations := 0, 0 // not in begins, whose lines of the cache other cores write, too
		for m := mergeOf(all, bound[i], bound[i+1]); m.next(); {
			features++
			if n := min(m.count, most); n > 1 {
				locations += n
			}
		}
		begins[i+1].features, begins[i+1].locations = features, locations
		return nil
	})
	for i := range n {
		begins[i+1].features += begins[i].features
		begins[i+1].locations += begins[i].locations
	}
	features, locations := begins[n].features, begins[n].locations
	db.features, db.entries, db.locations = make([]uint32, features), make([]uint64, features), make([]uint64,
		locations)
	ranges(n, 1, func(i, _ int) error {
		at, place := begins[i].features, begins[i].locations
		for m := mergeOf(all, bound[i], bound[i+1]); m.next(); at++ {
			l := m.locations()
			l = l[:min(len(l), most)]
			db.features[at], db.entries[at] = m.feature, entryOf(l, place)
			if len(l) > 1 {
				place += copy(db.locations[place:], l)
			}
		}
		return nil
	})
}

// bounds cut all features into n ranges with about as many of the longest list: most are small, for a sketch is the
// smallest hashes of a window.
func bounds(all []*listed, n int) []uint64 {
	var longest []uint32
	for _, l := range all {
		if len(l.features) > len(longest) {
			longest = l.features
		}
	}
	b := make([]uint64, n+1)
	for i := 1; i < n && len(longest) > 0; i++ {
		b[i] = uint64(longest[len(longest)*i/n])
	}
	b[n] = 1 << 32
	return b
}

// merge goes over a range of the features of some lists.
type merge struct {
	all      []*listed
	at, stop []int
	feature  uint32
	count    int // of its locations
	memory   []uint64
}

// mergeOf is for the features first … end-1.
func mergeOf(all []*listed, first, end uint64) *merge {
	m := &merge{all: all, at: make([]int, len(all)), stop: make([]int, len(all))}
	for i, l := range all {
		m.at[i], m.stop[i] = search(l.features, first), search(l.features, end)
	}
	return m
}

// next goes to the next feature, if there is one.
func (m *merge) next() bool {
	if len(m.all) == 1 {
		l, i := m.all[0], m.at[0]
		if i == m.stop[0] {
			return false
		}
		m.feature, m.count = l.features[i], len(l.of(i))
		m.at[0]++
		return true
	}
	least := uint64(math.MaxUint64)
	m.count = 0
	for i, l := range m.all {
		if m.at[i] < m.stop[i] {
			least = min(least, uint64(l.features[m.at[i]]))
		}
	}
	if least == math.MaxUint64 {
		return false
	}
	m.feature = uint32(least)
	for i, l := range m.all {
		if m.at[i] < m.stop[i] && l.features[m.at[i]] == m.feature {
			m.count += len(l.of(m.at[i]))
			m.at[i]++
		}
	}
	return true
}

// locations are those of the feature, in order, until the next.
func (m *merge) locations() []uint64 {
	m.memory = m.memory[:0]
	for i, l := range m.all {
		at := m.at[i] - 1
		if at < 0 || l.features[at] != m.feature {
			continue
		}
		if x := l.of(at); len(x) == m.count {
			return x // no other list has any
		} else {
			m.memory = append(m.memory, x...)
		}
	}
	slices.Sort(m.memory)
	return m.memory
}

// search is how many features are below a number.
func search(features []uint32, below uint64) int {
	if below > math.MaxUint32 {
		return len(features)
	}
	i, _ := slices.BinarySearch(features, uint32(below))
	return i
}

// append adds the entry of a feature with these locations.
func (db *Database) append(locations []uint64) {
	db.entries = append(db.entries, entryOf(locations, len(db.locations)))
	if len(locations) > 1 {
		db.locations = append(db.locations, locations...)
	}
}

// entryOf is the entry of a feature with these locations: several lie at a place of the database's.
func entryOf(locations []uint64, place int) uint64 {
	if len(locations) == 1 {
		return 1<<oneBit | locations[0]
	}
	return 1<<manyBit | uint64(len(locations))<<countShift | uint64(place)
}

// sorted sorts by features: it deals out by the highest 11 bits, then sorts what has the same, both on all cores. Most
// features are small, but of 2,048 parts hundreds are about as large.
func sorted[T any](a []T, feature func(T) uint32) []T {
	const digits, shift = 1 << 11, 32 - 11
	threads := runtime.GOMAXPROCS(0)
	size := max(1<<16, (len(a)+threads-1)/threads)
	parts := slices.Collect(slices.Chunk(a, size))
	begins := make([][digits]int, len(parts))
	var work crash.Group
	work.SetLimit(threads)
	for i, part := range parts {
		work.Go(func() error {
			for _, x := range part {
				begins[i][feature(x)>>shift]++
			}
			return nil
		})
	}
	work.Wait()
	ends, all := [digits]int{}, 0
	for digit := range digits {
		for i := range begins {
			begins[i][digit], all = all, all+begins[i][digit]
		}
		ends[digit] = all
	}
	to := make([]T, len(a))
	for i, part := range parts {
		work.Go(func() error {
			for _, x := range part {
				digit := feature(x) >> shift
				to[begins[i][digit]] = x
				begins[i][digit]++
			}
			return nil
		})
	}
	work.Wait()
	from := 0
	for _, end := range ends {
		sorted, room := to[from:end], a[from:end]
		from = end
		work.Go(func() error { radixSort(sorted, room, feature); return nil })
	}
	work.Wait()
	return to
}

// radixSort sorts by the lower 22 bits of features, in parts of 11 bits, the low ones first. room is as long.
func radixSort[T any](a, room []T, feature func(T) uint32) {
	const bits = 11
	if len(a) < 1<<bits/8 { // sooner sorted than counted
		slices.SortFunc(a, func(x, y T) int { return cmp.Compare(feature(x), feature(y)) })
		return
	}
	for shift := 0; shift < 2*bits; shift += bits {
		var begins [1<<bits + 1]int
		for _, x := range a {
			begins[feature(x)>>shift&(1<<bits-1)+1]++
		}
		for i := range 1 << bits {
			begins[i+1] += begins[i]
		}
		for _, x := range a {
			digit := feature(x) >> shift & (1<<bits - 1)
			room[begins[digit]] = x
			begins[digit]++
		}
		a, room = room, a
	}
}
