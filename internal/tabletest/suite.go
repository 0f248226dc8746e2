// Package tabletest is the conformance suite: what every table promises (package table), tested over every family, key
// and value width, and device. There is a suite for each kind of table:
//
//	func TestMine(t *testing.T) {
//		d, err := device.Open("cpu")
//		...
//		suite := tabletest.Map(func(d *device.Device, o table.Options) (table.Map[uint32, uint64], error) {
//			return mine.New[uint32, uint64](d, mine.Options{Options: o})
//		})
//		suite.Run(t, tabletest.Whole, d, other)
//		suite.Degenerate(t, d)
//	}
//
// A maker returns nil as the interface where it returns an error. The suite makes tables of a few KiB to a few MiB. Beside each
// stands a Go map; every batch, seeded, is compared with it, and Check is called after each, so a family's Check
// decides how much the suite sees. When a test fails, its log has seed, options and the step.
//
// The suite thinks of keys as bits, and uses all patterns of them; values carry a number in a form that shows a value of two
// moments. What only one family has is for that family's own tests; Churn and Stress help them there, with makers that
// set the family's own options.
package tabletest

import (
	"fmt"
	"maps"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// Part is how much of the suite a pair of types gets.
type Part int

// Each part holds those before it.
const (
	// Types is what types of other kinds can change, where a pair of the same widths gets more: their kernels are the same.
	Types Part = iota
	// Widths is what widths can change: all that kernels do, with some of the options and seeds.
	Widths
	// Whole is the suite with what is of the host alone: streams, goroutines, bad arguments.
	Whole
)

// pairBytes are the bytes of a key and a value.
func pairBytes[K, V any]() uintptr { return unsafe.Sizeof(*new(K)) + unsafe.Sizeof(*new(V)) }

// Suite are the tests of one family's tables of one kind: see Map, Set, MultiMap, Counter and Filter.
type Suite struct {
	open   func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject
	try    func(d *device.Device, o table.Options) error // makes a table and closes it
	closed func(t testing.TB, d *device.Device)
	input  func(t testing.TB, d, other *device.Device)
	race   func(t testing.TB, d *device.Device)
	own    []test // of the kind
	unique bool   // a key is there once
	light  bool   // the run is of less than the whole suite: each test with fewer options and seeds
	filter bool   // it does not refuse, and only one of the same options and seed takes what is saved
	skip   map[string]bool
}

type test struct {
	name string
	part Part
	run  func(*testing.T, *device.Device)
}

// newSuite has what all kinds share. pair is the bytes of a key and a value; calls are the operations of a table that take batches, the first
// an insert.
func newSuite(make func(*device.Device, table.Options) (table.Table, error), open func(testing.TB, *device.Device, table.Options, uint64) subject,
	pair uintptr, newBatch maker, calls func(table.Table) []call) *Suite {
	raw := func(t testing.TB, d *device.Device) table.Table {
		it, err := make(d, table.Options{})
		must(t, err)
		t.Cleanup(func() { it.Close() })
		return it
	}
	inner := open
	open = func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject {
		o.MaxBytes *= max(1, int64(pair)/32) // as many pairs of wide ones, or more
		return inner(t, d, o, seed)
	}
	return &Suite{
		open:   open,
		unique: true,
		try: func(d *device.Device, o table.Options) error {
			it, err := make(d, o)
			if err == nil {
				err = it.Close()
			}
			return err
		},
		closed: func(t testing.TB, d *device.Device) { it := raw(t, d); closedTest(t, d, it, newBatch, calls(it)) },
		input: func(t testing.TB, d, other *device.Device) {
			s := open(t, d, table.Options{}, 1)
			inputTest(t, d, other, s, newBatch, calls(s.base().t))
		},
		race: func(t testing.TB, d *device.Device) {
			rounds := 8
			if !testenv.Long() {
				rounds = 3 // each of another length
			}
			for round := range rounds {
				it := raw(t, d)
				closeTest(t, d, it, newBatch, calls(it), round)
			}
		},
	}
}

// Larger is the suite with so many times the memory for its tables that have a bound: for tables that are made of several, each of which takes some
// KiB at least.
func (s *Suite) Larger(times int64) *Suite {
	own := *s
	own.open = func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject {
		o.MaxBytes *= times
		return s.open(t, d, o, seed)
	}
	return &own
}

// Without is the suite without tests of these names: for what a table does otherwise, and has a test of its own for.
func (s *Suite) Without(names ...string) *Suite {
	own := *s
	own.skip = maps.Clone(s.skip)
	for _, name := range names {
		if own.skip == nil {
			own.skip = map[string]bool{}
		}
		own.skip[name] = true
	}
	return &own
}

// Run runs a part of the suite, or on a GPU, and in long runs, the whole. other is a second device: where it has
// another name, what lies on it is refused.
func (s *Suite) Run(t *testing.T, part Part, d, other *device.Device) {
	if testenv.Long() {
		part = Whole
	}
	own := *s
	s = &own
	s.light = part < Whole
	for _, c := range append([]test{
		{"churn", Widths, s.churn},
		{"growth", Widths, func(t *testing.T, d *device.Device) { s.growth(t, d) }},
		{"full", Widths, func(t *testing.T, d *device.Device) { s.full(t, d) }},
		{"full duplicates", Widths, func(t *testing.T, d *device.Device) { s.fullDuplicates(t, d) }},
		{"refused", Whole, func(t *testing.T, d *device.Device) { s.refused(t, d) }},
		{"seeds", Whole, func(t *testing.T, d *device.Device) { s.seeds(t, d) }},
		{"chunks", Whole, func(t *testing.T, d *device.Device) { s.chunks(t, d) }},
		{"saved and loaded", Widths, func(t *testing.T, d *device.Device) { s.saved(t, d) }},
		{"reserved patterns", Types, func(t *testing.T, d *device.Device) { s.patterns(t, d) }},
		{"order of streams", Whole, func(t *testing.T, d *device.Device) { s.order(t, d) }},
		{"goroutines", Whole, func(t *testing.T, d *device.Device) { s.goroutines(t, d) }},
		{"close beside use", Whole, func(t *testing.T, d *device.Device) { s.race(t, d) }},
		{"close frees all", Whole, func(t *testing.T, d *device.Device) { s.frees(t, d) }},
		{"bad options", Whole, func(t *testing.T, d *device.Device) { s.options(t, d) }},
		{"after close", Whole, func(t *testing.T, d *device.Device) { s.closed(t, d) }},
		{"bad input", Whole, func(t *testing.T, d *device.Device) { s.input(t, d, other) }},
	}, s.own...) {
		if c.part <= part && !s.skip[c.name] {
			t.Run(c.name, func(t *testing.T) { c.run(t, d) })
		}
	}
}

// Degenerate runs a smaller suite with the hash functions that put keys on few probe sequences: with the one that puts all
// on one, and in long runs also with the identity and with Mueller's, which is a good one. Each costs a compilation.
func (s *Suite) Degenerate(t *testing.T, d *device.Device) {
	for name, hash := range map[string]int{"mueller": kernel.HashMueller, "identity": kernel.HashIdentity, "constant": kernel.HashConstant} {
		if hash != kernel.HashConstant && !testenv.Long() {
			continue
		}
		t.Run(name, func(t *testing.T) {
			steps, universe := 25, 600
			if !testenv.Long() {
				steps, universe = 8, 400 // every key goes by all that are in
			}
			for i, o := range []table.Options{{}, {LoadFactor: 1, Capacity: 64}, {MaxBytes: 4 << 10, LoadFactor: 1}} {
				o.Hash = hash
				s.Churn(t, d, o, uint64(i), steps, universe)
			}
		})
	}
}

// Stress churns a tiny table on devices in stress mode, which open opens by their seeds.
func (s *Suite) Stress(t *testing.T, open func(seed uint64) *device.Device, o table.Options, seeds int) {
	keys := 96
	if o.Hash == kernel.HashConstant && !testenv.Long() {
		keys = 48 // every lane may go by all of them
	}
	testenv.Tried(t, seeds, "histories")
	for seed := range uint64(seeds) {
		d := open(seed)
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) { s.Churn(t, d, o, seed+testenv.FirstSeed(), 8, keys) })
		must(t, d.Close())
		if !ok {
			return
		}
	}
}
