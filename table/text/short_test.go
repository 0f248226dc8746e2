package text_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// scant is an index that finds no memory for some calls: such as no device has them on purpose.
type scant struct {
	table.Map[uint64, uint64]
	fails uint // bits: calls of which kinds
	after int  // so many of them go well
	times int  // and then so many do not
	share int  // of a batch, in halves, that is done all the same
	count int  // of those that did not go well
}

const (
	failsInsertNew = 1 << iota
	failsInsert
	failsDelete
	failsFind
)

func (s *scant) call(kind uint, n int, do func(n int) error) error {
	if s.fails&kind == 0 || s.times == 0 || s.after > 0 {
		if s.fails&kind != 0 {
			s.after--
		}
		return do(n)
	}
	s.times--
	s.count++
	if done := n * s.share / 2; done > 0 {
		if err := do(done); err != nil {
			return err
		}
	}
	return &device.OutOfMemoryError{Device: "a test", Asked: 2, Free: 1}
}

func (s *scant) InsertNewOn(st *device.Stream, keys, values device.Slice[uint64], added device.Slice[bool]) error {
	return s.call(failsInsertNew, keys.Len(), func(n int) error {
		return s.Map.InsertNewOn(st, keys.Slice(0, n), values.Slice(0, n), added.Slice(0, n))
	})
}

func (s *scant) InsertOn(st *device.Stream, keys, values device.Slice[uint64]) error {
	return s.call(failsInsert, keys.Len(), func(n int) error { return s.Map.InsertOn(st, keys.Slice(0, n), values.Slice(0, n)) })
}

func (s *scant) DeleteOn(st *device.Stream, keys device.Slice[uint64], deleted device.Slice[bool]) error {
	return s.call(failsDelete, keys.Len(), func(n int) error { return s.Map.DeleteOn(st, keys.Slice(0, n), deleted) })
}

func (s *scant) FindOn(st *device.Stream, keys, values device.Slice[uint64], found device.Slice[bool]) error {
	return s.call(failsFind, keys.Len(), func(n int) error { return s.Map.FindOn(st, keys.Slice(0, n), values.Slice(0, n), found) })
}

// An index that finds no memory in the middle of a batch, wherever that is, once or again and again: what is named is not in, all else is, and when there is
// memory again the map is as good as any.
func TestIndexShortOfMemory(t *testing.T) {
	d := openDevice(t, "cpu")
	failed := map[uint]int{}
	for seed := range uint64(testenv.SeedsOf(80, 10)) {
		s := &scant{}
		o := text.Options{Options: table.Options{Hash: []int{kernel.HashMurmur, kernel.HashIdentity}[seed/2%2]}}
		if seed%5 == 0 {
			o.MaxBytes, o.KeyBytes = 64<<10, 500
		}
		x := newTwin(t, d, func(d *device.Device, o text.Options) (*text.Map[uint64], error) {
			return text.New[uint64](d, o, func(d *device.Device, o table.Options) (table.Map[uint64, uint64], error) {
				m, err := warpmap.New[uint64, uint64](d, warpmap.WarpCore, o)
				s.Map = m
				return s, err
			})
		}, o, seed)
		x.m.SetPart([]int64{1 << 20, 200}[seed%2])
		x.churn(3, 100, 400)
		x.short = true
		for range 6 {
			*s = scant{Map: s.Map, fails: failsInsertNew, after: x.rng.IntN(4), times: 1 << x.rng.IntN(10), share: x.rng.IntN(3)}
			if x.rng.IntN(3) > 0 {
				s.fails, x.vague = 1+uint(x.rng.IntN(15)), true
			}
			x.churn(4, 100, 400)
			for kind := range uint(4) {
				if s.fails&(1<<kind) != 0 {
					failed[1<<kind] += s.count
				}
			}
			s.fails, x.vague = 0, false
			x.verify()
		}
		must(t, x.m.Clear())
		clear(x.model)
		x.churn(4, 100, 400)
	}
	if len(failed) != 4 {
		t.Errorf("calls that failed, by kind: %v", failed)
	}
	t.Log("calls that failed, by kind:", failed)
}

// Devices of many sizes, from such as have hardly room for an empty map: what is named is not in, all else is.
func TestDevicesOfManySizes(t *testing.T) {
	sizes, full := 0, 0
	for _, family := range warpmap.Families(table.KindMap) {
		step, each := int64(3), 8
		if testenv.Long() {
			step, each = 32, 40
		}
		for bytes := int64(96 << 10); bytes < 3<<20; bytes += bytes/step + 1 {
			d := openDevice(t, "cpu", device.WithMemory(bytes))
			m, err := warpmap.NewStrings[uint64](d, family, text.Options{})
			if device.IsOutOfMemory(err) {
				continue
			}
			must(t, err)
			must(t, m.Close())
			sizes++
			x := newTwin(t, d, func(d *device.Device, o text.Options) (*text.Map[uint64], error) {
				return warpmap.NewStrings[uint64](d, family, o)
			}, text.Options{}, uint64(bytes))
			x.short = true
			for range each {
				keys := make([]string, 1<<x.rng.IntN(13))
				for i := range keys {
					keys[i] = fmt.Sprint("some key that takes memory, number ", x.rng.IntN(1<<13))
				}
				lost := 0
				switch x.rng.IntN(5) {
				case 0, 1:
					lost = x.insert(keys)
				case 2:
					lost = x.insertNew(keys)
				case 3:
					x.drop(keys[:len(keys)/2])
				case 4:
					x.find(keys)
				}
				if lost > 0 {
					full++
				}
				must(t, x.m.Check())
			}
		}
	}
	if sizes < 30 || full < sizes/2 {
		t.Errorf("%d sizes, and %d batches that found too little memory", sizes, full)
	}
}

