package warpcore

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

func counters[K any, C uint32 | uint64](o Options) *tabletest.Suite {
	return tabletest.Counter(func(d *device.Device, base table.CounterOptions) (table.Counter[K, C], error) {
		o := o
		o.Options = base.Options
		c, err := NewCounter[K, C](d, CounterOptions{o, base.Saturate})
		if err != nil {
			return nil, err
		}
		return c, nil
	})
}

// What is not the default: that has the suite of all families.
func TestCounters(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		run := func(what string, suite func(t *testing.T, d *device.Device)) { parallel(t, name, what, suite) }
		// In short runs of the CPU, lanes that work together get few batches: each vote costs them as many switches.
		run("8+8 in soa, by 8 lanes", func(t *testing.T, d *device.Device) {
			together(t, d, counters[uint64, uint64](Options{Layout: SoA, InsertGroup: 8}))
		})
		run("4+8 by 2 lanes", func(t *testing.T, d *device.Device) {
			together(t, d, counters[uint32, uint64](Options{InsertGroup: 2}))
		})
	}
}

func together(t *testing.T, d *device.Device, s *tabletest.Suite) {
	s.Run(t, tabletest.Types, d, openCPU(t))
	for i, o := range []table.Options{{}, {LoadFactor: 1, Capacity: 200}, {MaxBytes: 4 << 10, LoadFactor: 1}} {
		s.Churn(t, d, o, uint64(i), testenv.SeedsOf(60, 8), 1000)
	}
}

func TestCountersUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	t.Parallel()
	for _, o := range []Options{{}, {InsertGroup: 4}} {
		counters[uint32, uint32](o).Stress(t, func(seed uint64) *device.Device {
			d, err := device.Open("cpu", device.WithStress(seed))
			must(t, err)
			return d
		}, table.Options{}, testenv.Seeds(20))
	}
}

func TestHistogramOfCounts(t *testing.T) {
	c, err := NewCounter[uint32, uint32](openCPU(t), CounterOptions{})
	must(t, err)
	defer c.Close()
	var keys, times []uint32
	for i := range uint32(3000) {
		keys, times = append(keys, i-3), append(times, i%7+i%2*2000)
	}
	must(t, c.AddCounts(keys, times))
	for _, bins := range []int{1, 5, 1030, 3000} {
		want := make([]uint64, bins)
		for _, n := range times {
			want[min(int(n), bins-1)]++
		}
		got, err := c.Histogram(bins)
		must(t, err)
		if !slices.Equal(got, want) {
			t.Errorf("%d bins: %v, want %v", bins, got, want)
		}
	}
	if _, err := c.Histogram(0); err == nil {
		t.Error("no bins: no error")
	}
	if _, _, err := c.Top(-1); err == nil {
		t.Error("the -1 most frequent keys: no error")
	}
	if err := c.AddCounts([]uint32{1}, []uint32{^uint32(0)}); !errors.Is(err, table.ErrOverflow) {
		t.Error(err)
	}
	if err := c.Add([]uint32{1}); !errors.Is(err, table.ErrOverflow) {
		t.Error(err)
	}
}

// A count that is too large is told though the table grows for other keys of the batch, or refuses them; and not where its key is refused.
func TestOverflowBesideGrowth(t *testing.T) {
	t.Parallel()
	most := ^uint32(0)
	for _, maxBytes := range []int64{0, 4 << 10} {
		for _, group := range []int{1, 4} {
			c, err := NewCounter[uint32, uint32](openCPU(t), CounterOptions{Options: Options{InsertGroup: group, Options: table.Options{MaxBytes: maxBytes}}})
			must(t, err)
			must(t, c.AddCounts([]uint32{1, 2}, []uint32{most, 1}))
			expect := func(what string, err error, full, over bool) {
				t.Helper()
				if errors.As(err, new(*table.FullError)) != full || errors.Is(err, table.ErrOverflow) != over {
					t.Errorf("%s, MaxBytes %d, %d lanes: %v", what, maxBytes, group, err)
				}
			}
			expect("many keys", c.Add(sequence(1, 3000)), maxBytes > 0, true)
			expect("one key", c.Add([]uint32{2}), false, false)
			keys, times := slices.Repeat([]uint32{5000}, 64), slices.Repeat([]uint32{1 << 30}, 64)
			expect("a new key", c.AddCounts(keys, times), maxBytes > 0, maxBytes == 0)
			must(t, c.Close())
		}
	}
}
