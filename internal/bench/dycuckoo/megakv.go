package dycuckoo

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

const (
	megakvSlots     = 8       // of a bucket: 64 bytes
	megakvLeast     = 128     // buckets
	megakvEvictions = 64      // of one pair after the other, before the last is homeless
	megakvGivenUp   = 1 << 10 // homeless pairs, after which none is put out any more: the table has to grow
	megakvLocks     = 1 << 16
	megakvNote      = "MegaKV: a baseline of this study: two hash functions over buckets of 64 bytes; where its filled factor leaves [α, β] or a pair finds no room, " +
		"it doubles or halves, and all its pairs are inserted anew. The pair of all ones is reserved, and does not occur"
)

// megakvParams are the parameters of megakv.cu.
type megakvParams struct {
	Slots, Buckets, Seed uint64
	Keys, Values, Found  uint64
	Pairs                uint64 // in place of Keys and Values
	N                    uint64
	Refused, Homeless    uint64 // lists of pairs
	Locks, Counters      uint64
}

// megakvCounters lie in device memory.
type megakvCounters struct {
	Live              uint64
	Refused, Homeless uint64
	Reads             uint64 // of buckets, by inserts
}

//go:embed megakv.cu
var megakvCU string

func megakvProgram(cuda bool) *device.Program {
	lanes := 1
	if cuda {
		lanes = 4
	}
	return &device.Program{
		Name:  "megakv",
		Files: []device.File{{Name: "megakv.cu", Text: megakvCU}},
		Defines: []device.Define{{Name: "MEGAKV_LANES", Value: lanes}, {Name: "MEGAKV_SLOTS", Value: megakvSlots},
			{Name: "MEGAKV_EVICTIONS", Value: megakvEvictions}, {Name: "MEGAKV_GIVEN_UP", Value: megakvGivenUp}, {Name: "MEGAKV_LOCKS", Value: megakvLocks}},
		Layouts: []any{megakvParams{}, megakvCounters{}},
	}
}

// megakv is the table. Its inserts and deletions wait for the stream.
type megakv struct {
	d                                         *device.Device
	low, high                                 float64 // α and β
	slots                                     device.Slice[uint64]
	refused, homeless                         device.Slice[uint64]
	locks                                     device.Slice[uint32]
	counters                                  device.Slice[megakvCounters]
	landing                                   device.Host[megakvCounters]
	seen                                      megakvCounters // when the host last looked
	find, erase, insert, pairs, rehash, evict device.Kernel[megakvParams]
}

// newMegaKV makes a table that so many pairs fill to the factor high.
func newMegaKV(d *device.Device, pairs int, low, high float64) (t *megakv, err error) {
	t = &megakv{d: d, low: low, high: high}
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	m, err := d.Compile(megakvProgram(d.Info().CUDA()))
	if err != nil {
		return nil, err
	}
	if t.slots, err = t.empty(max(megakvLeast, int(math.Ceil(float64(pairs)/high/megakvSlots)))); err != nil {
		return nil, err
	}
	if t.locks, err = device.Make[uint32](d, megakvLocks); err != nil {
		return nil, err
	}
	if t.counters, err = device.Make[megakvCounters](d, 1); err != nil {
		return nil, err
	}
	if t.landing, err = device.MakeHost[megakvCounters](d, 1); err != nil {
		return nil, err
	}
	return t, errors.Join(t.locks.Fill(d.Stream(), 0), t.set(d.Stream()),
		device.Bind(m, "megakv_find", &t.find), device.Bind(m, "megakv_erase", &t.erase), device.Bind(m, "megakv_insert", &t.insert),
		device.Bind(m, "megakv_insert_pairs", &t.pairs), device.Bind(m, "megakv_rehash", &t.rehash), device.Bind(m, "megakv_evict", &t.evict))
}

// bucketsFor is how many buckets so many pairs need, if the table can only double.
func (t *megakv) bucketsFor(pairs int) int {
	n := t.buckets()
	for t.high*float64(n*megakvSlots) < float64(pairs) {
		n *= 2
	}
	return n
}

func (t *megakv) empty(buckets int) (device.Slice[uint64], error) {
	s, err := device.MakePooled[uint64](t.d, buckets*megakvSlots)
	if err == nil {
		err = s.Fill(t.d.Stream(), 0xff)
	}
	return s, err
}

// look waits for the stream, and reads the counters.
func (t *megakv) look(st *device.Stream) error {
	err := errors.Join(t.counters.ReadAsync(st, t.landing, 1), st.Sync())
	t.seen = t.landing.Slice()[0]
	return err
}

func (t *megakv) set(st *device.Stream) error { return t.counters.Write(st, []megakvCounters{t.seen}) }

func (t *megakv) live() int { return int(t.seen.Live) }

// bring inserts by the kernel, whose sources p has; the table doubles until every pair has found a place.
func (t *megakv) bring(st *device.Stream, k device.Kernel[megakvParams], p megakvParams) error {
	if err := t.room(int(p.N)); err != nil {
		return err
	}
	left, err := t.launch(st, k, p)
	if err != nil {
		return err
	}
	if left > 0 {
		pairs := t.homeless // stays aside while the table is rehashed, which takes another list
		t.homeless = device.Slice[uint64]{}
		defer pairs.FreeAfter(st)
		if err := t.resize(st, max(2*t.buckets(), t.bucketsFor(t.live()+left))); err != nil {
			return err
		}
		return t.bring(st, t.pairs, megakvParams{Pairs: pairs.Addr(), N: uint64(left)})
	}
	if need := t.bucketsFor(t.live()); need > t.buckets() {
		return t.resize(st, need)
	}
	return nil
}

