package warpcore

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/table"
)

// figure8 is Figure 8 and §V-C: databases of genomes, by how many letters these have, n at most. As in the paper, the features of a database with their
// locations go into each kind of multimap; the whole build from files, bringing a database to the device, and queries are what a user waits for. Genomes
// are random: four strains of a species differ in three letters of a hundred.
func figure8(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("WarpCore, Figure 8: databases of up to %d letters of genomes", o.N),
		Columns: []string{"M letters", "what", "seconds", "M/s", "of", "wrong", "note"},
		Notes: []string{"build: from FASTA files to a database's file; load: from that onto the device; query: as many 150-letter reads of each, with 1% errors, from a file to lines; insert: " +
			"the database's pairs of feature and location, in the order of locations, from Go slices into a multimap that grows; wrong: reads that are told to be of " +
			"another species, pairs that are lost"},
		Plots: []bench.Plot{
			{Name: "seconds", Title: "WarpCore, Figure 8: databases of genomes", X: "M letters", Y: "seconds", Series: "what", LogX: true, LogY: true},
			{Name: "rates", Title: "WarpCore, Figure 8: rates, by the size of the database", X: "M letters", Y: "M/s", Series: "what", LogX: true, LogY: true},
		},
	}
	dir, remove, err := files.TemporaryFolder()
	if err != nil {
		return nil, err
	}
	defer remove()
	for _, part := range []int{16, 8, 4, 2, 1} {
		w, err := newGenomes(d, dir, max(o.N/part, fewestLetters), max(o.N/64, strains))
		if err != nil {
			return nil, err
		}
		if err := w.measure(o, fig); err != nil {
			return nil, err
		}
	}
	return fig, nil
}

const (
	strains       = 4 // of a species
	readLetters   = 150
	fewestLetters = strains * 1000
)

// genomes are files of one size, and what is made of them.
type genomes struct {
	d                *device.Device
	dir              string
	letters, numbers int // of the references; of the reads
}

func (w *genomes) file(name string) string { return filepath.Join(w.dir, name) }

// newGenomes writes references of so many letters, so many reads of them, about, and a taxonomy to a folder.
func newGenomes(d *device.Device, dir string, letters, reads int) (*genomes, error) {
	w, species := &genomes{d: d, dir: dir}, max(1, letters>>24)
	size := letters / species / strains
	reads = max(1, reads/species/strains) // of a strain
	var files [3]*bufio.Writer
	for i, name := range []string{"nodes.dmp", "refs.fa", "reads.fa"} {
		f, err := os.Create(w.file(name))
		if err != nil {
			return nil, err
		}
		defer f.Close()
		files[i] = bufio.NewWriter(f)
	}
	r := rand.New(rand.NewPCG(8, uint64(letters)))
	fmt.Fprint(files[0], "1\t|\t1\t|\tno rank\t|\n")
	for taxon := 2; taxon < 2+species; taxon++ {
		fmt.Fprintf(files[0], "%d\t|\t1\t|\tspecies\t|\n", taxon)
		ancestor := make([]byte, size)
		for i := range ancestor {
			ancestor[i] = "ACGT"[r.IntN(4)]
		}
		for s := range strains {
			strain := mutated(r, ancestor, 0.03)
			fmt.Fprintf(files[1], ">strain %d taxid|%d\n%s\n", s, taxon, strain)
			for range reads {
				at := r.IntN(size - readLetters)
				fmt.Fprintf(files[2], ">r taxid|%d\n%s\n", taxon, mutated(r, strain[at:at+readLetters], 0.01))
			}
			w.letters, w.numbers = w.letters+size, w.numbers+reads
		}
	}
	return w, errors.Join(files[0].Flush(), files[1].Flush(), files[2].Flush())
}

// mutated is a text of which a share of the letters are replaced by random ones.
func mutated(r *rand.Rand, text []byte, share float64) []byte {
	out := append([]byte(nil), text...)
	for range int(share * float64(len(text))) {
		out[r.IntN(len(out))] = "ACGT"[r.IntN(4)]
	}
	return out
}

