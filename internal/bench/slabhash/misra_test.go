package slabhash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// Operations of all kinds on few keys, with threads that lose the processor anywhere: what each reports must add up, key by
// key, to what is there in the end.
func TestMisraUnderStress(t *testing.T) {
	const n, keys = 2000, 60
	for seed := range uint64(6) {
		d, err := device.Open("cpu", device.WithStress(seed))
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		c, err := newConcurrent(d, n)
		if err != nil {
			t.Fatal(err)
		}
		defer c.free()
		s, err := c.misra(1 + int(seed)*4)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		rng := rand.New(rand.NewPCG(seed, 7))
		h, st := &c.host, d.Stream()
		for i := range h.keys {
			h.keys[i] = uint32(rng.IntN(keys))
		}
		there := map[uint32]int{}
		for _, k := range h.keys {
			there[k] = 1
		}
		err = c.initial.Write(st, h.keys)
		for i := range h.keys {
			h.ops[i] = []table.Op{table.OpFind, table.OpInsert, table.OpDelete}[rng.IntN(3)]
			h.keys[i] = uint32(rng.IntN(2 * keys))
		}
		if err := errors.Join(err, c.ops.Write(st, h.ops), c.keys.Write(st, h.keys), s.fill(), s.mixed()); err != nil {
			t.Fatal(err)
		}
		status, err := c.status.Host(st)
		if err != nil {
			t.Fatal(err)
		}
		asked := map[uint32]bool{}
		for i, k := range h.keys {
			asked[k] = asked[k] || h.ops[i] != table.OpFind
			switch {
			case h.ops[i] == table.OpInsert && status[i] == table.Added:
				there[k]++
			case h.ops[i] == table.OpDelete && status[i] == table.Present:
				there[k]--
			case h.ops[i] == table.OpInsert && status[i] != table.Present || h.ops[i] != table.OpInsert && status[i] > table.Present:
				t.Fatalf("seed %d: %v of key %d is %v", seed, h.ops[i], k, status[i])
			}
		}
		for i, k := range h.keys { // nobody has changed it
			if !asked[k] && (status[i] == table.Present) != (there[k] == 1) {
				t.Errorf("seed %d: find of key %d is %v", seed, k, status[i])
			}
		}
		var want []uint32
		for k, times := range there {
			if times == 1 {
				want = append(want, k)
			} else if times != 0 {
				t.Errorf("seed %d: key %d is there %d times", seed, k, times)
			}
		}
		slices.Sort(want)
		got, err := s.keys()
		if wrong := unlike(got, want); err != nil || wrong > 0 {
			t.Errorf("seed %d: %d keys too many or too few, %v", seed, wrong, err)
		}
	}
}

// The kernels of slab's figures compile for GPUs, on machines that have none.
func TestBaselinesCompileForGPUs(t *testing.T) {
	for _, p := range []*device.Program{misraProgram(), mallocProgram()} {
		for _, arch := range []string{"sm_70", "sm_90"} {
			t.Run(fmt.Sprintf("%s %s", p.Name, arch), func(t *testing.T) {
				_, err := device.CompileFor(arch, p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
	}
}
