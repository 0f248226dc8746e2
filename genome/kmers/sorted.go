package kmers

import (
	"errors"
	"runtime"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
)

// rawAtOnce is how many bytes of k-mers wait: of more, a part would not fit a core's cache when it is sorted. Where
// what was counted is more, as much waits, so that no k-mer is merged often.
const rawAtOnce = 1 << 30

// group is how many parts are counted at a time.
const group = 128

// sorted counts on the CPU device: k-mers are kept in the order of their parts until the memory is full, then each part
// is sorted.
type sorted struct {
	texts
	count, scatter device.Kernel[textParams]
	sort           device.Kernel[sortParams]
	most           int64 // bytes
	runs           []keptRun
	raw            int64 // k-mers in runs
	kept           [parts]counted
	distinct       int64 // k-mers in kept
	// Where a group is counted: new memory for each would cost a fault a page.
	mixes  device.Slice[uint64]
	counts device.Slice[uint32]
}

type keptRun struct {
	mixes  device.Slice[uint64]
	starts device.Slice[uint64] // of each part, and the end
	at     []uint64             // the same
}

// The bytes of a k-mer in a run, of one that is counted, and of one that is kept: Go's heap takes up to twice what is
// in it.
func rawBytes(words int) int64     { return 8 * int64(words) }
func countedBytes(words int) int64 { return rawBytes(words) + 4 }
func keptBytes(words int) int64    { return 2 * countedBytes(words) }

func newSorted(m *device.Module, t texts, memory int64) (counter, error) {
	s := &sorted{texts: t, most: memory}
	err := errors.Join(device.Bind(m, "segment_counts", &s.count), device.Bind(m, "segment_scatter", &s.scatter),
		device.Bind(m, "sort_parts", &s.sort))
	return s, errors.Join(err, device.Ahead(s.count, s.scatter, s.sort))
}

func (s *sorted) add(text []byte) error { return s.fill(text, s.flush) }

// flush makes a run of the text.
func (s *sorted) flush() error {
	if s.n == 0 {
		return nil
	}
	segments := 4 * s.d.Info().Multiprocessors
	s.p.Segment = uint64((s.n + segments - 1) / segments)
	s.p.N = uint64(s.n)
	s.n = 0
	cursors, err := device.Make[uint64](s.d, segments*parts)
	if err != nil {
		return err
	}
	defer cursors.Free()
	s.p.Cursors = cursors.Addr()
	grid, st := device.Grid{Blocks: int64(segments), Threads: 32}, s.d.Stream()
	if err := s.count.Launch(st, grid, &s.p); err != nil {
		return err
	}
	at, err := cursors.Host(st)
	if err != nil {
		return err
	}
	r := keptRun{at: make([]uint64, parts+1)}
	all := uint64(0)
	for part := range parts {
		r.at[part] = all
		for i := part; i < len(at); i += parts {
			at[i], all = all, all+at[i]
		}
	}
	r.at[parts] = all
	if all == 0 {
		return nil
	}
	if err := s.room(int64(all)); err != nil {
		return err
	}
	if r.mixes, err = device.Make[uint64](s.d, int(all)*s.words); err != nil {
		return err
	}
	if r.starts, err = device.Make[uint64](s.d, parts+1); err != nil {
		return errors.Join(err, r.mixes.Free())
	}
	s.runs = append(s.runs, r)
	s.raw += int64(all)
	s.p.Mixes = r.mixes.Addr()
	return errors.Join(r.starts.Write(st, r.at), cursors.Write(st, at), s.scatter.Launch(st, grid, &s.p))
}

// room counts what there is where so many more k-mers would be too many to wait. Sorting takes memory for a group of
// parts beside.
func (s *sorted) room(more int64) error {
	raw, kept := rawBytes(s.words), keptBytes(s.words)
	waits := (s.raw + more) * raw
	if waits+s.distinct*kept <= s.most/4*3 && waits <= max(rawAtOnce, s.distinct*kept) {
		return nil
	}
	if s.raw == 0 {
		return errNarrow
	}
	s.distinct = 0
	err := s.sortRuns(func(part int, x counted) error {
		s.kept[part] = x
		// The runs are there until all parts are counted. And with little room for what is to come, most time would go
		// into counting what was counted before.
		if s.distinct += int64(len(x.counts)); s.distinct*kept > s.most/2 {
			return errNarrow
		}
		return nil
	})
	if err != nil {
		return err
	}
	if more*raw > s.most/4 {
		return errNarrow
	}
	return nil
}

