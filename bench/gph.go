package bench

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// The GPH paper's study, section 7: pairs of 4+4 bytes, 200 million look-ups, over all kinds of tables.

// gphRandom is the number of pairs of the paper's Random: all other numbers are scaled with it.
const gphRandom = 100_000_000

// gphSets are the paper's data sets.
var gphSets = []struct {
	name, keys string
	pairs      int
}{
	{"Random", "rand", gphRandom},
	{"Lineitem", "lineitem", 100_784_453},
	{"TaoBenchmark", "tao", 165_000_000},
	{"Reddit", "reddit", 54_160_677},
}

// gphSetting is a table's size, as the paper has it, and the share of the look-ups that hit.
type gphSetting struct{ GB, Hits float64 }

var (
	gphBySize = []gphSetting{{1.25, 0.5}, {1.5, 0.5}, {1.75, 0.5}, {2, 0.5}}
	gphByHits = []gphSetting{{1.5, 0}, {1.5, 0.25}, {1.5, 0.5}, {1.5, 0.75}, {1.5, 1}}
)

// gphLoad is the load factor of that many pairs (the paper's number) in a table whose slots of 8 bytes fill gb.
func gphLoad(pairs int, gb float64) float64 { return float64(pairs) * 8 / (gb * 1e9) }

// scaled is the paper's number for n pairs in Random.
func scaled(paper, n int) int { return max(1, int(float64(paper)*float64(n)/gphRandom+0.5)) }

func scaleNote(n int) []string {
	if n == gphRandom {
		return nil
	}
	return []string{fmt.Sprintf("pairs, look-ups and tables are %.6g times as many and as large as the paper's; table GB are the paper's", float64(n)/gphRandom)}
}

// subject is a kind of table, and how pairs get into it.
type subject struct {
	kind  string
	build bool // by BuildOn
}

func (s subject) String() string {
	if s.build {
		return s.kind + " (Build)"
	}
	return s.kind
}

