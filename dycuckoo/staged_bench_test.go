package dycuckoo

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// wideKey is a key of 16 bytes.
type wideKey struct{ A, B uint64 }

// BenchmarkStaged inserts 100 million pairs on a GPU, timed by events: into an empty table, again into the same table, and the second half
// of them behind the first. It uses public names alone, so that it runs in older trees too.
func BenchmarkStaged(b *testing.B) {
	d, err := device.Open("cuda:0")
	if err != nil {
		b.Skip(err)
	}
	defer d.Close()
	const n = 100_000_000
	for _, load := range []float64{0.5, 0.75, 0.852} {
		b.Run(fmt.Sprintf("4+4/%v", load), func(b *testing.B) {
			benchmarkStaged[uint32, uint32](b, d, n, load, func(i int) uint32 { return kernel.Fmix32(uint32(i)) })
		})
		b.Run(fmt.Sprintf("8+8/%v", load), func(b *testing.B) {
			benchmarkStaged[uint64, uint64](b, d, n, load, func(i int) uint64 { return kernel.Fmix64(uint64(i)) })
		})
		b.Run(fmt.Sprintf("16+8/%v", load), func(b *testing.B) {
			benchmarkStaged[wideKey, uint64](b, d, n, load, func(i int) wideKey { return wideKey{uint64(i), kernel.Fmix64(uint64(i))} })
		})
	}
}

func benchmarkStaged[K, V any](b *testing.B, d *device.Device, n int, load float64, key func(i int) K) {
	in := make([]K, n)
	for i := range in {
		in[i] = key(i)
	}
	keys, err := device.From(d, in)
	must(b, err)
	defer keys.Free()
	values, err := device.Make[V](d, n)
	must(b, err)
	defer values.Free()
	found, err := device.Make[bool](d, n)
	must(b, err)
	defer found.Free()
	m, err := New[K, V](d, Options{Options: table.Options{Capacity: n, LoadFactor: load, Seed: 1}})
	must(b, err)
	defer m.Close()
	from, err := d.NewEvent()
	must(b, err)
	defer from.Close()
	to, err := d.NewEvent()
	must(b, err)
	defer to.Close()
	insert := func(first, end int) func() error {
		return func() error { return m.InsertOn(nil, keys.Slice(first, end), values.Slice(first, end)) }
	}
	measure := func(what string, rows int, before, queue func() error) {
		best := time.Duration(math.MaxInt64)
		for range 5 {
			must(b, errors.Join(before(), d.Stream().Sync(), from.Record(d.Stream()), queue(), to.Record(d.Stream()), to.Sync()))
			took, err := to.Since(from)
			must(b, err)
			best = min(best, took)
		}
		b.ReportMetric(float64(rows)/float64(best), what+"_G/s")
		all, err := m.Len()
		must(b, err)
		must(b, m.FindOn(nil, keys, values, found))
		flags, err := found.Host(nil)
		must(b, err)
		missing := 0
		for _, ok := range flags {
			if !ok {
				missing++
			}
		}
		if all != n || missing != 0 {
			b.Errorf("%s: %d pairs (want %d), and %d keys are not found", what, all, n, missing)
		}
	}
	nothing := func() error { return nil }
	measure("empty", n, m.Clear, insert(0, n))
	measure("again", n, nothing, insert(0, n))
	measure("half", n-n/2, func() error { return errors.Join(m.Clear(), insert(0, n/2)()) }, insert(n/2, n))
}