func (s *sorted) settle() error { return s.flush() }

func (s *sorted) finish(emit func(part int, x counted) error) error {
	if err := s.settle(); err != nil {
		return err
	}
	return s.sortRuns(func(part int, x counted) error {
		s.kept[part] = counted{}
		return emit(part, x)
	})
}

// sortRuns counts all parts, together with what was counted before, and frees the runs.
func (s *sorted) sortRuns(each func(part int, x counted) error) error {
	runs := make([]run, len(s.runs))
	for i, r := range s.runs {
		runs[i] = run{r.mixes.Addr(), r.starts.Addr()}
	}
	list, err := device.From(s.d, runs)
	if err != nil {
		return err
	}
	defer list.Free()
	// While a group is given to each, the next is sorted.
	var before crash.Group
	for first := int(s.p.First); first < int(s.p.End); first += group {
		end := min(first+group, int(s.p.End))
		sums, err := s.sortGroup(list, first, end)
		if err := errors.Join(err, before.Wait()); err != nil {
			return err
		}
		before = crash.Group{}
		before.Go(func() error {
			for i, x := range sums {
				if err := each(first+i, x); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return errors.Join(before.Wait(), s.forget())
}

// sortGroup counts the parts first … end-1.
func (s *sorted) sortGroup(list device.Slice[run], first, end int) (sums []counted, err error) {
	offsets, all := make([]uint64, end-first), uint64(0)
	for i := range offsets {
		offsets[i] = all
		for _, r := range s.runs {
			all += r.at[first+i+1] - r.at[first+i]
		}
	}
	var memory []interface{ Free() error }
	defer func() {
		for _, m := range memory {
			err = errors.Join(err, m.Free())
		}
	}()
	at, err := device.From(s.d, offsets)
	if err != nil {
		return nil, err
	}
	memory = append(memory, at)
	numbers, err := device.Make[uint64](s.d, len(offsets))
	if err != nil {
		return nil, err
	}
	memory = append(memory, numbers)
	if err := s.reserve(int(all)); err != nil {
		return nil, err
	}
	p := sortParams{Runs: list.Addr(), N: uint64(len(s.runs)), First: uint64(first), Offsets: at.Addr(),
		Mixes: s.mixes.Addr(), Counts: s.counts.Addr(), Numbers: numbers.Addr()}
	st := s.d.Stream()
	if err := s.sort.Launch(st, device.Grid{Blocks: int64(len(offsets)), Threads: 32}, &p); err != nil {
		return nil, err
	}
	n, err := numbers.Host(st)
	if err != nil {
		return nil, err
	}
	sums = make([]counted, len(offsets))
	var work crash.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i := range sums {
		work.Go(func() error {
			from, to := int(offsets[i]), int(offsets[i]+n[i])
			x := newCounted(s.words, to-from)
			if err := errors.Join(s.mixes.Slice(from*s.words, to*s.words).Read(st, x.mixes),
				s.counts.Slice(from, to).Read(st, x.counts)); err != nil {
				return err
			}
			sums[i] = sum(s.kept[first+i], x)
			return nil
		})
	}
	return sums, work.Wait()
}

// reserve has memory for a group of so many k-mers.
func (s *sorted) reserve(n int) (err error) {
	if n <= s.counts.Len() {
		return nil
	}
	if err := s.unreserve(); err != nil {
		return err
	}
	n += n / 8 // groups differ a little
	if s.mixes, err = device.Make[uint64](s.d, n*s.words); err == nil {
		s.counts, err = device.Make[uint32](s.d, n)
	}
	return err
}

func (s *sorted) unreserve() error {
	err := errors.Join(s.mixes.Free(), s.counts.Free())
	s.mixes, s.counts = device.Slice[uint64]{}, device.Slice[uint32]{}
	return err
}

// forget frees the runs.
func (s *sorted) forget() (err error) {
	for _, r := range s.runs {
		err = errors.Join(err, r.mixes.Free(), r.starts.Free())
	}
	s.runs, s.raw = nil, 0
	return err
}

func (s *sorted) close() error { return errors.Join(s.forget(), s.unreserve(), s.memory.Free()) }
