package warpcore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// Sets of keys of 16 bytes, which no other family has, and of windows and groups that are not the default.
func TestSets(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		run := func(what string, suite func(t *testing.T, d *device.Device)) { parallel(t, name, what, suite) }
		wide := tabletest.Set(func(d *device.Device, o table.Options) (table.Set[[2]uint64], error) {
			return orNil(NewSet[[2]uint64](d, Options{Options: o}))
		})
		run("16 bytes", func(t *testing.T, d *device.Device) { wide.Run(t, tabletest.Widths, d, openCPU(t)) })
		run("16 bytes, one chain", func(t *testing.T, d *device.Device) { wide.Degenerate(t, d) })
		run("16 bytes by 4 lanes", func(t *testing.T, d *device.Device) {
			s := tabletest.Set(func(d *device.Device, base table.Options) (table.Set[[2]uint64], error) {
				return orNil(NewSet[[2]uint64](d, Options{Options: base, InsertGroup: 4, FindGroup: 2}))
			})
			s.Churn(t, d, table.Options{LoadFactor: 1}, 1, testenv.SeedsOf(60, 8), 600)
		})
		for i, o := range []Options{{Window: 1, InsertGroup: 4, FindGroup: 1}, {Window: 32, InsertGroup: 2, FindGroup: 32}, {Window: 8, InsertGroup: 8, FindGroup: 2}} {
			run(fmt.Sprintf("window %d", o.Window), func(t *testing.T, d *device.Device) {
				s := tabletest.Set(func(d *device.Device, base table.Options) (table.Set[uint32], error) {
					o.Options = base
					return orNil(NewSet[uint32](d, o))
				})
				for _, base := range []table.Options{{}, {Capacity: 200, LoadFactor: 1}, {MaxBytes: 16 << 10, LoadFactor: 1}} {
					s.Churn(t, d, base, uint64(i), testenv.SeedsOf(60, 8), 1500)
				}
			})
		}
	}
}

