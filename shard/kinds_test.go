package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// onDevices runs a suite over n devices; suite makes it for the devices beside the suite's own.
func onDevices(t *testing.T, kind, name string, n int, part tabletest.Part,
	suite func(all []*device.Device) *tabletest.Suite) {
	t.Run(fmt.Sprintf("%s/%s/%d", kind, name, n), func(t *testing.T) {
		t.Parallel()
		all := several(t, kind, n)
		suite(all).Run(t, part, open(t, all[0].Info().Name), open(t, "cpu:99"))
	})
}

// modes are the ways of a look-up: to the owners, or to all.
func modes() map[string]shard.Options {
	all := map[string]shard.Options{"owners": {}, "asked/boxed": {AskAll: 1 << 30, Copies: true, Piece: 1}}
	all["counted"] = shard.Options{Piece: 1 << 20}
	if testenv.Long() {
		all["asked"] = shard.Options{AskAll: 1 << 30}
	}
	return all
}

func with(o shard.Options, each table.Options) shard.Options {
	o.Options = each
	return o
}

// wholly is the mode that the suite of a kind goes through wholly; in others it is brief.
const wholly = "owners"

// inModes runs a suite in all modes; suite makes it for the devices beside the suite's own.
func inModes(t *testing.T, suite func(all []*device.Device, o shard.Options) *tabletest.Suite) {
	for mode, o := range modes() {
		for _, kind := range []string{"cpu", "cuda"} {
			onDevices(t, kind, mode, 2+len(mode)%3, tabletest.Widths, func(all []*device.Device) *tabletest.Suite {
				if mode == wholly {
					return suite(all, o)
				}
				return brief(kind, suite(all, o))
			})
		}
	}
}

func warpcoreSet(d *device.Device, o table.Options) (table.Set[uint32], error) {
	return made[table.Set[uint32]](warpcore.NewSet[uint32](d, warpcore.Options{Options: o}))
}

func slabSet(d *device.Device, o table.Options) (table.Set[uint32], error) {
	return made[table.Set[uint32]](slab.NewSet[uint32](d, slab.Options{Options: o}))
}

// counting makes a counter of one device.
func counting(saturate bool) func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
	return func(d *device.Device, o table.Options) (table.Counter[uint32, uint32], error) {
		own := warpcore.CounterOptions{Options: warpcore.Options{Options: o}, Saturate: saturate}
		return made[table.Counter[uint32, uint32]](warpcore.NewCounter[uint32, uint32](d, own))
	}
}

func TestSets(t *testing.T) {
	inModes(t, func(all []*device.Device, o shard.Options) *tabletest.Suite {
		return tabletest.Set(func(d *device.Device, each table.Options) (table.Set[uint32], error) {
			return made[table.Set[uint32]](shard.NewSet(withOthers(d, all), with(o, each), warpcoreSet))
		})
	})
}

func TestCounters(t *testing.T) {
	inModes(t, func(all []*device.Device, o shard.Options) *tabletest.Suite {
		return tabletest.Counter(func(d *device.Device, each table.CounterOptions) (table.Counter[uint32, uint32], error) {
			c, err := shard.NewCounter(withOthers(d, all), with(o, each.Options), counting(each.Saturate))
			return made[table.Counter[uint32, uint32]](c, err)
		})
	})
}

// multiMaps make a multimap of one device.
func multiMaps[K, V any]() map[string]func(d *device.Device, o table.Options) (table.MultiMap[K, V], error) {
	return map[string]func(d *device.Device, o table.Options) (table.MultiMap[K, V], error){
		"slab": func(d *device.Device, o table.Options) (table.MultiMap[K, V], error) {
			return made[table.MultiMap[K, V]](slab.NewMultiMap[K, V](d, slab.Options{Options: o}))
		},
		"warpcore": func(d *device.Device, o table.Options) (table.MultiMap[K, V], error) {
			return made[table.MultiMap[K, V]](warpcore.NewMultiMap[K, V](d, warpcore.Options{Options: o}))
		},
		"warpcore's bucketlist": func(d *device.Device, o table.Options) (table.MultiMap[K, V], error) {
			return made[table.MultiMap[K, V]](warpcore.NewBucketList[K, V](d, warpcore.ListOptions{Options: o}))
		},
	}
}

func multiMapSuite[K, V any](all []*device.Device, o shard.Options, family string) *tabletest.Suite {
	return tabletest.MultiMap(func(d *device.Device, each table.Options) (table.MultiMap[K, V], error) {
		m, err := shard.NewMultiMap(withOthers(d, all), with(o, each), multiMaps[K, V]()[family])
		return made[table.MultiMap[K, V]](m, err)
	}).Larger(2)
}

