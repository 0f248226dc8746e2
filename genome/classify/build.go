package classify

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/warpcore"
)

// target is a reference's sequence.
type target struct {
	name    string
	taxon   uint32 // index
	windows uint32
}

// pair is a feature and a location of it.
type pair struct {
	feature  uint32
	location uint64
}

// Builder makes a database of references. It is for one goroutine.
type Builder struct {
	// Progress, if not nil, is told after each block of Add how many letters there are.
	Progress func(letters int64)

	sketcher
	taxonomy *Taxonomy
	assigner *assigner
	targets  []target
	letters  int64
	unknown  int
	table    *warpcore.MultiBucket[uint32, uint64] // on a GPU
	pairs    []pair                                // on the CPU, where sorting them takes a tenth of a table's time
	places   memory[uint64]
	keys     memory[uint32]
	values   memory[uint64]
	next     device.Slice[uint64]
}

// NewBuilder makes a Builder without references, with the taxonomy of a folder: see LoadTaxonomy. There, too, lie assembly_summary*.txt and
// *.accession2taxid, if any. The caller closes it.
//
// Errors: options out of range; *genome.InputError; what device.Compile returns.
func NewBuilder(d *device.Device, taxonomy string, o Options) (*Builder, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	t, err := LoadTaxonomy(taxonomy)
	if err != nil {
		return nil, err
	}
	a, err := loadAssigner(taxonomy)
	if err != nil {
		return nil, err
	}
	return newBuilder(d, t, a, o, d.Info().CUDA())
}

func newBuilder(d *device.Device, t *Taxonomy, a *assigner, o Options, table bool) (b *Builder, err error) {
	b = &Builder{sketcher: sketcher{d: d, o: o}, taxonomy: t, assigner: a}
	defer func() {
		if err != nil {
			b.Close()
		}
	}()
	if b.k, err = compile(d, o); err != nil {
		return nil, err
	}
	if b.next, err = device.Make[uint64](d, 1); err != nil {
		return nil, err
	}
	if !table {
		return b, nil
	}
	b.table, err = warpcore.NewMultiBucket[uint32, uint64](d, warpcore.MultiBucketOptions{Bucket: 2})
	return b, err
}

// Close frees the device's memory.
func (b *Builder) Close() error {
	b.free()
	b.places.free(nil)
	b.keys.free(nil)
	b.values.free(nil)
	if b.next.Len() > 0 {
		b.next.Free()
	}
	if b.table == nil {
		return nil
	}
	return b.table.Close()
}

// Add reads references: files, globs, folders or "-". Those whose taxon nothing tells, or that is not in the taxonomy, are of the root.
// Errors: what genome.Read returns; *device.OutOfMemoryError; *table.FullError.
func (b *Builder) Add(ctx context.Context, inputs []string, o genome.Options) (genome.Counts, error) {
	return genome.Read(ctx, inputs, o, func(block *genome.Block) error {
		err := b.add(block)
		if err == nil && b.Progress != nil {
			b.Progress(b.letters)
		}
		return err
	})
}

func (b *Builder) add(block *genome.Block) error {
	defer block.Release()
	if len(b.targets)+len(block.Records) > mostTargets {
		return fmt.Errorf("more than %d sequences: make two databases", mostTargets)
	}
	var windows []window
	var places []uint64
	for _, r := range block.Records {
		first := len(windows)
		windows = b.o.windowsOf(windows, r, 0)
		number := uint64(len(b.targets)) << 32
		for i := range windows[first:] {
			places = append(places, number|uint64(i))
		}
		b.letters += int64(r.End - r.Start)
		b.targets = append(b.targets, target{string(r.Name), b.taxonOf(string(r.Name), block.Input), uint32(len(windows) - first)})
	}
	features, err := b.run(windows, block.Text)
	if err != nil || len(windows) == 0 {
		return err
	}
	at, err := b.places.put(b.d, b.st, places)
	if err != nil {
		return err
	}
	keys, err := b.keys.room(b.d, b.st, features.Len())
	if err != nil {
		return err
	}
	values, err := b.values.room(b.d, b.st, features.Len())
	if err != nil {
		return err
	}
	if err := b.next.Fill(b.st, 0); err != nil {
		return err
	}
	p := pairParams{features.Addr(), at.Addr(), uint64(len(windows)), keys.Addr(), values.Addr(), b.next.Addr()}
	if err := b.k.pair.Launch(b.st, device.GridFor(int64(len(windows)), threads), &p); err != nil {
		return err
	}
	n, err := b.next.Host(b.st)
	if err != nil {
		return err
	}
	keys, values = keys.Slice(0, int(n[0])), values.Slice(0, int(n[0]))
	if b.table != nil {
		return b.table.InsertOn(b.st, keys, values)
	}
	return b.collect(keys, values)
}

// collect takes pairs to the host.
func (b *Builder) collect(keys device.Slice[uint32], values device.Slice[uint64]) error {
	features, err := keys.Host(b.st)
	if err != nil {
		return err
	}
	locations, err := values.Host(b.st)
	if err != nil {
		return err
	}
	b.pairs = slices.Grow(b.pairs, len(features))
	for i, f := range features {
		b.pairs = append(b.pairs, pair{f, locations[i]})
	}
	return nil
}

func (b *Builder) taxonOf(header, file string) uint32 {
	taxon, known := b.taxonomy.find(b.assigner.taxid(header, file))
	if !known {
		b.unknown++
	}
	return taxon
}

// Unknown is how many references have no taxon but the root, because nothing tells another.
func (b *Builder) Unknown() int { return b.unknown }

