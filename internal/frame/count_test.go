package frame_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/internal/frame"
)

// Flags are counted whatever their number and where they begin.
func TestCount(t *testing.T) {
	const most = 9 << 20
	flags, before := make([]bool, most), make([]int, most+1)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range flags {
		flags[i] = random.Uint32()&3 != 0
		before[i+1] = before[i]
		if flags[i] {
			before[i+1]++
		}
	}
	lengths := []int{4 << 20, 4<<20 + 1, 8<<20 + 33, most - 100}
	for n := range 200 {
		lengths = append(lengths, n)
	}
	for _, n := range lengths {
		for from := range 20 {
			if got, want := frame.Count(flags[from:from+n]), before[from+n]-before[from]; got != want {
				t.Fatalf("%d flags from %d on: %d, want %d", n, from, got, want)
			}
		}
	}
	if frame.Count(nil) != 0 {
		t.Error("no flags are some")
	}
}

func BenchmarkCount(b *testing.B) {
	for _, n := range []int{100, 1 << 16, 100 << 20} {
		flags := make([]bool, n)
		for i := range flags {
			flags[i] = i%3 == 0
		}
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			b.SetBytes(int64(n))
			for b.Loop() {
				frame.Count(flags)
			}
		})
	}
}