func TestMultiMaps(t *testing.T) {
	inModes(t, func(all []*device.Device, o shard.Options) *tabletest.Suite {
		return multiMapSuite[uint32, uint32](all, o, "slab")
	})
	for _, kind := range []string{"cpu", "cuda"} {
		for family := range multiMaps[uint32, uint32]() {
			for mode, o := range modes() {
				if family != "slab" && (mode == wholly || testenv.Long()) {
					onDevices(t, kind, family+"/"+mode, 2+len(mode)%3, tabletest.Widths, func(all []*device.Device) *tabletest.Suite {
						return brief(kind, multiMapSuite[uint32, uint32](all, o, family))
					})
				}
			}
		}
		onDevices(t, kind, "slab/uint64", 2, tabletest.Widths, func(all []*device.Device) *tabletest.Suite {
			return brief(kind, multiMapSuite[uint64, [2]uint64](all, shard.Options{Copies: true}, "slab"))
		})
		onDevices(t, kind, "slab/independent", 3, tabletest.Widths, func(all []*device.Device) *tabletest.Suite {
			o := shard.Options{Mode: shard.Independent}
			return brief(kind, tabletest.MultiMap(func(d *device.Device, each table.Options) (table.MultiMap[uint32, uint32], error) {
				m, err := shard.NewMultiMap(withOthers(d, all), with(o, each), multiMaps[uint32, uint32]()["slab"])
				return made[table.MultiMap[uint32, uint32]](hostedMulti{m, d}, err)
			}).Larger(2))
		})
	}
}

// hostedMulti is a multimap whose device slices are inserted as Go slices. In the independent mode one device would
// otherwise get all pairs.
type hostedMulti struct {
	*shard.MultiMap[uint32, uint32]
	d *device.Device // whose slices it takes
}

func (h hostedMulti) InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	k, v, err := onHost(h.d, st, keys, values)
	if err != nil {
		return err
	}
	return h.Insert(k, v)
}

// hosted is a map whose device slices are inserted as Go slices. In the independent mode one key would otherwise come
// to several devices, and be several.
type hosted struct {
	*shard.Map[uint32, uint32]
	d *device.Device // whose slices it takes
}

func (h hosted) InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	k, v, err := onHost(h.d, st, keys, values)
	if err != nil {
		return err
	}
	return h.Insert(k, v)
}

func (h hosted) InsertNewOn(st *device.Stream, keys, values device.Slice[uint32], added device.Slice[bool]) error {
	k, v, err := onHost(h.d, st, keys, values, frame.Optional(added))
	if err != nil {
		return err
	}
	flags := make([]bool, len(k))
	_, err = h.InsertNew(k, v, flags)
	if added.Addr() != 0 {
		err = errors.Join(err, added.Write(st, flags))
	}
	return err
}

func onHost(d *device.Device, st *device.Stream, keys, values device.Slice[uint32],
	more ...frame.DeviceSlice) (k, v []uint32, err error) {
	if err = table.Family("shard").CheckOn(d, st, append([]frame.DeviceSlice{keys, values}, more...)...); err != nil {
		return nil, nil, err
	}
	k, err = keys.Host(st)
	if err == nil {
		v, err = values.Host(st)
	}
	return k, v, err
}

func TestIndependentMaps(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for n := 2; n <= 3; n++ {
			onDevices(t, kind, "independent", n, tabletest.Widths, func(all []*device.Device) *tabletest.Suite {
				o := shard.Options{Mode: shard.Independent, Copies: n == 2}
				s := tabletest.Map(func(d *device.Device, each table.Options) (table.Map[uint32, uint32], error) {
					m, err := shard.NewMap(withOthers(d, all), with(o, each), families[uint32, uint32]()["slab"])
					return made[table.Map[uint32, uint32]](hosted{m, d}, err)
				})
				if n == 2 {
					s = brief(kind, s)
				}
				return s
			})
		}
	}
}

