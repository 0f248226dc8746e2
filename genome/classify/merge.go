package classify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"os"
	"runtime"
	"slices"
	"sort"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/internal/frame"
)

// listedAtOnce is how many features are brought from the device at once.
const listedAtOnce = 1 << 20

// list gives what a table has to each: features in order, some at a time, and where the locations of each begin.
func (s *share) list(st *device.Stream, each func(features []uint32, begins, locations []uint64) error) error {
	features, err := s.table.Keys()
	if err != nil {
		return err
	}
	features = sorted(features, nil, func(f uint32) uint32 { return f })
	for part := range slices.Chunk(features, listedAtOnce) {
		begins, locations, err := s.locate(st, part)
		if err != nil {
			return err
		}
		if err := each(part, begins, locations); err != nil {
			return err
		}
	}
	return nil
}

// locate brings the locations of features to the host, and where those of each begin, and the last end.
func (s *share) locate(st *device.Stream, features []uint32) (begins, locations []uint64, err error) {
	keys, err := frame.From(s.d, features)
	if err != nil {
		return nil, nil, err
	}
	defer keys.Free()
	at, values, err := s.table.FindAllOn(st, keys)
	if err != nil {
		return nil, nil, err
	}
	defer at.Free()
	defer values.Free()
	p := sortParams{at.Addr(), values.Addr(), uint64(len(features))}
	if err := s.k.sort.Launch(st, device.GridFor(int64(len(features)), threads), &p); err != nil {
		return nil, nil, err
	}
	begins, locations = make([]uint64, len(features)+1), make([]uint64, values.Len())
	return begins, locations, errors.Join(frame.Download(st, begins, at), frame.Download(st, locations, values))
}

