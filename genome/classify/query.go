package classify

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sort"
	"sync/atomic"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/warpcore"
)

// QueryOptions say how reads are classified. The zero value has MetaCache's values, except for Lowest and Highest.
type QueryOptions struct {
	HitMin  int     // how many hits the best candidate has at least; 0: a third of a sketch
	HitDiff float64 // the next candidate counts with more than (hits of the best − HitMin) · HitDiff hits; 0: 1
	Insert  int     // most letters from the beginning of a read to the end of its mate; 0: the letters of both
	Lowest  Rank    // candidates are taxa of this rank, or of the next rank above
	Highest Rank    // verdicts above this rank count as none; 0: Domain
	// Memory bounds the host's memory for what of the database is there, as on a CPU, or while it is shared out among
	// several devices, and for Run's batches, which are smaller then. 0 means no bound. The taxonomy and the names of
	// references come on top, and a long read does: its text, and the locations of its features.
	Memory int64
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
		return fmt.Errorf("at least %d hits: want 1 or more, below 2³¹", o.HitMin)
	case o.HitDiff < 0 || math.IsNaN(o.HitDiff):
		return fmt.Errorf("a next candidate at %v: want 0 or more", o.HitDiff)
	case o.Memory < 0:
		return fmt.Errorf("memory of %d bytes: want 0 or more, 0 for no bound", o.Memory)
	case o.Insert < 0 || o.Insert > math.MaxInt32:
		return fmt.Errorf("mates that span %d letters: want 0 or more, below 2³¹", o.Insert)
	case o.Highest > Root || o.Lowest > o.Highest:
		return fmt.Errorf("taxa from %v to %v: want a rank, and one that is not lower", o.Lowest, o.Highest)
	}
	return nil
}

// Verdict tells what a read, or a pair, was classified as.
type Verdict struct{ verdict }

// Classifier has a database on a device or on several. With several devices, each has some of the targets and
// everything that belongs to them. Every device looks at all reads, and what they find is put together. Several
// goroutines may use a Classifier.
type Classifier struct {
	db       *Database
	o        QueryOptions
	parts    []*part
	taxa     []uint32 // row of each target
	lineages []uint32 // rows of ranks
	indices  []uint32 // taxon of each row
	named    []uint32 // taxon of each target as a candidate: its own, or its ancestor of the lowest rank
	spelled  []string // the numbers of taxa, by index+1; empty where one cannot come out
	block    int      // bytes of Run's blocks
}

// part is what one device has of a database.
type part struct {
	d         *device.Device
	k         kernels
	table     *warpcore.Map[uint32, uint64]
	resident  *resident // of a plain CPU, instead of the table
	locations device.Slice[uint64]
	taxa      device.Slice[uint32]
	lineages  device.Slice[uint32]
	indices   device.Slice[uint32]

	// of a plain CPU
	reads device.Kernel[readsParams]
	busy  atomic.Int32 // workers whose launches are under way
}

