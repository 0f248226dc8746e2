package shard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// hungry is a member with a map and a multimap, and a batch on its device.
type hungry struct {
	*guest
	x    *shard.Map[uint64, uint64]
	many *shard.MultiMap[uint64, uint64]
	on   device.Slice[uint64] // keys, which are values, too
	got  device.Slice[uint64]
	in   device.Slice[bool]
	// ordered is the number of rows that the map got in order.
	ordered atomic.Int64
}

const hungryRows = 150_000

// hungries are n members with rows of their own. Their tables have room for all rows. If regions is not 0, the maps
// take rows in the order of as many regions.
func hungries(t *testing.T, n, regions int) []*hungry {
	t.Helper()
	var all []*hungry
	guests := inviting(t, several(t, "cpu", n))
	for _, g := range guests {
		all = append(all, &hungry{guest: g})
	}
	errs, _ := party(t, guests, guestStep{"make", func(g *guest) (err error) {
		h := all[g.rank]
		if err := g.join(); err != nil {
			return err
		}
		keys := make([]uint64, hungryRows)
		for i := range keys {
			keys[i] = uint64(n*i+g.rank) * 0x9e3779b97f4a7c15
		}
		room := shard.Options{Regions: regions, Options: table.Options{Capacity: n * hungryRows}}
		if h.x, err = shard.NewMap(g.m, room, func(d *device.Device, o table.Options) (table.Map[uint64, uint64], error) {
			inner, err := warpcore.New[uint64, uint64](d, warpcore.Options{Options: o})
			if regions > 0 {
				return orderly[uint64, uint64]{inner, nil, &h.ordered, &h.ordered, nil, n}, err
			}
			return inner, err
		}); err != nil {
			return err
		}
		if h.many, err = shard.NewMultiMap(g.m, room, multiMaps[uint64, uint64]()["slab"]); err != nil {
			return err
		}
		var e1, e2, e3 error
		h.on, e1 = device.From(g.d, keys)
		h.got, e2 = device.Make[uint64](g.d, hungryRows)
		h.in, e3 = device.Make[bool](g.d, hungryRows)
		return errors.Join(e1, e2, e3)
	}})
	must(t, errors.Join(errs...))
	return all
}

// hungryParty does a step at all members, and returns their errors.
func hungryParty(t *testing.T, all []*hungry, name string, do func(h *hungry) error) []error {
	t.Helper()
	var guests []*guest
	for _, h := range all {
		guests = append(guests, h.guest)
	}
	errs, _ := party(t, guests, guestStep{name, func(g *guest) error { return do(all[g.rank]) }})
	return errs
}

// sated sees that a map has all rows of n members, and that the job goes on.
func (h *hungry) sated(n int) error {
	if err := errors.Join(h.in.Fill(nil, 0), h.x.FindOn(nil, h.on, h.got, h.in)); err != nil {
		return err
	}
	all, e1 := h.x.Len()
	many, e2 := h.many.Len()
	flags, e3 := h.in.Host(nil)
	if err := errors.Join(e1, e2, e3); err != nil || all != n*hungryRows || slices.Contains(flags, false) {
		return fmt.Errorf("%d pairs of %d, and a multimap with %d, all found: %t: %w", all, n*hungryRows, many,
			!slices.Contains(flags, false), err)
	}
	return nil
}

// If one member has too little memory for what it gets in an exchange, all members take smaller pieces. If it has none
// for the smallest, or none for its table, all get an error of that call, and the job goes on.
func TestMembersShort(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	for _, regions := range []int{0, 5} {
		t.Run(fmt.Sprintf("%d regions", regions), func(t *testing.T) { membersShort(t, regions) })
	}
}

