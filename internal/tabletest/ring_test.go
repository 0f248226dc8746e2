package tabletest_test

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// The smallest family: all that CONTRIBUTING says that a new one must write, in the order of its outline.

// doc.go: the layout and the invariants.
//
//	slots  | k v full | k v full | gone | empty | …
//
// A key's search begins at its home, hash(key) scaled to the slots, and goes on to the right, around the end, until it comes to the
// key or to an empty slot. One thread writes a batch, pair after pair; all threads read.
//
//   - No key is twice in the table.
//   - Between a key's home and its slot no slot is empty.
//   - Counts say how many slots are full, and how many gone.

// layout.go: numbers and parameter structs.
const (
	empty, full, gone = 0, 1, 2
	slotBytes         = 32 // value, key, state
	leastSlots        = 32
	ringLoad          = 0.7
	ringBatch         = 1 << 12
)

type (
	ringTable  struct{ Slots, N, Seed, Counts uint64 }
	ringCounts struct{ Full, Gone, Failed, Out uint64 }
	ringParams struct {
		Table            ringTable
		Old              uint64 // where not 0, N slots of another table, whose pairs are put
		Keys, Values     uint64
		Flags            uint64 // u8: added, found or deleted; may be 0
		N                uint64
		Refused, Attempt uint64
		OnlyNew, Erase   uint64
		First, Limit     uint64 // of out: N slots from the first on, and the most pairs to write
	}
)

// kernels.cu: the algorithm.
const ringKernels = `
#include "warpmap.cuh"
#include "layout.h"
using namespace tabletest_test;
typedef bits_of<KEY_BYTES>::type key;
typedef bits_of<VALUE_BYTES>::type value;
struct alignas(SLOT_BYTES) slot { value v; key k; u32 state; };

// search gives the key's slot, or 0. room becomes the first slot on the way that a put could take, or 0.
__device__ slot* search(const ringTable& t, key k, slot*& room) {
    u64 i = reduce(hash64<HASH_KIND>(k, t.seed), t.n);
    room = 0;
    for (u64 left = t.n; left; left--, i = i + 1 < t.n ? i + 1 : 0) {
        slot* s = at<slot>(t.slots) + i;
        u32 state = load_relaxed(&s->state); // another lane may erase
        if (state == FULL && s->k == k) return s;
        if (state != FULL && !room) room = s;
        if (state == EMPTY) break;
    }
    return 0;
}

WARPMAP_KERNEL(put, ringParams) {
    if (grid_thread() != 0) return;
    ringCounts& c = *at<ringCounts>(p.table.counts);
    c.failed = 0;
    for (u64 i = 0; i < p.n; i++) {
        u32 bit = 1u << (i & 31), *word = at<u32>(p.refused) + i / 32;
        slot* old = p.old ? at<slot>(p.old) + i : 0;
        if (p.attempt && !(*word & bit) || old && old->state != FULL) continue;
        key k = old ? old->k : at<key>(p.keys)[i];
        slot *room, *s = search(p.table, k, room);
        bool added = !s && room;
        if (added) {
            c.gone -= room->state == GONE;
            c.full++;
            *(s = room) = slot{value{}, k, FULL};
        }
        if (added || s && !p.only_new) s->v = old ? old->v : at<value>(p.values)[i];
        if (p.flags) at<u8>(p.flags)[i] = added;
        c.failed += !s;
        if (p.refused) *word = s ? *word & ~bit : *word | bit;
    }
}

// With erase, of several lanes that find one pair, one removes it.
WARPMAP_KERNEL(find, ringParams) {
    ringCounts& c = *at<ringCounts>(p.table.counts);
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        slot *room, *s = search(p.table, at<key>(p.keys)[i], room);
        bool found = s && (!p.erase || cas(&s->state, (u32)FULL, (u32)GONE) == FULL);
        if (p.values) at<value>(p.values)[i] = found ? s->v : value{};
        if (p.flags) at<u8>(p.flags)[i] = found;
        if (p.erase && found) add(&c.full, ~0ull), add(&c.gone, 1ull);
    }
}

WARPMAP_KERNEL(out, ringParams) {
    if (grid_thread() != 0) return;
    u64 to = 0;
    for (u64 i = p.first; i < p.first + p.n; i++) {
        const slot& s = at<slot>(p.table.slots)[i];
        if (s.state != FULL || to++ >= p.limit) continue;
        at<key>(p.keys)[to - 1] = s.k;
        at<value>(p.values)[to - 1] = s.v;
    }
    at<ringCounts>(p.table.counts)->out = to;
}
`