// NewClassifier brings a database to a device. With more devices in beside, each gets about as many windows. Cost: a
// copy, and an insert of every feature; but one CPU device alone brings in what reads need when they need it: see Load.
// The caller closes the Classifier.
//
// Errors: *genome.OptionError, also of Memory that does not hold the database; *genome.InputError of the database;
// *device.OutOfMemoryError; what device.Compile returns.
func NewClassifier(d *device.Device, db *Database, o QueryOptions, beside ...*device.Device) (c *Classifier,
	err error) {
	if d == nil || slices.Contains(beside, nil) {
		return nil, &genome.OptionError{Err: errNoDevice}
	}
	if err := o.complete(db.Options.Sketch); err != nil {
		return nil, &genome.OptionError{Err: err}
	}
	c = &Classifier{db: db, o: o}
	devices := append([]*device.Device{d}, beside...)
	if c.block, err = c.blockBytes(devices); err != nil {
		return nil, err
	}
	c.rows()
	c.write()
	c.parts = make([]*part, len(devices))
	bounds := db.bounds(len(devices))
	var work crash.Group
	for i, d := range devices {
		work.Go(func() (err error) {
			share := db
			if len(devices) > 1 {
				if share, err = db.within(bounds[i], bounds[i+1]); err != nil {
					return err
				}
			}
			c.parts[i], err = c.load(d, share)
			if need := db.bytes(d) / int64(len(devices)); device.IsOutOfMemory(err) {
				err = fmt.Errorf("a database that takes about %s on each of %d devices: want more devices, or larger "+
					"ones, or the CPU: %w", device.Bytes(need), len(devices), err)
			}
			return err
		})
	}
	if err := work.Wait(); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// bytes is what a database takes on a device, about: the table's slots of 16 bytes are filled to nine tenths.
func (db *Database) bytes(d *device.Device) int64 {
	features, locations := db.lengths()
	if plain(d) {
		return residentBytes(features, locations)
	}
	return int64(features)*18 + int64(locations)*8
}

const (
	// mostBlock is what Run's blocks have where memory is not short: on an H200 with 16 cores that gives 1.7 G reads a
	// minute, and blocks of 8 MiB 0.96.
	mostBlock  = 1 << 21
	leastBlock = 1 << 15
	// batchShare is how many bytes of memory all batches take for each worker and each byte of a block. Reads of 150
	// letters take half of it. Reads of 20 letters, which have more windows, verdicts and lines, take all.
	batchShare = 40
)

// blockBytes is how large blocks may be for Options.Memory.
func (c *Classifier) blockBytes(devices []*device.Device) (int, error) {
	if c.o.Memory == 0 {
		return mostBlock, nil
	}
	database := int64(0)
	if features, locations := c.db.lengths(); len(devices) > 1 { // parts are made on Go's heap, in columns that grow
		database = 2 * (int64(features)*12 + int64(locations)*8)
	}
	for _, d := range devices {
		if plain(d) {
			database += c.db.bytes(d) / int64(len(devices))
		}
	}
	// reading has a thread for each core, too
	workers := int64(max(workersOf(devices[0]), runtime.GOMAXPROCS(0)))
	const whole = 1 << 20 // lest the least that is told is rounded down
	least := (database + leastBlock*batchShare*workers + whole - 1) / whole * whole
	if c.o.Memory < least {
		return 0, &genome.OptionError{Err: fmt.Errorf(
			"memory of %s: want %s or more: the database takes %s, and batches on %d threads the rest",
			device.Bytes(c.o.Memory), device.Bytes(least), device.Bytes(database), workers)}
	}
	return int(min(mostBlock, (c.o.Memory-database)/(batchShare*workers))), nil
}

// bounds are the first targets of n parts with about as many windows each, and the end.
func (db *Database) bounds(n int) []uint64 {
	all, sum := uint64(0), uint64(0)
	for _, t := range db.targets {
		all += uint64(t.windows)
	}
	out := []uint64{0}
	for i, t := range db.targets {
		for len(out) < n && sum >= all*uint64(len(out))/uint64(n) {
			out = append(out, uint64(i))
		}
		sum += uint64(t.windows)
	}
	for len(out) <= n {
		out = append(out, uint64(len(db.targets)))
	}
	return out
}

// within is what a database has of the targets first … end-1.
func (db *Database) within(first, end uint64) (*Database, error) {
	some := &Database{}
	err := db.Each(func(f uint32, l []uint64) {
		from := sort.Search(len(l), func(j int) bool { return l[j]>>32 >= first })
		l = l[from:]
		if l = l[:sort.Search(len(l), func(j int) bool { return l[j]>>32 >= end })]; len(l) > 0 {
			some.features = append(some.features, f)
			some.append(l)
		}
	})
	return some, err
}

// load brings a database, or a share of it, to a device.
func (c *Classifier) load(d *device.Device, share *Database) (p *part, err error) {
	features, locations := share.lengths()
	p = &part{d: d}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	var both crash.Group // where nothing is compiled yet, compilers work beside one another
	both.Go(func() (err error) {
		p.k, err = compile(d, c.db.Options)
		return err
	})
	both.Go(func() (err error) {
		if plain(d) {
			p.resident, err = newResident(d, share)
		} else {
			wo := warpcore.Options{}
			wo.Capacity = features
			p.table, err = warpcore.New[uint32, uint64](d, wo)
		}
		return err
	})
	if err = both.Wait(); err != nil {
		return p, err
	}
	if err = p.ahead(c.db.Options); err != nil {
		return p, err
	}
	for _, x := range []struct {
		to   *device.Slice[uint32]
		from []uint32
	}{{&p.taxa, c.taxa}, {&p.lineages, c.lineages}, {&p.indices, c.indices}} {
		if *x.to, err = device.From(d, x.from); err != nil {
			return p, err
		}
	}
	if p.resident != nil {
		p.locations = p.resident.locations.Mapped()
		return p, nil
	}
	if p.locations, err = device.Make[uint64](d, locations); err != nil {
		return p, err
	}
	bring := func(b *batch) error {
		if err := p.table.Insert(b.features, b.entries); err != nil || len(b.locations) == 0 {
			return err
		}
		return frame.Upload(nil, p.locations.Slice(b.place, b.place+len(b.locations)), b.locations)
	}
	if share.stored != nil {
		return p, share.batches(d, bring)
	}
	return p, bring(&batch{features: share.features, entries: share.entries, locations: share.locations})
}

// ahead begins to compile the kernels that reads need.
func (p *part) ahead(o Options) error {
	if !plain(p.d) {
		return device.Ahead(p.k.sketch, p.k.decide)
	}
	m, err := p.d.CompileApart(readsProgram(o))
	if err != nil {
		return err
	}
	if err := device.Bind(m, "reads", &p.reads); err != nil {
		return err
	}
	return device.Ahead(p.reads)
}

// Load brings in what of the database is still in its file alone. From then on the Classifier does not depend on the
// file. Errors: *genome.InputError, for a file that is damaged, or has changed since it was opened.
func (c *Classifier) Load() error {
	for _, p := range c.parts {
		if p.resident == nil {
			continue
		}
		if err := p.resident.all(); err != nil {
			return err
		}
	}
	return nil
}

// rows lists the lineages of the targets' taxa.
func (c *Classifier) rows() {
	t := c.db.taxonomy
	row := map[uint32]uint32{}
	for _, target := range c.db.targets {
		r, known := row[target.taxon]
		if !known {
			r = uint32(len(row))
			row[target.taxon] = r
			l := t.lineage(target.taxon)
			c.lineages = append(c.lineages, l[:]...)
			c.indices = append(c.indices, target.taxon)
		}
		c.named = append(c.named, t.atLeast(target.taxon, c.o.Lowest))
		c.taxa = append(c.taxa, r)
	}
}

// Close frees the devices' memory.
func (c *Classifier) Close() error {
	for _, p := range c.parts {
		if p != nil {
			p.close()
		}
	}
	c.parts = nil
	return nil
}

func (p *part) close() {
	if p.table != nil {
		p.table.Close()
	}
	if p.resident != nil {
		p.resident.close()
	} else if p.locations.Len() > 0 {
		p.locations.Free()
	}
	for _, s := range []device.Slice[uint32]{p.taxa, p.lineages, p.indices} {
		if s.Len() > 0 {
			s.Free()
		}
	}
}

// Worker classifies one batch at a time. It is for one goroutine.
type Worker struct {
	c     *Classifier
	parts []*partWorker
	w     []window
	q     []query
}

// partWorker does so on one device.
type partWorker struct {
	sketcher
	c        *Classifier
	p        *part
	queries  memory[query]
	entries  memory[uint64]
	scratch  memory[uint64]
	verdicts memory[verdict]
	next     memory[uint64]
	told     []verdict // those of the last batch: new memory for each would cost a fault a page
}

// NewWorker makes a Worker, with a stream and memory of its own on each device. The memory grows with its batches. The
// caller closes the Worker before the Classifier.
func (c *Classifier) NewWorker() (*Worker, error) {
	w := &Worker{c: c}
	for _, p := range c.parts {
		x := &partWorker{sketcher: sketcher{d: p.d, o: c.db.Options, k: p.k}, c: c, p: p}
		var err error
		if x.st, err = p.d.NewStream(); err != nil {
			w.Close()
			return nil, err
		}
		w.parts = append(w.parts, x)
	}
	return w, nil
}

// Close frees the devices' memory.
func (w *Worker) Close() {
	for _, x := range w.parts {
		x.free()
		x.queries.free(x.st)
		x.entries.free(x.st)
		x.scratch.free(x.st)
		x.verdicts.free(x.st)
		x.next.free(x.st)
		x.st.Close()
	}
	w.parts = nil
}

// Classify appends, for each batch, the verdicts of its reads or pairs to the batch's verdicts. All batches are put
// together, so small ones share the cost of one launch.
//
// Errors: batches of 4 GiB in all; *genome.InputError of a database's file that is damaged, or has changed since it was
// opened; *device.OutOfMemoryError. After an error, no batch has verdicts.
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
	if len(w.q) == 1 {
		return nil, nil
	}
	if len(w.w) > math.MaxUint32/w.c.db.Options.Sketch {
		return nil, fmt.Errorf("%d windows in one batch: want shorter reads, or smaller blocks", len(w.w))
	}
	if len(w.parts) == 1 {
		return w.parts[0].classify(w.w, w.q, texts)
	}
	of := make([][]verdict, len(w.parts))
	var work crash.Group
	for i, x := range w.parts {
		work.Go(func() (err error) {
			of[i], err = x.classify(w.w, w.q, texts)
			return err
		})
	}
	if err := work.Wait(); err != nil {
		return nil, err
	}
	for i := range of[0] {
		r := ranking{c: w.c}
		for _, verdicts := range of {
			for _, x := range verdicts[i].Best {
				r.offer(x)
			}
		}
		of[0][i] = verdict{Taxon: r.decide(), Best: r.best}
	}
	return of[0], nil
}