func membersShort(t *testing.T, regions int) {
	const n = 3
	all := hungries(t, n, regions)
	failed := func(what string, errs []error) {
		t.Helper()
		for rank, err := range errs {
			if rank == 1 && !device.IsOutOfMemory(err) {
				t.Errorf("%s: rank 1, which is out of memory: %v", what, err)
			}
			if err == nil || strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "gone") ||
				rank != 1 && !strings.Contains(err.Error(), "rank 1: ") {
				t.Errorf("%s: rank %d: %v (want that rank 1 is out of memory, in one line)", what, rank, err)
			}
		}
	}
	insert := func(h *hungry) error { return h.x.InsertOn(nil, h.on, h.on) }
	nothing := faults.OfMemory(func(int64) bool { return true })
	faults.Set(all[1].d, nothing)
	failed("no memory", hungryParty(t, all, "Insert without memory", insert))
	for _, most := range []int64{1 << 18, 1 << 19} { // with the first, rows cannot go by regions
		asked, before := int64(0), all[0].ordered.Load()
		faults.Set(all[1].d, faults.OfMemory(func(bytes int64) bool {
			asked = max(asked, bytes)
			return bytes > most
		}))
		must(t, errors.Join(hungryParty(t, all, "Insert in small pieces", insert)...))
		if asked <= most {
			t.Errorf("%d bytes at most are asked for: the piece is too small for this test", asked)
		}
		must(t, errors.Join(hungryParty(t, all, "Find in small pieces", func(h *hungry) error { return h.sated(n) })...))
		if ordered := all[0].ordered.Load() > before; ordered != (regions > 0 && most == 1<<19) {
			t.Errorf("with %d bytes rows came in order: %t", most, ordered)
		}
	}
	faults.Set(all[1].d, nil)
	must(t, errors.Join(hungryParty(t, all, "Insert and Find again", func(h *hungry) error {
		return errors.Join(insert(h), h.sated(n), h.many.InsertOn(nil, h.on, h.on))
	})...))
	faults.Set(all[1].d, nothing)
	var errs []error
	for range 20 { // until the table of rank 1 has to grow
		errs = hungryParty(t, all, "Insert into a multimap", func(h *hungry) error {
			return h.many.InsertOn(nil, h.on, h.on)
		})
		if errors.Join(errs...) != nil {
			break
		}
	}
	failed("a multimap", errs)
	faults.Set(all[1].d, nil)
	must(t, errors.Join(hungryParty(t, all, "Find again", func(h *hungry) error {
		return errors.Join(h.sated(n), h.many.Check())
	})...))
	must(t, errors.Join(hungryParty(t, all, "leave", func(h *hungry) error {
		return errors.Join(h.x.Close(), h.many.Close(), h.on.Free(), h.got.Free(), h.in.Free(), h.leave())
	})...))
}

// Whichever allocation of one member fails in a call, all members return, and the job goes on with its tables.
func TestEachMemberAllocFails(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	const n = 2
	few := make([]uint64, 3000)
	for i := range few {
		few[i] = uint64(i%1500) << 33
	}
	for _, call := range []struct {
		name string
		do   func(h *hungry) error
	}{
		{"Insert", func(h *hungry) error { return h.x.Insert(few, few) }},
		{"InsertOn", func(h *hungry) error { return h.x.InsertOn(nil, h.on, h.on) }},
		{"Update", func(h *hungry) error { return h.x.Update(few, few, table.Max) }},
		{"FindOn", func(h *hungry) error { return h.x.FindOn(nil, h.on, h.got, h.in) }},
		{"Find", func(h *hungry) error { return h.x.Find(few, nil, make([]bool, len(few))) }},
		{"FindAll", func(h *hungry) error { _, _, err := h.many.FindAll(few); return err }},
		{"FindAllOn", func(h *hungry) error {
			offsets, values, err := h.many.FindAllOn(nil, h.on)
			return errors.Join(err, offsets.Free(), values.Free())
		}},
		{"a multimap's InsertOn", func(h *hungry) error { return h.many.InsertOn(nil, h.on, h.on) }},
		{"DeleteOn", func(h *hungry) error { return h.x.DeleteOn(nil, h.on, h.in) }},
		{"Delete", func(h *hungry) error { _, err := h.many.Delete(few, nil); return err }},
	} {
		t.Run(call.name, func(t *testing.T) {
			all := hungries(t, n, 0)
			must(t, errors.Join(hungryParty(t, all, "prepare", func(h *hungry) error {
				return errors.Join(h.many.Insert(few, few), h.x.Insert(few[:10], few[:10]))
			})...))
			failed := 0
			for i := int64(1); ; i++ {
				c := &faults.Counter{Site: faults.Alloc, N: i, Outcome: faults.Fails}
				faults.Set(all[1].d, c.Order)
				errs := hungryParty(t, all, call.name, call.do)
				faults.Set(all[1].d, nil)
				for rank, err := range errs {
					if err != nil && rank == 1 {
						failed++
						if !device.IsOutOfMemory(err) {
							t.Errorf("allocation %d: %v", i, err)
						}
					} else if err != nil && errs[1] != nil && !strings.Contains(err.Error(), "rank 1: ") {
						t.Errorf("allocation %d: rank %d: %v", i, rank, err)
					}
				}
				err := errors.Join(hungryParty(t, all, "Len", func(h *hungry) error {
					_, e1 := h.x.Len()
					_, e2 := h.many.Len()
					return errors.Join(e1, e2)
				})...)
				if err != nil {
					t.Fatalf("allocation %d: %v; afterwards: %v", i, errors.Join(errs...), err)
				}
				if !c.Met() {
					t.Logf("%d allocations, of which %d end the call", i-1, failed)
					break
				}
			}
			must(t, errors.Join(hungryParty(t, all, "leave", func(h *hungry) error {
				return errors.Join(h.x.Close(), h.many.Close(), h.on.Free(), h.got.Free(), h.in.Free(), h.leave())
			})...))
		})
	}
}
