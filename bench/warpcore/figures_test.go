package warpcore

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/bench/benchtest"
	"github.com/warpmap/warpmap/table"
)

func TestFigure5(t *testing.T) {
	subjects := 2 + len(warpmap.Families(table.KindMap)) + 1
	benchtest.Draw(t, benchtest.Rows(t, Studies, "warpcore/5", 1500, 6*subjects, func(at func(string) any) {
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		benchtest.AtLeast(t, "retrieve", at("retrieve G/s"), 1e-9)
	}))
}

// Fewer keys have all values, each as many as the row says, about.
func TestFigure7(t *testing.T) {
	subjects := 2
	for _, kind := range table.MultiMapKinds() {
		subjects += len(warpmap.Families(kind))
	}
	benchtest.Draw(t, benchtest.Rows(t, Studies, "warpcore/7", 1500, 9*subjects, func(at func(string) any) {
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		benchtest.AtLeast(t, "retrieve", at("retrieve G/s"), 1e-9)
		benchtest.AtLeast(t, "count", at("count G/s"), 1e-9)
		r, keys := at("values a key").(int), at("keys").(int)
		if keys > 1500/r || keys < 1500/r*6/10 {
			t.Errorf("%d values a key, and %d keys came", r, keys)
		}
		if name := at("table").(string); r == 1 && !strings.Contains(name, " bucketlist") {
			benchtest.AtLeast(t, "single-value find", at("single-value find G/s"), 1e-9)
		}
	}))
}
