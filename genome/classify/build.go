package classify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/warpcore"
)

// target is a reference's sequence.
type target struct {
	name    string
	taxon   uint32 // index
	windows uint32
}

// unsure is a target on the root, of which neither its header nor its file's name tells a taxon that there is.
type unsure struct {
	target int
	id     uint32 // which the taxonomy lacks, or 0
}

// pair is a feature and a location of it.
type pair struct {
	feature  uint32
	location uint64
}

// Input is a file that a Builder has read, and what it held.
type Input struct {
	Name      string `json:"name"`
	Sequences int64  `json:"sequences"`
	Letters   int64  `json:"letters"`
}

// Builder makes a database of references, on one device or several. Each device takes one block of text after the
// other. A Builder is for one goroutine.
type Builder struct {
	// Progress, if not nil, is called after each block of Add with the number of letters so far.
	Progress func(letters int64)
	// MaxMemory is about how many bytes of the host's memory features take; what is beyond goes to temporary files,
	// where TMPDIR says. The taxonomy, the names of references, and blocks of text come on top. A new Builder has half
	// of what is free.
	MaxMemory int64

	o        Options
	taxonomy *Taxonomy
	assigner *assigner
	targets  []target
	letters  int64
	inputs   []Input
	read     int      // references of Add
	unsure   []unsure // of those that this Add has read
	unknown  []string // names of the first of them without a taxon
	unknowns int
	lacking  int    // of these, that have a number which the taxonomy lacks
	lacks    uint32 // one such
	shares   []*share
	base     *Database // that is added to
	mu       sync.Mutex
	pairs    []pair    // of CPU devices, where sorting them takes a tenth of a table's time
	room     []pair    // to sort them
	packer   *packer   // for the pairs
	runs     []*packed // those before them, and those of tables that were full
	kept     sync.Mutex
	packed   int64    // bytes of runs in memory
	file     *os.File // for those that it has no room for
	written  int64    // to the file
}

// share is what one device has of a database that is being made.
type share struct {
	d     *device.Device
	k     kernels
	mu    sync.Mutex
	table *warpcore.MultiBucket[uint32, uint64] // on a GPU
	pairs int64                                 // in the table
	most  int64                                 // as many as it may have
	work  []*placer
}

// placer makes pairs of blocks of text.
type placer struct {
	sketcher
	b      *Builder
	share  *share
	places memory[uint64]
	keys   memory[uint32]
	values memory[uint64]
	next   device.Slice[uint64]

	features  []uint32 // pairs that were taken to the host
	locations []uint64
}

// pairRoom is the memory that a pair in a table may take while the table grows: slots of 24 bytes, half of them free,
// and those of the table before.
const pairRoom = 96

// placers is how many blocks a device takes at once: one is copied there while another is sketched.
const placers = 2

var errNoDevice = errors.New("classify: no device (see device.Open)")

// NewBuilder makes a Builder without references, with the taxonomy of a folder: see LoadTaxonomy. The same folder may
// hold assembly_summary*.txt and *.accession2taxid, and so may those of the references: see Add. beside are more
// devices. The caller closes the Builder.
//
// Errors: *genome.OptionError; *genome.InputError; what device.Compile returns.
func NewBuilder(d *device.Device, taxonomy string, o Options, beside ...*device.Device) (*Builder, error) {
	if err := o.complete(); err != nil {
		return nil, &genome.OptionError{Err: err}
	}
	if d == nil || slices.Contains(beside, nil) {
		return nil, &genome.OptionError{Err: errNoDevice}
	}
	t, err := LoadTaxonomy(taxonomy)
	if err != nil {
		return nil, err
	}
	a, err := loadAssigner(taxonomy)
	if err != nil {
		return nil, err
	}
	return newBuilder(append([]*device.Device{d}, beside...), t, a, o, false)
}

// newBuilder makes tables on all GPUs, or, with tables, on all devices.
func newBuilder(devices []*device.Device, t *Taxonomy, a *assigner, o Options, tables bool) (b *Builder, err error) {
	free, _ := device.HostMemory()
	b = &Builder{o: o, taxonomy: t, assigner: a, MaxMemory: max(free/2, leastMemory)}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	for _, d := range devices {
		s := &share{d: d}
		b.shares = append(b.shares, s)
		if s.k, err = compile(d, o); err != nil {
			return nil, err
		}
		if err = device.Ahead(s.k.sketch, s.k.pair); err != nil {
			return nil, err
		}
		if tables || d.Info().CUDA() {
			free, _, err := d.Memory()
			if err != nil {
				return nil, err
			}
			s.most = free / pairRoom
			if s.table, err = warpcore.NewMultiBucket[uint32, uint64](d,
				warpcore.MultiBucketOptions{Bucket: 2}); err != nil {
				return nil, err
			}
		}
		for range placers {
			w := &placer{sketcher: sketcher{d: d, o: o, k: s.k}, b: b, share: s}
			if w.next, err = device.Make[uint64](d, 1); err != nil {
				return nil, err
			}
			s.work = append(s.work, w)
			if w.st, err = d.NewStream(); err != nil {
				return nil, err
			}
		}
	}
	return b, nil
}