// Each device has the keys that came to it, and all are asked.
func TestIndependentParts(t *testing.T) {
	for _, o := range []shard.Options{{Mode: shard.Independent}, {Mode: shard.Independent, Copies: true, Piece: 3000}} {
		onEach(t, 3, func(t *testing.T, devices []*device.Device) {
			m := pairs(t, devices, o)
			sizes := []int{9000, 0, 17_000}
			keys, values := batches(sizes, 1)
			in := parts(t, devices, keys, values)
			must(t, m.InsertEach(in))
			each, err := m.StatsEach()
			must(t, err)
			for i, s := range each {
				if s.Len != sizes[i] {
					t.Errorf("device %d has %d pairs of %d", i, s.Len, sizes[i])
				}
			}
			all := slices.Concat(keys...)
			slices.Reverse(all)
			asked := [][]uint32{append([]uint32{5, 6, 7}, all[:12_000]...), all[12_000:13_000], all[13_000:]}
			out := parts(t, devices, asked, nil)
			must(t, m.FindEach(out))
			for i, p := range out {
				v, err := p.Values.Host(nil)
				must(t, err)
				found, err := p.Flags.Host(nil)
				must(t, err)
				for k, key := range asked[i] {
					there := i > 0 || k >= 3
					if found[k] != there || there && v[k] != key^0x55aa || !there && v[k] != 0 {
						t.Fatalf("device %d, position %d: key %#x found %t with %#x", i, k, key, found[k], v[k])
					}
				}
			}
			must(t, m.DeleteEach(out))
			if n, err := m.Len(); n != 0 || err != nil {
				t.Errorf("%d pairs are left, %v", n, err)
			}
			must(t, m.Check())
		})
	}
}

// Counts of a key on several devices are added up.
func TestIndependentCounters(t *testing.T) {
	onEach(t, 3, func(t *testing.T, devices []*device.Device) {
		c, err := shard.NewCounter(devices, shard.Options{Mode: shard.Independent}, counting(false))
		must(t, err)
		defer func() { must(t, c.Close()) }()
		type part = shard.Part[uint32, uint32]
		must(t, c.AddEach([]part{{Keys: on(t, devices[0], []uint32{7, 7, 8})},
			{Keys: on(t, devices[2], []uint32{7, 9, 8, 8})}}))
		counts, found := make([]uint32, 4), make([]bool, 4)
		must(t, c.Find([]uint32{7, 8, 9, 10}, counts, found))
		if !slices.Equal(counts, []uint32{3, 3, 1, 0}) || !slices.Equal(found, []bool{true, true, true, false}) {
			t.Errorf("%v, %v", counts, found)
		}
		must(t, c.AddCountsOn(nil, on(t, devices[1], []uint32{9}), on(t, devices[1], []uint32{^uint32(0)})))
		keys, often, err := c.Top(2)
		must(t, err)
		if keys[0] != 9 || often[0] != ^uint32(0) || often[1] != 3 {
			t.Errorf("%v came %v times", keys, often)
		}
	})
}

// Top tells of one moment: it sees a counter that others fill and clear meanwhile either with counts or without keys.
func TestTopIsOneStep(t *testing.T) {
	devices := several(t, "cpu", 2)
	c, err := shard.NewCounter(devices, shard.Options{Mode: shard.Independent}, counting(false))
	must(t, err)
	defer func() { must(t, c.Close()) }()
	keys := make([]uint32, 2000)
	for i := range keys {
		keys[i] = uint32(i % 500)
	}
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		for {
			select {
			case <-stop:
				done <- nil
				return
			default:
			}
			if err := errors.Join(c.Add(keys), c.Clear()); err != nil {
				done <- err
				return
			}
		}
	}()
	for range 100 {
		keys, often, err := c.Top(3)
		must(t, err)
		if slices.Contains(often, 0) {
			t.Errorf("keys %v came %v times", keys, often)
			break
		}
	}
	close(stop)
	must(t, <-done)
}

// Many values of one key that is reserved inside a table are one part's alone: all go in, and the part takes memory for
// them and no more.
func TestMultiMapValuesOfOneKey(t *testing.T) {
	for mode, o := range modes() {
		m, err := shard.NewMultiMap(several(t, "cpu", 3), o, multiMaps[int32, int64]()["warpcore"])
		must(t, err)
		t.Cleanup(func() { must(t, m.Close()) })
		keys, values := make([]int32, 1100), make([]int64, 1100)
		for i := range keys {
			keys[i], values[i] = -1, int64(i)
		}
		if err := m.Insert(keys, values); err != nil {
			t.Fatalf("%s: %v", mode, err)
		}
		_, got, err := m.FindAll(keys[:1])
		must(t, err)
		slices.Sort(got)
		if !slices.Equal(got, values) {
			t.Errorf("%s: %d values, want %d", mode, len(got), len(values))
		}
		stats, err := m.Stats()
		must(t, err)
		if stats.Bytes > 256<<10 {
			t.Errorf("%s: %d values take %d bytes", mode, len(values), stats.Bytes)
		}
		must(t, m.Check())
	}
}
