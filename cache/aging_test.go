package cache

import (
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// A full cache whose keys are replaced for long is at the end as it was once all of its keys had been replaced: as many
// pairs in as much memory, of the keys that came last as many, and one pair goes out for each that comes in.
func TestAging(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			slots, slices := 1<<15, 300
			if testenv.Long() {
				slots, slices = 1<<17, 1000
			}
			if d.Info().CUDA() {
				slots = 1 << 24
			}
			for _, p := range []Policy{LRU, LFU, Aged} {
				t.Run(p.String(), func(t *testing.T) {
					m, err := New[uint64, uint64](d, Options{Capacity: slots, Policy: p, Seed: 1 + testenv.FirstSeed()})
					must(t, err)
					defer m.Close()
					batch := slots / 100
					keys, values, found := make([]uint64, batch), make([]uint64, batch), make([]bool, batch)
					end := uint64(0)
					of := func(from uint64) {
						for i := range keys {
							keys[i] = (from + uint64(i)) * 0x9e3779b97f4a7c15
							values[i] = ^keys[i]
						}
					}
					type state struct {
						Stats
						recent float64 // share of as many of the newest keys as there are slots that is in
						rate   float64 // of inserts since the state before
					}
					var took time.Duration
					rows := 0
					look := func() (s state) {
						t.Helper()
						s.Stats, err = m.Stats()
						must(t, err)
						in := 0
						for j := 1; j <= 100; j++ {
							of(end - uint64(j*batch))
							must(t, m.FindQuiet(keys, values, found))
							for i := range found {
								if found[i] {
									in++
								}
								if found[i] && values[i] != ^keys[i] {
									t.Fatalf("key %#x has %#x", keys[i], values[i])
								}
							}
						}
						s.recent = float64(in) / float64(100*batch)
						s.rate = float64(rows) / took.Seconds() / 1e6
						took, rows = 0, 0
						return s
					}
					fill := func(n int) {
						for range n {
							of(end)
							began := time.Now()
							must(t, m.Insert(keys, values))
							took += time.Since(began)
							rows += batch
							end += uint64(batch)
						}
					}
					fill(400) // by then all buckets are full
					first := look()
					fill(slices)
					last := look()
					t.Logf("%d pairs, %.1f MB, %.4f of as many newest keys are in, %.1f M/s; after %d slices %d, %.1f, %.4f, %.1f",
						first.Len, float64(first.Bytes)/1e6, first.recent, first.rate, slices, last.Len, float64(last.Bytes)/1e6,
						last.recent, last.rate)
					if last.Len != first.Len || last.Len != last.Capacity || last.Bytes != first.Bytes {
						t.Errorf("%d pairs of %d in %d bytes became %d of %d in %d", first.Len, first.Capacity, first.Bytes, last.Len,
							last.Capacity, last.Bytes)
					}
					if out, came := last.Evictions-first.Evictions, uint64(slices*batch); out != came {
						t.Errorf("%d pairs went out for %d that came", out, came)
					}
					if d := last.recent - first.recent; d > 0.02 || d < -0.02 {
						t.Errorf("%.4f of the newest keys are in, and %.4f were", last.recent, first.recent)
					}
					must(t, m.Check())
					testenv.Tried(t, slices, "slices")
				})
			}
		})
	}
}