// Options are those of the database, with the values that stand for zeros.
func (b *Builder) Options() Options { return b.o }

// Close frees the devices' memory.
func (b *Builder) Close() (err error) {
	for _, s := range b.shares {
		for _, w := range s.work {
			w.free()
			w.places.free(w.st)
			w.keys.free(w.st)
			w.values.free(w.st)
			err = errors.Join(err, w.next.Free())
			if w.st != nil {
				err = errors.Join(err, w.st.Close())
			}
		}
		if s.table != nil {
			err = errors.Join(err, s.table.Close())
		}
	}
	b.shares = nil
	if b.file != nil {
		err = errors.Join(err, b.file.Close())
		b.file = nil
	}
	if b.base != nil && b.base.stored != nil {
		err = errors.Join(err, b.base.stored.release())
	}
	b.base = nil
	return err
}

// The least that MaxMemory can be; how many pairs are sorted at once at most; memory below which blocks are smaller;
// and how many letters go to a device at once at most.
const (
	leastMemory = 32e6
	mostPairs   = 1 << 23
	somePairs   = 1 << 20 // beyond, there is room for all at once: growing by and by would leave much garbage behind
	muchMemory  = 1 << 30
	mostPiece   = muchMemory / 128
)

// checkMemory tells whether MaxMemory is enough.
func (b *Builder) checkMemory() error {
	if b.MaxMemory < leastMemory {
		return &genome.OptionError{Err: fmt.Errorf("memory of %s: want %s or more", device.Bytes(b.MaxMemory),
			device.Bytes(leastMemory))}
	}
	return nil
}

// pairsAtOnce is how many pairs are sorted at once: they take a quarter of the memory, with room for as many.
func (b *Builder) pairsAtOnce() int { return int(min(mostPairs, b.MaxMemory/4/32)) }

// piece is about how many letters go to a device at once.
func (b *Builder) piece() int { return int(min(mostPiece, b.MaxMemory/128)) }

// mergeBytes is the memory for merging: that which pairs had.
func (b *Builder) mergeBytes() int64 { return b.MaxMemory / 4 }

// references are a block, its windows, and the location of each.
type references struct {
	block   *genome.Block
	windows []window
	places  []uint64
}

