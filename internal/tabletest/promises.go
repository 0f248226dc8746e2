package tabletest

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// refused overfills tables by one large batch in which keys come again and again: a position is named exactly if its key is not in the
// table when the batch ends.
func (s *Suite) refused(t testing.TB, d *device.Device) {
	if !s.unique {
		return // each position is a pair of its own
	}
	type overfull struct {
		o    table.Options
		keys int // distinct, of which some go in
		n    int
	}
	many, chain := overfull{table.Options{MaxBytes: 64 << 10}, 20_000, 70_000}, overfull{table.Options{MaxBytes: 8 << 10, Hash: kernel.HashConstant}, 2500, 6000}
	if !testenv.Long() {
		many.o.MaxBytes, many.keys, many.n = 32<<10, 9000, 12_000
		chain.o.MaxBytes, chain.keys, chain.n = 4<<10, 1100, 1300 // each that is refused has gone by all slots
	}
	for _, c := range []overfull{many, chain} {
		x := s.open(t, d, c.o, 1)
		r := x.base()
		keys := r.fresh(new(uint64), c.keys)
		for len(keys) < c.n {
			keys = append(keys, keys[r.rng.IntN(c.keys)])
		}
		r.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		if err := x.put(keys); !errors.As(err, new(*table.FullError)) {
			t.Fatalf("%+v: %v", c.o, err)
		}
		x.ask(keys)
		x.verify()
	}
}

// seeds makes tables alike, with one seed, and with none: then each has its own, so that nobody can choose keys that collide. The
// order in which one thread finds the same keys tells.
func (s *Suite) seeds(t testing.TB, d *device.Device) {
	one, err := device.Open("cpu", device.WithWorkers(1))
	must(t, err)
	t.Cleanup(func() { must(t, one.Close()) })
	order := func(seed uint64) []uint64 {
		x := s.open(t, one, table.Options{Capacity: 400, Seed: seed}, 1)
		r := x.base()
		for _, k := range r.fresh(new(uint64), 100) { // one at a time, so that all come the same way
			must(t, x.put([]uint64{k}))
		}
		return x.order()
	}
	if !slices.Equal(order(7), order(7)) {
		t.Error("two tables with one seed differ: the seed cannot be told by the order of keys")
	}
	if slices.Equal(order(7), order(8)) {
		t.Error("two tables with different seeds are alike")
	}
	if slices.Equal(order(0), order(0)) {
		t.Error("two tables without a seed are alike: their seed is not random")
	}
}

// Fill fills tables with unique random keys, up to MaxBytes: at least that share of their slots holds a pair in the end, and
// seven eighths of MaxBytes are in use.
func (s *Suite) Fill(t *testing.T, d *device.Device, o table.Options, least float64) {
	t.Helper()
	x := s.open(t, d, o, 1)
	r := x.base()
	next := uint64(0)
	for range 2 {
		fill(x, &next, int(o.MaxBytes)/64)
	}
	x.verify()
	st, err := r.t.Stats()
	must(t, err)
	t.Logf("%+v: %.1f%% of %d slots, %s", o, 100*st.LoadFactor, st.Capacity, device.Bytes(st.Bytes))
	if st.LoadFactor < least || st.Bytes < o.MaxBytes/8*7 {
		t.Errorf("%+v: full at %.1f%% of %d slots, want %.1f%%, and %s", o, 100*st.LoadFactor, st.Capacity, 100*least, device.Bytes(st.Bytes))
	}
}

// MaxBytesIsChecked lowers the bound of a table that is within it: then Check refuses the table, and so does what makes
// its memory. Each of larger is one way to do that.
func MaxBytesIsChecked(t testing.TB, f *frame.Frame, check func() error, larger map[string]func() error) {
	t.Helper()
	must(t, check())
	was := f.MaxBytes
	f.MaxBytes = 10
	if err := check(); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("Check of a table that is too large: %v", err)
	}
	for what, do := range larger {
		if err := f.Writing(nil, func(*device.Stream) error { return do() }); !errors.Is(err, table.ErrMaxBytes) {
			t.Errorf("%s of a table that is too large: %v", what, err)
		}
	}
	f.MaxBytes = was
	must(t, check())
}