// stream gives what a table has to take, while the next is brought to the host.
func (s *share) stream(ctx context.Context, most int, take func(*chunk) error) error {
	work, ctx := crash.WithContext(ctx)
	full := make(chan *chunk, 1)
	work.Go(func() error {
		defer close(full)
		return s.list(s.work[0].st, func(features []uint32, begins, locations []uint64) error {
			x := &chunk{features: features}
			for i := range features {
				x.add(locations[begins[i]:begins[i+1]], most)
			}
			select {
			case full <- x:
				return nil
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	})
	work.Go(func() error {
		for x := range full {
			if err := take(x); err != nil {
				return err
			}
		}
		return nil
	})
	return work.Wait()
}

// add adds the entry of a feature, and the first of its locations.
func (x *chunk) add(locations []uint64, most int) {
	l := locations[:min(len(locations), most)]
	x.entries = append(x.entries, entryOf(l, len(x.locations)))
	if len(l) > 1 {
		x.locations = append(x.locations, l...)
	}
}

// Database makes a database of the references, in host memory. If a feature has more locations than
// Options.MaxLocations, the first in the order of targets and windows are kept. Cost: a sort of the features; on a GPU,
// a walk over its table. Save needs less memory.
//
// Errors: *genome.InputError if nothing tells a taxon of any reference that Add has read, or if none has a feature,
// because such a database would leave all reads unclassified; *device.OutOfMemoryError; those of temporary files.
func (b *Builder) Database() (*Database, error) {
	db := b.empty()
	err := b.build(context.Background(), func(x *chunk) error {
		place := len(db.locations)
		db.features, db.locations = append(db.features, x.features...), append(db.locations, x.locations...)
		for _, e := range x.entries {
			db.entries = append(db.entries, moved(e, place))
		}
		return nil
	})
	return db, err
}

// Save makes a database of the references, and writes it to a file, which appears under its name when it is whole: see
// Database. It tells what the database has. Cost: beside what the Builder has, memory for some stretches of features.
//
// Errors: those of Database and of Database.Save.
func (b *Builder) Save(ctx context.Context, name string) (Stats, error) {
	if err := files.CheckRegular(name); err != nil {
		return Stats{}, err
	}
	db, s := b.empty(), Stats{}
	err := files.WriteFile(name, func(f *os.File) error {
		w := newWriter(f)
		if err := b.build(ctx, w.take); err != nil {
			return err
		}
		if err := w.finish(db); err != nil {
			return err
		}
		s = db.stats(w.written.features, w.written.content)
		return nil
	})
	return s, err
}

// empty is the database without its features.
func (b *Builder) empty() *Database {
	return &Database{Options: b.o, taxonomy: b.taxonomy, targets: slices.Clone(b.targets), letters: b.letters}
}

// build gives all features to take, in order, some at a time.
func (b *Builder) build(ctx context.Context, take func(*chunk) error) error {
	if err := b.knowsNothing(); err != nil {
		return &genome.InputError{Input: "references", Err: err}
	}
	if err := b.checkMemory(); err != nil {
		return err
	}
	features := 0
	err := b.merge(ctx, func(x *chunk) error {
		features += len(x.features)
		return take(x)
	})
	if err == nil && b.read > 0 && features == 0 {
		return &genome.InputError{Input: "references", Err: fmt.Errorf("%d sequences with %d letters have no %d "+
			"letters of A, C, G and T in a row, "+
			"and so they would tell nothing of reads: want genomes", b.read, b.letters, b.o.K)}
	}
	return err
}

// merge gives to take what tables, runs, pairs and a database that is added to have.
func (b *Builder) merge(ctx context.Context, take func(*chunk) error) error {
	b.sort()
	b.room, b.packer = nil, nil
	var tables []*packed // those who add more want the tables as they are
	defer func() { b.drop(tables) }()
	alone := len(b.shares) == 1 && len(b.runs) == 0 && len(b.pairs) == 0 && b.base == nil
	for _, s := range b.shares {
		if s.table == nil {
			continue
		}
		if alone {
			return s.stream(ctx, b.o.MaxLocations, take)
		}
		p := newPacker(b.o.MaxLocations, func(r *packed) error {
			tables = append(tables, r)
			return b.keep(r)
		})
		if err := errors.Join(s.list(s.work[0].st, p.putAll), p.finish()); err != nil {
			return err
		}
	}
	m := &merge{runs: slices.Concat(b.runs, tables), pairs: b.pairs, base: b.base, most: b.o.MaxLocations}
	return m.run(ctx, b.mergeBytes(), take)
}

// merge puts together what runs and pairs have, and a database that is added to.
type merge struct {
	runs  []*packed
	pairs []pair    // in the order of features
	base  *Database // or nil
	most  int       // locations of a feature
}

// of is the pairs of some parts.
func (m *merge) of(s stretch) []pair {
	at := func(part int) int {
		return sort.Search(len(m.pairs), func(i int) bool { return int(m.pairs[i].feature>>partShift) >= part })
	}
	return m.pairs[at(s.from):at(s.to)]
}

// stretch is some parts in a row.
type stretch struct{ from, to int }

// stretchBytes is about how many packed bytes a stretch has. They are a hundred thousand pairs or so.
const stretchBytes = 1 << 20

// stretches cuts all parts. Those without anything are left out.
func (m *merge) stretches() (all []stretch) {
	var bytes [parts]int64
	for _, r := range m.runs {
		for i := range len(r.begins) - 1 {
			bytes[r.first+i] += r.begins[i+1] - r.begins[i]
		}
	}
	for _, p := range m.pairs {
		bytes[p.feature>>partShift] += 8
	}
	if m.base != nil {
		for c := range m.base.chunks() {
			bytes[m.base.first(c)>>partShift] += 12 * chunkItems // some of it belongs to the parts behind
		}
	}
	now, sum := stretch{}, int64(0)
	for part, n := range bytes {
		if sum += n; sum >= stretchBytes || part == parts-1 && (sum > 0 || m.base != nil) {
			now.to = part + 1
			all = append(all, now)
			now.from, sum = now.to, 0
		}
	}
	return all
}

// run makes stretches beside one another, in about so many bytes of memory, and gives them to take in their order.
func (m *merge) run(ctx context.Context, memory int64, take func(*chunk) error) error {
	type job struct {
		stretch
		done chan *chunk
	}
	// a pair takes 16 bytes, twice, and its share of a chunk, and 8 bytes or so packed
	workers := max(1, min(runtime.GOMAXPROCS(0), int(memory/(stretchBytes*12))))
	jobs, order := make(chan *job), make(chan *job, workers)
	pool := sync.Pool{New: func() any { return new(chunk) }}
	work, ctx := crash.WithContext(ctx)
	for range workers {
		work.Go(func() error {
			s := &stretcher{merge: m}
			for j := range jobs {
				x := pool.Get().(*chunk)
				if err := s.make(j.stretch, x); err != nil {
					return err
				}
				j.done <- x
			}
			return nil
		})
	}
	work.Go(func() error {
		defer close(jobs)
		defer close(order)
		for _, s := range m.stretches() {
			j := &job{s, make(chan *chunk, 1)}
			for _, to := range []chan *job{order, jobs} {
				select {
				case to <- j:
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			}
		}
		return nil
	})
	work.Go(func() error {
		for j := range order {
			select {
			case x := <-j.done:
				if err := take(x); err != nil {
					return err
				}
				pool.Put(x)
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	})
	return work.Wait()
}

// stretcher makes one stretch after the other.
type stretcher struct {
	*merge
	all, room []pair
	locations []uint64 // of a feature
	packed    []byte
	x         chunk // of the base
}

// make makes the features of a stretch, with their entries and locations. Places count from the stretch's first.
func (s *stretcher) make(of stretch, x *chunk) error {
	all := s.of(of)
	if s.base != nil || len(s.runs) > 0 {
		var err error
		if all, err = s.gather(of, all); err != nil {
			return err
		}
	}
	x.features, x.entries, x.locations = x.features[:0], x.entries[:0], x.locations[:0]
	for len(all) > 0 {
		n := 1
		for n < len(all) && all[n].feature == all[0].feature {
			n++
		}
		s.locations = s.locations[:0]
		for _, p := range all[:n] {
			s.locations = append(s.locations, p.location)
		}
		if !slices.IsSorted(s.locations) { // as they are of several placers
			slices.Sort(s.locations)
		}
		x.features = append(x.features, all[0].feature)
		x.add(s.locations, s.most)
		all = all[n:]
	}
	return nil
}

// gather gives all pairs of a stretch, in the order of their features, of which some are there already.
func (s *stretcher) gather(of stretch, some []pair) (_ []pair, err error) {
	s.all = s.all[:0]
	if s.base != nil {
		if err = s.takeBase(of); err != nil {
			return nil, err
		}
	}
	for _, r := range s.runs {
		if s.packed, s.all, err = r.pairs(of, s.packed, s.all); err != nil {
			return nil, err
		}
	}
	s.all = append(s.all, some...)
	s.room = slices.Grow(s.room[:0], len(s.all))[:len(s.all)]
	first := uint32(of.from << partShift)
	width := bits.Len(uint((of.to-of.from)<<partShift - 1))
	return radixSort(s.all, s.room, width, func(p pair) uint32 { return p.feature - first }), nil
}

// takeBase appends the pairs of the base.
func (s *stretcher) takeBase(of stretch) error {
	first, end := uint64(of.from)<<partShift, uint64(of.to)<<partShift
	n := s.base.chunks()
	c := max(0, sort.Search(n, func(c int) bool { return uint64(s.base.first(c)) > first })-1)
	for ; c < n && uint64(s.base.first(c)) < end; c++ {
		if err := s.base.chunk(c, &s.x); err != nil {
			return err
		}
		err := s.x.each(func(feature uint32, locations []uint64) error {
			if f := uint64(feature); f >= first && f < end {
				for _, at := range locations {
					s.all = append(s.all, pair{feature, at})
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// entryOf is the entry of a feature with these locations: several lie at a place of the database's.
func entryOf(locations []uint64, place int) uint64 {
	if len(locations) == 1 {
		return 1<<oneBit | locations[0]
	}
	return 1<<manyBit | uint64(len(locations))<<countShift | uint64(place)
}

// append adds the entry of a feature with these locations.
func (db *Database) append(locations []uint64) {
	db.entries = append(db.entries, entryOf(locations, len(db.locations)))
	if len(locations) > 1 {
		db.locations = append(db.locations, locations...)
	}
}

// moved is an entry where all locations lie so many places behind.
func moved(entry uint64, by int) uint64 {
	if entry>>manyBit == 0 {
		return entry
	}
	return entry + uint64(by)
}

// sorted sorts by features: it deals out by the highest 11 bits, then sorts what has the same, both on all cores. Most
// features are small, but of 2,048 parts hundreds are about as large. The result lies in room, or in more of it; a is
// room for what comes next.
func sorted[T any](a, room []T, feature func(T) uint32) []T {
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
	to := slices.Grow(room[:0], len(a))[:len(a)]
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
		work.Go(func() error { radixSort(sorted, room, shift+1, feature); return nil }) // two rounds: it is there again
	}
	work.Wait()
	return to
}

// radixSort sorts by the lowest bits of features, so many, in rounds of 11 bits, the low ones first. room is as long.
// The result is in room after an odd number of rounds; a few features need none.
func radixSort[T any](a, room []T, width int, feature func(T) uint32) []T {
	const digit = 11
	if len(a) < 1<<digit/8 { // sooner sorted than counted
		slices.SortFunc(a, func(x, y T) int { return cmp.Compare(feature(x), feature(y)) })
		return a
	}
	for shift := 0; shift < width; shift += digit {
		var begins [1<<digit + 1]int
		for _, x := range a {
			begins[feature(x)>>shift&(1<<digit-1)+1]++
		}
		for i := range 1 << digit {
			begins[i+1] += begins[i]
		}
		for _, x := range a {
			d := feature(x) >> shift & (1<<digit - 1)
			room[begins[d]] = x
			begins[d]++
		}
		a, room = room, a
	}
	return a
}
