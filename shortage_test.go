package warpmap_test

import (
	"context"
	"errors"
	"fmt"
	gomaps "maps"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
	"github.com/warpmap/warpmap/warpcore"
)

// held is what a table should hold: the values of each key, in any order; of a counter its count, of a set nothing.
type held map[uint32][]uint32

func (h held) add(k, v uint32) { h[k] = append(h[k], v) }

func (h held) equal(o held) bool {
	for _, x := range []held{h, o} {
		for _, v := range x {
			slices.Sort(v)
		}
	}
	return gomaps.EqualFunc(h, o, func(a, b []uint32) bool { return slices.Equal(a, b) })
}

// scarce is a table, and what can be done to it. Each operation brings the model along, by what it says that it did: all if there is no error, by a FullError all
// but its positions, else nothing.
type scarce struct {
	check, close func() error
	all          func() (held, error)
	ops          []scarceOp
	more         []scarceOp // not of each allocation
}

type scarceOp struct {
	name string
	do   func(h held) error
}

// in calls do for the positions that are in, and hands an error on that does not say which: then none is.
func in(n int, err error, do func(i int)) error {
	full := (*table.FullError)(nil)
	if err != nil && !errors.As(err, &full) {
		return err
	}
	out := map[int]bool{}
	if full != nil {
		for _, p := range full.Positions {
			out[p] = true
		}
	}
	for i := range n {
		if !out[i] {
			do(i)
		}
	}
	return err
}

// told compares what an operation told, if it did.
func told[T any](err error, got, want T, equal func(a, b T) bool) error {
	if err == nil && !equal(got, want) {
		return fmt.Errorf("%v, want %v", got, want)
	}
	return err
}

func is[T comparable](a, b T) bool { return a == b }

// The batches: keys that are in before, some of them are deleted; and those that come, of which a third is in.
var scarceBefore, scarceGone, scarceBatch = scarceSizes()

func scarceSizes() (before, gone, batch int) {
	if testenv.Long() {
		return 600, 100, 3000
	}
	return 200, 40, 700
}

func scarceKeys(from, n int) (keys []uint32) {
	for i := range n {
		keys = append(keys, uint32(from+i)*0x9e3779b1)
	}
	return keys
}

// manyRows are so many that a table asks how many of their keys differ before it takes them.
const manyRows = 1<<16 + 5000

// ofMany is an operation for long runs alone.
func ofMany(name string, do func(h held, keys, values []uint32) error) []scarceOp {
	if !testenv.Long() {
		return nil
	}
	keys, values := scarceKeys(scarceBefore/2, manyRows), scarceValues(manyRows, 9)
	return []scarceOp{{name + " of many", func(h held) error { return do(h, keys, values) }}}
}

func scarceValues(n, plus int) (values []uint32) {
	for i := range n {
		values = append(values, uint32(i+plus))
	}
	return values
}

// pairsOf are the pairs that a Chunks or an All gives.
func pairsOf(get func(do func(keys, values []uint32) error) error) (held, error) {
	h := held{}
	err := get(func(keys, values []uint32) error {
		for i, k := range keys {
			h.add(k, values[i])
		}
		return nil
	})
	return h, err
}

func onDevices[T any](d *device.Device, columns [][]T, do func(on []device.Slice[T]) error) (err error) {
	var on []device.Slice[T]
	for _, x := range columns {
		s, wrong := device.From(d, x)
		if wrong != nil {
			err = wrong
			break
		}
		on = append(on, s)
	}
	if err == nil {
		err = do(on)
	}
	for _, s := range on {
		err = errors.Join(err, s.Free())
	}
	return err
}

// common are the operations that all tables have.
func common(t table.Table, all func() (held, error)) []scarceOp {
	return []scarceOp{
		{"All", func(h held) error { got, err := all(); return told(err, got, h, held.equal) }},
		{"Len", func(h held) error {
			n := 0
			for _, v := range h {
				n += max(1, len(v))
			}
			got, err := t.Len()
			return told(err, got, n, is)
		}},
		{"Stats", func(h held) error { s, err := t.Stats(); return told(err, s.Bytes > 0, true, is) }},
		{"Grow", func(held) error { return t.Grow(max(5*scarceBatch, 15_000)) }},
		{"Shrink", func(held) error {
			if s, ok := t.(interface{ Shrink() error }); ok {
				return s.Shrink()
			}
			return nil
		}},
		{"Clear", func(h held) error {
			err := t.Clear()
			if err == nil {
				clear(h)
			}
			return err
		}},
	}
}

