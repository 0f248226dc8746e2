package gph

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// random is the number of pairs of the paper's Random: all other numbers are scaled with it.
const random = 100_000_000

// dataSets are the paper's data sets.
var dataSets = []struct {
	name, keys string
	pairs      int
}{
	{"Random", "rand", random},
	{"Lineitem", "lineitem", 100_784_453},
	{"TaoBenchmark", "tao", 165_000_000},
	{"Reddit", "reddit", 54_160_677},
}

// setting is a table's size, as the paper has it, and the share of the look-ups that hit.
type setting struct{ GB, Hits float64 }

var (
	bySize = []setting{{1.25, 0.5}, {1.5, 0.5}, {1.75, 0.5}, {2, 0.5}}
	byHits = []setting{{1.5, 0}, {1.5, 0.25}, {1.5, 0.5}, {1.5, 0.75}, {1.5, 1}}
)

// loadOf is the load factor of that many pairs (the paper's number) in a table whose slots of 8 bytes fill gb.
func loadOf(pairs int, gb float64) float64 { return float64(pairs) * 8 / (gb * 1e9) }

// scaled is the paper's number for n pairs in Random.
func scaled(paper, n int) int { return max(1, int(float64(paper)*float64(n)/random+0.5)) }

// sized is the size of a table with n pairs in Random, which the paper has as so many GB: to three digits.
func sized(gb float64, n int) float64 {
	x, _ := strconv.ParseFloat(strconv.FormatFloat(gb*float64(n)/random, 'g', 3, 64), 64)
	return x
}

func scaleNote(n int) []string {
	if n == random {
		return nil
	}
	return []string{fmt.Sprintf("pairs, look-ups and tables are %.6g times as many and as large as the paper's", float64(n)/random)}
}

// subject is a family's map, and how pairs get into it.
type subject struct {
	family table.Family
	build  bool // by BuildOn
}

func (s subject) String() string {
	if s.build {
		return string(s.family) + " (Build)"
	}
	return string(s.family)
}

// subjects are all families; with builds, those that can be made from all pairs at once come a second time.
func subjects(d *device.Device, builds bool) (out []subject, err error) {
	for _, family := range warpmap.Families(table.KindMap) {
		out = append(out, subject{family, false})
		if !builds {
			continue
		}
		m, err := bench.NewMap(d, family, table.Options{})
		if err != nil {
			return nil, err
		}
		if _, ok := m.(bench.Builder[uint32, uint32]); ok {
			out = append(out, subject{family, true})
		}
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// fill is the table with its way to be filled.
func (s subject) fill(w *bench.Work[uint32, uint32], m table.Map[uint32, uint32]) (bench.Subject, error) {
	if s.build {
		return bench.Built(w, m)
	}
	return w.Map(m), nil
}

// tried is what try measured; cells are nil where there is nothing to report.
type tried struct {
	rate, mib, wrong any
	note             string
}

// try makes one table and measures it: its inserts, or else its look-ups.
func try(w *bench.Work[uint32, uint32], x subject, load float64, inserts bool) (r tried, err error) {
	m, err := bench.NewMap(w.Device, x.family, table.Options{Capacity: w.Options.N, LoadFactor: load})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	s, err := x.fill(w, m)
	if err != nil {
		return r, err
	}
	var speed float64
	var wrong int
	if inserts {
		t, err := bench.Timed(w.Device, w.Device.Stream(), bench.Runs, m.Clear, s.Fill)
		if err != nil {
			return r, err
		}
		speed = bench.Rate(w.Options.N, t)
		if err := s.Find(); err != nil {
			return r, err
		}
		if wrong, err = s.Wrong(); err != nil {
			return r, err
		}
	} else {
		if err := s.Fill(); err != nil {
			return r, err
		}
		if speed, wrong, err = w.Find(s); err != nil {
			return r, err
		}
	}
	stats, err := m.Stats()
	if err != nil {
		return r, err
	}
	if slots := float64(w.Options.N) / load; float64(stats.Capacity) > 1.1*slots+1024 {
		r.note = fmt.Sprintf("has %d slots, not %.0f", stats.Capacity, slots)
	}
	r.rate, r.mib, r.wrong = bench.Round(speed), bench.Round(float64(stats.Bytes)/(1<<20)), wrong
	return r, nil
}