func (t *megakv) buckets() int { return t.slots.Len() / megakvSlots }

// room has lists for n pairs.
func (t *megakv) room(n int) (err error) {
	for _, list := range []*device.Slice[uint64]{&t.refused, &t.homeless} {
		if list.Len() >= n {
			continue
		}
		bench.Free(*list)
		if *list, err = device.MakePooled[uint64](t.d, n); err != nil {
			return err
		}
	}
	return nil
}

func (t *megakv) params(p megakvParams) *megakvParams {
	p.Slots, p.Buckets, p.Seed, p.Locks, p.Counters = t.slots.Addr(), uint64(t.buckets()), 1, t.locks.Addr(), t.counters.Addr()
	p.Refused, p.Homeless = t.refused.Addr(), t.homeless.Addr()
	return &p
}

// launch inserts once, and gives the number of homeless pairs.
func (t *megakv) launch(st *device.Stream, k device.Kernel[megakvParams], p megakvParams) (left int, err error) {
	grid, q := device.GridFor(int64(p.N), 256), t.params(p)
	if t.seen.Refused > 0 {
		t.seen.Refused, t.seen.Homeless = 0, 0
		if err := t.set(st); err != nil {
			return 0, err
		}
	}
	err = errors.Join(k.Launch(st, grid, q), t.evict.Launch(st, grid, q), t.look(st))
	return int(t.seen.Homeless), err
}

// resize inserts all pairs into a table of so many buckets, or of more where they do not fit. A table that is to be smaller stays as
// it is then.
func (t *megakv) resize(st *device.Stream, buckets int) error {
	old, live := t.slots, t.seen.Live
	if err := t.room(int(live)); err != nil {
		return err
	}
	for grows := buckets > t.buckets(); ; buckets *= 2 {
		var err error
		if t.slots, err = t.empty(buckets); err != nil {
			t.slots = old
			return err
		}
		t.seen.Live = 0
		if err = t.set(st); err != nil {
			return err
		}
		left, err := t.launch(st, t.rehash, megakvParams{Pairs: old.Addr(), N: uint64(old.Len())})
		if err != nil || left == 0 {
			if err == nil && t.seen.Live != live {
				err = fmt.Errorf("megakv: %d pairs after rehashing %d: this is a defect of the baseline", t.seen.Live, live)
			}
			return errors.Join(err, old.FreeAfter(st))
		}
		err = t.slots.FreeAfter(st)
		t.slots, t.seen.Live = old, live
		if err = errors.Join(err, t.set(st)); err != nil || !grows {
			return err
		}
	}
}

// InsertOn puts or replaces pairs, and doubles the table as it must.
func (t *megakv) InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	return t.bring(st, t.insert, megakvParams{Keys: keys.Addr(), Values: values.Addr(), N: uint64(keys.Len())})
}

// FindOn looks keys up.
func (t *megakv) FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error {
	p := t.params(megakvParams{Keys: keys.Addr(), Values: values.Addr(), Found: found.Addr(), N: uint64(keys.Len())})
	return t.find.Launch(st, device.GridFor(int64(p.N), 256), p)
}

// DeleteOn removes keys, and halves the table if it has become too empty.
func (t *megakv) DeleteOn(st *device.Stream, keys device.Slice[uint32], deleted device.Slice[bool]) error {
	p := t.params(megakvParams{Keys: keys.Addr(), N: uint64(keys.Len())})
	if deleted.Len() > 0 {
		p.Found = deleted.Addr()
	}
	if err := errors.Join(t.erase.Launch(st, device.GridFor(int64(p.N), 256), p), t.look(st)); err != nil {
		return err
	}
	to := t.buckets()
	for to/2 >= megakvLeast && float64(t.live()) < t.low*float64(to*megakvSlots) {
		to /= 2
	}
	if to == t.buckets() {
		return nil
	}
	return t.resize(st, to)
}

// Clear removes all pairs.
func (t *megakv) Clear() error {
	st := t.d.Stream()
	t.seen = megakvCounters{}
	return errors.Join(t.slots.Fill(st, 0xff), t.set(st))
}

// Stats tells of the table. Its lists are scratch memory.
func (t *megakv) Stats() (s table.Stats, err error) {
	if err = t.look(t.d.Stream()); err != nil {
		return s, err
	}
	s = table.Stats{Len: t.live(), Capacity: t.slots.Len(), Bytes: t.slots.Bytes(), ScratchBytes: t.refused.Bytes() + t.homeless.Bytes()}
	s.LoadFactor = float64(s.Len) / float64(s.Capacity)
	return s, nil
}

// Close frees the table's memory.
func (t *megakv) Close() error {
	bench.Free(t.slots, t.refused, t.homeless, t.locks, t.counters)
	if t.landing.Len() > 0 {
		return t.landing.Free()
	}
	return nil
}