func scarceMap(d *device.Device, m table.Map[uint32, uint32]) (s scarce) {
	all := func() (held, error) {
		return pairsOf(func(do func(k, v []uint32) error) error {
			k, v, err := m.All()
			if err == nil {
				err = do(k, v)
			}
			return err
		})
	}
	keys, values := scarceKeys(scarceBefore/2, scarceBatch), scarceValues(scarceBatch, 7)
	replace := func(h held, onlyNew bool) func(i int) {
		return func(i int) {
			if _, there := h[keys[i]]; !there || !onlyNew {
				h[keys[i]] = []uint32{values[i]}
			}
		}
	}
	s = scarce{check: m.Check, close: m.Close, all: all, ops: append(common(m, all), []scarceOp{
		{"Insert", func(h held) error { return in(len(keys), m.Insert(keys, values), replace(h, false)) }},
		{"InsertOn", func(h held) error {
			return onDevices(d, [][]uint32{keys, values}, func(on []device.Slice[uint32]) error {
				return in(len(keys), m.InsertOn(nil, on[0], on[1]), replace(h, false))
			})
		}},
		{"InsertNew", func(h held) error {
			_, err := m.InsertNew(keys, values, nil)
			return in(len(keys), err, replace(h, true))
		}},
		{"Find", func(h held) error {
			got, found := make([]uint32, len(keys)), make([]bool, len(keys))
			if err := m.Find(keys, got, found); err != nil {
				return err
			}
			for i, k := range keys {
				if want, there := h[k]; found[i] != there || there && got[i] != want[0] {
					return fmt.Errorf("key %#x: found %t with %d, want %v", k, found[i], got[i], want)
				}
			}
			return nil
		}},
		{"Delete", func(h held) error {
			n, err := m.Delete(keys, nil)
			was := len(h)
			if err == nil {
				for _, k := range keys {
					delete(h, k)
				}
			}
			return told(err, n, was-len(h), is)
		}},
		{"Chunks", func(h held) error {
			got, err := pairsOf(func(do func(k, v []uint32) error) error { return m.Chunks(context.Background(), do) })
			return told(err, got, h, held.equal)
		}},
	}...)}
	s.ops = append(s.ops, ofMany("Insert", func(h held, keys, values []uint32) error {
		return in(len(keys), m.Insert(keys, values), func(i int) { h[keys[i]] = []uint32{values[i]} })
	})...)
	if u, ok := m.(table.Updater[uint32, uint32]); ok {
		twice := append(slices.Clone(keys), keys...)
		s.ops = append(s.ops, scarceOp{"Update", func(h held) error {
			return in(len(twice), u.Update(twice, append(slices.Clone(values), values...), table.Add), func(i int) {
				k, sum := twice[i], values[i%len(values)]
				if was := h[k]; was != nil {
					sum += was[0]
				}
				h[k] = []uint32{sum}
			})
		}})
	}
	if x, ok := m.(table.Mixed[uint32, uint32]); ok {
		ops := make([]table.Op, len(keys))
		for i := range ops {
			ops[i] = []table.Op{table.OpInsert, table.OpInsertNew, table.OpDelete}[i%3]
		}
		s.ops = append(s.ops, scarceOp{"Mixed", func(h held) error {
			return in(len(keys), x.Mixed(ops, keys, values, nil, nil), func(i int) {
				if ops[i] == table.OpDelete {
					delete(h, keys[i])
				} else {
					replace(h, ops[i] == table.OpInsertNew)(i)
				}
			})
		}})
	}
	return s
}

