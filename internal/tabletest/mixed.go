package tabletest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// mixedTest runs mixed batches on the tables that have them.
func mixedTest[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	m, err := newMap(d, table.Options{})
	must(t, err)
	defer m.Close()
	if _, ok := m.(table.Mixed[K, V]); !ok {
		t.Skip("this table has no mixed batches")
	}
	for i, o := range []table.Options{{}, {Capacity: 1, LoadFactor: 1}, {MaxBytes: 8 << 10, LoadFactor: 1}} {
		t.Run(fmt.Sprint(i), func(t *testing.T) { mixedChurn(t, d, newMap, o, uint64(i), 30, 2500) })
	}
	t.Run("few keys", func(t *testing.T) {
		steps, rows := 20, 1<<15
		if !testenv.Long() {
			steps, rows = 4, 4000
		}
		fewKeys(t, d, newMap, table.Options{Capacity: 1, LoadFactor: 1}, testenv.FirstSeed(), steps, rows)
	})
	t.Run("bad input", func(t *testing.T) { mixedInput(t, d, newMap) })
}

// fewKeys runs mixed batches in which many lanes insert, replace, delete and find the same few keys at once, among keys
// that come and go between the batches. A key that goes into the place of a deleted one, while another lane puts it
// behind that, would be in twice: the attack of McCoy and Pandey ("WarpSpeed", 2025), which each batch tries thousands
// of times.
func fewKeys[K, V any](t testing.TB, d *device.Device, newMap Maker[K, V], o table.Options, seed uint64, steps, rows int) {
	s := newMapSubject(t, d, newMap, o, seed)
	for range steps {
		others := make([]uint64, 60)
		for i := range others {
			others[i] = 100 + s.rng.Uint64N(100)
		}
		must(t, s.insert(others, s.numbers(len(others))))
		s.drop(others[:50])
		s.verify() // and the table knows of tombstones
		few := 1 + s.rng.Uint64N(8)
		keys, ops := make([]uint64, rows), make([]table.Op, rows)
		for i := range keys {
			keys[i], ops[i] = s.rng.Uint64N(few), table.Op(s.rng.IntN(4))
		}
		s.mixed(ops, keys, s.numbers(rows))
		s.verify()
	}
}

// MixedStress is Stress with mixed batches.
func MixedStress[K, V any](t *testing.T, open func(seed uint64) *device.Device, newMap Maker[K, V], o table.Options, seeds int) {
	testenv.Tried(t, seeds, "histories")
	for seed := range uint64(seeds) {
		d := open(seed)
		ok := t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			mixedChurn(t, d, newMap, o, seed+testenv.FirstSeed(), 8, 96)
		})
		must(t, d.Close())
		if !ok {
			return
		}
	}
}

func mixedChurn[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V], o table.Options, seed uint64, steps, universe int) {
	s := newMapSubject(t, d, newMap, o, seed)
	step := 0
	defer func() {
		if t.Failed() {
			t.Logf("seed %d, %+v: step %d", seed, o, step)
		}
	}()
	for step = range steps {
		keys := s.batch(universe)
		if s.coin() {
			keys = distinct(keys)
			s.rng.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		}
		ops := make([]table.Op, len(keys))
		for i := range ops {
			ops[i] = table.Op(s.rng.IntN(4))
		}
		switch s.rng.IntN(8) {
		case 0:
			s.insert(keys, s.numbers(len(keys)))
		case 1:
			s.drop(keys)
		default:
			s.mixed(ops, keys, s.numbers(len(keys)))
		}
		s.verify()
	}
}

