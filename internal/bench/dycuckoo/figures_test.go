package dycuckoo

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/testenv"
)

func number(x any) float64 {
	v, _ := bench.Number(x)
	return v
}

func TestFigure5(t *testing.T) {
	fig := benchtest.Rows(t, Studies, "dycuckoo/5", 5000, 3*7, func(at func(string) any) { benchtest.AtLeast(t, "rate", at("G/s"), 1e-9) })
	benchtest.Draw(t, fig)
}

// Tables are filled exactly as far as they should be. COM's repeats make a batch of more pairs than there are slots, which may grow
// a table.
func TestFigure7(t *testing.T) {
	few := []bench.Study{{Name: "dycuckoo/7", Run: func(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
		return varySubtables(d, o, []int{2, 4})
	}}}
	fig := benchtest.Rows(t, few, "dycuckoo/7", 6000, 5*2, func(at func(string) any) {
		if f := number(at("filled")); at("data") != "COM" && f < 0.84 || f > 0.85 {
			t.Errorf("%v with %v subtables is filled to %v", at("data"), at("subtables"), f)
		}
	})
	benchtest.Draw(t, fig)
}

// One subtable changes, its pairs move, and a rehash moves all.
func TestFigure8(t *testing.T) {
	moved := map[any]float64{}
	fig := benchtest.Rows(t, Studies, "dycuckoo/8", 6000, 5*2*3, func(at func(string) any) {
		benchtest.AtLeast(t, "rate", at("moved G/s"), 1e-9)
		benchtest.AtLeast(t, "buckets", at("buckets, thousands"), 1e-3)
		before, after := number(at("filled before")), number(at("filled after"))
		switch way := at("way"); {
		case way == "one subtable":
			moved[at("resize")] = number(at("moved"))
			want := 0.30
			if at("resize") == "up" {
				want = 0.85
			}
			if before > want || before < want-0.02 || after/before < 0.7 || after/before > 1.4 {
				t.Errorf("%v %v: filled factor %v to %v", at("data"), at("resize"), before, after)
			}
		case number(at("moved")) < 2*moved[at("resize")]:
			t.Errorf("%v %v: %v pairs are moved by %s, and %v of one subtable", at("data"), at("resize"), at("moved"), way, moved[at("resize")])
		}
	})
	benchtest.Draw(t, fig)
}

func TestFigures9And10(t *testing.T) {
	all := len(subjects()) + 1 // and CUDPP's; in Figure 9 a Go map, too
	for name, rows := range map[string]int{"dycuckoo/9": 5 * (all + 1), "dycuckoo/10": 5 * all} {
		tables := map[any]bool{}
		fig := benchtest.Rows(t, Studies, name, 6000, rows, func(at func(string) any) {
			tables[at("table")] = true
			benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
			benchtest.AtLeast(t, "find", at("find G/s, half hits"), 1e-9)
		})
		benchtest.Draw(t, fig)
		if len(tables) != rows/5 || !tables["MegaKV"] || !tables["cuckoo"] || !tables["slab"] {
			t.Errorf("%s: tables %v", name, tables)
		}
	}
}

// Figures 13 and 15 are made in the same way; the command's tests draw them.
func TestFigures11And14(t *testing.T) {
	testenv.ByTurns(t)
	for name, rows := range map[string]int{"dycuckoo/11": 5 * 5 * 5, "dycuckoo/14": 5 * 5 * 2} {
		fig := benchtest.Rows(t, Studies, name, 500, rows, func(at func(string) any) { benchtest.AtLeast(t, "rate", at("G/s"), 1e-9) })
		if name == "dycuckoo/14" {
			benchtest.Draw(t, fig)
		}
	}
}

// The tables that halve keep to the bounds, but for the smallest size; one that does not comes to a lower filled factor.
func TestFigure12(t *testing.T) {
	least := map[any]float64{}
	fig := benchtest.Rows(t, Studies, "dycuckoo/12", 40_000, 5*5*2, func(at func(string) any) {
		if at("data") != "RAND" || number(at("pairs")) < 8_000 {
			return
		}
		f := number(at("filled"))
		if least[at("table")] == 0 || f < least[at("table")] {
			least[at("table")] = f
		}
		if name := at("table"); (name == own.name || name == mega.name) && (f < low || f > high) {
			t.Errorf("%v, batch %v: filled to %v", name, at("batch"), f)
		}
	})
	benchtest.Draw(t, fig)
	if least["dycuckoo"] <= least["warpcore"] || least["warpcore"] == 0 {
		t.Errorf("least filled factors %v", least)
	}
}

// Each data set is inserted without locks and, under them, by lanes and by voters.
func TestVoterStudy(t *testing.T) {
	testenv.ByTurns(t)
	tables := map[any]int{}
	fig := benchtest.Rows(t, Studies, "dycuckoo/voter", 3000, 5*5, func(at func(string) any) {
		tables[at("table")]++
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		if at("data") == "RAND" { // the others have few keys for the smallest table
			benchtest.AtLeast(t, "filled", at("filled"), 0.4)
		}
	})
	benchtest.Draw(t, fig)
	if len(tables) != 5 || tables["wide, voters"] != 5 || tables["packed-locked, voters"] != 5 {
		t.Errorf("tables %v", tables)
	}
}

// Under Theorem 1 smaller subtables are filled more, whatever the layout; with homes, all much alike.
func TestBalanceStudy(t *testing.T) {
	testenv.ByTurns(t)
	fig := benchtest.Rows(t, Studies, "dycuckoo/balance", 12_000, 3*4*2*2, func(at func(string) any) {
		benchtest.AtLeast(t, "insert", at("insert G/s"), 1e-9)
		benchtest.AtLeast(t, "find", at("find G/s, all hits"), 1e-9)
		if at("larger") == 0 || at("filled to") != 0.7 {
			return
		}
		ratio := number(at("smaller filled")) / number(at("larger filled"))
		if least, most := 1.15, 1.7; at("balance") == "theorem1" && (ratio < least || ratio > most) || at("balance") == "home" && (ratio < 0.9 || ratio > 1.15) {
			t.Errorf("%v, %v larger, %v: smaller subtables are filled %.2f times as much", at("layout"), at("larger"), at("balance"), ratio)
		}
	})
	benchtest.Draw(t, fig)
}