// core.go: the table in addresses and bits.
type ringCore struct {
	frame                frame.Frame
	o                    table.Options
	keyBytes, valueBytes int
	put, find, out       device.Kernel[ringParams]
	ringMemory
}

// ringMemory is what a rebuild replaces.
type ringMemory struct {
	t      ringTable
	mem    device.Slice[byte]
	counts frame.Counters[ringCounts]
}

func (m *ringMemory) free(f *frame.Frame) error { return f.Free(&m.counts, m.mem) }

func newRing[K, V any](d *device.Device, o table.Options) (table.Map[K, V], error) {
	w := frame.WidthsOf[K, V]()
	c := &ringCore{o: o, keyBytes: w.Key, valueBytes: w.Value}
	if err := errors.Join(w.Err, c.o.Complete(ringLoad)); err != nil {
		return nil, err
	}
	if err := c.frame.Open("ring", d, c.begin, func() error { return c.free(&c.frame) }); err != nil {
		return nil, err
	}
	return &ring[K, V]{ringHandle{c}}, nil
}

func (c *ringCore) begin() error {
	m, err := c.frame.Device.Compile(&device.Program{
		Name: "ring", Files: []device.File{{Name: "ring.cu", Text: ringKernels}}, Layouts: []any{ringTable{}, ringCounts{}, ringParams{}},
		Defines: []device.Define{{Name: "KEY_BYTES", Value: c.keyBytes}, {Name: "VALUE_BYTES", Value: c.valueBytes}, {Name: "SLOT_BYTES", Value: slotBytes},
			{Name: "HASH_KIND", Value: c.o.Hash}, {Name: "EMPTY", Value: empty}, {Name: "FULL", Value: full}, {Name: "GONE", Value: gone}},
	})
	if err != nil {
		return err
	}
	want, most := c.slotsFor(int64(c.o.Capacity))
	err = errors.Join(device.Bind(m, "put", &c.put), device.Bind(m, "find", &c.find), device.Bind(m, "out", &c.out))
	return errors.Join(err, c.rebuild(c.frame.Device.Stream(), min(want, most)))
}

// slotsFor is how many slots so many pairs want, and how many MaxBytes allows.
func (c *ringCore) slotsFor(pairs int64) (want, most int64) {
	if most = c.o.MaxBytes / slotBytes; c.o.MaxBytes == 0 {
		most = 1 << 48
	}
	return int64(min(max(leastSlots, math.Ceil(float64(pairs)/c.o.LoadFactor)), 1<<48)), most
}

// rebuild moves all pairs, of which there are none at first, to a new table, and waits; on an error the old one stands.
func (c *ringCore) rebuild(st *device.Stream, slots int64) (err error) {
	if slots == 0 {
		return fmt.Errorf("ring: MaxBytes of %d leaves no room for a slot", c.o.MaxBytes)
	}
	var m ringMemory
	old := c.ringMemory
	if m.mem, err = frame.Make[byte](&c.frame, slots*slotBytes); err == nil {
		err = errors.Join(m.counts.Make(&c.frame, st), m.mem.Fill(st, empty))
	}
	m.t = ringTable{Slots: m.mem.Addr(), N: uint64(slots), Seed: c.o.Seed, Counts: m.counts.Addr()}
	if err == nil {
		err = c.put.Launch(st, oneThread, &ringParams{Table: m.t, Old: old.t.Slots, N: old.t.N})
	}
	if err == nil {
		err = m.counts.Look(st)
	}
	if err != nil {
		return errors.Join(err, m.free(&c.frame))
	}
	c.ringMemory = m
	return old.free(&c.frame)
}