// mixed runs one batch. Of a key with one operation all is known; of one with several, what every order of them allows.
func (s *mapSubject[K, V]) mixed(ops []table.Op, keys []uint64, numbers []uint32) {
	s.Helper()
	m := s.m.(table.Mixed[K, V])
	k, v := KeysOf[K](keys), ValuesOf[V](numbers)
	results, status := ValuesOf[V](s.numbers(len(keys))), make([]table.Status, len(keys))
	withResults, withStatus := s.rng.IntN(5) > 0, s.rng.IntN(5) > 0
	var err error
	if s.coin() {
		r, st := results, status
		if !withResults {
			r = nil
		}
		if !withStatus {
			st = nil
		}
		err = m.Mixed(ops, k, v, r, st)
	} else {
		do, dk, dv, stream := onDevice(s.TB, s.d, ops), onDevice(s.TB, s.d, k), onDevice(s.TB, s.d, v), s.stream()
		var dr device.Slice[V]
		var ds device.Slice[table.Status]
		if withResults {
			dr = onDevice(s.TB, s.d, results)
		}
		if withStatus {
			ds = onDevice(s.TB, s.d, status)
		}
		err = m.MixedOn(stream, do, dk, dv, dr, ds)
		if withResults {
			results = host(s.TB, stream, dr)
		}
		if withStatus {
			status = host(s.TB, stream, ds)
		}
		must(s, stream.SyncOf(s.d))
		free(s.TB, do)
		free(s.TB, dk)
		free(s.TB, dv, dr)
		free(s.TB, ds)
	}
	lost := s.lost(err, len(keys))
	byKey := map[uint64][]int{}
	for i, key := range keys {
		byKey[key] = append(byKey[key], i)
		if !withResults {
			continue
		}
		hit := ops[i] == table.OpFind && (!withStatus || status[i] == table.Present)
		if !hit && !isZero(results[i]) {
			s.Fatalf("position %d, %v, has the result %v", i, ops[i], results[i])
		}
	}
	for key, list := range byKey {
		s.mixedKey(key, list, ops, numbers, status, lost, withStatus, func(i int) (uint32, bool) {
			if !withResults {
				return 0, false
			}
			return NumbersOf(s.TB, results[i:i+1])[0], true
		}, func() bool {
			found := make([]bool, 1)
			must(s, s.m.Contains(KeysOf[K]([]uint64{key}), found))
			return found[0]
		})
	}
}

// mixedKey checks the operations on one key, at the positions of the list, and brings the model up to date. result gives the number that a
// position found, where results were told, and in asks whether the key is in now.
func (s *rig) mixedKey(key uint64, list []int, ops []table.Op, numbers []uint32, status []table.Status, lost map[int]bool, withStatus bool,
	result func(i int) (uint32, bool), in func() bool) {
	s.Helper()
	before, there := s.model[key]
	may := slices.Clone(before) // the values that the key may have at some moment
	inserts, deletes, added, deleted := 0, 0, 0, 0
	for _, i := range list {
		if withStatus && lost[i] != (status[i] == table.NoRoom) {
			s.Fatalf("position %d is lost %t, and its status is %v", i, lost[i], status[i])
		}
		switch ops[i] {
		case table.OpInsert, table.OpInsertNew:
			inserts++
			if withStatus && status[i] == table.Added {
				added++
			}
			if withStatus && status[i] == table.Absent {
				s.Fatalf("position %d, an insert, has the status %v", i, status[i])
			}
			if !lost[i] {
				may = append(may, numbers[i])
			}
		case table.OpDelete:
			deletes++
			if withStatus && status[i] == table.Present {
				deleted++
			}
		}
		if lost[i] && (ops[i] == table.OpFind || ops[i] == table.OpDelete) {
			s.Fatalf("position %d, a %v, found no room", i, ops[i])
		}
	}
	for _, i := range list {
		if !withStatus || ops[i] != table.OpFind {
			continue
		}
		switch {
		case status[i] == table.Present && !there && added == 0, status[i] == table.Absent && there && deleted == 0, status[i] > table.Present:
			s.Fatalf("position %d: key %#x, there before %t, added %d times and deleted %d times, is found %v", i, key, there, added, deleted, status[i])
		case status[i] == table.Present:
			if got, told := result(i); told && !slices.Contains(may, got) {
				s.Fatalf("position %d: key %#x has value %#x, want one of %#x", i, key, got, may)
			}
		}
	}
	now := 0
	if there {
		now = 1
	}
	switch {
	case withStatus:
		if now += added - deleted; now != 0 && now != 1 {
			s.Fatalf("key %#x, there before %t, was added %d times and deleted %d times", key, there, added, deleted)
		}
	case inserts > 0 && deletes == 0 && len(may) > 0:
		now = 1
	case deletes > 0 && inserts == 0:
		now = 0
	case inserts > 0: // both, in an order that was not told
		if now = 0; in() {
			now = 1
		}
	}
	// One operation leaves no doubt.
	if len(list) == 1 && !lost[list[0]] {
		i := list[0]
		want := map[bool]table.Status{true: table.Present, false: table.Absent}[there]
		switch ops[i] {
		case table.OpInsert:
			may = []uint32{numbers[i]}
		case table.OpInsertNew:
			if there {
				may = before
			}
		}
		if inserts > 0 && !there {
			want = table.Added
		}
		if withStatus && status[i] != want {
			s.Fatalf("position %d: %v of key %#x, there before %t: %v", i, ops[i], key, there, status[i])
		}
	}
	if now == 1 {
		s.model[key] = may
	} else {
		delete(s.model, key)
	}
}