// Add reads references from files, globs, folders or "-". Lists that lie beside the files, assembly_summary*.txt and
// *.accession2taxid, tell of them as those of the taxonomy's folder do, which have the word. If nothing tells a
// reference's taxon, or the taxonomy does not have that taxon, the reference belongs to the root. What a device has no
// room for goes to the host's memory. Cost: beside the references, all *.accession2taxid are read if anything else does
// not tell of all of them.
//
// Errors: what genome.Read returns; *device.OutOfMemoryError; *table.FullError.
func (b *Builder) Add(ctx context.Context, inputs []string, o genome.Options) (counts genome.Counts, err error) {
	if err := b.checkMemory(); err != nil {
		return counts, err
	}
	if o.BlockBytes == 0 && b.MaxMemory < muchMemory {
		o.BlockBytes = b.piece()
	}
	if o.BlockBytes == 0 && b.shares[0].table != nil {
		o.BlockBytes = 1 << 20 // on an H200 with 16 cores 2.6 G letters/s; blocks of 32 MiB had 1.6 when these had 2.0
	}
	if o.Open == nil {
		if err := b.assigner.beside(inputs); err != nil {
			return counts, err
		}
	}
	b.unsure = nil
	whole := ctx
	work, ctx := crash.WithContext(ctx)
	blocks := make(chan *references)
	for _, s := range b.shares {
		for _, w := range s.work {
			work.Go(func() error {
				for r := range blocks {
					if err := w.add(r); err != nil {
						return err
					}
				}
				return nil
			})
		}
	}
	work.Go(func() error {
		defer close(blocks)
		var err error
		counts, err = genome.Read(ctx, inputs, o, func(block *genome.Block) error {
			r, err := b.cut(block)
			if err != nil {
				return err
			}
			select {
			case blocks <- r:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			if b.Progress != nil {
				b.Progress(b.letters)
			}
			return nil
		})
		return err
	})
	if err = work.Wait(); err == nil {
		err = b.settle(whole)
	}
	return counts, err
}

// Inputs returns the files that Add has read, in their order.
func (b *Builder) Inputs() []Input { return slices.Clone(b.inputs) }

// cut makes the targets and windows of a block.
func (b *Builder) cut(block *genome.Block) (*references, error) {
	if len(b.targets)+len(block.Records) > mostTargets {
		return nil, fmt.Errorf("more than %d sequences: make two databases", mostTargets)
	}
	if len(block.Text) > math.MaxUint32 { // windows begin at numbers of 32 bits
		return nil, &genome.InputError{Input: block.Input,
			Err: fmt.Errorf("%d letters in one sequence or block: want less than 4 GiB", len(block.Text))}
	}
	if n := len(b.inputs); n == 0 || b.inputs[n-1].Name != block.Input {
		b.inputs = append(b.inputs, Input{Name: block.Input})
	}
	input := &b.inputs[len(b.inputs)-1]
	input.Sequences += int64(len(block.Records))
	r := &references{block: block}
	for _, x := range block.Records {
		input.Letters += int64(x.End - x.Start)
		first := len(r.windows)
		r.windows = b.o.windowsOf(r.windows, x, 0)
		number := uint64(len(b.targets)) << 32
		for i := range r.windows[first:] {
			r.places = append(r.places, number|uint64(i))
		}
		b.letters += int64(x.End - x.Start)
		b.targets = append(b.targets, target{string(x.Name), b.taxonOf(string(x.Name), block.Input),
			uint32(len(r.windows) - first)})
	}
	return r, nil
}

// add makes the pairs of a block, and releases it. A long record, which is whole in its block, goes to the device in
// pieces.
func (w *placer) add(r *references) error {
	defer r.block.Release()
	for from := 0; from < len(r.windows); {
		start, end, stop := r.windows[from].Start, from, uint32(0)
		for end < len(r.windows) {
			next := r.windows[end].Start + r.windows[end].Letters
			if end > from && int(next-start) > w.b.piece() {
				break
			}
			r.windows[end].Start -= start
			stop = next
			end++
		}
		if err := w.addPiece(r.windows[from:end], r.block.Text[start:stop], r.places[from:end]); err != nil {
			return err
		}
		from = end
	}
	return nil
}

func (w *placer) addPiece(windows []window, text []byte, places []uint64) error {
	features, err := w.run(windows, text)
	if err != nil {
		return err
	}
	at, err := w.places.put(w.d, w.st, places)
	if err != nil {
		return err
	}
	keys, err := w.keys.room(w.d, w.st, features.Len())
	if err != nil {
		return err
	}
	values, err := w.values.room(w.d, w.st, features.Len())
	if err != nil {
		return err
	}
	if err := w.next.Fill(w.st, 0); err != nil {
		return err
	}
	p := pairParams{features.Addr(), at.Addr(), uint64(len(windows)), keys.Addr(), values.Addr(), w.next.Addr()}
	if err := w.k.pair.Launch(w.st, device.GridFor(int64(len(windows)), threads), &p); err != nil {
		return err
	}
	n, err := w.next.Host(w.st)
	if err != nil {
		return err
	}
	keys, values = keys.Slice(0, int(n[0])), values.Slice(0, int(n[0]))
	if w.share.table != nil {
		return w.insert(keys, values)
	}
	return w.collect(keys, values)
}

// insert brings pairs to the device's table, whose pairs go to the host before there are too many.
func (w *placer) insert(keys device.Slice[uint32], values device.Slice[uint64]) error {
	s, n := w.share, int64(keys.Len())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pairs > 0 && s.pairs+n > s.most {
		p := newPacker(w.b.o.MaxLocations, func(r *packed) error {
			w.b.mu.Lock()
			w.b.runs = append(w.b.runs, r)
			w.b.mu.Unlock()
			return w.b.keep(r)
		})
		if err := errors.Join(s.list(w.st, p.putAll), p.finish()); err != nil {
			return err
		}
		if err := s.table.Clear(); err != nil {
			return err
		}
		s.pairs = 0
	}
	s.pairs += n
	return s.table.InsertOn(w.st, keys, values)
}

// collect takes pairs to the host.
func (w *placer) collect(keys device.Slice[uint32], values device.Slice[uint64]) error {
	n := keys.Len()
	w.features, w.locations = slices.Grow(w.features[:0], n)[:n], slices.Grow(w.locations[:0], n)[:n]
	if err := errors.Join(keys.Read(w.st, w.features), values.Read(w.st, w.locations)); err != nil {
		return err
	}
	b := w.b
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, f := range w.features {
		if len(b.pairs) >= b.pairsAtOnce() {
			if err := b.pack(); err != nil {
				return err
			}
		}
		if len(b.pairs) == cap(b.pairs) && len(b.pairs) >= somePairs {
			b.pairs = slices.Grow(b.pairs, b.pairsAtOnce()-len(b.pairs))
		}
		b.pairs = append(b.pairs, pair{f, w.locations[i]})
	}
	return nil
}

// taxonOf is the taxon of the next target, which may be unsure.
func (b *Builder) taxonOf(header, file string) uint32 {
	id := b.assigner.taxid(header, file)
	taxon, known := b.taxonomy.find(id)
	b.read++
	if !known {
		b.unsure = append(b.unsure, unsure{len(b.targets), id})
	}
	return taxon
}

// settle asks the lists of accessions for the targets of which nothing else told.
func (b *Builder) settle(ctx context.Context) error {
	var headers []string
	for _, u := range b.unsure {
		if u.id == 0 {
			headers = append(headers, b.targets[u.target].name)
		}
	}
	ids, err := b.assigner.listed(ctx, headers)
	if err != nil {
		return err
	}
	for _, u := range b.unsure {
		t := &b.targets[u.target]
		if u.id == 0 {
			u.id, ids = ids[0], ids[1:]
			var known bool
			if t.taxon, known = b.taxonomy.find(u.id); known {
				continue
			}
		}
		if b.unknowns++; len(b.unknown) < someNames {
			name := firstWord(t.name)
			b.unknown = append(b.unknown, name[:min(len(name), 60)])
		}
		if u.id != 0 {
			b.lacking++
			b.lacks = cmp.Or(b.lacks, u.id)
		}
	}
	b.unsure = nil
	return nil
}

// someNames is how many names a message has.
const someNames = 3

// Unknown tells how many of the references that Add has read have only the root as their taxon, because nothing tells
// another. first holds the names of the first of them.
func (b *Builder) Unknown() (n int, first []string) { return b.unknowns, b.unknown }

// knowsNothing is an error where Add has read references, and nothing tells a taxon of any.
func (b *Builder) knowsNothing() error {
	if b.read == 0 || b.unknowns < b.read {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text,
		"none of %d sequences has a taxon, and so they would tell nothing of reads: want taxid|N in the headers, or, "+
			"in the folder of --taxonomy or beside the genomes, assembly_summary*.txt with the accessions of the "+
			"files, or *.accession2taxid with those of the sequences, such as %q", b.read, b.unknown[0])
	if a := b.assigner; len(a.dirs) > 0 {
		lists := func(n int, rows int64, name string) string {
			if n == 0 {
				return "no " + name
			}
			return fmt.Sprintf("%d %s with %d rows", n, name, rows)
		}
		dirs := strings.Join(a.dirs[:min(len(a.dirs), someNames)], " and ")
		if len(a.dirs) > someNames {
			dirs += " and others"
		}
		fmt.Fprintf(&text, "; there are %s and %s in %s", lists(a.summaries, int64(len(a.assemblies)),
			"assembly_summary*.txt"), lists(a.lists, a.rows, "*.accession2taxid"), dirs)
	}
	if b.lacking > 0 {
		fmt.Fprintf(&text, "; %d have a taxid that the taxonomy lacks, such as %d", b.lacking, b.lacks)
	}
	return errors.New(text.String())
}

// Extend makes a Builder that starts with the content of a database, so that more can be added. assignments is a folder
// with assembly_summary*.txt and *.accession2taxid for what is added; if it is empty, headers tell, and the lists that
// lie beside what is added. A feature that had more than MaxLocations locations keeps the first of them, and what is
// added comes behind these.
//
// What the database has in a file stays there until Save or Database reads it: if somebody has written to the file by
// then, that is an error. It does no harm that a new file has its name.
func Extend(d *device.Device, db *Database, assignments string, beside ...*device.Device) (*Builder, error) {
	var dirs []string
	if assignments != "" {
		if _, err := os.ReadDir(assignments); err != nil { // a mistyped name would leave all on the root
			return nil, &genome.InputError{Input: assignments, Err: err}
		}
		dirs = append(dirs, assignments)
	}
	a, err := loadAssigner(dirs...)
	if err != nil {
		return nil, err
	}
	b, err := newBuilder(append([]*device.Device{d}, beside...), db.taxonomy, a, db.Options, false)
	if err != nil {
		return nil, err
	}
	b.targets, b.letters = slices.Clone(db.targets), db.letters
	if b.base = db; db.stored != nil {
		db.stored.use()
	}
	return b, nil
}

// Stats are figures of a database.
type Stats struct {
	Targets   int     `json:"targets"` // sequences
	Letters   int64   `json:"letters"`
	Windows   int64   `json:"windows"`
	Taxa      int     `json:"taxa"` // taxa in the taxonomy
	Features  int     `json:"features"`
	Locations int64   `json:"locations"`
	Mean      float64 `json:"mean"`      // mean number of locations for each feature
	Deviation float64 `json:"deviation"` // standard deviation of that number
	Most      int     `json:"most"`
}
