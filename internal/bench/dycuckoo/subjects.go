package dycuckoo

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

const (
	pairBytes = 8
	seed      = 1
	// Table 3's defaults.
	low, high = 0.30, 0.85 // α and β; β is also the filled factor θ of the static figures
	ratio     = 0.2        // r
	subtables = 4
	// all is the number of pairs of RAND.
	all = 100_000_000
)

// sets are the data sets, where RAND has n pairs.
func sets(n int) ([]workload.DataSet, error) {
	if n > 1<<30 {
		return nil, fmt.Errorf("data sets of %d pairs: want 2³⁰ at most, for there must be as many keys that are not in them", n)
	}
	return workload.DyCuckooSets(n, seed), nil
}

func scaleNotes(n int) []string {
	if n == all {
		return nil
	}
	return []string{fmt.Sprintf("data sets and batches have %.6g times as many pairs as the paper's", float64(n)/all)}
}

// settings are what a figure varies.
type settings struct {
	pairs     int     // to make room for at once
	low, high float64 // α and β
	subtables int
}

// store is a table that takes batches. table.Map is one.
type store interface {
	Clear() error
	Stats() (table.Stats, error)
	Close() error
	InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error
	FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error
	DeleteOn(st *device.Stream, keys device.Slice[uint32], deleted device.Slice[bool]) error
}

// subject is a table to measure.
type subject struct {
	name  string
	alpha bool // halves below α
	make  func(d *device.Device, s settings) (store, error)
}

var (
	own = subject{"dycuckoo", true, func(d *device.Device, s settings) (store, error) {
		return opened(newOwn(d, s))
	}}
	mega = subject{"MegaKV", true, func(d *device.Device, s settings) (store, error) {
		return opened(newMegaKV(d, s.pairs, s.low, s.high))
	}}
)

func newOwn(d *device.Device, s settings) (*dycuckoo.Map[uint32, uint32], error) {
	return dycuckoo.New[uint32, uint32](d, dycuckoo.Options{Options: table.Options{Capacity: s.pairs, LoadFactor: s.high}, Low: s.low, Subtables: s.subtables})
}

// opened keeps a nil table from becoming a store that is not nil.
func opened[T store](t T, err error) (store, error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// subjects are the tables that insert, find and delete: DyCuckoo's first.
func subjects() []subject {
	list := []subject{own, mega}
	for _, f := range warpmap.Families(table.KindMap) {
		if f != warpmap.DyCuckoo {
			list = append(list, subject{string(f), false, func(d *device.Device, s settings) (store, error) {
				return bench.NewMap(d, f, table.Options{Capacity: s.pairs, LoadFactor: s.high})
			}})
		}
	}
	return list
}

const subjectsNote = "the other families have β as their LoadFactor, and their defaults beside; slab's is the paper's average slab count"

// cuckoo stands for CUDPP's table in static figures: it is built from distinct keys.
type cuckoo struct{ *baseline.Cuckoo }

// DeleteOn has no meaning for it.
func (cuckoo) DeleteOn(*device.Stream, device.Slice[uint32], device.Slice[bool]) error {
	return errors.ErrUnsupported
}

var cudpp = subject{"cuckoo", false, func(d *device.Device, s settings) (store, error) {
	c, err := baseline.NewCuckoo(d, s.pairs, s.high)
	return opened(cuckoo{c}, err)
}}

// fill makes a data set's pairs on the device, and room for look-ups.
func fill(d *device.Device, set workload.DataSet, queries int) (*bench.Work[uint32, uint32], error) {
	keys, values := make([]uint32, set.Pairs), make([]uint32, set.Pairs)
	set.Fill(0, keys, values)
	return bench.NewWorkOf(d, bench.TableOptions{KeyBytes: 4, ValueBytes: 4, N: set.Pairs, Queries: queries}, set.Keys, set.Distinct, keys, values)
}

// filling cuts the data set to as many keys as fill a table of DyCuckoo's to the factor exactly: its sizes are few. A set that is too
// small for the smallest table stays.
func filling(d *device.Device, set workload.DataSet, factor float64, subtables int) (workload.DataSet, error) {
	for pairs := set.Distinct; ; pairs -= (pairs + 15) / 16 {
		m, err := newOwn(d, settings{pairs, 0, factor, subtables})
		if err != nil {
			return set, err
		}
		s, err := m.Stats()
		if err := errors.Join(err, m.Close()); err != nil {
			return set, err
		}
		if fits := int(factor * float64(s.Capacity)); fits <= set.Distinct {
			return set.Sized(fits), nil
		}
		if pairs == 0 {
			return set, nil
		}
	}
}
