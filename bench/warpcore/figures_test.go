package warpcore

import (
	"testing"

	"github.com/warpmap/warpmap/bench/benchtest"
)

func TestFigure5(t *testing.T) {
	benchtest.Rows(t, Studies, "warpcore/5", 1500, 6*2, func(at func(string) any) {
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		benchtest.AtLeast(t, "retrieve", at("retrieve G/s"), 1e-9)
	})
}

// All keys together have as many values, whatever a key has.
func TestFigure7(t *testing.T) {
	benchtest.Rows(t, Studies, "warpcore/7", 1500, 7, func(at func(string) any) {
		if at("values") != 1500 {
			t.Errorf("%v values found, want 1500", at("values"))
		}
		benchtest.AtLeast(t, "retrieve", at("retrieve G/s"), 1e-9)
	})
}