var oneThread = device.Grid{Blocks: 1, Threads: 32}

func (c *ringCore) params(b frame.Rows) *ringParams {
	return &ringParams{Table: c.t, Keys: b.Keys, Values: b.Values, Flags: b.Flags, N: uint64(b.N)}
}

func (c *ringCore) look(st *device.Stream) (int64, error) {
	err := c.counts.Look(st)
	return int64(c.counts.Seen.Full), err
}

// insertion is how batches go in: the frame brings them in parts, asks how much room there is, and for more.
func (c *ringCore) insertion(onlyNew uint64) frame.Insertion {
	put := func(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
		live, err := c.look(st)
		if err != nil {
			return nil, nil, err
		}
		return frame.Inserter{
			Try: ringBatch,
			Launch: func(part frame.Part) error {
				p := c.params(b.Part(part, c.keyBytes, c.valueBytes))
				p.Refused, p.Attempt, p.OnlyNew = part.Refused, part.Attempt, onlyNew
				return c.put.Launch(st, oneThread, p)
			},
			Look: func() (refused, live int64, err error) {
				live, err = c.look(st)
				return int64(c.counts.Seen.Failed), live, err
			},
			Room: func(int64, bool) (int64, error) {
				return int64(float64(c.t.N)*c.o.LoadFactor) - int64(c.counts.Seen.Full+c.counts.Seen.Gone), nil
			},
			Grow: func(_, _, pairs int64) (why, err error) {
				slots, most := c.slotsFor(pairs)
				if slots = min(max(slots, int64(c.t.N)), most); slots == int64(c.t.N) && slots == most && c.counts.Seen.Gone == 0 {
					return frame.AtMaxBytes(c.o.MaxBytes), nil
				}
				if err = c.rebuild(st, slots); device.IsOutOfMemory(err) {
					return err, nil
				}
				return nil, err
			},
		}.Run(&c.frame, st, b.N, live)
	}
	return frame.Insertion{Put: put, Find: c.finding(0), Size: func() (int64, int64) { return int64(c.t.N), int64(c.counts.Seen.Full) }}
}

// finding queues look-ups, and erases what they find where erase is 1.
func (c *ringCore) finding(erase uint64) func(*device.Stream, frame.Rows) error {
	return func(st *device.Stream, b frame.Rows) error {
		p := c.params(b)
		p.Erase = erase
		return c.find.Launch(st, c.frame.Grid(b.N, 16), p)
	}
}

// exporting is how the pairs are given out, by ranges of slots.
func (c *ringCore) exporting(st *device.Stream) (frame.Exporter, error) {
	live, err := c.look(st)
	return frame.Exporter{Slots: int64(c.t.N), Live: live, Export: func(st *device.Stream, r frame.Range) (int64, error) {
		p := c.params(frame.Rows{Keys: r.Keys, Values: r.Values, N: r.Slots})
		p.First, p.Limit = uint64(r.First), uint64(r.Limit)
		err := errors.Join(c.out.Launch(st, oneThread, p), c.counts.Look(st))
		return int64(c.counts.Seen.Out), err
	}}, err
}

func (ringHandle) Family() table.Family { return "ring" }

func (h ringHandle) Len() (int, error) { return h.core.frame.Count(h.core.look) }

func (h ringHandle) Clear() error {
	c := h.core
	return c.frame.Writing(nil, func(st *device.Stream) error { return errors.Join(c.mem.Fill(st, empty), c.counts.Clear(st)) })
}