// classify gives the verdicts of queries, whose windows are of texts that lie one after the other. They are good until
// the next call.
func (w *partWorker) classify(windows []window, q []query, texts [][]byte) ([]verdict, error) {
	if err := w.st.Sync(); err != nil { // after an error, copies may be under way
		return nil, err
	}
	n := len(q) - 1
	verdicts, err := w.verdicts.room(w.d, w.st, n)
	if err != nil {
		return nil, err
	}
	queries, err := w.queries.put(w.d, w.st, q)
	if err != nil {
		return nil, err
	}
	entries, err := w.entries.room(w.d, w.st, len(windows)*w.o.Sketch)
	if err != nil {
		return nil, err
	}
	p := w.params(n, queries, entries, verdicts)
	if plain(w.d) {
		return w.read(p, verdicts, windows, texts)
	}
	return w.find(p, verdicts, entries, windows, texts)
}

// ranking is what is known of a read: its best two targets, or the best of its best two taxa. It is the Best of
// classify.cu.
type ranking struct {
	c    *Classifier
	best [2]candidate
	taxa [2]uint32
	n    int
}

// offer takes a candidate of a part. What is best of all is among the best of each part, and in the order of targets,
// for parts are.
func (r *ranking) offer(x candidate) {
	if x.Hits == 0 {
		return
	}
	taxon := x.Target + 1
	if r.c.o.Lowest > Sequence {
		lineage := r.c.lineage(x)
		rank := r.c.o.Lowest
		for int(rank) < ranks && lineage[rank] == 0 {
			rank++
		}
		taxon = lineage[rank] // a target without any is no candidate
	}
	switch {
	case r.n > 0 && r.taxa[0] == taxon:
		if x.Hits > r.best[0].Hits {
			r.best[0] = x
		}
	case r.n == 0 || x.Hits > r.best[0].Hits:
		r.best[1], r.taxa[1] = r.best[0], r.taxa[0]
		r.best[0], r.taxa[0] = x, taxon
		r.n = min(2, r.n+1)
	case r.n == 1 || x.Hits > r.best[1].Hits:
		r.best[1], r.taxa[1] = x, taxon
		r.n = 2
	}
}

