package classify

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"slices"
	"unsafe"

	"golang.org/x/sync/errgroup"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/warpcore"
)

// QueryOptions say how reads are told from one another. The zero value is MetaCache's, but for Lowest and Highest: see Query.
type QueryOptions struct {
	HitMin  int     // hits of the best candidate, at least; 0: a third of a sketch
	HitDiff float64 // the next candidate counts with more than (hits of the best − HitMin) · HitDiff hits; 0: 1
	Insert  int     // letters from the begin of a read to the end of its mate, at most; 0: those of both
	Lowest  Rank    // candidates are taxa of this rank, or of the next above
	Highest Rank    // verdicts above are none; 0: Domain
}

func (o *QueryOptions) complete(sketch int) error {
	if o.HitMin == 0 {
		o.HitMin = max(1, sketch/3)
	}
	if o.HitDiff == 0 {
		o.HitDiff = 1
	}
	if o.Highest == 0 {
		o.Highest = Domain
	}
	switch {
	case o.HitMin < 1 || o.HitMin > math.MaxInt32:
		return fmt.Errorf("at least %d hits: want 1 or more", o.HitMin)
	case o.HitDiff < 0 || math.IsNaN(o.HitDiff):
		return fmt.Errorf("a next candidate at %v: want 0 or more", o.HitDiff)
	case o.Insert < 0 || o.Insert > math.MaxInt32:
		return fmt.Errorf("mates that span %d letters: want 0 or more", o.Insert)
	case o.Highest > Root || o.Lowest > o.Highest:
		return fmt.Errorf("taxa from %v to %v: want a rank, and one that is not lower", o.Lowest, o.Highest)
	}
	return nil
}

// Verdict is what a read, or a pair, is told to be.
type Verdict struct{ verdict }

// Classifier has a database on a device. It may be used by several goroutines.
type Classifier struct {
	db        *Database
	d         *device.Device
	o         QueryOptions
	k         kernels
	table     *warpcore.Map[uint32, uint64]
	locations device.Slice[uint64]
	taxa      device.Slice[uint32] // row of each target
	lineages  device.Slice[uint32] // rows
	indices   device.Slice[uint32] // taxon of each row
	named     []uint32             // taxon of each target as a candidate: its own, or its ancestor of the lowest rank
}

// NewClassifier brings a database to a device. Cost: a copy, and an insert of every feature. The caller closes it.
//
// Errors: options out of range; *device.OutOfMemoryError; what device.Compile returns.
func NewClassifier(d *device.Device, db *Database, o QueryOptions) (c *Classifier, err error) {
	if err := o.complete(db.Options.Sketch); err != nil {
		return nil, err
	}
	c = &Classifier{db: db, d: d, o: o}
	defer func() {
		if err != nil {
			c.Close()
			c = nil
		}
	}()
	if c.k, err = compile(d, db.Options); err != nil {
		return c, err
	}
	if c.locations, err = device.From(d, db.locations); err != nil {
		return c, err
	}
	if err = c.rows(); err != nil {
		return c, err
	}
	wo := warpcore.Options{}
	wo.Capacity = len(db.features)
	if !d.Info().CUDA() {
		wo.LoadFactor = 0.5 // a second window read costs the CPU more than memory does
	}
	if c.table, err = warpcore.New[uint32, uint64](d, wo); err != nil {
		return c, err
	}
	return c, c.table.Insert(db.features, db.entries)
}

// rows brings the lineages of the targets' taxa to the device.
func (c *Classifier) rows() (err error) {
	t := c.db.taxonomy
	row := map[uint32]uint32{}
	var taxa, lineages, indices []uint32
	for _, target := range c.db.targets {
		r, known := row[target.taxon]
		if !known {
			r = uint32(len(row))
			row[target.taxon] = r
			l := t.lineage(target.taxon)
			lineages = append(lineages, l[:]...)
			indices = append(indices, target.taxon)
		}
		c.named = append(c.named, t.atLeast(target.taxon, c.o.Lowest))
		taxa = append(taxa, r)
	}
	if c.taxa, err = device.From(c.d, taxa); err != nil {
		return err
	}
	if c.lineages, err = device.From(c.d, lineages); err != nil {
		return err
	}
	c.indices, err = device.From(c.d, indices)
	return err
}

