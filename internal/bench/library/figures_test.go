package library_test

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/bench/library"
	"github.com/warpmap/warpmap/internal/testenv"
)

// The slowest hundredth is no faster than the half, and the least and most of the runs are around the median.
func TestBatcher(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, library.Studies, "library/batcher", 1000, 5+3, func(at func(string) any) {
		p50 := at("p50 µs").(float64)
		benchtest.AtLeast(t, "p50", p50, 0.1)
		benchtest.AtLeast(t, "p99", at("p99 µs"), p50)
		least := at("least").(float64)
		benchtest.AtLeast(t, "least", least, 1e-6)
		benchtest.AtLeast(t, "K/s", at("K/s"), least)
		benchtest.AtLeast(t, "most", at("most"), at("K/s").(float64))
	}))
}

// Every kind and family is there, and comes back.
func TestSave(t *testing.T) {
	testenv.ByTurns(t)
	benchtest.Draw(t, benchtest.Rows(t, library.Studies, "library/save", 3000, 2*(5+2+2+1+1+1+1), func(at func(string) any) {
		benchtest.AtLeast(t, "GB/s", at("GB/s"), 1e-6)
		benchtest.AtLeast(t, "most", at("most"), at("least").(float64))
		benchtest.AtLeast(t, "MB", at("MB"), 0.001)
	}))
}

// Each row has what it measured, most of them beside a Go map.
func TestCPU(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, library.Studies, "library/cpu", 2000, 3+1+8+1+10+5+1+1, func(at func(string) any) {
		benchtest.AtLeast(t, "warpmap", at("warpmap M/s"), 1e-6)
		if at("Go M/s") != nil {
			benchtest.AtLeast(t, "Go", at("Go M/s"), 1e-6)
			benchtest.AtLeast(t, "times", at("times"), 1e-6)
		}
	}))
}

// Each size and operation has a row for each batch, and one for each peer; notes tell from when on warpmap is ahead.
func TestGoMaps(t *testing.T) {
	testenv.ByTurns(t)
	fig := benchtest.Rows(t, library.Studies, "library/gomap", 2000, 2*(3*(4+6)+4), func(at func(string) any) {
		benchtest.AtLeast(t, "M keys/s", at("M keys/s"), 1e-6)
		if at("batch") != nil {
			benchtest.AtLeast(t, "batch", at("batch"), 1)
		}
	})
	if last := fig.Notes[len(fig.Notes)-1]; !strings.HasPrefix(last, "find: the batches in which warpmap is ahead of the Go map: ") {
		t.Errorf("the last note is %q", last)
	}
	benchtest.Draw(t, fig)
}

// Each width and precision has a row for all keys, and one for a small batch, with an estimate that is near.
func TestSketch(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, library.Studies, "library/sketch", 100_000, 3*4*2, func(at func(string) any) {
		benchtest.AtLeast(t, "G/s", at("G/s"), 1e-6)
		benchtest.AtLeast(t, "GB/s", at("GB/s"), 1e-6)
		benchtest.AtLeast(t, "expected", at("expected %"), 0.2)
	}))
}

// Each stream and width has a row for each sketch, which is within its bound.
func TestHot(t *testing.T) {
	fig := benchtest.Rows(t, library.Studies, "library/hot", 20_000, 2*3*6, func(at func(string) any) {
		benchtest.AtLeast(t, "G/s", at("G/s"), 1e-6)
		benchtest.AtLeast(t, "MiB", at("MiB"), 1e-3)
		off, _ := bench.Number(at("error ppm"))
		if bound, _ := bench.Number(at("bound ppm")); off > bound {
			t.Errorf("%v of %v: an error of %v, and a bound of %v", at("sketch"), at("stream"), off, bound)
		}
	})
	benchtest.Draw(t, fig)
}

// Each family grows in each size of batch, and finds what went in.
func TestGrow(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, library.Studies, "library/grow", 3000, 5*4, func(at func(string) any) {
		benchtest.AtLeast(t, "G/s", at("G/s"), 1e-6)
		benchtest.AtLeast(t, "most", at("most"), at("least").(float64))
		benchtest.AtLeast(t, "MB", at("MB"), 0.001)
	}))
}