// A layout that does not exist has a name, too.
func TestLayoutNames(t *testing.T) {
	if got := fmt.Sprint(Auto, Packed, AoS, SoA); got != "auto packed aos soa" {
		t.Error(got)
	}
	for _, l := range []Layout{-1, SoA + 1} {
		if got, want := l.String(), fmt.Sprintf("Layout(%d)", int(l)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A GPU that does not swap 128 bits has sets of smaller keys, and the error for those of 16 bytes names the swap.
func TestSetsWithoutASwap(t *testing.T) {
	for _, arch := range []string{"sm_80", "sm_90"} {
		info := device.Info{Name: "cuda:0", Arch: arch, CAS128: arch == "sm_90"}
		for _, bytes := range []int{4, 8, 16} {
			cfg := config{keyBytes: bytes}
			err := (&Options{}).complete(info, &cfg)
			switch fits := bytes < 16 || info.CAS128; {
			case fits && (err != nil || cfg.layout != Packed):
				t.Errorf("%s, keys of %d bytes: layout %v, %v", arch, bytes, cfg.layout, err)
			case !fits && (err == nil || !strings.Contains(err.Error(), "128-bit compare-and-swap")):
				t.Errorf("%s, keys of %d bytes: %v", arch, bytes, err)
			}
			err = (&Options{Layout: SoA}).complete(info, &config{keyBytes: bytes})
			if err == nil || !strings.Contains(err.Error(), "a set has no layouts") {
				t.Errorf("%s, keys of %d bytes in layout soa: %v", arch, bytes, err)
			}
		}
	}
}

// Keys of 16 bytes whose higher word is all ones, or whose lower is, are keys like others.
func TestSetOfWideKeys(t *testing.T) {
	d := openCPU(t)
	s, err := NewSet[[2]uint64](d, Options{})
	must(t, err)
	defer s.Close()
	var keys [][2]uint64
	for _, hi := range []uint64{0, 1, ^uint64(0), ^uint64(0) - 1} {
		for lo := range uint64(8) {
			keys = append(keys, [2]uint64{^lo, hi}, [2]uint64{lo, hi})
		}
	}
	added, found := make([]bool, len(keys)), make([]bool, len(keys))
	for round := range 2 {
		n, err := s.Insert(keys, added)
		must(t, err)
		if want := len(keys) * (1 - round); n != want {
			t.Fatalf("%d keys added, want %d", n, want)
		}
		must(t, s.Check())
	}
	n, err := s.Delete(keys[:20], nil)
	must(t, err)
	must(t, s.Contains(keys, found))
	for i, f := range found {
		if f != (i >= 20) {
			t.Errorf("key %x: found %t", keys[i], f)
		}
	}
	if n != 20 || frame.Count(found) != len(keys)-20 {
		t.Errorf("%d deleted, %d left", n, frame.Count(found))
	}
	must(t, s.Check())
}

func TestSetHasNoLayouts(t *testing.T) {
	if _, err := NewSet[uint32](openCPU(t), Options{Layout: SoA}); err == nil {
		t.Error("a set with a layout: no error")
	}
}

// orNil keeps the interface nil where a table is.
func orNil[K any](s *Set[K], err error) (table.Set[K], error) {
	if err != nil {
		return nil, err
	}
	return s, nil
}

// Set operations against Go maps, between sets of different options, on several streams' work, in pieces.
func TestSetOperations(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			if name == "cpu" {
				must(t, err)
			}
			testenv.Require(t, "cuda", err)
			defer d.Close()
			rng := rand.New(rand.NewPCG(1, 2))
			for round := range 6 {
				a, err := NewSet[uint32](d, Options{})
				must(t, err)
				b, err := NewSet[uint32](d, Options{Options: table.Options{Capacity: 5000}, Window: 8})
				must(t, err)
				inA, inB := map[uint32]bool{}, map[uint32]bool{}
				fill := func(s *Set[uint32], in map[uint32]bool, n int) {
					keys := make([]uint32, n)
					for i := range keys {
						keys[i] = uint32(rng.IntN(4000)) - 10
						in[keys[i]] = true
					}
					_, err := s.Insert(keys, nil)
					must(t, err)
					gone := keys[:n/10]
					_, err = s.Delete(gone, nil)
					must(t, err)
					for _, k := range gone {
						delete(in, k)
					}
				}
				fill(a, inA, 3000)
				fill(b, inB, 1000+round*400)
				for _, op := range []struct {
					name string
					do   func(*Set[uint32]) error
					keep func(k uint32) bool
				}{
					{"intersect", a.Intersect, func(k uint32) bool { return inA[k] && inB[k] }},
					{"union", a.Union, func(k uint32) bool { return inA[k] || inB[k] }},
					{"subtract", a.Subtract, func(k uint32) bool { return inA[k] && !inB[k] }},
				}[round%3:] {
					must(t, op.do(b))
					now := map[uint32]bool{}
					for k := range uint32(4000) {
						if op.keep(k - 10) {
							now[k-10] = true
						}
					}
					inA = now
					for s, in := range map[*Set[uint32]]map[uint32]bool{a: inA, b: inB} {
						must(t, s.Check())
						keys, err := s.All()
						must(t, err)
						for _, k := range keys {
							if !in[k] {
								t.Fatalf("%s: key %d is in", op.name, k)
							}
						}
						if len(keys) != len(in) {
							t.Fatalf("%s: %d keys, want %d", op.name, len(keys), len(in))
						}
					}
					fill(a, inA, 500)
				}
				must(t, a.Union(a))
				must(t, a.Intersect(a))
				if n, err := a.Len(); n != len(inA) || err != nil {
					t.Fatalf("%d keys, want %d: %v", n, len(inA), err)
				}
				must(t, a.Subtract(a))
				if n, err := a.Len(); n != 0 || err != nil {
					t.Fatalf("%d keys of a set without itself: %v", n, err)
				}
				must(t, errors.Join(a.Close(), b.Close()))
			}
		})
	}
}