// A batch is looked up and deleted in pieces as small as the memory that is left. The CPU device takes Go's memory as it is, unless values do not lie as
// they must: these do not.
func TestPiecesOfLittleMemory(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			for _, left := range []int64{2 << 10, 3000, 5000, 10_000, 20_000} {
				d := openDevice(t, name, device.WithMemory(8<<20), device.WithKept(0))
				m, err := text.New[[2]uint64](d, text.Options{}, index(warpmap.WarpCore))
				must(t, err)
				const n = 3000
				keys, memory := make([]string, n), make([]uint64, 2*n+1)
				for i := range keys {
					keys[i] = fmt.Sprint("key ", i)
				}
				first := uintptr(unsafe.Pointer(&memory[0])) / 8 % 2
				values := unsafe.Slice((*[2]uint64)(unsafe.Pointer(&memory[1-first])), n)
				for i := range values {
					values[i] = [2]uint64{uint64(i), uint64(i) << 32}
				}
				want := slices.Clone(values)
				must(t, m.Insert(text.Of(keys...), values))
				frame.ReleaseStaging(d)
				free, _, err := d.Memory()
				must(t, err)
				others, err := device.Make[byte](d, int(free-left))
				must(t, err)
				clear(values)
				found := make([]bool, n)
				if err := m.Find(text.Of(keys...), values, found); err != nil || !slices.Equal(values, want) || frame.Count(found) != n {
					t.Errorf("%d bytes are left: %d of %d keys are found, values equal %t, %v", left, frame.Count(found), n, slices.Equal(values, want), err)
				}
				if gone, err := m.Delete(text.Of(keys...), found); gone != n || err != nil {
					t.Errorf("%d bytes are left: %d of %d keys are deleted, %v", left, gone, n, err)
				}
				must(t, errors.Join(others.Free(), m.Check(), m.Close()))
			}
		})
	}
}

// A batch that found too little memory goes in when it comes again and others have given theirs back, from Go's memory and from the device's.
func TestAgainWithMoreMemory(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			for i, family := range warpmap.Families(table.KindMap) {
				d := openDevice(t, name, device.WithMemory(64<<20))
				x := newTwin(t, d, func(d *device.Device, o text.Options) (*text.Map[uint64], error) {
					return warpmap.NewStrings[uint64](d, family, o)
				}, text.Options{}, uint64(i))
				x.short = true
				var keys []string
				for i := range 6000 {
					keys = append(keys, strings.Repeat(fmt.Sprint(i, " "), 10))
				}
				keys = append(keys, keys[:1000]...)
				on, err := text.Of(keys...).Upload(d)
				must(t, err)
				values := deviceSlice(x, x.numbers(len(keys)))
				lent := x.lent
				x.lent = nil
				for round := range 6 {
					free, _, err := d.Memory()
					must(t, err)
					others, err := device.Make[byte](d, int(free)-60_000<<round)
					must(t, err)
					lost := x.refused(x.m.InsertOn(nil, on, values), keys)
					if round == 0 && len(lost) == 0 {
						t.Fatalf("%s: all are in", family)
					}
					must(t, errors.Join(others.Free(), x.m.Check()))
					if n, err := x.m.Len(); err != nil || n != 6000-len(distinct(keys, lost)) {
						t.Fatalf("%s: Len is %d, and %d of 6000 are named, %v", family, n, len(distinct(keys, lost)), err)
					}
					must(t, errors.Join(x.m.InsertOn(nil, on, values), x.m.Check()))
					if n, err := x.m.Len(); n != 6000 || err != nil {
						t.Fatalf("%s: %d keys are in, want 6000, %v", family, n, err)
					}
					if n, err := x.m.Delete(text.Of(keys[:3000]...), nil); n != 3000 || err != nil {
						t.Fatalf("%s: %d keys are deleted, want 3000, %v", family, n, err)
					}
					must(t, errors.Join(x.m.Check(), x.m.Clear()))
				}
				x.lent = lent
				x.giveBack()
				must(t, on.Free())
			}
		})
	}
}

// distinct are the keys at positions.
func distinct(keys []string, positions map[int]bool) map[string]bool {
	out := map[string]bool{}
	for p := range positions {
		out[keys[p]] = true
	}
	return out
}