func mixedInput[K, V any](t *testing.T, d *device.Device, newMap Maker[K, V]) {
	s := newMapSubject(t, d, newMap, table.Options{}, 1)
	m := s.m.(table.Mixed[K, V])
	next := uint64(0)
	bits := s.fresh(&next, 40)
	must(t, s.insert(bits, s.numbers(40)))
	ops, keys, values, status := make([]table.Op, 40), KeysOf[K](bits), ValuesOf[V](s.numbers(40)), make([]table.Status, 40)
	wrong := slices.Clone(ops)
	wrong[7] = 9
	for what, err := range map[string]error{
		"an operation too few": m.Mixed(ops[1:], keys, values, values, status),
		"a key too few":        m.Mixed(ops, keys[1:], values, values, status),
		"a value too few":      m.Mixed(ops, keys, values[1:], values, status),
		"a result too few":     m.Mixed(ops, keys, values, values[1:], status),
		"a status too few":     m.Mixed(ops, keys, values, values, status[1:]),
		"no values":            m.Mixed(ops, keys, nil, values, status),
		"no such operation":    m.Mixed(wrong, keys, values, values, status),
		"no values on the device": m.MixedOn(nil, onDevice(t, d, ops), onDevice(t, d, keys), device.Slice[V]{}, device.Slice[V]{},
			device.Slice[table.Status]{}),
	} {
		if err == nil {
			t.Errorf("Mixed with %s: no error", what)
		}
		s.verify()
	}
	must(t, m.Mixed(nil, nil, nil, nil, nil))
	must(t, s.m.Close())
	if err := m.Mixed(ops, keys, values, nil, nil); !errors.Is(err, table.ErrClosed) {
		t.Errorf("Mixed of a closed table: %v", err)
	}
}

// Event is one operation of a history: what was asked, what came of it, and when it began and ended by a logical clock.
type Event struct {
	Op           table.Op
	Key          uint64
	Put, Got     uint64 // numbers of values, from 1
	Status       table.Status
	Call, Return uint64
}

// Linearizable tells whether the operations on each key could have happened one after the other, each between its call
// and its return; under the memory model, in any order. before are the pairs that were in at the beginning.
func Linearizable(history []Event, before map[uint64]uint64) error {
	byKey := map[uint64][]porcupine.Operation{}
	for i, e := range history {
		if testenv.Model() {
			e.Call, e.Return = 0, 1
		}
		byKey[e.Key] = append(byKey[e.Key], porcupine.Operation{ClientId: i, Input: e, Call: int64(e.Call), Output: e, Return: int64(e.Return)})
	}
	for key, part := range byKey {
		model := porcupine.Model{Init: func() any { return before[key] }, Step: eventStep}
		limit := 20 * time.Second
		if testenv.Model() {
			limit = time.Second // for all orders, which may be too many
		}
		r := porcupine.CheckOperationsTimeout(model, part, limit)
		if r != porcupine.Ok && !(r == porcupine.Unknown && testenv.Model()) {
			return fmt.Errorf("the operations on key %#x are not linearizable (%v): %+v", key, r, part)
		}
	}
	return nil
}

// eventStep is one key of a Map: 0 where it is absent, else the number of its value.
func eventStep(state, input, output any) (bool, any) {
	in, out, now := input.(Event), output.(Event), state.(uint64)
	present := now != 0
	switch in.Op {
	case table.OpInsert, table.OpInsertNew:
		switch {
		case out.Status == table.NoRoom:
			return !present, now
		case out.Status == table.Added && !present, out.Status == table.Present && present && in.Op == table.OpInsert:
			return true, in.Put
		}
		return out.Status == table.Present && present, now
	case table.OpFind:
		return out.Status <= table.Present && present == (out.Status == table.Present) && out.Got == now, now
	}
	return out.Status <= table.Present && present == (out.Status == table.Present), uint64(0)
}
