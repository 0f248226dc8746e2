package warpcore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/genome/kmers"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
)

// figureRates is what genomes are counted and classified at, of n letters, in files that the page cache has: first by the commands, from files to files,
// then by their parts in this process: k-mers of packed letters on the device, reads from text to counts and to verdicts, and databases from text to
// tables. Beside them stands what reading alone, and reading and copying, do.
func figureRates(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	o.N = max(o.N, leastLetters)
	fig := &bench.Fig{
		Title:   fmt.Sprintf("Genomes: rates with %d letters", o.N),
		Columns: []string{"what", "setting", "M", "of", "seconds", "M/s", "M/min", "wrong", "note"},
		Notes: []string{fmt.Sprintf("genomes are random: %d strains of a species differ in three letters of a hundred; text is in files that were just written, FASTA in lines of %d letters; reads have %d letters, "+
			"one in a hundred wrong. seconds: the median of %d runs after a warm-up. count, packed: canonical %d-mers into a table with room for them, letters and table on the device. "+
			"build: to tables that hold all pairs; database: from these to the host, in order. wrong: k-mers that the table has not, of some that came; reads that are told to be of another species. warpmap …: the command as a process of its own, from its start to its end, with all that it opens, compiles or finds compiled, and writes; its "+
			"phases are those of the run whose time is the median; reads that a command tells to be of another species are counted in a run before. count, reads: of k-mers of which most come again, those of files that are read %d times; until all are counted: the table has them; a file of counts: sorted, of those that come twice",
			strains, lineLetters, readLetters, rateRuns, ratesK, readRepeats)},
	}
	o.Step("making genomes")
	w, err := newRates(d, o.N)
	if err != nil {
		return nil, err
	}
	defer w.remove()
	type step struct {
		name string
		run  func(fig *bench.Fig) error
	}
	steps := []step{{"count, packed", w.packed}, {"build", w.build}, {"query", w.query}, {"count, reads", w.reads}}
	if len(o.Self) > 0 { // first, while the device has nothing else
		c := &commands{rates: w, program: o.Self[0]}
		steps = slices.Insert(steps, 0, step{"warpmap classify", c.classify}, step{"warpmap kmers", c.count})
	} else {
		fig.Notes = append(fig.Notes, "the commands were not run: FigOptions.Self names no program")
	}
	for _, step := range steps {
		o.Step(step.name)
		if err := step.run(fig); err != nil {
			note, fatal := bench.Refusal(err)
			if fatal != nil {
				return nil, fatal
			}
			fig.Add(step.name, nil, nil, nil, nil, nil, nil, nil, note)
		}
	}
	return fig, nil
}

const (
	ratesK       = 21
	rateRuns     = 3
	lineLetters  = 80
	speciesBytes = 4 << 20 // letters of a genome, or fewer where there are few
	repeats      = 32      // so often a part of the letters is counted
	inputs       = 16      // that text is in
	readRepeats  = 8       // so often files of reads are counted: most k-mers of reads have come before
	leastLetters = strains * 2 * readLetters
)

// rates are genomes in memory, and what is made of them.
type rates struct {
	d       *device.Device
	dir     string
	remove  func() // dir
	letters []byte // genome i is letters[i·size:(i+1)·size]
	size    int
	refs    []string // files of FASTA with the genomes
	sampled []string // files of FASTA with reads of them
	n       int      // reads
	db      *classify.Database
}

// beside does n things on all cores.
func beside(n int, do func(i int)) {
	var work crash.Group
	work.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		work.Go(func() error { do(i); return nil })
	}
	work.Wait()
}

// newRates makes genomes of n letters together, and a taxonomy.
func newRates(d *device.Device, n int) (*rates, error) {
	species := max(1, n/strains/speciesBytes)
	w := &rates{d: d, size: n / strains / species}
	w.letters = make([]byte, species*strains*w.size)
	beside(species, func(i int) {
		r := rand.New(rand.NewPCG(8, uint64(i)))
		ancestor := make([]byte, w.size)
		bits := uint64(0)
		for j := range ancestor {
			if j%32 == 0 {
				bits = r.Uint64()
			}
			ancestor[j] = "ACGT"[bits&3]
			bits >>= 2
		}
		for s := range strains {
			genome := w.genome(i*strains + s)
			copy(genome, ancestor)
			change(r, genome, 0.03)
		}
	})
	var err error
	if w.dir, w.remove, err = files.TemporaryFolder(); err != nil {
		return nil, err
	}
	w.n = max(inputs, len(w.letters)/300/inputs*inputs)
	if w.refs, err = w.files("fa", w.fasta()); err == nil {
		w.sampled, err = w.files("reads.fa", w.sample(w.n, false))
	}
	nodes := []byte("1\t|\t1\t|\tno rank\t|\n")
	for i := range species {
		nodes = fmt.Appendf(nodes, "%d\t|\t1\t|\tspecies\t|\n", 2+i)
	}
	if err == nil {
		err = os.Mkdir(w.taxonomy(), 0o700)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(w.taxonomy(), "nodes.dmp"), nodes, 0o600)
	}
	if err != nil {
		w.remove()
		return nil, err
	}
	return w, nil
}

