package shard_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// quickParts returns parts of n rows at most with keys below 1<<12, on streams chosen at random. Some devices have none.
// Values are those of a round.
func quickParts(t *testing.T, rng *rand.Rand, devices []*device.Device, streams [][]*device.Stream, n int,
	value uint32) (parts []shard.Part[uint32, uint32], keys [][]uint32) {
	for i, d := range devices {
		if rng.IntN(4) == 0 {
			continue
		}
		own := make([]uint32, rng.IntN(n))
		values := make([]uint32, len(own))
		for k := range own {
			own[k], values[k] = rng.Uint32N(1<<12)*0x9e3779b1, value
		}
		parts = append(parts, shard.Part[uint32, uint32]{Stream: streams[i][rng.IntN(len(streams[i]))], Keys: on(t, d, own),
			Values: on(t, d, values), Flags: on(t, d, make([]bool, len(own)))})
		keys = append(keys, own)
	}
	return parts, keys
}

// Quick batches on changing streams, of changing devices, see each other in the order of the calls.
func TestQuick(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for _, n := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				devices := several(t, kind, n)
				var streams [][]*device.Stream
				for _, d := range devices {
					st, err := d.NewStream()
					must(t, err)
					streams = append(streams, []*device.Stream{d.Stream(), st})
				}
				m, err := shard.NewMap(devices, shard.Options{AskAll: -1}, families[uint32, uint32]()["warpcore"])
				must(t, err)
				rng, model := rand.New(rand.NewPCG(2, uint64(n))), map[uint32]uint32{}
				for round := range testenv.Seeds(60) {
					parts, keys := quickParts(t, rng, devices, streams, []int{10, 3000, 40_000}[round%3], uint32(round))
					switch {
					case len(parts) == 0:
						continue
					case round%5 == 4:
						must(t, m.DeleteEach(parts))
						for _, own := range keys {
							for _, k := range own {
								delete(model, k)
							}
						}
					case round%5 > 1:
						must(t, m.InsertEach(parts))
						for _, own := range keys {
							for _, k := range own {
								model[k] = uint32(round)
							}
						}
					default:
						must(t, m.FindEach(parts))
						for i, p := range parts {
							values, e1 := p.Values.Host(p.Stream)
							found, e2 := p.Flags.Host(p.Stream)
							must(t, errors.Join(e1, e2))
							for k, key := range keys[i] {
								if v, in := model[key]; found[k] != in || values[k] != v {
									t.Fatalf("round %d: key %#x has %d, %t, want %d, %t", round, key, values[k], found[k], v, in)
								}
							}
						}
					}
					for _, p := range parts {
						must(t, errors.Join(p.Stream.Sync(), p.Keys.Free(), p.Values.Free(), p.Flags.Free()))
					}
				}
				if got, err := m.Len(); err != nil || got != len(model) {
					t.Errorf("%d keys, %v, want %d", got, err, len(model))
				}
				must(t, errors.Join(m.Check(), m.Close()))
			})
		}
	}
}

// After any call of a quick batch fails, the map works on, or says that it is broken.
func TestQuickFails(t *testing.T) {
	const n = 2000
	keys, values := make([]uint32, n), make([]uint32, n)
	for i := range keys {
		keys[i], values[i] = uint32(i)*0x9e3779b1, uint32(i)
	}
	worked, failed := 0, 0
	for _, site := range []faults.Site{faults.Alloc, faults.HostAlloc, faults.Launch, faults.Event, faults.Sync} {
		for nth, more := int64(1), true; more; nth++ {
			devices := several(t, "cpu", 2)
			m, err := shard.NewMap(devices, shard.Options{Options: table.Options{Capacity: 4 * n}},
				families[uint32, uint32]()["warpcore"])
			must(t, err)
			var parts []shard.Part[uint32, uint32]
			for _, d := range devices {
				parts = append(parts, shard.Part[uint32, uint32]{Keys: on(t, d, keys), Values: on(t, d, values)})
			}
			f := &faults.Counter{Site: site, N: nth, Outcome: faults.Fails}
			faults.Set(devices[1], f.Order)
			err = errors.Join(m.InsertEach(parts), m.FindEach(parts))
			faults.Set(devices[1], nil)
			if more = f.Count(site) >= nth; !more {
				must(t, err)
			}
			if err != nil {
				failed++
			}
			got, found := make([]uint32, n), make([]bool, n)
			if err = errors.Join(m.Insert(keys, values), m.Find(keys, got, found)); err == nil {
				worked++
				for i := range keys {
					if !found[i] || got[i] != values[i] {
						t.Fatalf("%v %d: key %#x has %d, %t", site, nth, keys[i], got[i], found[i])
					}
				}
			} else if broken := (*device.CallError)(nil); !errors.As(err, &broken) || !broken.Broken {
				t.Errorf("%v %d: %v", site, nth, err)
			}
			must(t, m.Close())
		}
	}
	if worked < 10 || failed < 10 {
		t.Errorf("%d maps worked on, and %d batches failed: the test tests nothing", worked, failed)
	}
}