func (h ringHandle) Stats() (s table.Stats, err error) {
	c := h.core
	err = c.frame.Reading(nil, func(st *device.Stream) error {
		live, err := c.look(st)
		s = table.Stats{Len: int(live), Capacity: int(c.t.N), Tombstones: int(c.counts.Seen.Gone), Bytes: int64(c.mem.Len()), MaxProbes: int(c.t.N)}
		c.frame.Tell(&s, nil)
		return err
	})
	return s, err
}

func (h ringHandle) Grow(n int) error {
	c := h.core
	return c.frame.GrowTo(n, c.look, func(st *device.Stream, _ int64) error {
		slots, most := c.slotsFor(int64(n))
		if slots = max(slots, int64(c.t.N)); slots > most {
			return c.frame.NoRoomFor(n, slots*slotBytes, c.o.MaxBytes)
		}
		return c.rebuild(st, slots)
	})
}

func (h ringHandle) Close() error { return h.core.frame.Close() }

// check.go: the invariants, in Go.
func (h ringHandle) Check() error {
	c := h.core
	return c.frame.Inspect(c.look, func() device.Slice[byte] { return c.mem }, func(mem []byte) error {
		state := func(i uint64) byte { return mem[i*slotBytes+uint64(c.valueBytes+c.keyBytes)] }
		seen, counts := map[uint64]bool{}, [3]uint64{}
		for i := range c.t.N {
			if counts[state(i)]++; state(i) != full {
				continue
			}
			key := kernel.Pattern(mem[i*slotBytes+uint64(c.valueBytes):], c.keyBytes)
			for at := kernel.Reduce(kernel.Hash64(c.o.Hash, key, c.o.Seed), c.t.N); at != i; at = (at + 1) % c.t.N {
				if state(at) == empty {
					return fmt.Errorf("ring: check: key %#x at slot %d cannot be found: slot %d, before it, is empty", key, i, at)
				}
			}
			if seen[key] {
				return fmt.Errorf("ring: check: key %#x is twice in the table", key)
			}
			seen[key] = true
		}
		if told := c.counts.Seen; counts[full] != told.Full || counts[gone] != told.Gone {
			return fmt.Errorf("ring: check: %d slots are full and %d gone, the counts say %+v", counts[full], counts[gone], told)
		}
		return nil
	})
}

// map.go: the methods.

// ringHandle is what users hold: embedding the core itself would make a copy of each of its methods for each pair of types.
type ringHandle struct{ core *ringCore }

type ring[K, V any] struct{ ringHandle }

func (m *ring[K, V]) Insert(keys []K, values []V) error {
	return frame.Insert(&m.core.frame, keys, values, m.core.insertion(0))
}
func (m *ring[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return frame.InsertOn(&m.core.frame, st, keys, values, device.Slice[bool]{}, m.core.insertion(0))
}
func (m *ring[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return frame.InsertNew(&m.core.frame, keys, values, added, m.core.insertion(1))
}
func (m *ring[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return frame.InsertOn(&m.core.frame, st, keys, values, added, m.core.insertion(1))
}
func (m *ring[K, V]) Find(keys []K, values []V, found []bool) error {
	return frame.Find(&m.core.frame, keys, values, found, m.core.finding(0))
}
func (m *ring[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return frame.FindOn(&m.core.frame, st, keys, values, found, m.core.finding(0))
}
func (m *ring[K, V]) Contains(keys []K, found []bool) error { return m.Find(keys, nil, found) }
func (m *ring[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.FindOn(st, keys, device.Slice[V]{}, found)
}
func (m *ring[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&m.core.frame, keys, deleted, m.core.finding(1))
}
func (m *ring[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&m.core.frame, st, keys, deleted, m.core.finding(1))
}
func (m *ring[K, V]) All() ([]K, []V, error) {
	return frame.All[K, V](&m.core.frame, false, m.core.exporting)
}
func (m *ring[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return frame.Chunks(ctx, &m.core.frame, m.core.exporting, do)
}
