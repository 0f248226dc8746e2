package host_test

import (
	"testing"

	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/bench/host"
	"github.com/warpmap/warpmap/internal/testenv"
)

// The calls with 1,000 pairs have theirs, however few the figure is measured with.
func TestFewPairs(t *testing.T) {
	testenv.UsersKernels(t)
	benchtest.Rows(t, host.Studies, "host", 300, 3+2*(8+6)+4, func(at func(string) any) { benchtest.AtLeast(t, at("what").(string), at("figure"), 1e-9) })
}

// Every family has all operations on keys of three lengths, none of which is wrong.
func TestStrings(t *testing.T) {
	testenv.ByTurns(t)
	benchtest.Rows(t, host.Studies, "library/strings", 300, 5*3*7, func(at func(string) any) { benchtest.AtLeast(t, at("operation").(string), at("M keys/s"), 1e-9) })
}
