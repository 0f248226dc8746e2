package shard_test

import (
	"errors"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(scenarioEnv) != "" {
		os.Exit(member())
	}
	goleak.VerifyTestMain(m)
}

// families make a map of one device.
func families[K, V any]() map[string]func(d *device.Device, o table.Options) (table.Map[K, V], error) {
	return map[string]func(d *device.Device, o table.Options) (table.Map[K, V], error){
		"dycuckoo": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](dycuckoo.New[K, V](d, dycuckoo.Options{Options: o}))
		},
		"gph": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](gph.New[K, V](d, gph.Options{Options: o}))
		},
		"slab": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](slab.New[K, V](d, slab.Options{Options: o}))
		},
		"stadium": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](stadium.New[K, V](d, stadium.Options{Options: o}))
		},
		"warpcore": func(d *device.Device, o table.Options) (table.Map[K, V], error) {
			return made[table.Map[K, V]](warpcore.New[K, V](d, warpcore.Options{Options: o}))
		},
	}
}

func made[T any](t T, err error) (T, error) {
	if err != nil {
		var none T
		return none, err
	}
	return t, nil
}

// open opens a device for the length of the test.
func open(t testing.TB, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	must(t, err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		must(t, d.Close())
	})
	return d
}

// several opens n devices, for the length of the test, of one thread each, so that what they do has an order: GPUs
// where kind is cuda, of which there may be fewer, and then the test is skipped.
func several(t testing.TB, kind string, n int) (devices []*device.Device) {
	t.Helper()
	for i := range n {
		name := fmt.Sprintf("%s:%d", kind, i)
		if kind == "cuda" {
			d, err := device.Open(name)
			if errors.Is(err, device.ErrNoGPU) && i > 0 {
				t.Skip(err) // fewer than wanted is no failure
			}
			testenv.Require(t, "cuda", err)
			must(t, d.Close())
		}
		devices = append(devices, open(t, name, device.WithWorkers(1)))
	}
	return devices
}

// onEach runs a test on n CPU devices, and on n GPUs.
func onEach(t *testing.T, n int, test func(t *testing.T, devices []*device.Device)) {
	for _, kind := range []string{"cpu", "cuda"} {
		t.Run(kind, func(t *testing.T) { test(t, several(t, kind, n)) })
	}
}

// brief is a suite without what takes long on the CPU, in runs that are not to be long: growth, snapshots and each
// reserved key alone show the same over any devices, in any mode, of any family, and one suite of each kind has them.
func brief(kind string, s *tabletest.Suite) *tabletest.Suite {
	if kind == "cuda" || testenv.Long() {
		return s
	}
	return s.Without("growth", "saved and loaded", "reserved patterns")
}

// maps runs a test with the suite of a family's map over n devices: the suite's own, whose batches it brings, and
// others.
func maps[K, V any](t *testing.T, kind, family string, n int, o shard.Options, part tabletest.Part) {
	t.Run(fmt.Sprintf("%s/%s/%d/%T,%T", kind, family, n, *new(K), *new(V)), func(t *testing.T) {
		t.Parallel()
		all := several(t, kind, n)
		own := open(t, all[0].Info().Name)
		suite := tabletest.Map(func(d *device.Device, each table.Options) (table.Map[K, V], error) {
			m, err := made[table.Map[K, V]](shard.NewMap(withOthers(d, all), with(o, each), families[K, V]()[family]))
			if err == nil && (family == "warpcore" || family == "gph" || family == "dycuckoo" && n > 2) {
				m = unmixed[K, V]{m}
			}
			return m, err
		}).Larger(least(family, n))
		if part < tabletest.Whole {
			suite = brief(kind, suite)
		}
		if family == "gph" && kind == "cpu" && !testenv.Long() {
			suite = suite.Without("full", "full duplicates") // take as long as all other maps together
		}
		suite.Run(t, part, own, open(t, "cpu:99"))
	})
}

// unmixed is a map of a family that has no mixed batches, which the suite asks for by a type assertion, or whose parts
// are too small in the suite for them.
type unmixed[K, V any] struct{ table.Map[K, V] }

// withOthers are all but the first of several devices behind another. Without that there are none; behind a CPU device
// there are no GPUs.
func withOthers(d *device.Device, all []*device.Device) []*device.Device {
	switch {
	case d == nil:
		return nil
	case d.Info().CUDA() != all[0].Info().CUDA():
		return []*device.Device{d}
	}
	return append([]*device.Device{d}, all[1:]...)
}

// least is by how much a family's tables must be larger for n parts of them to be tables.
func least(family string, n int) int64 {
	if n > 2 && (family == "gph" || family == "dycuckoo") {
		return 2
	}
	return 1
}

func TestMaps(t *testing.T) {
	most := 3
	if testenv.Long() {
		most = 4
	}
	for n := 1; n <= most; n++ {
		for family := range families[uint32, uint32]() {
			part := tabletest.Widths // of short runs on the CPU: others take the whole
			if family == "warpcore" && n == 2 {
				part = tabletest.Whole
			}
			if n == 3 || family == "warpcore" || testenv.Long() {
				maps[uint32, uint32](t, "cpu", family, n, shard.Options{}, part)
			}
			if n > 1 {
				maps[uint32, uint32](t, "cuda", family, n, shard.Options{}, part)
			}
		}
	}
	for _, kind := range []string{"cpu", "cuda"} {
		maps[uint64, [2]uint64](t, kind, "warpcore", 4, shard.Options{Copies: true}, tabletest.Widths)
		maps[uint32, uint64](t, kind, "slab", 2, shard.Options{Copies: true, Piece: 1}, tabletest.Widths)
		if kind == "cuda" || testenv.Long() { // columns of these widths are in the two above
			maps[uint64, uint32](t, kind, "warpcore", 2, shard.Options{}, tabletest.Types)
		}
	}
}

// Lanes change places at random.
func TestStress(t *testing.T) {
	for seed := range uint64(testenv.Seeds(4)) {
		others := []*device.Device{open(t, "cpu:1", device.WithStress(seed+7)),
			open(t, "cpu:2", device.WithStress(seed+9))}
		tabletest.Map(func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			return made[table.Map[uint32, uint32]](shard.NewMap(append([]*device.Device{d}, others...),
				shard.Options{Options: o}, families[uint32, uint32]()["slab"]))
		}).Stress(t, func(seed uint64) *device.Device {
			d, err := device.Open("cpu", device.WithStress(seed))
			must(t, err)
			return d
		}, table.Options{}, 1)
	}
}