// listed is how many features are brought from the device at once.
const listed = 1 << 22

// Database is what the references make, in host memory. Of a feature with more locations than Options.MaxLocations, the first in the order of
// targets and windows are kept. Cost: a sort of the features; on a GPU, a walk over the table.
func (b *Builder) Database() (*Database, error) {
	db := &Database{Options: b.o, taxonomy: b.taxonomy, targets: slices.Clone(b.targets), letters: b.letters}
	if b.table == nil {
		b.pairs = radixSorted(b.pairs, func(p pair) uint32 { return p.feature })
		b.group(db)
		return db, nil
	}
	features, err := b.table.Keys()
	if err != nil {
		return nil, err
	}
	features = radixSorted(features, func(f uint32) uint32 { return f })
	db.features, db.entries = features, make([]uint64, 0, len(features))
	for part := range slices.Chunk(features, listed) {
		if err := b.list(db, part); err != nil {
			return nil, err
		}
	}
	return db, nil
}

// list appends the entries and locations of some features.
func (b *Builder) list(db *Database, features []uint32) error {
	keys, err := device.From(b.d, features)
	if err != nil {
		return err
	}
	defer keys.Free()
	at, values, err := b.table.FindAllOn(b.st, keys)
	if err != nil {
		return err
	}
	defer at.Free()
	defer values.Free()
	p := sortParams{at.Addr(), values.Addr(), uint64(len(features))}
	if err := b.k.sort.Launch(b.st, device.GridFor(int64(len(features)), threads), &p); err != nil {
		return err
	}
	offsets, err := at.Host(b.st)
	if err != nil {
		return err
	}
	locations, err := values.Host(b.st)
	if err != nil {
		return err
	}
	for i := range features {
		db.append(locations[offsets[i]:min(offsets[i+1], offsets[i]+uint64(b.o.MaxLocations))])
	}
	return nil
}

// group appends the features, entries and locations of sorted pairs.
func (b *Builder) group(db *Database) {
	db.features, db.entries = make([]uint32, 0, len(b.pairs)), make([]uint64, 0, len(b.pairs))
	var locations []uint64
	for i, end := 0, 0; i < len(b.pairs); i = end {
		f := b.pairs[i].feature
		locations = locations[:0]
		for end = i; end < len(b.pairs) && b.pairs[end].feature == f; end++ {
			locations = append(locations, b.pairs[end].location)
		}
		if len(locations) > 1 {
			slices.Sort(locations)
		}
		db.features = append(db.features, f)
		db.append(locations[:min(len(locations), b.o.MaxLocations)])
	}
}

// append adds the entry of a feature with these locations.
func (db *Database) append(locations []uint64) {
	if len(locations) == 1 {
		db.entries = append(db.entries, 1<<oneBit|locations[0])
		return
	}
	db.entries = append(db.entries, 1<<manyBit|uint64(len(locations))<<countShift|uint64(len(db.locations)))
	db.locations = append(db.locations, locations...)
}

// radixSorted sorts by parts of 11 bits, the low ones first: features are hashes, so all parts are about as large.
func radixSorted[T any](a []T, feature func(T) uint32) []T {
	const bits = 11
	to := make([]T, len(a))
	for shift := 0; shift < 32; shift += bits {
		var begins [1<<bits + 1]int
		for _, x := range a {
			begins[feature(x)>>shift&(1<<bits-1)+1]++
		}
		for i := range 1 << bits {
			begins[i+1] += begins[i]
		}
		for _, x := range a {
			digit := feature(x) >> shift & (1<<bits - 1)
			to[begins[digit]] = x
			begins[digit]++
		}
		a, to = to, a
	}
	return a
}

// Extend makes a Builder that has what a database has, to add to it. assignments is a folder with assembly_summary*.txt and *.accession2taxid for
// what is added; empty: headers tell. Features that had more than MaxLocations locations keep the first, which what is added comes behind.
func Extend(d *device.Device, db *Database, assignments string) (*Builder, error) {
	a := &assigner{}
	if assignments != "" {
		var err error
		if a, err = loadAssigner(assignments); err != nil {
			return nil, err
		}
	}
	b, err := newBuilder(d, db.taxonomy, a, db.Options, d.Info().CUDA())
	if err != nil {
		return nil, err
	}
	b.targets, b.letters = slices.Clone(db.targets), db.letters
	if b.table == nil {
		b.unpack(db)
		return b, nil
	}
	var keys []uint32
	var values []uint64
	flush := func() error {
		err := b.table.Insert(keys, values)
		keys, values = keys[:0], values[:0]
		return err
	}
	for i, f := range db.features {
		for _, at := range db.locationsOf(i) {
			keys, values = append(keys, f), append(values, at)
		}
		if len(keys) >= listed {
			err = cmp.Or(err, flush())
		}
	}
	if err = cmp.Or(err, flush()); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

// unpack makes pairs of what a database has.
func (b *Builder) unpack(db *Database) {
	b.pairs = make([]pair, 0, len(db.features)+len(db.locations))
	for i, f := range db.features {
		for _, at := range db.locationsOf(i) {
			b.pairs = append(b.pairs, pair{f, at})
		}
	}
}

// Stats are figures of a database.
type Stats struct {
	Targets   int     `json:"targets"` // sequences
	Letters   int64   `json:"letters"`
	Windows   int64   `json:"windows"`
	Taxa      int     `json:"taxa"` // of the taxonomy
	Features  int     `json:"features"`
	Locations int64   `json:"locations"`
	Mean      float64 `json:"mean"`      // locations a feature
	Deviation float64 `json:"deviation"` // their standard deviation
	Most      int     `json:"most"`
}