// Two goroutines with the same two sets do not wait for each other, and what there is no room for is told.
func TestSetOperationsBesideOneAnother(t *testing.T) {
	d := openCPU(t)
	a, err := NewSet[uint32](d, Options{})
	must(t, err)
	b, err := NewSet[uint32](d, Options{})
	must(t, err)
	_, err = a.Insert(sequence(0, 1000), nil)
	must(t, err)
	_, err = b.Insert(sequence(500, 1000), nil)
	must(t, err)
	var g sync.WaitGroup
	for i := range 20 {
		g.Go(func() {
			if i%2 == 0 {
				a.Union(b)
			} else {
				b.Union(a)
			}
		})
	}
	g.Wait()
	for _, s := range []*Set[uint32]{a, b} {
		if n, err := s.Len(); n != 1500 || err != nil {
			t.Errorf("%d keys, %v", n, err)
		}
	}
	small, err := NewSet[uint32](d, Options{Options: table.Options{MaxBytes: 2 << 10}})
	must(t, err)
	if err := small.Union(a); !errors.Is(err, table.ErrMaxBytes) {
		t.Errorf("a union that does not fit: %v", err)
	}
	must(t, small.Check())
	other := openCPU(t)
	far, err := NewSet[uint32](other, Options{})
	must(t, err)
	for _, op := range []func(*Set[uint32]) error{a.Union, a.Intersect, a.Subtract} {
		if err := op(far); err == nil || !strings.Contains(err.Error(), "different devices") {
			t.Errorf("sets of two devices: %v", err)
		}
	}
	must(t, small.Close())
	for _, op := range []func(*Set[uint32]) error{a.Union, a.Intersect, a.Subtract} {
		if err := op(small); !errors.Is(err, table.ErrClosed) {
			t.Errorf("a closed set: %v", err)
		}
	}
	if err := small.Union(a); !errors.Is(err, table.ErrClosed) {
		t.Errorf("a closed set: %v", err)
	}
	must(t, errors.Join(a.Close(), b.Close(), far.Close()))
	for _, op := range []func(*Set[uint32]) error{a.Union, a.Intersect, a.Subtract} {
		if err := op(a); !errors.Is(err, table.ErrClosed) {
			t.Errorf("a closed set and itself: %v", err)
		}
		if err := op(nil); err == nil {
			t.Error("no set: no error")
		}
	}
}

// A set stays whole beside one that is broken, whichever of both is the older, and both break where a change of both
// breaks off.
func TestSetOperationsBesideABrokenSet(t *testing.T) {
	d := openCPU(t)
	launches := func(n int64) { // from the n-th on they fail
		faults.Set(d, (&faults.Counter{Site: faults.Launch, N: n, Rest: true, Outcome: faults.Fails}).Order)
	}
	defer faults.Set(d, nil)
	broken := func(err error) bool {
		call := (*device.CallError)(nil)
		return errors.As(err, &call) && call.Broken
	}
	var sets [3]*Set[uint32]
	for i := range sets {
		s, err := NewSet[uint32](d, Options{})
		must(t, err)
		defer s.Close()
		_, err = s.Insert(sequence(10*i, 100), nil)
		must(t, err)
		sets[i] = s
	}
	older, bad, newer := sets[0], sets[1], sets[2]
	launches(1)
	_, err := bad.Insert(sequence(0, 100), nil)
	faults.Set(d, nil)
	if !broken(err) {
		t.Fatalf("an insert without a launch: %v", err)
	}
	for _, s := range []*Set[uint32]{older, newer} {
		for _, op := range []func(*Set[uint32]) error{s.Union, s.Intersect, s.Subtract} {
			if err := op(bad); !broken(err) {
				t.Errorf("with a broken set: %v", err)
			}
		}
		for _, op := range []func(*Set[uint32]) error{bad.Union, bad.Intersect, bad.Subtract} {
			if err := op(s); !broken(err) {
				t.Errorf("of a broken set: %v", err)
			}
		}
		if n, err := s.Len(); n != 100 || err != nil {
			t.Errorf("beside a broken set: %d keys, %v", n, err)
		}
		must(t, s.Check())
	}
	launches(2)
	err = older.Union(newer)
	faults.Set(d, nil)
	_, first := older.Len()
	_, then := newer.Len()
	if !broken(err) || !broken(first) || !broken(then) {
		t.Errorf("a union that broke off: %v; %v; %v", err, first, then)
	}
}

// parallel runs a suite on a device of its own, where there is one, beside others.
func parallel(t *testing.T, name, what string, suite func(t *testing.T, d *device.Device)) {
	t.Run(name+"/"+what, func(t *testing.T) {
		t.Parallel()
		d, err := device.Open(name)
		if name == "cpu" {
			must(t, err)
		}
		testenv.Require(t, "cuda", err)
		t.Cleanup(func() { must(t, d.Close()) })
		suite(t, d)
	})
}