// measure adds the rows of one size.
func (w *genomes) measure(o bench.FigOptions, fig *bench.Fig) error {
	row := func(what string, took time.Duration, n int, of string, wrong int) {
		fig.Add(bench.Round(float64(w.letters)/1e6), what, bench.Round(took.Seconds()), bench.Round(1e3*bench.Rate(n, took)), of, wrong, "")
	}
	step := func(what string) { o.Step(fmt.Sprintf("%d letters: %s", w.letters, what)) }
	step("build")
	took, err := bench.Clocked(w.d.Stream(), w.build)
	if err != nil {
		return err
	}
	row("build", took, w.letters, "letters", 0)
	step("load")
	var c *classify.Classifier
	var db *classify.Database
	took, err = bench.Clocked(w.d.Stream(), func() (err error) {
		if c != nil {
			err := errors.Join(c.Close(), db.Close())
			if c = nil; err != nil {
				return err
			}
		}
		if db, err = classify.Open(w.file("db")); err != nil {
			return err
		}
		c, err = classify.NewClassifier(w.d, db, classify.QueryOptions{Lowest: classify.Species})
		return err
	})
	if err != nil {
		return err
	}
	defer db.Close()
	defer c.Close()
	row("load", took, w.letters, "letters", 0)
	step("query")
	wrong := 0
	took, err = bench.Clocked(w.d.Stream(), func() (err error) { wrong, err = w.query(c); return err })
	if err != nil {
		return err
	}
	row("query", took, w.numbers, "reads", wrong)
	features, locations, err := pairsOf(db)
	if err != nil {
		return err
	}
	for _, kind := range table.MultiMapKinds() {
		step(fmt.Sprint("insert, ", kind))
		lost := 0
		took, err := bench.Clocked(w.d.Stream(), func() (err error) { lost, err = w.insert(kind, features, locations); return err })
		if err != nil {
			note, fatal := bench.Refusal(err)
			if fatal != nil {
				return fatal
			}
			fig.Add(bench.Round(float64(w.letters)/1e6), fmt.Sprint("insert, ", kind), nil, nil, "pairs", nil, note)
			continue
		}
		row(fmt.Sprint("insert, ", kind), took, len(features), "pairs", lost)
	}
	return nil
}

// build makes the database's file.
func (w *genomes) build() error {
	b, err := classify.NewBuilder(w.d, w.dir, classify.Options{})
	if err != nil {
		return err
	}
	defer b.Close()
	if _, err := b.Add(context.Background(), []string{w.file("refs.fa")}, genome.Options{}); err != nil {
		return err
	}
	db, err := b.Database()
	if err != nil {
		return err
	}
	return db.Save(w.file("db"))
}

// query classifies the reads, and counts those that are told to be of another species.
func (w *genomes) query(c *classify.Classifier) (wrong int, err error) {
	tally := c.NewTally(true)
	_, err = c.Run(context.Background(), []string{w.file("reads.fa")}, nil, genome.Options{}, func(r *classify.Result) error {
		r.Text = c.AppendLines(nil, r, classify.KrakenLines)
		return nil
	}, func(r *classify.Result) error { tally.Add(r); return nil })
	if err != nil {
		return 0, err
	}
	if tally.Reads != int64(w.numbers) {
		return 0, fmt.Errorf("%d reads have verdicts, of %d", tally.Reads, w.numbers)
	}
	s := tally.Summary()[0]
	return int(math.Round(float64(s.Reads) * (1 - s.Precision))), nil
}

// pairsOf are a database's features and their locations, in the order of these: that in which a build meets them.
func pairsOf(db *classify.Database) (features []uint32, locations []uint64, err error) {
	type pair struct {
		feature  uint32
		location uint64
	}
	var pairs []pair
	err = db.Each(func(feature uint32, locations []uint64) {
		for _, at := range locations {
			pairs = append(pairs, pair{feature, at})
		}
	})
	if err != nil {
		return nil, nil, err
	}
	slices.SortFunc(pairs, func(a, b pair) int { return cmp.Compare(a.location, b.location) })
	for _, p := range pairs {
		features, locations = append(features, p.feature), append(locations, p.location)
	}
	return features, locations, nil
}

// insert puts pairs into a multimap of a kind, a batch of a block's at a time, and counts those that are not in it.
func (w *genomes) insert(kind table.Kind, features []uint32, locations []uint64) (lost int, err error) {
	m, err := warpmap.NewMultiMapOf[uint32, uint64](w.d, kind, "warpcore", table.MultiMapOptions{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	const batch = 1 << 20
	for from := 0; from < len(features); from += batch {
		to := min(len(features), from+batch)
		if err := m.Insert(features[from:to], locations[from:to]); err != nil {
			return 0, err
		}
	}
	n, err := m.Len()
	return len(features) - n, err
}
