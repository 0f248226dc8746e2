package slabhash

import (
	"errors"
	"math/rand/v2"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// Shares of inserts of new keys, deletes of present keys, searches of present, and of absent keys.
var gammas = []struct {
	name   string
	shares [4]float64
}{
	{"Γ0", [4]float64{0.5, 0.5, 0, 0}},
	{"Γ1", [4]float64{0.2, 0.2, 0.3, 0.3}},
	{"Γ2", [4]float64{0.1, 0.1, 0.4, 0.4}},
}

const gammaNote = "Γ: shares of inserts of new keys, deletes of keys that are there, searches of keys that are there, and of keys that are not: Γ0 (0.5, 0.5, 0, 0), Γ1 (0.2, 0.2, 0.3, 0.3), Γ2 (0.1, 0.1, 0.4, 0.4)"

// mixing is the data of mixed batches, here and on the device.
type mixing struct {
	d       *device.Device
	n       int
	kinds   workload.Keys
	host    mixingHost
	ops     device.Slice[table.Op]
	keys    device.Slice[uint32]
	values  device.Slice[uint32]
	results device.Slice[uint32]
	status  device.Slice[table.Status]
}

type mixingHost struct {
	ops          []table.Op
	keys, values []uint32
	kinds        []uint8 // 0 to 3, as the shares
	present      []uint32
	deleted      []uint32
}

func newMixing(d *device.Device, n int) (x *mixing, err error) {
	x = &mixing{d: d, n: n}
	if x.kinds, err = workload.NewKeys("rand", 4, 1); err != nil {
		return nil, err
	}
	x.host = mixingHost{ops: make([]table.Op, n), keys: make([]uint32, n), values: make([]uint32, n), kinds: make([]uint8, n)}
	var errs [5]error
	x.ops, errs[0] = device.Make[table.Op](d, n)
	x.keys, errs[1] = device.Make[uint32](d, n)
	x.values, errs[2] = device.Make[uint32](d, n)
	x.results, errs[3] = device.Make[uint32](d, n)
	x.status, errs[4] = device.Make[table.Status](d, n)
	if err := errors.Join(errs[:]...); err != nil {
		x.free()
		return nil, err
	}
	return x, nil
}

func (x *mixing) free() {
	for _, s := range []interface {
		Free() error
		Addr() uint64
	}{x.ops, x.keys, x.values, x.results, x.status} {
		if s.Addr() != 0 {
			s.Free()
		}
	}
}

func valueOf(key uint32) uint32 { return uint32(workload.Value(uint64(key))) }

// next makes a batch: new keys from index fresh on. It returns how many are new; present is what is there afterwards.
func (h *mixingHost) next(kinds workload.Keys, rng *rand.Rand, shares [4]float64, fresh int) (inserts int) {
	var left [4]int
	n := len(h.ops)
	rest := n
	for i, s := range shares[:3] {
		left[i] = min(rest, int(s*float64(n)+0.5))
		rest -= left[i]
	}
	left[3] = rest
	if shares[3] == 0 { // what rounding left
		left[0], left[3] = left[0]+left[3], 0
	}
	left[1] = min(left[1], len(h.present))
	inserts = n - left[1] - left[2] - left[3]
	left[0] = inserts
	h.deleted = h.deleted[:0]
	for range left[1] { // first: no search asks for them
		j, last := rng.IntN(len(h.present)), len(h.present)-1
		h.deleted = append(h.deleted, h.present[j])
		h.present[j] = h.present[last]
		h.present = h.present[:last]
	}
	there := h.present
	for i := range n {
		kind, draw := 0, rng.IntN(n-i)
		for draw >= left[kind] {
			draw -= left[kind]
			kind++
		}
		left[kind]--
		h.kinds[i] = uint8(kind)
		switch {
		case kind == 0:
			h.ops[i], h.keys[i] = table.OpInsert, uint32(kinds.At(uint64(fresh)))
			fresh++
			h.present = append(h.present, h.keys[i])
		case kind == 1:
			h.ops[i], h.keys[i] = table.OpDelete, h.deleted[left[1]]
		case kind == 2 && len(there) > 0:
			h.ops[i], h.keys[i] = table.OpFind, there[rng.IntN(len(there))]
		default: // of the upper half of the indices nothing is ever inserted
			h.kinds[i] = 3
			h.ops[i], h.keys[i] = table.OpFind, uint32(kinds.At(1<<31+rng.Uint64N(1<<31)))
		}
		h.values[i] = valueOf(h.keys[i])
	}
	return inserts
}

// mixedStatus is what must come of each kind of operation.
var mixedStatus = [4]table.Status{table.Added, table.Present, table.Present, table.Absent}

// wrong counts the operations of the last batch of which something else came.
func (x *mixing) wrong(st *device.Stream) (wrong int, err error) {
	status, err := x.status.Host(st)
	if err != nil {
		return 0, err
	}
	results, err := x.results.Host(st)
	if err != nil {
		return 0, err
	}
	return x.host.unexpected(status, results), nil
}

func (h *mixingHost) unexpected(status []table.Status, results []uint32) (n int) {
	for i, kind := range h.kinds {
		value := uint32(0)
		if kind == 2 {
			value = h.values[i]
		}
		if status[i] != mixedStatus[kind] || results[i] != value {
			n++
		}
	}
	return n
}
