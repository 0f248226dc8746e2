package tabletest

import (
	"context"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// SetMaker makes a set of the family under test.
type SetMaker[K any] = func(d *device.Device, o table.Options) (table.Set[K], error)

// Set is the suite of the sets that newSet makes.
func Set[K any](newSet SetMaker[K]) *Suite {
	return newSuite(func(d *device.Device, o table.Options) (table.Table, error) { return newSet(d, o) }, func(t testing.TB, d *device.Device, o table.Options, seed uint64) subject {
		t.Helper()
		s, err := newSet(d, o)
		must(t, err)
		return &setSubject[K]{newRig[K](t, d, s, o, seed), s}
	}, pairBytes[K, uint32](), newBatch[K, uint32], func(s table.Table) []call { return setCalls(s.(table.Set[K])) })
}

// setSubject is a set beside its model, whose numbers are of no account.
type setSubject[K any] struct {
	*rig
	s table.Set[K]
}

func (s *setSubject[K]) share(seed uint64) subject { return &setSubject[K]{s.other(seed), s.s} }

func (s *setSubject[K]) put(keys []uint64) error {
	s.Helper()
	k := KeysOf[K](keys)
	added, count, told, err := s.flags(len(keys),
		func(added []bool) (int, error) { return s.s.Insert(k, added) },
		func(st *device.Stream, added device.Slice[bool]) error {
			dk := onDevice(s.TB, s.d, k)
			err := s.s.InsertOn(st, dk, added)
			must(s, st.SyncOf(s.d))
			free(s.TB, dk)
			return err
		})
	lost := s.lost(err, len(keys))
	s.mustBeOut(keys, lost)
	out := map[uint64]bool{}
	for i, k := range keys {
		out[k] = lost[i]
	}
	n := s.onceEach("added", keys, added, told, func(k uint64) bool {
		_, there := s.model[k]
		return !there && !out[k]
	})
	s.count("keys are new by Insert", count, n)
	for i, k := range keys {
		if !lost[i] {
			s.model[k] = nil
		}
	}
	return err
}

func (s *setSubject[K]) drop(keys []uint64) {
	s.Helper()
	deleted, count, told := erase(s.rig, KeysOf[K](keys), s.s)
	s.dropped(keys, deleted, count, told)
}

func (s *setSubject[K]) ask(keys []uint64) {
	s.Helper()
	s.contained(keys, contains(s.rig, KeysOf[K](keys), s.s))
}

func (s *setSubject[K]) order() []uint64 {
	keys, err := s.s.All()
	must(s, err)
	return BitsOf(keys)
}

func (s *setSubject[K]) verify() {
	s.Helper()
	got := BitsOf(exportedKeys(s.rig, s.s))
	slices.Sort(got)
	s.sameKeys(got)
	s.verifyStats(len(s.model))
}

func (s *setSubject[K]) queue(bits []uint64, rounds int) queue {
	keys := onDevice(s.TB, s.d, KeysOf[K](bits))
	q := queue{found: s.foundFor(len(bits), rounds)}
	q.put = func(st *device.Stream, _ int) error { return s.s.InsertOn(st, keys, device.Slice[bool]{}) }
	q.drop = func(st *device.Stream) error {
		return s.s.DeleteOn(st, keys.Slice(0, len(bits)/2), device.Slice[bool]{})
	}
	q.look = func(st *device.Stream, r int) error { return s.s.ContainsOn(st, keys, q.found[r]) }
	return q
}

func setCalls[K any](s table.Set[K]) []call {
	type b = *batch
	return []call{
		{"Insert", keysIn, flagsOut,
			func(b b) error { _, err := s.Insert(hostOf[K](&b.keys), hostOf[bool](&b.flags)); return err },
			func(b b) error { return s.InsertOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"Contains", keysIn, flagsOut,
			func(b b) error { return s.Contains(hostOf[K](&b.keys), hostOf[bool](&b.flags)) },
			func(b b) error { return s.ContainsOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"Delete", keysIn, flagsOut,
			func(b b) error { _, err := s.Delete(hostOf[K](&b.keys), hostOf[bool](&b.flags)); return err },
			func(b b) error { return s.DeleteOn(b.st, deviceOf[K](&b.keys), deviceOf[bool](&b.flags)) }},
		{"All", 0, 0, func(b) error { _, err := s.All(); return err }, nil},
		{"Chunks", 0, 0, func(b) error { return s.Chunks(context.Background(), func([]K) error { return nil }) }, nil},
	}
}