// Close frees the device's memory.
func (c *Classifier) Close() error {
	if c.table != nil {
		c.table.Close()
	}
	if c.locations.Len() > 0 {
		c.locations.Free()
	}
	for _, s := range []device.Slice[uint32]{c.taxa, c.lineages, c.indices} {
		if s.Len() > 0 {
			s.Free()
		}
	}
	return nil
}

// Worker classifies a batch at a time. It is for one goroutine.
type Worker struct {
	sketcher
	c        *Classifier
	queries  memory[query]
	entries  memory[uint64]
	scratch  memory[uint64]
	verdicts memory[verdict]
	next     device.Slice[uint64]
	w        []window
	q        []query
}

// NewWorker makes a Worker, with a stream and memory of its own on the device, which grows with its batches. The caller closes it, before the Classifier.
func (c *Classifier) NewWorker() (*Worker, error) {
	w := &Worker{sketcher: sketcher{d: c.d, o: c.db.Options, k: c.k}, c: c}
	var err error
	if w.next, err = device.Make[uint64](c.d, 1); err != nil {
		return nil, err
	}
	w.st, err = c.d.NewStream()
	if err != nil {
		w.next.Free()
	}
	return w, err
}

// Close frees the device's memory.
func (w *Worker) Close() {
	w.free()
	w.queries.free(w.st)
	w.entries.free(w.st)
	w.scratch.free(w.st)
	w.verdicts.free(w.st)
	w.next.FreeAfter(w.st)
	w.st.Close()
}

// Classify appends to the verdicts of each batch those of its reads, or pairs. All batches are put together: small ones cost a launch between them.
//
// Errors: batches of 4 GiB in all; *device.OutOfMemoryError. No batch has verdicts then.
func (w *Worker) Classify(batches ...*Result) error {
	verdicts, err := w.classify(batches)
	if err != nil {
		return err
	}
	for _, r := range batches {
		r.Verdicts = slices.Grow(r.Verdicts, len(r.Reads.Records))
		for _, v := range verdicts[:len(r.Reads.Records)] {
			r.Verdicts = append(r.Verdicts, Verdict{v})
		}
		verdicts = verdicts[len(r.Reads.Records):]
	}
	return nil
}

func (w *Worker) classify(batches []*Result) ([]verdict, error) {
	texts := w.cut(batches)
	n := len(w.q) - 1
	if n == 0 {
		return nil, nil
	}
	if len(w.w) > math.MaxUint32/w.o.Sketch {
		return nil, fmt.Errorf("%d windows in one batch: want shorter reads, or smaller blocks", len(w.w))
	}
	features, err := w.run(w.w, texts...)
	if err != nil {
		return nil, err
	}
	entries, err := w.entries.room(w.d, w.st, features.Len())
	if err != nil {
		return nil, err
	}
	if err := w.c.table.FindOn(w.st, features, entries, device.Slice[bool]{}); err != nil {
		return nil, err
	}
	queries, err := w.queries.put(w.d, w.st, w.q)
	if err != nil {
		return nil, err
	}
	verdicts, err := w.verdicts.room(w.d, w.st, n)
	if err != nil {
		return nil, err
	}
	if err := w.decide(n, queries, entries, verdicts); err != nil {
		return nil, err
	}
	return verdicts.Host(w.st)
}

// cut makes windows and queries of records and their mates, in texts that lie one after the other.
func (w *Worker) cut(batches []*Result) (texts [][]byte) {
	w.w, w.q = w.w[:0], w.q[:0]
	at := 0 // of the next text
	put := func(b *genome.Block) (from int) {
		from = at
		texts = append(texts, b.Text)
		at += len(b.Text)
		return from
	}
	for _, batch := range batches {
		first := put(batch.Reads)
		second := first
		if batch.apart() {
			second = put(batch.Mates)
		}
		for i, r := range batch.Reads.Records {
			q := query{First: uint32(len(w.w))}
			w.w = w.o.windowsOf(w.w, r, first)
			q.Mate = uint32(len(w.w))
			letters := r.End - r.Start
			if batch.Mates != nil {
				m := batch.Mates.Records[i]
				letters += m.End - m.Start
				w.w = w.o.windowsOf(w.w, m, second)
			}
			q.Range = uint32(2 + max(letters, w.c.o.Insert)/w.o.Stride)
			w.q = append(w.q, q)
		}
	}
	w.q = append(w.q, query{First: uint32(len(w.w))})
	return texts
}