// subjects are all kinds; with builds, those that can be made from all pairs at once come a second time.
func subjects(d *device.Device, builds bool) (out []subject, err error) {
	for _, family := range warpmap.Families(table.KindMap) {
		kind := string(family)
		out = append(out, subject{kind, false})
		if !builds {
			continue
		}
		m, err := warpmap.New[uint32, uint32](d, table.Family(kind), table.Options{})
		if err != nil {
			return nil, err
		}
		if _, ok := m.(builder[uint32, uint32]); ok {
			out = append(out, subject{kind, true})
		}
		if err := m.Close(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// refusal is why a table has no figure: any error that leaves the device working. Those that do not, it passes on.
func refusal(err error) (note string, fatal error) {
	var fault *device.FaultError
	var compile *device.CompileError
	if errors.As(err, &fault) || errors.As(err, &compile) || errors.Is(err, device.ErrNoNVRTC) || errors.Is(err, device.ErrNoCompiler) {
		return "", err
	}
	return err.Error(), nil
}

// gphSizes is Figure 9.
func gphSizes(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{Title: "GPH, Figure 9: look-ups by the table's size, half of them hits", Plots: []Plot{
		{Title: "Look-ups, 50% hits", X: "table GB", Y: "find G/s", Series: "table", Facet: "data"}}}
	return fig, gphSweep(d, o, fig, gphBySize, false)
}

// gphHits is Figure 10.
func gphHits(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{Title: "GPH, Figure 10: look-ups by the share of hits, in 1.5 GB", Plots: []Plot{
		{Title: "Look-ups in 1.5 GB", X: "hits %", Y: "find G/s", Series: "table", Facet: "data"}}}
	return fig, gphSweep(d, o, fig, gphByHits, false)
}

// gphInserts is Figure 14.
func gphInserts(d *device.Device, o FigOptions) (*Fig, error) {
	fig := &Fig{Title: "GPH, Figure 14: inserts into an empty table by its size", Plots: []Plot{
		{Title: "Inserts into an empty table", X: "table GB", Y: "insert G/s", Series: "table", Facet: "data"}}}
	return fig, gphSweep(d, o, fig, gphBySize, true)
}

// gphSweep measures all kinds on all data sets: look-ups or, with inserts, inserts, whose pairs one batch of look-ups
// then verifies. A table that cannot hold the pairs has empty cells, and a note that says why.
func gphSweep(d *device.Device, o FigOptions, fig *Fig, settings []gphSetting, inserts bool) error {
	rates := "find G/s"
	if inserts {
		rates = "insert G/s"
	}
	fig.Columns = []string{"data", "pairs", "table GB", "load", "hits %", "table", rates, "MiB", "wrong", "note"}
	fig.Notes = append(scaleNote(o.N), "keys of Lineitem are hashes to 4 bytes: among 100 million rows, 1.2% have another's, and one pair of these stays")
	tables, err := subjects(d, true)
	if err != nil {
		return err
	}
	for _, set := range gphSets {
		t := TableOptions{Keys: set.keys, KeyBytes: 4, ValueBytes: 4, N: scaled(set.pairs, o.N), Queries: 2 * o.N, Hits: settings[0].Hits, Seed: 1}
		o.Step(fmt.Sprintf("%s: making %d pairs and %d look-ups", set.name, t.N, t.Queries))
		err := gphSet(d, t, settings, func(w *work[uint32, uint32], s gphSetting) error {
			load := gphLoad(set.pairs, s.GB)
			for _, x := range tables {
				o.Step(fmt.Sprintf("%s, %v GB, %v%% hits: %s", set.name, s.GB, 100*s.Hits, x))
				r, err := w.try(x, load, inserts)
				note := r.note
				if err != nil {
					if note, err = refusal(err); err != nil {
						return err
					}
				}
				fig.add(set.name, t.N, s.GB, round(load), 100*s.Hits, x.String(), r.rate, r.mib, r.wrong, note)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("%s: %w", set.name, err)
		}
	}
	return nil
}

// gphSet makes a data set once and calls each for every setting, with its look-ups.
func gphSet(d *device.Device, t TableOptions, settings []gphSetting, each func(*work[uint32, uint32], gphSetting) error) error {
	w, err := newWork[uint32, uint32](d, t)
	if err != nil {
		return err
	}
	defer w.free()
	for _, s := range settings {
		if s.Hits != w.o.Hits {
			if err := w.ask(s.Hits, 0); err != nil {
				return err
			}
		}
		if err := each(w, s); err != nil {
			return err
		}
	}
	return nil
}

// tried is what try measured; cells are nil where there is nothing to report.
type tried struct {
	rate, mib, wrong any
	note             string
}

// try makes one table and measures it: its inserts, or else its look-ups.
func (w *work[K, V]) try(x subject, load float64, inserts bool) (r tried, err error) {
	m, err := warpmap.New[K, V](w.d, table.Family(x.kind), table.Options{Capacity: w.o.N, LoadFactor: load})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	fill, err := w.filler(m, x.build)
	if err != nil {
		return r, err
	}
	st := w.d.Stream()
	var speed float64
	var wrong int
	if inserts {
		t, err := timed(w.d, st, Runs, m.Clear, fill)
		if err != nil {
			return r, err
		}
		speed = rate(w.o.N, t)
		if err := m.FindOn(st, w.queries, w.results, w.found); err != nil {
			return r, err
		}
		if wrong, err = w.count(st); err != nil {
			return r, err
		}
	} else {
		if err := fill(); err != nil {
			return r, err
		}
		if speed, wrong, err = w.find(m); err != nil {
			return r, err
		}
	}
	s, err := m.Stats()
	if err != nil {
		return r, err
	}
	if slots := float64(w.o.N) / load; float64(s.Capacity) > 1.1*slots+1024 {
		r.note = fmt.Sprintf("has %d slots, not %.0f", s.Capacity, slots)
	}
	r.rate, r.mib, r.wrong = round(speed), round(float64(s.Bytes)/(1<<20)), wrong
	return r, nil
}
