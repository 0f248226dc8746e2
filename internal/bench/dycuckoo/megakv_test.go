package dycuckoo

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func from[T any](t testing.TB, d *device.Device, x []T) device.Slice[T] {
	t.Helper()
	s, err := device.From(d, x)
	must(t, err)
	return s
}

// The baseline does what a Go map does, batch after batch with keys that come twice, while it doubles and halves; under stress too.
func TestMegaKV(t *testing.T) {
	for _, c := range []struct {
		name           string
		seed           uint64
		keys, batches  int
		stress, narrow bool
	}{{"", 1, 20000, 16, false, false}, {"full", 2, 9000, 8, false, true}, {"stress 1", 3, 1500, 6, true, true}, {"stress 2", 4, 1500, 6, true, true}} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			var opts []device.Option
			if c.stress {
				opts = append(opts, device.WithStress(c.seed))
			}
			d, err := device.Open("cpu", opts...)
			must(t, err)
			defer d.Close()
			high := 0.85
			if c.narrow { // nearly every insert puts another out, and some find no place
				high = 1
			}
			m, err := newMegaKV(d, 0, 0.3, high)
			must(t, err)
			defer m.Close()
			st, rng, want, sizes := d.Stream(), rand.New(rand.NewPCG(c.seed, 0)), map[uint32]uint32{}, map[int]bool{}
			for b := range c.batches {
				n := c.keys * 3 / 4
				keys, values := make([]uint32, n), make([]uint32, n)
				for i := range keys {
					keys[i] = uint32(rng.IntN(c.keys)) * 2654435761
					values[i] = keys[i] + uint32(b)
				}
				dk, dv := from(t, d, keys), from(t, d, values)
				removing := b%4 >= 2
				if removing {
					deleted := from(t, d, make([]bool, n))
					must(t, m.DeleteOn(st, dk, deleted))
					got, err := deleted.Host(st)
					must(t, err)
					count := 0
					for _, x := range got {
						if x {
							count++
						}
					}
					before := len(want)
					for _, k := range keys {
						delete(want, k)
					}
					if count != before-len(want) {
						t.Errorf("batch %d: %d deletions are told, want %d", b, count, before-len(want))
					}
				} else {
					must(t, m.InsertOn(st, dk, dv))
					for i, k := range keys {
						want[k] = values[i]
					}
				}
				all := make([]uint32, c.keys)
				for i := range all {
					all[i] = uint32(i) * 2654435761
				}
				dk2, dv2, df := from(t, d, all), from(t, d, all), from(t, d, make([]bool, len(all)))
				must(t, m.FindOn(st, dk2, dv2, df))
				got, err := dv2.Host(st)
				must(t, err)
				found, err := df.Host(st)
				must(t, err)
				for i, k := range all {
					if v, ok := want[k]; ok != found[i] || got[i] != v {
						t.Fatalf("batch %d: key %d is %d, %v, want %d, %v", b, k, got[i], found[i], v, ok)
					}
				}
				s, err := m.Stats()
				must(t, err)
				if s.Len != len(want) || s.LoadFactor > high || s.LoadFactor < 0.3 && s.Capacity >= 2*megakvLeast*megakvSlots {
					t.Errorf("batch %d: %+v, want %d pairs", b, s, len(want))
				}
				slots, err := m.slots.Host(st)
				must(t, err)
				pairs := 0
				for _, x := range slots {
					if x != 1<<64-1 {
						pairs++
					}
				}
				if pairs != len(want) {
					t.Errorf("batch %d: %d slots hold a pair, want %d", b, pairs, len(want))
				}
				sizes[s.Capacity] = true
			}
			if !c.stress && len(sizes) < 2 {
				t.Errorf("sizes %v", sizes)
			}
		})
	}
}

// Keys that come twice in a batch are in an almost full table once, though pairs are on their way between its buckets.
func TestMegaKVKeysAreInOnce(t *testing.T) {
	for seed := range uint64(12) {
		d, err := device.Open("cpu", device.WithStress(seed+1))
		must(t, err)
		defer d.Close()
		m, err := newMegaKV(d, 0, 0, 1)
		must(t, err)
		defer m.Close()
		const slots, old, fresh = megakvLeast * megakvSlots, 800, 160
		keys := make([]uint32, old)
		for i := range keys {
			keys[i] = uint32(i)
		}
		must(t, m.InsertOn(d.Stream(), from(t, d, keys), from(t, d, keys)))
		keys = keys[:0]
		for i := range fresh {
			for range 3 {
				keys = append(keys, uint32(old+i))
			}
		}
		must(t, m.InsertOn(d.Stream(), from(t, d, keys), from(t, d, keys)))
		all, err := m.slots.Host(d.Stream())
		must(t, err)
		times := map[uint32]int{}
		for _, x := range all {
			if x != 1<<64-1 {
				times[uint32(x)]++
			}
		}
		for k := range uint32(old + fresh) {
			if times[k] != 1 {
				t.Errorf("seed %d: key %d is in %d times", seed, k, times[k])
			}
		}
		if len(times) != old+fresh || m.live() != old+fresh {
			t.Errorf("seed %d: %d keys, %d counted, want %d", seed, len(times), m.live(), old+fresh)
		}
		if m.slots.Len() != slots {
			t.Errorf("seed %d: %d slots: the table was to be almost full", seed, m.slots.Len())
		}
	}
}

func TestKernelsCompileForGPUs(t *testing.T) {
	for _, p := range []*device.Program{megakvProgram(true), atomicsProgram()} {
		_, err := device.CompileFor("sm_90", p)
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}
