package bench

import (
	"math"
	"testing"
)

// Chains get longer with β, and the measured utilization is the expected one.
func TestSlabLoads(t *testing.T) {
	before, cuckoos := 0.0, 0
	rows(t, "slab/4", 6000, 2*14+1, func(at func(string) any) {
		for _, c := range []string{"insert G/s", "find G/s, all hits", "find G/s, no hits"} {
			atLeast(t, c, at(c), 1e-9)
		}
		u, _ := number(at("utilization"))
		if at("table") == "cuckoo" {
			cuckoos++
			atLeast(t, "load factor", u, 0.15)
			return
		}
		beta, _ := number(at("β"))
		atLeast(t, "β", beta, before)
		before = beta
		if want := slabUtilization(beta); math.Abs(u-want) > 0.04 {
			t.Errorf("β = %v: utilization %v, want about %v", beta, u, want)
		}
	})
	if before < 2.5 || cuckoos != 15 {
		t.Errorf("β came to %v only; %d rows of cuckoo", before, cuckoos)
	}
}

func TestSlabSizes(t *testing.T) {
	rows(t, "slab/5", 1<<13, 2*12, func(at func(string) any) { atLeast(t, "insert", at("insert G/s"), 1e-9) })
}

func TestSlabIncremental(t *testing.T) {
	tables := map[any]int{}
	rows(t, "slab/6", 1500, 3*4*8, func(at func(string) any) {
		tables[at("table")]++
		atLeast(t, "time", at("total ms"), 1e-9)
		if at("table") != "slab" {
			atLeast(t, "speed-up", at("slab is faster"), 1e-9)
		}
	})
	if len(tables) != 4 {
		t.Errorf("tables %v", tables)
	}
}

func TestSlabMixed(t *testing.T) {
	rows(t, "slab/7a", 6000, 3*8, func(at func(string) any) { atLeast(t, "mixed", at("mixed G/s"), 1e-9) })
	if b := betaFor(0.6); math.Abs(b-0.7) > 0.1 {
		t.Errorf("β of %v for a utilization of 0.6, the paper has 0.7", b)
	}
}

func TestSlabAlloc(t *testing.T) {
	rows(t, "slab/alloc", 3000, 9, func(at func(string) any) {
		atLeast(t, "allocate", at("allocate G/s"), 1e-9)
		atLeast(t, "release", at("release G/s"), 1e-9)
	})
}