func (w *rates) genomes() int         { return len(w.letters) / w.size }
func (w *rates) genome(i int) []byte  { return w.letters[i*w.size : (i+1)*w.size] }
func (w *rates) taxon(genome int) int { return 2 + genome/strains }
func (w *rates) taxonomy() string     { return filepath.Join(w.dir, "taxonomy") }

// change replaces a share of the letters, about, by random ones.
func change(r *rand.Rand, text []byte, share float64) {
	for at := r.IntN(int(2 / share)); at < len(text); at += 1 + r.IntN(int(2/share)) {
		text[at] = "ACGT"[r.IntN(4)]
	}
}

// clocked is the median time of some runs, after one to warm up.
func clocked(run func() error) (time.Duration, error) {
	var times []time.Duration
	for i := range rateRuns + 1 {
		start := time.Now()
		if err := run(); err != nil {
			return 0, err
		}
		if i > 0 {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// row adds a row of so many of something.
func row(fig *bench.Fig, what, setting string, n int, of string, took time.Duration, wrong int) {
	rate := bench.Rate(n, took)
	fig.Add(what, setting, bench.Round(float64(n)/1e6), of, bench.Round(took.Seconds()), bench.Round(1e3*rate), bench.Round(60e3*rate), wrong, "")
}

// packed counts k-mers of letters that are on the device: all of them once, and some of them again and again, with batches of several sizes.
func (w *rates) packed(fig *bench.Fig) error {
	words := make([]uint64, (len(w.letters)+31)/32)
	beside(inputs, func(i int) {
		for at := len(words) * i / inputs; at < len(words)*(i+1)/inputs; at++ {
			word := uint64(0)
			for _, x := range w.letters[32*at : min(len(w.letters), 32*at+32)] {
				word = word<<2 | uint64(x>>1^x>>2)&3
			}
			words[at] = word
		}
	})
	letters, err := device.From(w.d, words)
	if err != nil {
		return err
	}
	defer letters.Free()
	some := len(words) / repeats * 32 // letters
	if some <= ratesK {
		return fmt.Errorf("%d letters: want %d or more", len(w.letters), repeats*64)
	}
	all := len(words)*32 - 32
	for _, s := range []struct{ letters, times, batch int }{{some, repeats, 1 << 26}, {some, repeats, 1 << 28}, {all, 1, 1 << 28}} {
		if err := w.count(fig, letters, s.letters, s.times, min(s.batch, s.letters)); err != nil {
			return err
		}
	}
	return nil
}

func (w *rates) count(fig *bench.Fig, packed device.Slice[uint64], letters, times, batch int) error {
	t, err := kmers.NewTable(w.d, kmers.TableOptions{K: ratesK, Canonical: true, Capacity: letters, Batch: batch})
	if err != nil {
		return err
	}
	defer t.Close()
	st := w.d.Stream()
	took, err := bench.Timed(w.d, st, rateRuns, t.Clear, func() error {
		for range times {
			if err := t.Add(st, packed, letters); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	var asked []kmers.Kmer
	for at := 0; at+ratesK <= letters; at += 1 + letters/10_000 {
		x, err := kmers.Pack(string(w.letters[at : at+ratesK]))
		if err != nil {
			return err
		}
		asked = append(asked, x)
	}
	found, err := t.Find(asked)
	wrong := 0
	for _, n := range found {
		if int(n) < times || int(n)%times != 0 {
			wrong++
		}
	}
	row(fig, "count, packed", fmt.Sprintf("%d M letters %d times, batches of 2^%.0f", letters/1e6, times, math.Log2(float64(batch))), times*(letters-ratesK+1), "k-mers", took, wrong)
	return err
}

// files writes texts to files, and names these.
func (w *rates) files(kind string, texts [][]byte) (names []string, err error) {
	for i, text := range texts {
		names = append(names, filepath.Join(w.dir, fmt.Sprintf("%d.%s", i, kind)))
		if err := os.WriteFile(names[i], text, 0o600); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// read reads files, and does nothing else.
func read(names []string, o genome.Options) (time.Duration, error) {
	return clocked(func() error {
		_, err := genome.Read(context.Background(), names, o, func(b *genome.Block) error { b.Release(); return nil })
		return err
	})
}

// fasta is the genomes as texts of FASTA.
func (w *rates) fasta() [][]byte {
	texts := make([][]byte, min(inputs, w.genomes()))
	beside(len(texts), func(i int) {
		var text []byte
		for g := w.genomes() * i / len(texts); g < w.genomes()*(i+1)/len(texts); g++ {
			text = slices.Grow(text, w.size+w.size/lineLetters+64)
			text = fmt.Appendf(text, ">strain %d taxid|%d\n", g, w.taxon(g))
			for line := range slices.Chunk(w.genome(g), lineLetters) {
				text = append(append(text, line...), '\n')
			}
		}
		texts[i] = text
	})
	return texts
}

// build makes a database.
func (w *rates) build(fig *bench.Fig) error {
	names := w.refs
	o := genome.Options{BlockBytes: 1 << 20} // as building has
	took, err := read(names, o)
	if err != nil {
		return err
	}
	row(fig, "read", "FASTA", len(w.letters), "letters", took, 0)
	var b *classify.Builder
	took, err = clocked(func() (err error) {
		if b != nil {
			if err := b.Close(); err != nil {
				return err
			}
		}
		if b, err = classify.NewBuilder(w.d, w.taxonomy(), classify.Options{}); err != nil {
			return err
		}
		_, err = b.Add(context.Background(), names, o)
		return err
	})
	if b != nil {
		defer func() { b.Close() }()
	}
	if err != nil {
		return err
	}
	row(fig, "build", "from FASTA to tables", len(w.letters), "letters", took, 0)
	begin := time.Now()
	if w.db, err = b.Database(); err != nil {
		return err
	}
	row(fig, "database", "from tables to the host, once", len(w.letters), "letters", time.Since(begin), 0)
	return nil
}

// sample is n reads as files of FASTA or FASTQ.
func (w *rates) sample(n int, fastq bool) [][]byte {
	texts := make([][]byte, inputs)
	quality := bytes.Repeat([]byte{'F'}, readLetters)
	beside(inputs, func(i int) {
		r := rand.New(rand.NewPCG(9, uint64(i)))
		text := make([]byte, 0, n/inputs*(2*readLetters+40))
		for range n / inputs {
			g := r.IntN(w.genomes())
			at := r.IntN(w.size - readLetters)
			mark := byte('>')
			if fastq {
				mark = '@'
			}
			text = fmt.Appendf(append(text, mark), "r taxid|%d\n", w.taxon(g))
			from := len(text)
			text = append(text, w.genome(g)[at:at+readLetters]...)
			change(r, text[from:], 0.01)
			text = append(text, '\n')
			if fastq {
				text = append(append(append(text, "+\n"...), quality...), '\n')
			}
		}
		texts[i] = text
	})
	return texts
}

// query classifies reads.
func (w *rates) query(fig *bench.Fig) error {
	if w.db == nil {
		return errors.New("there is no database, for none could be built")
	}
	n, names := w.n, w.sampled
	begin := time.Now()
	c, err := classify.NewClassifier(w.d, w.db, classify.QueryOptions{Lowest: classify.Species})
	if err != nil {
		return err
	}
	defer c.Close()
	row(fig, "load", "from the host to the device, once", len(w.letters), "letters", time.Since(begin), 0)
	tally := c.NewTally(true)
	o := genome.Options{}
	classified := func(work func(*classify.Result), each func(*classify.Result)) (time.Duration, error) {
		return clocked(func() error {
			_, err := c.Run(context.Background(), names, nil, o, func(r *classify.Result) error { work(r); return nil }, func(r *classify.Result) error { each(r); return nil })
			return err
		})
	}
	none := func(*classify.Result) {}
	lines := func(r *classify.Result) { r.Text = c.AppendLines(nil, r, classify.KrakenLines) }
	if _, err := c.Run(context.Background(), names, nil, o, func(*classify.Result) error { return nil }, func(r *classify.Result) error { tally.Add(r); return nil }); err != nil {
		return err
	}
	wrong := 0
	if s := tally.Summary(); len(s) > 0 {
		wrong = int(math.Round(float64(s[0].Reads) * (1 - s[0].Precision)))
	}
	for _, s := range []struct {
		setting    string
		blockBytes int
		work, each func(*classify.Result)
	}{{"FASTA to lines and sums", 0, lines, func(r *classify.Result) { c.NewTally(false).Add(r) }}, {"FASTA to verdicts", 0, none, none}, {"FASTA to verdicts, blocks of 8 MiB", 8 << 20, none, none},
		{"FASTA to verdicts, blocks of 128 MiB", 128 << 20, none, none}} {
		o.BlockBytes = s.blockBytes
		took, err := classified(s.work, s.each)
		if err != nil {
			return err
		}
		row(fig, "query", s.setting, n, "reads", took, wrong)
	}
	return nil
}

// reads counts the k-mers of reads: of some that are read several times, as those that cover a genome are, and of as many that come once.
func (w *rates) reads(fig *bench.Fig) error {
	return w.eachFASTQ(func(setting string, names []string, n int) error { return w.countReads(fig, setting, names, n) })
}

// eachFASTQ makes files of n reads, once so that most k-mers come again.
func (w *rates) eachFASTQ(use func(setting string, names []string, n int) error) error {
	for _, s := range []struct {
		setting       string
		reads, repeat int
	}{{"most come again", 2400, readRepeats}, {"most are new", 2400 / readRepeats, 1}} {
		n := max(inputs, len(w.letters)/s.reads/inputs*inputs)
		names, err := w.files("fq", w.sample(n, true))
		if err != nil {
			return err
		}
		if err := use(s.setting, slices.Repeat(names, s.repeat), n*s.repeat); err != nil {
			return err
		}
	}
	return nil
}

// countReads counts those of n reads in files.
func (w *rates) countReads(fig *bench.Fig, setting string, names []string, n int) error {
	took, err := read(names, genome.Options{})
	if err != nil {
		return err
	}
	row(fig, "read", "FASTQ, "+setting, n, "reads", took, 0)
	copied, err := w.copied(names)
	if err != nil {
		return err
	}
	row(fig, "read and copy", "FASTQ to the device, "+setting, n, "reads", copied, 0)
	var counted []time.Duration
	took, err = clocked(func() error {
		begin, counting := time.Now(), false
		// To take the place of a file takes as long as to write it.
		_, err := kmers.Count(context.Background(), w.d, names, kmers.Options{K: ratesK, Canonical: true, Min: 2, Progress: func(p kmers.Progress) {
			if p.Step == kmers.Counting && !counting {
				counted, counting = append(counted, time.Since(begin)), true
			}
		}}, filepath.Join(w.dir, fmt.Sprintf("counts %d", len(counted))))
		return err
	})
	for i := range counted {
		err = errors.Join(err, os.Remove(filepath.Join(w.dir, fmt.Sprintf("counts %d", i))))
	}
	if err != nil {
		return err
	}
	counted = counted[1:] // after the run to warm up
	slices.Sort(counted)
	middle := counted[len(counted)/2]
	row(fig, "count, reads", "FASTQ until all are counted, "+setting, n, "reads", middle, 0)
	row(fig, "count, reads", "FASTQ to a file of counts, "+setting, n, "reads", took, 0)
	share := bench.Round(100 * copied.Seconds() / middle.Seconds())
	fig.Notes = append(fig.Notes, fmt.Sprintf("counting from FASTQ files of which %s is at %v %% of the rate of reading and copying", setting, share))
	return nil
}

// copied is how long reading files takes, and copying their letters to the device.
func (w *rates) copied(names []string) (time.Duration, error) {
	var text device.Slice[byte]
	defer func() { text.Free() }()
	return clocked(func() error {
		_, err := genome.Read(context.Background(), names, genome.Options{}, func(b *genome.Block) (err error) {
			defer b.Release()
			if text.Len() < len(b.Text) {
				if err := text.Free(); err != nil {
					return err
				}
				if text, err = device.Make[byte](w.d, 2*len(b.Text)); err != nil {
					return err
				}
			}
			return text.Slice(0, len(b.Text)).Write(w.d.Stream(), b.Text)
		})
		return err
	})
}