func scarceMultiMap(d *device.Device, m table.MultiMap[uint32, uint32], many bool) scarce {
	all := func() (held, error) {
		return pairsOf(func(do func(k, v []uint32) error) error {
			k, v, err := m.All()
			if err == nil {
				err = do(k, v)
			}
			return err
		})
	}
	keys, values := scarceKeys(scarceBefore/2, scarceBatch), scarceValues(scarceBatch, 7)
	if many { // a key has most
		for i := range keys {
			if i%4 > 0 {
				keys[i] = keys[0]
			}
		}
	}
	asked := slices.Compact(slices.Sorted(slices.Values(keys)))
	list := func(offsets []uint64, values []uint32) (h held) {
		h = held{}
		for i, k := range asked {
			for _, v := range values[offsets[i]:offsets[i+1]] {
				h.add(k, v)
			}
		}
		return h
	}
	of := func(h held) held {
		out := held{}
		for _, k := range asked {
			if v, ok := h[k]; ok {
				out[k] = v
			}
		}
		return out
	}
	s := scarce{check: m.Check, close: m.Close, all: all, ops: append(common(m, all), []scarceOp{
		{"Insert", func(h held) error {
			return in(len(keys), m.Insert(keys, values), func(i int) { h.add(keys[i], values[i]) })
		}},
		{"InsertOn", func(h held) error {
			return onDevices(d, [][]uint32{keys, values}, func(on []device.Slice[uint32]) error {
				return in(len(keys), m.InsertOn(nil, on[0], on[1]), func(i int) { h.add(keys[i], values[i]) })
			})
		}},
		{"Count", func(h held) error {
			got, want := make([]uint32, len(asked)), make([]uint32, len(asked))
			for i, k := range asked {
				want[i] = uint32(len(h[k]))
			}
			return told(m.Count(asked, got), got, want, slices.Equal)
		}},
		{"FindAll", func(h held) error {
			offsets, values, err := m.FindAll(asked)
			if err != nil {
				return err
			}
			return told(nil, list(offsets, values), of(h), held.equal)
		}},
		{"Delete", func(h held) error {
			n, err := m.Delete(asked, nil)
			want := 0
			if err == nil {
				for _, k := range asked {
					want += len(h[k])
					delete(h, k)
				}
			}
			return told(err, n, want, is)
		}},
		{"Chunks", func(h held) error {
			got, err := pairsOf(func(do func(k, v []uint32) error) error { return m.Chunks(context.Background(), do) })
			return told(err, got, h, held.equal)
		}},
	}...)}
	s.ops = append(s.ops, ofMany("Insert", func(h held, few, values []uint32) error {
		if many {
			few = slices.Clone(few)
			for i := range few {
				few[i] = few[i%(len(few)/40)]
			}
		}
		return in(len(few), m.Insert(few, values), func(i int) { h[few[i]] = append(h[few[i]], values[i]) })
	})...)
	if o, ok := m.(table.OuterFinder[uint32, uint32]); ok {
		s.ops = append(s.ops, scarceOp{"FindAllOuter", func(h held) error {
			const none = 1 << 30
			offsets, values, err := o.FindAllOuter(asked, none, nil)
			if err != nil {
				return err
			}
			want := held{}
			for _, k := range asked {
				if want[k] = h[k]; len(h[k]) == 0 {
					want[k] = []uint32{none}
				}
			}
			return told(nil, list(offsets, values), want, held.equal)
		}})
	}
	if b, ok := m.(interface {
		Build(keys, values []uint32) error
	}); ok {
		s.ops = append(s.ops, scarceOp{"Build", func(h held) error {
			if err := m.Clear(); err != nil {
				return err
			}
			clear(h)
			return in(len(keys), b.Build(keys, values), func(i int) { h.add(keys[i], values[i]) })
		}})
	}
	return s
}

