package tabletest_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// The fakes are a counter and a filter in Go, on the CPU device, so that the suites of these kinds are known to pass what is
// right and to find what is wrong.

const fakes table.Family = "fake"

// fake is what both share: a device, a lock, and some memory, so that there is some to free.
type fake[K any] struct {
	d      *device.Device
	mu     sync.Mutex
	mem    device.Slice[uint64]
	closed bool
	writes int // how often it was changed
}

func (f *fake[K]) open(d *device.Device, words int) (err error) {
	if d == nil {
		return errors.New("fake: no device")
	}
	f.d = d
	f.mem, err = device.Make[uint64](d, words)
	return err
}

// run does op with the lock, once the arguments and the table are right. st, if any, is waited for.
func (f *fake[K]) run(st *device.Stream, wrong error, op func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return table.ErrClosed
	}
	if wrong != nil {
		return wrong
	}
	return errors.Join(st.SyncOf(f.d), op())
}

func (f *fake[K]) Family() table.Family { return fakes }

func (f *fake[K]) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return nil
	}
	f.closed = true
	return f.mem.Free()
}

// counter has defect, for a test that finds it.
type counter[K any, C uint32 | uint64] struct {
	fake[K]
	o      table.CounterOptions
	counts map[uint64]C
	room   int
	defect string
}

func newCounter[K any, C uint32 | uint64](defect string) tabletest.CounterMaker[K, C] {
	return func(d *device.Device, o table.CounterOptions) (table.Counter[K, C], error) {
		if err := o.Complete(1); err != nil {
			return nil, err
		}
		c := &counter[K, C]{o: o, counts: map[uint64]C{}, room: math.MaxInt, defect: defect}
		if o.Capacity > 1<<40 || o.LoadFactor > 0 && o.LoadFactor < 1e-200 || o.MaxBytes == 1 {
			return nil, errors.New("fake: there is not so much memory")
		}
		if o.MaxBytes > 0 {
			c.room = int(o.MaxBytes / 16)
		}
		return c, c.open(d, 16)
	}
}

func (c *counter[K, C]) add(keys []K, counts []C) error {
	c.writes++
	var lost []int
	over := false
	for i, k := range tabletest.BitsOf(keys) {
		n, there := c.counts[k]
		if !there && len(c.counts) >= c.room {
			if c.defect != "a lost key is not told" || i%8 > 0 {
				lost = append(lost, i)
			}
			continue
		}
		sum := n + counts[i]
		if sum < n && c.defect != "a count wraps" {
			sum, over = ^C(0), true
		}
		if c.defect == "an addition is lost" && n == 3 {
			sum = n
		}
		c.counts[k] = sum
	}
	if over && !c.o.Saturate {
		return errors.Join(table.ErrOverflow, frame.Full(lost, c.room, len(c.counts), table.ErrMaxBytes))
	}
	return frame.Full(lost, c.room, len(c.counts), table.ErrMaxBytes)
}

func ones[C uint32 | uint64](n int) []C { return slices.Repeat([]C{1}, n) }

func (c *counter[K, C]) Add(keys []K) error {
	return c.run(nil, nil, func() error { return c.add(keys, ones[C](len(keys))) })
}

func (c *counter[K, C]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	return c.run(st, fakes.CheckOn(c.d, st, keys), func() error {
		k, err := keys.Host(st)
		return errors.Join(err, c.add(k, ones[C](len(k))))
	})
}

func (c *counter[K, C]) AddCounts(keys []K, counts []C) error {
	return c.run(nil, fakes.CheckLens(len(keys), len(counts)), func() error { return c.add(keys, counts) })
}

func (c *counter[K, C]) AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C]) error {
	return c.run(st, fakes.CheckOn(c.d, st, keys, counts), func() error {
		k, err := keys.Host(st)
		n, err2 := counts.Host(st)
		return errors.Join(err, err2, c.add(k, n))
	})
}

func (c *counter[K, C]) find(keys []K) (counts []C, found []bool) {
	for _, k := range tabletest.BitsOf(keys) {
		n, there := c.counts[k]
		if c.defect == "an absent key is found" && k == 5 {
			there = true
		}
		counts, found = append(counts, n), append(found, there)
	}
	return counts, found
}

