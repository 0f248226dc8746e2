package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"
	"unsafe"

	"github.com/allegro/bigcache/v3"
	"github.com/dgraph-io/ristretto/v2"
	"github.com/maypok86/otter/v2"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// named is a cache under its name.
type named struct {
	name string
	open func(pairs int) (opened, error)
}

// peers are the caches of others.
var peers = []named{{"ristretto", openRistretto}, {"otter", openOtter}, {"bigcache", openBigcache}}

// peerVersions names their modules' versions.
func peerVersions() string {
	info, ok := debug.ReadBuildInfo()
	var v []string
	for _, m := range info.Deps {
		for _, p := range peers {
			if ok && strings.Contains(m.Path, "/"+p.name) {
				v = append(v, p.name+" "+m.Version)
			}
		}
	}
	return strings.Join(v, ", ")
}

func openRistretto(pairs int) (opened, error) {
	c, err := ristretto.NewCache(&ristretto.Config[uint64, uint64]{NumCounters: int64(10 * pairs),
		MaxCost: int64(pairs), BufferItems: 64, IgnoreInternalCost: true, Metrics: false})
	if err != nil {
		return opened{}, err
	}
	get := func(k uint64) (uint64, bool) { return c.Get(k) }
	return opened{oneByOne(get, func(k, v uint64) error { c.Set(k, v, 1); return nil }),
		func() (int, error) { c.Wait(); return pairs - int(c.RemainingCost()), nil },
		func() error { c.Close(); return nil }}, nil
}

func openOtter(pairs int) (opened, error) {
	c, err := otter.New(&otter.Options[uint64, uint64]{MaximumSize: pairs})
	if err != nil {
		return opened{}, err
	}
	return opened{oneByOne(c.GetIfPresent, func(k, v uint64) error { c.Set(k, v); return nil }),
		func() (int, error) { c.CleanUp(); return c.EstimatedSize(), nil },
		func() error { c.StopAllGoroutines(); return nil }}, nil
}

// bigcachePair is how many bytes bigcache takes for a pair of 8+8 bytes: a header, the key, the value and a length.
const bigcachePair = 18 + 8 + 8 + 1

func openBigcache(pairs int) (opened, error) {
	c, err := bigcache.New(context.Background(), bigcache.Config{Shards: 256, LifeWindow: 24 * time.Hour,
		MaxEntriesInWindow: pairs, MaxEntrySize: bigcachePair,
		HardMaxCacheSize: (pairs*bigcachePair + 1<<20 - 1) / (1 << 20)})
	if err != nil {
		return opened{}, err
	}
	return opened{
		func() func(keys []uint64) (int, error) {
			key, value := make([]byte, 8), make([]byte, 8)
			name := unsafe.String(&key[0], len(key)) // bigcache keeps copies
			return oneByOne(func(k uint64) (uint64, bool) {
				binary.LittleEndian.PutUint64(key, k)
				v, err := c.Get(name)
				if err != nil {
					return 0, false
				}
				return binary.LittleEndian.Uint64(v), true
			}, func(k, v uint64) error {
				binary.LittleEndian.PutUint64(key, k)
				binary.LittleEndian.PutUint64(value, v)
				return c.Set(name, value)
			})()
		},
		func() (int, error) { return c.Len(), nil }, c.Close}, nil
}

// oneByOne makes requests of a batch one after the other.
func oneByOne(get func(k uint64) (uint64, bool), set func(k, v uint64) error) func() func(keys []uint64) (int, error) {
	return func() func(keys []uint64) (int, error) {
		return func(keys []uint64) (hits int, err error) {
			for _, k := range keys {
				v, found := get(k)
				switch {
				case !found:
					if err := set(k, valueOf(k)); err != nil {
						return hits, err
					}
				case v != valueOf(k):
					return hits, fmt.Errorf("key %d has the value %#x (want %#x)", k, v, valueOf(k))
				default:
					hits++
				}
			}
			return hits, nil
		}
	}
}

// ours are the caches of this module: two policies, each asked itself and through a Batcher.
func ours(d *device.Device) (all []named) {
	for _, p := range []cache.Policy{cache.LRU, cache.Aged} {
		all = append(all, named{fmt.Sprintf("warpmap %v", p), func(pairs int) (opened, error) {
			c, err := openCache(d, pairs, p)
			if err != nil {
				return opened{}, err
			}
			return opened{inBatches(c.Find, c.Insert), c.Len, c.Close}, nil
		}}, named{fmt.Sprintf("warpmap %v, Batcher", p), func(pairs int) (opened, error) {
			c, err := openCache(d, pairs, p)
			if err != nil {
				return opened{}, err
			}
			b, err := table.NewBatcher(c, table.BatcherOptions{})
			if err != nil {
				return opened{}, errors.Join(err, c.Close())
			}
			ctx := context.Background()
			return opened{inBatches(func(keys, values []uint64, found []bool) error {
				return b.Find(ctx, keys, values, found)
			}, func(keys, values []uint64) error {
				return b.Insert(ctx, keys, values)
			}), c.Len, func() error { return errors.Join(b.Close(), c.Close()) }}, nil
		}})
	}
	return all
}

func openCache(d *device.Device, pairs int, p cache.Policy) (*cache.Cache[uint64, uint64], error) {
	return cache.New[uint64, uint64](d, cache.Options{Capacity: pairs, Policy: p})
}

// inBatches makes the requests of a batch at once: a look-up, and an insert of the keys that were missing.
func inBatches(find func(keys, values []uint64, found []bool) error,
	insert func(keys, values []uint64) error) func() func(keys []uint64) (int, error) {
	return func() func(keys []uint64) (int, error) {
		var values, missing, put []uint64
		var found []bool
		return func(keys []uint64) (hits int, err error) {
			if len(keys) > len(values) {
				values, found = make([]uint64, len(keys)), make([]bool, len(keys))
			}
			if err := find(keys, values[:len(keys)], found[:len(keys)]); err != nil {
				return 0, err
			}
			missing, put = missing[:0], put[:0]
			for i, k := range keys {
				switch {
				case !found[i]:
					missing, put = append(missing, k), append(put, valueOf(k))
				case values[i] != valueOf(k):
					return hits, fmt.Errorf("key %d has the value %#x (want %#x)", k, values[i], valueOf(k))
				default:
					hits++
				}
			}
			if len(missing) == 0 {
				return hits, nil
			}
			return hits, insert(missing, put)
		}
	}
}