func scarceSet(d *device.Device, m table.Set[uint32]) scarce {
	all := func() (held, error) {
		h := held{}
		keys, err := m.All()
		for _, k := range keys {
			h[k] = nil
		}
		return h, err
	}
	keys := scarceKeys(scarceBefore/2, scarceBatch)
	s := scarce{check: m.Check, close: m.Close, all: all, ops: append(common(m, all), []scarceOp{
		{"Insert", func(h held) error {
			_, err := m.Insert(keys, nil)
			return in(len(keys), err, func(i int) { h[keys[i]] = nil })
		}},
		{"Contains", func(h held) error {
			got, want := make([]bool, len(keys)), make([]bool, len(keys))
			for i, k := range keys {
				_, want[i] = h[k]
			}
			return told(m.Contains(keys, got), got, want, slices.Equal)
		}},
		{"Delete", func(h held) error {
			n, err := m.Delete(keys, nil)
			was := len(h)
			if err == nil {
				for _, k := range keys {
					delete(h, k)
				}
			}
			return told(err, n, was-len(h), is)
		}},
		{"Chunks", func(h held) error {
			got := held{}
			err := m.Chunks(context.Background(), func(keys []uint32) error {
				for _, k := range keys {
					got[k] = nil
				}
				return nil
			})
			return told(err, got, h, held.equal)
		}},
	}...)}
	s.ops = append(s.ops, ofMany("Insert", func(h held, keys, _ []uint32) error {
		_, err := m.Insert(keys, nil)
		return in(len(keys), err, func(i int) { h[keys[i]] = nil })
	})...)
	if x, ok := m.(*warpcore.Set[uint32]); ok { // operations of two sets
		with := func(do func(*warpcore.Set[uint32]) error) error {
			other, err := warpcore.NewSet[uint32](d, warpcore.Options{})
			if err != nil {
				return err
			}
			if _, err = other.Insert(keys[:scarceBefore], nil); err == nil {
				err = do(other)
			}
			return errors.Join(err, other.Close())
		}
		s.ops = append(s.ops,
			scarceOp{"Subtract", func(h held) error {
				err := with(x.Subtract)
				if err == nil {
					for _, k := range keys[:scarceBefore] {
						delete(h, k)
					}
				}
				return err
			}},
			scarceOp{"Union", func(h held) error {
				err := with(x.Union)
				if err == nil {
					for _, k := range keys[:scarceBefore] {
						h[k] = nil
					}
				} else if got, wrong := all(); wrong == nil { // it says how many keys are in, not which
					for _, k := range keys[:scarceBefore] {
						if _, there := got[k]; there {
							h[k] = nil
						}
					}
				}
				return err
			}})
	}
	return s
}

func scarceCounter(m table.Counter[uint32, uint32]) scarce {
	all := func() (held, error) {
		return pairsOf(func(do func(k, v []uint32) error) error {
			k, v, err := m.All()
			if err == nil {
				err = do(k, v)
			}
			return err
		})
	}
	keys := scarceKeys(scarceBefore/2, scarceBatch)
	keys = append(keys, keys[:scarceBefore]...)
	return scarce{check: m.Check, close: m.Close, all: all, ops: append(common(m, all), []scarceOp{
		{"Add", func(h held) error {
			return in(len(keys), m.Add(keys), func(i int) {
				if h[keys[i]] == nil {
					h[keys[i]] = []uint32{0}
				}
				h[keys[i]][0]++
			})
		}},
		{"Top", func(h held) error {
			k, c, err := m.Top(10)
			for i := range k {
				if err == nil && h[k[i]][0] != c[i] {
					err = fmt.Errorf("key %#x came %d times, want %v", k[i], c[i], h[k[i]])
				}
			}
			return err
		}},
	}...)}
}

func scarceFilter(m table.Filter[uint32]) scarce {
	put, keys := held{}, scarceKeys(scarceBefore/2, scarceBatch)
	all := func() (held, error) { // those of its keys that are in
		asked := append(scarceKeys(0, scarceBefore), keys...)
		found := make([]bool, len(asked))
		err := m.Contains(asked, found)
		h := held{}
		for i, k := range asked {
			if _, was := put[k]; was && found[i] {
				h[k] = nil
			}
		}
		return h, err
	}
	insert := func(h held, keys []uint32) error {
		err := m.Insert(keys)
		if full := (*table.FullError)(nil); errors.As(err, &full) && m.Family() == warpmap.Cuckoo {
			// A key is there as often as it was put in, and then its buckets are full: no harm, if it is in.
			found := make([]bool, len(keys))
			if err := m.Contains(keys, found); err != nil {
				return err
			}
			if !slices.ContainsFunc(full.Positions, func(p int) bool { return !found[p] }) {
				err = nil
			}
		}
		return in(len(keys), err, func(i int) { h[keys[i]], put[keys[i]] = nil, nil })
	}
	return scarce{check: m.Check, close: m.Close, all: all, ops: []scarceOp{
		{"Insert", func(h held) error { return insert(h, keys) }},
		{"Contains", func(h held) error {
			clear(put)
			gomaps.Copy(put, h)
			got, err := all()
			return told(err, got, h, held.equal)
		}},
		{"Stats", func(held) error { _, err := m.Stats(); return err }},
		{"Words", func(held) error { return m.Words(context.Background(), func([]uint64) error { return nil }) }},
	}}
}