// lineage is a candidate's ancestors by rank, index+1 or 0.
func (c *Classifier) lineage(x candidate) []uint32 {
	return c.lineages[int(c.taxa[x.Target])*ranks:][:ranks]
}

// decide gives the verdict: a taxon's index+1, or 0.
func (r *ranking) decide() uint32 {
	o, c := r.c.o, r.c
	if r.n == 0 || r.best[0].Hits < uint32(o.HitMin) {
		return 0
	}
	both := r.n == 2 && float32(r.best[1].Hits) > float32(r.best[0].Hits-uint32(o.HitMin))*float32(o.HitDiff)
	if o.Lowest == Sequence && !both {
		return c.db.targets[r.best[0].Target].taxon + 1
	}
	a := c.lineage(r.best[0])
	b := a
	if both {
		b = c.lineage(r.best[1])
	}
	for rank := max(o.Lowest, Form); rank <= o.Highest && int(rank) < ranks; rank++ {
		if a[rank] != 0 && a[rank] == b[rank] {
			return a[rank]
		}
	}
	return 0
}

// cut makes windows and queries of records and their mates, in texts that lie one after the other.
func (w *Worker) cut(batches []*Result) (texts [][]byte) {
	w.w, w.q = w.w[:0], w.q[:0]
	o := w.c.db.Options
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
			w.w = o.windowsOf(w.w, r, first)
			q.Mate = uint32(len(w.w))
			letters := r.End - r.Start
			if batch.Mates != nil {
				m := batch.Mates.Records[i]
				letters += m.End - m.Start
				w.w = o.windowsOf(w.w, m, second)
			}
			q.Range = uint32(2 + max(letters, w.c.o.Insert)/o.Stride)
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

// params are what the kernels are told, all but the scratch memory.
func (w *partWorker) params(n int, queries device.Slice[query], entries device.Slice[uint64],
	verdicts device.Slice[verdict]) decideParams {
	c, o := w.p, w.c.o
	return decideParams{Queries: queries.Addr(), N: uint64(n), Entries: entries.Addr(), Locations: c.locations.Addr(),
		Taxa: c.taxa.Addr(), Lineages: c.lineages.Addr(), Indices: c.indices.Addr(),
		Verdicts: verdicts.Addr(), HitMin: uint32(o.HitMin), Lowest: uint32(o.Lowest), Highest: uint32(o.Highest),
		HitDiff: float32(o.HitDiff)}
}

// find runs the kernels one after the other.
func (w *partWorker) find(p decideParams, verdicts device.Slice[verdict], entries device.Slice[uint64],
	windows []window, texts [][]byte) ([]verdict, error) {
	features, err := w.run(windows, texts...)
	if err != nil {
		return nil, err
	}
	if err := w.p.table.FindOn(w.st, features, entries, device.Slice[bool]{}); err != nil {
		return nil, err
	}
	return w.decided(&p, verdicts, max(w.scratch.s.Len(), 2*entries.Len()), 1, func() error {
		return w.k.decide.Launch(w.st, device.GridFor(int64(p.N)*readLanes, threads), &p)
	})
}

// read runs the kernel that does all, on a plain CPU.
func (w *partWorker) read(p decideParams, verdicts device.Slice[verdict], windows []window, texts [][]byte) ([]verdict,
	error) {
	text, at, err := w.bring(windows, texts)
	if err != nil {
		return nil, err
	}
	// a worker has a thread, and those of workers that wait for reads: threads that take turns on a core lose its cache
	busy := int(w.p.busy.Add(1))
	defer w.p.busy.Add(-1)
	grid := device.GridFor(int64(p.N), threads)
	grid.Blocks = min(grid.Blocks, int64(max(1, runtime.GOMAXPROCS(0)/busy)))
	need := max(w.scratch.s.Len()/int(grid.Blocks), firstScratch)
	return w.decided(&p, verdicts, need, int(grid.Blocks), func() error {
		return w.p.reads.Launch(w.st, grid, &readsParams{p, w.p.resident.params(), text.Addr(), at.Addr(), p.Next + 8})
	})
}

// decided launches a kernel, again where the reads have more locations than there is room for: room for so many in each
// of some shares of the scratch memory. It is launched again, too, when chunks were brought that it has asked for.
func (w *partWorker) decided(p *decideParams, verdicts device.Slice[verdict], room, shares int,
	launch func() error) ([]verdict, error) {
	next, err := w.next.room(w.d, w.st, 2)
	if err != nil {
		return nil, err
	}
	for {
		scratch, err := w.scratch.room(w.d, w.st, room*shares)
		if err != nil {
			return nil, err
		}
		if err := next.Fill(w.st, 0); err != nil {
			return nil, err
		}
		p.Scratch, p.Room, p.Next = scratch.Addr(), uint64(room), next.Addr()
		if err := launch(); err != nil {
			return nil, err
		}
		asked, missing, told, err := w.hear(next, verdicts)
		if err != nil || missing == 0 && asked <= room {
			return told, err
		}
		if missing > 0 {
			if err := w.p.resident.bring(false); err != nil {
				return nil, err
			}
		}
		room = max(room, asked)
	}
}

// hear waits for the verdicts, for how much room they asked for, and for how many features had no chunk. They are good
// until the next call.
func (w *partWorker) hear(next device.Slice[uint64], verdicts device.Slice[verdict]) (asked, missing int,
	told []verdict, err error) {
	n := verdicts.Len()
	if w.d.Info().CUDA() {
		err = errors.Join(w.next.pinned(w.d, 1), w.verdicts.pinned(w.d, n))
		if err == nil {
			err = errors.Join(next.ReadAsync(w.st, w.next.host, 1), verdicts.ReadAsync(w.st, w.verdicts.host, n))
		}
		if err = errors.Join(err, w.st.Sync()); err != nil {
			return 0, 0, nil, err
		}
		return int(w.next.host.Slice()[0]), 0, w.verdicts.host.Slice()[:n], nil
	}
	asks, err := next.Host(w.st)
	if err != nil {
		return 0, 0, nil, err
	}
	w.told = slices.Grow(w.told[:0], n)[:n]
	return int(asks[0]), int(asks[1]), w.told, verdicts.Read(w.st, w.told)
}

// Result is a batch of reads and their verdicts.
type Result struct {
	Reads    *genome.Block
	Mates    *genome.Block // the mates of the reads; may be nil
	Verdicts []Verdict     // one for each read, or pair
	Text     []byte        // what Run's work makes of the batch

	err  error
	done chan struct{}
}

// Letters counts the letters of the reads and their mates.
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

// Run classifies all reads of inputs, or pairs of them if mates is not empty. It calls work for each batch, from
// several goroutines. It calls each from one goroutine, for the batches in the order of the reads. Blocks are good
// until each returns.
//
// Errors: what genome.Read returns; errors of work and each; *device.OutOfMemoryError.
func (c *Classifier) Run(ctx context.Context, reads, mates []string, o genome.Options, work,
	each func(*Result) error) (counts genome.Counts, err error) {
	if o.BlockBytes == 0 {
		if o.BlockBytes = c.block; len(mates) > 0 && c.o.Memory > 0 { // a batch has two
			o.BlockBytes /= 2
		}
	}
	g, ctx := crash.WithContext(ctx)
	workers := workersOf(c.parts[0].d)
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
		counts, err = genome.Read(ctx, reads, o, func(a *genome.Block) error {
			return send(&Result{Reads: a, done: make(chan struct{})})
		})
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
	err = g.Wait() // before counts are read
	return counts, err
}

// workersOf is how many there are. On CPUs they do nearly all there is to do. Beside GPUs the other cores read, and
// what Run's work makes is a half of what a worker does.
func workersOf(d *device.Device) int {
	cores := runtime.GOMAXPROCS(0)
	if plain(d) {
		return max(2, min(32, cores))
	}
	return max(2, min(12, cores*3/4))
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