func (c *counter[K, C]) Find(keys []K, counts []C, found []bool) error {
	wrong := fakes.CheckLens(len(keys), frame.OptionalLen(counts), frame.OptionalLen(found))
	if c.defect == "a length is not checked" {
		wrong = nil
	}
	return c.run(nil, wrong, func() error {
		n, there := c.find(keys)
		copy(counts, n)
		copy(found, there)
		return nil
	})
}

func (c *counter[K, C]) FindOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C], found device.Slice[bool]) error {
	return c.run(st, fakes.CheckOn(c.d, st, keys, frame.Optional(counts), frame.Optional(found)), func() error {
		k, err := keys.Host(st)
		n, there := c.find(k)
		if counts.Addr() != 0 {
			err = errors.Join(err, counts.Write(st, n))
		}
		if found.Addr() != 0 {
			err = errors.Join(err, found.Write(st, there))
		}
		return err
	})
}

func (c *counter[K, C]) All() ([]K, []C, error) { return c.Top(math.MaxInt) }

// Chunks gives out a fourth at a time.
func (c *counter[K, C]) Chunks(ctx context.Context, do func(keys []K, counts []C) error) error {
	keys, counts, err := c.All()
	writes, step := c.writes, len(keys)/4+1
	for first := 0; err == nil && first < len(keys); first += step {
		end := min(first+step, len(keys))
		err = c.run(nil, nil, func() error {
			if writes != c.writes {
				return table.ErrChanged
			}
			return context.Cause(ctx)
		})
		if err == nil {
			err = do(keys[first:end], counts[first:end])
		}
	}
	return err
}

func (c *counter[K, C]) Top(n int) (keys []K, counts []C, err error) {
	err = c.run(nil, nil, func() error {
		var bits []uint64
		for k := range c.counts {
			bits = append(bits, k)
		}
		slices.SortFunc(bits, func(a, b uint64) int { // of equal counts in the order that a table of that seed would have
			return cmp.Or(cmp.Compare(c.counts[b], c.counts[a]), cmp.Compare(kernel.Seeded64(a, c.o.Seed), kernel.Seeded64(b, c.o.Seed)))
		})
		if c.defect == "the least frequent come first" {
			slices.Reverse(bits)
		}
		keys = tabletest.KeysOf[K](bits[:min(n, len(bits))])
		counts, _ = c.find(keys)
		return nil
	})
	return keys, counts, err
}

func (c *counter[K, C]) Len() (n int, err error) {
	return n, c.run(nil, nil, func() error { n = len(c.counts); return nil })
}

func (c *counter[K, C]) Clear() error {
	return c.run(nil, nil, func() error {
		if c.defect != "clear does nothing" {
			clear(c.counts)
		}
		return nil
	})
}

func (c *counter[K, C]) Stats() (s table.Stats, err error) {
	err = c.run(nil, nil, func() error {
		n := len(c.counts)
		s = table.Stats{Len: n, Capacity: min(c.room, max(n, 200_000)), Bytes: 128, MeanProbes: 1, MaxProbes: 1, Probes: [16]int{n}}
		s.LoadFactor = float64(n) / float64(s.Capacity)
		return nil
	})
	return s, err
}

func (c *counter[K, C]) Check() error { return c.run(nil, nil, func() error { return nil }) }

func (c *counter[K, C]) Grow(n int) error {
	return c.run(nil, nil, func() error {
		c.writes++
		switch {
		case n < 0 || n > 1<<46:
			return fmt.Errorf("fake: room for %d keys", n)
		case n > c.room:
			return table.ErrMaxBytes
		}
		return nil
	})
}

// filter is a Bloom filter (B. H. Bloom, 1970).
type filter[K any] struct {
	fake[K]
	o      table.FilterOptions
	bits   []bool
	hashes int
	defect string
}