// fill puts in what is there before.
func fill(s scarce, insert func(keys, values []uint32) error, remove func(keys []uint32) error) (held, error) {
	keys, values := scarceKeys(0, scarceBefore), scarceValues(scarceBefore, 1)
	if err := errors.Join(insert(keys, values), remove(keys[:scarceGone])); err != nil {
		return nil, err
	}
	return s.all()
}

// eachTable runs a test with a table of every kind and family, half filled.
func eachTable(options map[string]table.Options, run func(what string, make func(d *device.Device) (scarce, held, error))) {
	for with, o := range options {
		mapOf := func(d *device.Device, m table.Map[uint32, uint32], err error) (s scarce, h held, _ error) {
			if err != nil {
				return s, nil, err
			}
			s = scarceMap(d, m)
			s.more = mapFaults(d, m)
			h, err = fill(s, m.Insert, func(keys []uint32) error { _, err := m.Delete(keys, nil); return err })
			return s, h, err
		}
		for _, family := range warpmap.Families(table.KindMap) {
			run(fmt.Sprintf("map/%s%s", family, with), func(d *device.Device) (scarce, held, error) {
				m, err := newMap(d, family, o)
				return mapOf(d, m, err)
			})
		}
		run("strings"+with, func(d *device.Device) (s scarce, h held, err error) {
			o := o
			o.MaxBytes *= 4
			m, err := warpmap.NewStrings[uint32](d, warpmap.WarpCore, text.Options{Options: o})
			return mapOf(d, fixed[uint32, uint32]{m, d}, err)
		})
		for _, family := range warpmap.Families(table.KindSet) {
			run(fmt.Sprintf("set/%s%s", family, with), func(d *device.Device) (s scarce, h held, err error) {
				m, err := warpmap.NewSet[uint32](d, family, o)
				if err != nil {
					return s, nil, err
				}
				s = scarceSet(d, m)
				h, err = fill(s, func(keys, _ []uint32) error { _, err := m.Insert(keys, nil); return err },
					func(keys []uint32) error { _, err := m.Delete(keys, nil); return err })
				return s, h, err
			})
		}
		for _, kind := range table.MultiMapKinds() {
			for _, family := range warpmap.Families(kind) {
				for _, many := range testenv.Some([]bool{true, false}, 1) {
					run(fmt.Sprintf("%v/%s%s/many=%t", kind, family, with, many), func(d *device.Device) (s scarce, h held, err error) {
						m, err := warpmap.NewMultiMapOf[uint32, uint32](d, kind, family, table.MultiMapOptions{Options: o})
						if err != nil {
							return s, nil, err
						}
						s = scarceMultiMap(d, m, many)
						h, err = fill(s, m.Insert, func(keys []uint32) error { _, err := m.Delete(keys, nil); return err })
						return s, h, err
					})
				}
			}
		}
		for _, family := range warpmap.Families(table.KindCounter) {
			run(fmt.Sprintf("counter/%s%s", family, with), func(d *device.Device) (s scarce, h held, err error) {
				m, err := warpmap.NewCounter[uint32, uint32](d, family, table.CounterOptions{Options: o})
				if err != nil {
					return s, nil, err
				}
				s = scarceCounter(m)
				h, err = fill(s, m.AddCounts, func([]uint32) error { return nil })
				return s, h, err
			})
		}
	}
	for _, family := range warpmap.Families(table.KindFilter) {
		run(fmt.Sprintf("filter/%s", family), func(d *device.Device) (s scarce, h held, err error) {
			// a filter of cuckoo has a key as often as it was inserted
			m, err := warpmap.NewFilter[uint32](d, family, table.FilterOptions{Capacity: 16 * scarceBatch, Seed: 3})
			if err != nil {
				return s, nil, err
			}
			s, h = scarceFilter(m), held{}
			return s, h, s.ops[0].do(h)
		})
	}
}

