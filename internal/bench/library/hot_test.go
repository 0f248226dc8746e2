package library_test

import (
	"errors"
	"math"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench/library"
	"github.com/warpmap/warpmap/internal/testenv"
)

// Segments have the shares that Zipf's law gives their ranks, and are no longer than a 64th of their first rank.
func TestZipf1(t *testing.T) {
	const ranks = 100_000
	s, sum, all := library.Zipf1(ranks), 0.0, 0.0
	for r := range ranks {
		all += 1 / float64(r+1)
	}
	r := uint64(0)
	for i, first := range append(s.Firsts[1:], ranks) {
		if before := s.Firsts[i]; before < 4096 && first != before+1 || first > before+max(1, before/64) && before > 0 {
			t.Fatalf("a segment has the ranks %d to %d", before, first)
		}
		if math.Abs(s.Shares[i]-sum) > 1e-9 {
			t.Fatalf("a share of %v comes before rank %d, want %v", s.Shares[i], s.Firsts[i], sum)
		}
		for ; r < first; r++ {
			sum += 1 / float64(r+1) / all
		}
	}
}

// The kernels compile for GPUs on machines that have none.
func TestHotCompilesForGPUs(t *testing.T) {
	_, err := device.CompileFor("sm_90", library.HotProgram())
	if errors.Is(err, device.ErrNoNVRTC) {
		testenv.RequireNVRTC(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
