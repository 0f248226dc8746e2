package dycuckoo

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// voters are tables whose warps vote: buckets that a warp inspects two at a time and one at a time.
var voters = []Options{
	{Layout: PackedLocked, Subtables: 2, Coordination: Voter}, {Layout: Wide, Subtables: 2, Bucket: 128, Coordination: Voter}, {Layout: Wide, Bucket: 32, Coordination: Voter, Balance: Theorem1},
}

// Inserts of warps that vote beside one another, with lanes switched at random, in tables that are full to the brim;
// and mixed batches.
func TestVotersUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for i, o := range testenv.Some(voters, 1) {
		for seed := range uint64(testenv.Seeds(24)) {
			seed += uint64(100 * i)
			if err := crowd(open(t, "cpu", device.WithStress(seed)), o); err != nil {
				t.Fatalf("%v, buckets of %d bytes, seed %d: %v", o.Layout, o.Bucket, seed, err)
			}
		}
		if i > 0 && !testenv.Long() {
			continue
		}
		tabletest.MixedStress(t, func(seed uint64) *device.Device {
			d, err := device.Open("cpu", device.WithStress(seed))
			must(t, err)
			return d
		}, func(d *device.Device, base table.Options) (table.Map[uint32, uint32], error) {
			o := o
			o.Options = base
			return New[uint32, uint32](d, o)
		}, table.Options{MaxBytes: 4 << 10, LoadFactor: 1}, testenv.Seeds(24))
	}
}

// Defects of the vote that are planted in a copy must be found.
func TestStressFindsDefectsOfVotes(t *testing.T) {
	testenv.ByTurns(t)
	header := dycuckooCUH
	defer func() { dycuckooCUH = header }()
	defects := []struct{ name, old, now string }{
		{"a leader that has not got its locks", "            if (!g.shuffle((u32)locked, leader)) continue;\n", ""},
		{"locks that are given back before the pair is put", "                bool done = put(t, b[0], b[1], full[0], same[0], full[1], same[1]);\n                locks.release();\n",
			"                locks.release();\n                bool done = put(t, b[0], b[1], full[0], same[0], full[1], same[1]);\n"},
		{"a bucket that is not inspected", "            full[1] = all >> EACH;\n            same[1] = equal >> EACH;\n", "            full[1] = all >> EACH;\n            same[1] = 0;\n"},
	}
	for _, c := range defects { // those that short runs do not plant, too
		if n := strings.Count(header, c.old); n != 1 {
			t.Errorf("%s: the kernels have %d times\n%s", c.name, n, c.old)
		}
	}
	for _, c := range testenv.Some(defects, 1) {
		t.Run(c.name, func(t *testing.T) {
			dycuckooCUH = strings.Replace(header, c.old, c.now, 1)
			const seeds = 200
			for seed := range uint64(seeds) {
				if err := crowd(open(t, "cpu", device.WithStress(seed)), voters[0]); err != nil {
					t.Logf("seed %d: %v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds the defect", seeds)
		})
	}
}

// Rows of few keys, whose lanes want the same locks, come to an end in batches that end within a warp, in a table with
// room and in a full one; reserved keys too.
func TestVotersOfFewKeys(t *testing.T) {
	testenv.ByTurns(t)
	for _, o := range testenv.Some(voters, 1) {
		for _, most := range []int64{0, 4 << 10} {
			o.MaxBytes, o.LoadFactor = most, 1
			m, err := New[uint32, uint32](open(t, "cpu"), o)
			must(t, err)
			defer m.Close()
			refusedAny := false
			for _, n := range []int{1, 31, 33, 70, 999} {
				keys := make([]uint32, n)
				for i := range keys {
					if keys[i] = ^uint32(i % 5); i%7 > 3 {
						keys[i] = kernel.Fmix32(uint32(n*1000 + i%300))
					}
				}
				var full *table.FullError
				if err := m.Insert(keys, keys); err != nil && (most == 0 || !errors.As(err, &full)) {
					t.Fatal(err)
				}
				must(t, m.Check())
				refused := map[uint32]bool{}
				if full != nil {
					refusedAny = true
					for _, i := range full.Positions {
						refused[keys[i]] = true
					}
				}
				values, found := make([]uint32, n), make([]bool, n)
				must(t, m.Find(keys, values, found))
				for i, k := range keys {
					if found[i] == refused[k] || found[i] && values[i] != k {
						t.Fatalf("%v, at most %d bytes: of %d rows, key %#x is found: %t, and refused: %t", o.Layout, most, n, k, found[i], refused[k])
					}
				}
			}
			if refusedAny != (most > 0) {
				t.Errorf("%v, at most %d bytes: keys were refused: %t", o.Layout, most, refusedAny)
			}
		}
	}
}

// Voter is for layouts whose inserts hold locks.
func TestVoterWantsLocks(t *testing.T) {
	d := open(t, "cpu")
	for _, o := range []Options{{Coordination: Voter}, {Layout: Packed, Coordination: Voter}} {
		if _, err := New[uint32, uint32](d, o); err == nil || !strings.Contains(err.Error(), "use packed-locked or wide") {
			t.Errorf("%v: %v", o.Layout, err)
		}
	}
	for _, wrong := range []Coordination{-1, 2} {
		if _, err := New[uint32, uint32](d, Options{Layout: Wide, Coordination: wrong}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("coordination %d", int(wrong))) {
			t.Errorf("coordination %d: %v", int(wrong), err)
		}
	}
}