// apart tells whether the mates have a text of their own.
func (r *Result) apart() bool {
	return r.Mates != nil && unsafe.SliceData(r.Mates.Text) != unsafe.SliceData(r.Reads.Text)
}

// decide runs the kernel, twice where the reads have more locations than there is room for.
func (w *Worker) decide(n int, queries device.Slice[query], entries device.Slice[uint64], verdicts device.Slice[verdict]) error {
	c, o := w.c, w.c.o
	need := max(w.scratch.s.Len(), 2*entries.Len())
	for {
		scratch, err := w.scratch.room(w.d, w.st, need)
		if err != nil {
			return err
		}
		if err := w.next.Fill(w.st, 0); err != nil {
			return err
		}
		p := decideParams{Queries: queries.Addr(), N: uint64(n), Entries: entries.Addr(), Locations: c.locations.Addr(), Scratch: scratch.Addr(),
			Room: uint64(scratch.Len()), Next: w.next.Addr(), Taxa: c.taxa.Addr(), Lineages: c.lineages.Addr(), Indices: c.indices.Addr(),
			Verdicts: verdicts.Addr(), HitMin: uint32(o.HitMin), Lowest: uint32(o.Lowest), Highest: uint32(o.Highest), HitDiff: float32(o.HitDiff)}
		if err := w.k.decide.Launch(w.st, device.GridFor(int64(n), threads), &p); err != nil {
			return err
		}
		asked, err := w.next.Host(w.st)
		if err != nil || int(asked[0]) <= scratch.Len() {
			return err
		}
		need = int(asked[0])
	}
}

// Result is a batch of reads and what they are told to be.
type Result struct {
	Reads    *genome.Block
	Mates    *genome.Block // or nil
	Verdicts []Verdict     // one a read, or a pair
	Text     []byte        // of Work's making

	err  error
	done chan struct{}
}

// Letters are those of the reads and their mates.
func (r *Result) Letters() (n int64) {
	for _, b := range []*genome.Block{r.Reads, r.Mates} {
		if b == nil {
			continue
		}
		for _, x := range b.Records {
			n += int64(x.End - x.Start)
		}
	}
	return n
}

// Run classifies all reads of inputs, or pairs of them where mates is not empty. work is called for each batch, from several goroutines; each, from
// one, for the batches in the order of the reads. Blocks are good until each returns.
//
// Errors: what genome.Read returns, and those of work and each; *device.OutOfMemoryError.
func (c *Classifier) Run(ctx context.Context, reads, mates []string, o genome.Options, work, each func(*Result) error) (counts genome.Counts, err error) {
	if o.BlockBytes == 0 {
		o.BlockBytes = 1 << 21
		if c.d.Info().CUDA() {
			o.BlockBytes = 1 << 25
		}
	}
	g, ctx := errgroup.WithContext(ctx)
	workers := max(2, min(4, runtime.GOMAXPROCS(0)))
	jobs, order := make(chan *Result, workers), make(chan *Result, 2*workers)
	send := func(r *Result) error {
		for _, to := range []chan *Result{order, jobs} {
			select {
			case to <- r:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		return nil
	}
	g.Go(func() (err error) {
		defer close(jobs)
		defer close(order)
		if len(mates) > 0 {
			counts, err = genome.ReadPaired(ctx, reads, mates, o, func(a, b *genome.Block) error {
				return send(&Result{Reads: a, Mates: b, done: make(chan struct{})})
			})
			return err
		}
		counts, err = genome.Read(ctx, reads, o, func(a *genome.Block) error { return send(&Result{Reads: a, done: make(chan struct{})}) })
		return err
	})
	for range workers {
		g.Go(func() error { return c.serve(jobs, work) })
	}
	g.Go(func() error {
		for r := range order {
			select {
			case <-r.done:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if r.err != nil {
				return r.err
			}
			if err := each(r); err != nil {
				return err
			}
			r.Reads.Release()
			if r.Mates != nil {
				r.Mates.Release()
			}
		}
		return nil
	})
	return counts, g.Wait()
}

// serve classifies batches, until there are no more.
func (c *Classifier) serve(jobs <-chan *Result, work func(*Result) error) error {
	w, err := c.NewWorker()
	if err != nil {
		return err
	}
	defer w.Close()
	for r := range jobs {
		err := w.Classify(r)
		if err == nil {
			err = work(r)
		}
		r.err = err
		close(r.done)
		if err != nil {
			return err
		}
	}
	return nil
}