// Each allocation of each operation fails in turn, it alone, or all behind it, too: then the table is whole, holds what the operation says, and no memory is lost;
// and the operation succeeds when it is tried again.
func TestEachAllocationFails(t *testing.T) {
	for _, name := range []string{"cpu", bulkCPU, "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			options := map[string]table.Options{"": optionsOn(name)}
			if testenv.Long() {
				options["/bound"] = table.Options{Seed: 3, MaxBytes: 24 << 10}
			}
			eachTable(options, func(what string, make func(d *device.Device) (scarce, held, error)) {
				t.Run(what, func(t *testing.T) {
					t.Parallel()
					eachAllocation(t, open(t, name), make)
				})
			})
		})
	}
}

func eachAllocation(t *testing.T, d *device.Device, make func(d *device.Device) (scarce, held, error)) {
	var calls, first atomic.Int64
	var alone atomic.Bool
	failing := func(n int64, only bool, do func() error) (failed bool, err error) {
		calls.Store(0)
		first.Store(n)
		alone.Store(only)
		faults.Set(d, faults.OfMemory(func(int64) bool {
			i := calls.Add(1)
			return i == first.Load() || i > first.Load() && !alone.Load()
		}))
		defer faults.Set(d, nil)
		err = do()
		return calls.Load() >= n, err
	}
	honest := func(err error) bool {
		return err == nil || errors.As(err, new(*table.FullError)) || device.IsOutOfMemory(err) || errors.Is(err, table.ErrMaxBytes)
	}
	atFirst := len(d.Live())
	for _, only := range []bool{true, false} {
		for n := int64(1); ; n++ { // where the table is made
			var s scarce
			failed, err := failing(n, only, func() (err error) { s, _, err = make(d); return err })
			if !honest(err) {
				t.Fatalf("New, allocation %d: %v", n, err)
			}
			if s.close != nil {
				err = errors.Join(err, s.close())
			}
			if live := d.Live(); len(live) > atFirst {
				t.Fatalf("New, allocation %d fails (alone: %t): %v stays behind: %v", n, only, err, live)
			}
			if !failed {
				break
			}
		}
	}
	s, _, err := make(d)
	if err != nil {
		t.Fatal(err)
	}
	must(t, s.close())
	for i, op := range s.ops {
		for _, only := range testenv.Some([]bool{(i%2 == 0), (i%2 == 1)}, 1) { // a second try, and what is there without
			most := int64(0)
			for n := int64(1); ; n++ {
				s, h, err := make(d)
				if err != nil {
					t.Fatal(err)
				}
				op = s.ops[i]
				wrong := func(format string, args ...any) {
					t.Helper()
					t.Fatalf("%s, allocation %d fails (alone: %t): %s", op.name, n, only, fmt.Sprintf(format, args...))
				}
				whole := func(h held) {
					t.Helper()
					if err := s.check(); err != nil {
						wrong("Check: %v", err)
					}
					if got, err := s.all(); err != nil || !got.equal(h) {
						wrong("the table has %d keys, want %d, %v: %s", len(got), len(h), err, differ(got, h))
					}
				}
				failed, err := failing(n, only, func() error { return op.do(h) })
				if !honest(err) {
					wrong("%v", err)
				}
				whole(h)
				again := op.do(h)
				if !honest(again) || device.IsOutOfMemory(again) {
					wrong("%v; tried again: %v", err, again)
				}
				whole(h)
				if err := s.close(); err != nil {
					wrong("Close: %v", err)
				}
				if live := d.Live(); len(live) > atFirst {
					wrong("%v stays behind", live)
				}
				if !failed {
					most = n - 1
					break
				}
			}
			testenv.Tried(t, int(most), "faults")
			t.Logf("%s: each of %d allocations failed (alone: %t)", op.name, most, only)
		}
	}
}

// differ names a few keys whose values differ.
func differ(got, want held) (list string) {
	keys := slices.Sorted(gomaps.Keys(want))
	for k := range got {
		if _, there := want[k]; !there {
			keys = append(keys, k)
		}
	}
	n := 0
	for _, k := range keys {
		_, has := got[k]
		_, should := want[k]
		if has != should || !slices.Equal(got[k], want[k]) {
			if n++; n <= 3 {
				list += fmt.Sprintf("key %#x has %v (%t), want %v (%t); ", k, got[k], has, want[k], should)
			}
		}
	}
	return fmt.Sprintf("%s%d differ", list, n)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