func newFilter[K any](defect string) tabletest.FilterMaker[K] {
	return func(d *device.Device, o table.FilterOptions) (table.Filter[K], error) {
		if err := o.Complete(); err != nil {
			return nil, err
		}
		if o.FalsePositives == 0 {
			o.FalsePositives = 0.01
		}
		n := int(-math.Log(o.FalsePositives) / (math.Ln2 * math.Ln2) * float64(max(o.Capacity, 32)))
		if o.Bytes > 0 {
			n = int(8 * o.Bytes)
		}
		if n > 1<<32 {
			return nil, &device.OutOfMemoryError{Device: "fake", Asked: int64(n / 8)}
		}
		if defect == "too few bits" {
			n /= 2
		}
		f := &filter[K]{o: o, bits: make([]bool, n), hashes: max(1, int(math.Round(-math.Log2(o.FalsePositives)))), defect: defect}
		return f, f.open(d, 16)
	}
}

func (f *filter[K]) each(key uint64, visit func(bit *bool)) {
	for i := range f.hashes {
		visit(&f.bits[kernel.Reduce(kernel.Hash64(f.o.Hash, key, f.o.Seed+uint64(i)), uint64(len(f.bits)))])
	}
}

func (f *filter[K]) insert(keys []K) error {
	for i, k := range tabletest.BitsOf(keys) {
		if f.defect == "the last key is not in" && i == len(keys)-1 && i%32 == 31 {
			continue
		}
		f.each(k, func(bit *bool) { *bit = true })
	}
	return nil
}

func (f *filter[K]) look(keys []K) (found []bool) {
	for _, k := range tabletest.BitsOf(keys) {
		there := true
		f.each(k, func(bit *bool) { there = there && *bit })
		found = append(found, there || f.defect == "all is in")
	}
	return found
}

func (f *filter[K]) Insert(keys []K) error {
	return f.run(nil, nil, func() error { return f.insert(keys) })
}

func (f *filter[K]) InsertOn(st *device.Stream, keys device.Slice[K]) error {
	return f.run(st, fakes.CheckOn(f.d, st, keys), func() error {
		k, err := keys.Host(st)
		return errors.Join(err, f.insert(k))
	})
}

func (f *filter[K]) Contains(keys []K, found []bool) error {
	return f.run(nil, fakes.CheckLens(len(keys), frame.OptionalLen(found)), func() error { copy(found, f.look(keys)); return nil })
}

func (f *filter[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return f.run(st, fakes.CheckOn(f.d, st, keys, frame.Optional(found)), func() error {
		k, err := keys.Host(st)
		if found.Addr() == 0 {
			return err
		}
		return errors.Join(err, found.Write(st, f.look(k)))
	})
}

func (f *filter[K]) Form() table.FilterForm {
	return table.FilterForm{Words: int64(len(f.bits)+63) / 64, Make: fmt.Sprint(f.hashes, f.o.Hash, f.o.Seed)}
}

func (f *filter[K]) Words(ctx context.Context, do func(words []uint64) error) error {
	words := make([]uint64, f.Form().Words)
	err := f.run(nil, context.Cause(ctx), func() error {
		for i, on := range f.bits {
			if on {
				words[i/64] |= 1 << (i % 64)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return do(words)
}

func (f *filter[K]) SetWords(first int64, words []uint64) error {
	return f.run(nil, nil, func() error {
		if first+int64(len(words)) > f.Form().Words {
			return errors.New("fake: more words than there are")
		}
		for i := range min(len(f.bits)-64*int(first), 64*len(words)) {
			f.bits[64*int(first)+i] = words[i/64]>>(i%64)&1 == 1
		}
		return nil
	})
}

func (f *filter[K]) Clear() error {
	return f.run(nil, nil, func() error { clear(f.bits); return nil })
}

func (f *filter[K]) Check() error { return f.run(nil, nil, func() error { return nil }) }

func (f *filter[K]) Stats() (s table.FilterStats, err error) {
	err = f.run(nil, nil, func() error {
		s = table.FilterStats{Bits: int64(len(f.bits)), BitsSet: int64(frame.Count(f.bits)), Bytes: int64(len(f.bits)+7) / 8}
		s.Rate = math.Pow(float64(s.BitsSet)/float64(s.Bits), float64(f.hashes))
		return nil
	})
	return s, err
}
