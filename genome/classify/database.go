package classify

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"os"
	"slices"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/files"
)

// Database is a database, either in host memory as a Builder makes it, or in a file. Several goroutines may use it.
type Database struct {
	Options   Options
	taxonomy  *Taxonomy
	targets   []target
	letters   int64
	features  []uint32 // in order
	entries   []uint64 // one a feature
	locations []uint64 // of features with several
	stored    *stored  // where these three lie, of a database that was opened
}

// A file is a head of headBytes: magic, version, length and checksum of a description in JSON, checksum of these; the
// description; the sections it names, each at a multiple of sectionAlign. All numbers have their low byte first.
//
// The first section has the chunks, one after the other: the features of a chunk, their entries, and the locations of
// those with several. Version 1 had a section for all features, one for all entries, and one for all locations.
const (
	magic        = "warpclas"
	version      = 2
	headBytes    = 64
	sectionAlign = 4096
)

type description struct {
	Options   Options   `json:"options"`
	Letters   int64     `json:"letters"`
	Features  int       `json:"features,omitempty"`
	Locations int       `json:"locations,omitempty"` // of features with several
	Content   content   `json:"content,omitzero"`
	Sections  []section `json:"sections"`
}

type section struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset"` // from the end of the description, rounded up
	Bytes  int64  `json:"bytes"`
	Sum    uint32 `json:"crc32c"` // 0 for the chunks, whose sums are in a section
}

// columns are what a file has beside the chunks, as arrays.
type columns struct {
	TargetTaxa, TargetWindows     []uint32
	TargetNames, TaxonNames       []byte
	TargetNameEnds, TaxonNameEnds []uint64
	TaxonIDs, TaxonParents        []uint32
	TaxonRanks                    []byte
	MergedFrom, MergedTo          []uint32
	Firsts, Sums                  []uint32
	Places                        []uint64
}

// namedColumn is a section of a file. Its column is the address of an array, or nil where the section has chunks.
type namedColumn struct {
	name   string
	column any
}

// of are the sections of a version, in the order that they have in a file.
func (c *columns) of(version uint32) []namedColumn {
	all := []namedColumn{{"target_taxa", &c.TargetTaxa}, {"target_windows", &c.TargetWindows},
		{"target_names", &c.TargetNames}, {"target_name_ends", &c.TargetNameEnds}, {"taxon_ids", &c.TaxonIDs},
		{"taxon_parents", &c.TaxonParents}, {"taxon_ranks", &c.TaxonRanks}, {"taxon_names", &c.TaxonNames},
		{"taxon_name_ends", &c.TaxonNameEnds}, {"merged_from", &c.MergedFrom}, {"merged_to", &c.MergedTo}}
	if version == 1 {
		return append([]namedColumn{{"features", nil}, {"entries", nil}, {"locations", nil}}, all...)
	}
	return append(append([]namedColumn{{"chunks", nil}}, all...), namedColumn{"chunk_firsts", &c.Firsts},
		namedColumn{"chunk_places", &c.Places}, namedColumn{"chunk_sums", &c.Sums})
}

// raw is the memory of a column as bytes.
func raw[T any](column []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(column))), len(column)*int(unsafe.Sizeof(*new(T))))
}

// cooked is bytes as elements of a column.
func cooked[T any](b []byte) ([]T, error) {
	size := int(unsafe.Sizeof(*new(T)))
	if len(b)%size != 0 {
		return nil, fmt.Errorf("%d bytes: want a multiple of %d", len(b), size)
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size), nil
}

func bytesOf(column any) []byte {
	switch c := column.(type) {
	case *[]uint32:
		return raw(*c)
	case *[]uint64:
		return raw(*c)
	}
	return *column.(*[]byte)
}

func setBytes(column any, b []byte) (err error) {
	switch c := column.(type) {
	case *[]uint32:
		*c, err = cooked[uint32](b)
	case *[]uint64:
		*c, err = cooked[uint64](b)
	case *[]byte:
		*c = b
	}
	return err
}

func (db *Database) columns() *columns {
	c := &columns{TaxonIDs: db.taxonomy.ids, TaxonParents: db.taxonomy.parents}
	for _, t := range db.targets {
		c.TargetTaxa, c.TargetWindows = append(c.TargetTaxa, t.taxon), append(c.TargetWindows, t.windows)
		c.TargetNames = append(c.TargetNames, t.name...)
		c.TargetNameEnds = append(c.TargetNameEnds, uint64(len(c.TargetNames)))
	}
	for i, name := range db.taxonomy.names {
		c.TaxonRanks = append(c.TaxonRanks, byte(db.taxonomy.ranks[i]))
		c.TaxonNames = append(c.TaxonNames, name...)
		c.TaxonNameEnds = append(c.TaxonNameEnds, uint64(len(c.TaxonNames)))
	}
	c.MergedFrom = slices.Sorted(maps.Keys(db.taxonomy.merged))
	for _, from := range c.MergedFrom {
		c.MergedTo = append(c.MergedTo, db.taxonomy.merged[from])
	}
	return c
}

// Save writes the database to a file, which appears under its name when it is whole. Errors: the name of a pipe or a
// device, because Save writes at several places of the file; the system's errors.
func (db *Database) Save(name string) error {
	if err := files.CheckRegular(name); err != nil {
		return err
	}
	return files.WriteFile(name, func(f *os.File) error {
		w := newWriter(f)
		if err := db.eachChunk(w.take); err != nil {
			return err
		}
		return w.finish(db)
	})
}

func aligned(n int64) int64 { return (n + sectionAlign - 1) / sectionAlign * sectionAlign }

func head(version uint32, text []byte) []byte {
	h := append(make([]byte, 0, headBytes), magic...)
	h = binary.LittleEndian.AppendUint32(h, version)
	h = binary.LittleEndian.AppendUint64(h, uint64(len(text)))
	h = binary.LittleEndian.AppendUint32(h, crc32.Checksum(text, castagnoli))
	h = h[:headBytes-4]
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

// Open opens a database's file. Cost: the taxonomy and the targets are read, and a thousandth of the rest; of a file
// that warpmap 0.1.0 made, everything. What a call needs of the rest is read and checked then, so a changed byte is an
// error of the first call that would use it; Check looks for one everywhere. The caller closes the Database. It does no
// harm if others replace the file. If they write to it or cut it off, what was read of it stays good, and a call that
// needs more is an error: see Changed.
//
// Errors: *genome.InputError, also for a file that is no database, is of another version, or is damaged.
func Open(name string) (*Database, error) {
	db, err := open(name)
	if input := (*genome.InputError)(nil); err != nil && !errors.As(err, &input) {
		err = &genome.InputError{Input: name, Err: err}
	}
	return db, err
}

func open(name string) (*Database, error) {
	f, err := files.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	db := &Database{stored: &stored{name: name, file: f}}
	db.stored.use()
	if err := db.open(); err != nil {
		f.Close()
		return nil, err
	}
	return db, nil
}

func errDamaged(what string) error {
	return fmt.Errorf("%s is damaged: copy the database again, or build it anew", what)
}

// mostDescription is how long a description may be. Those that are written have some thousand bytes.
const mostDescription = 1 << 20

// open reads what a file has beside the chunks.
func (db *Database) open() error {
	s, d, begin, err := db.describe()
	if err != nil {
		return err
	}
	c := &columns{}
	sums, err := s.sections(d, begin, c)
	if err != nil {
		return err
	}
	db.Options, db.letters = d.Options, d.Letters
	if err := db.Options.complete(); err != nil || db.Options != d.Options || d.Letters < 0 {
		return errDamaged("the description")
	}
	if err := db.take(c); err != nil {
		return err
	}
	if err := db.check(); err != nil {
		return err
	}
	if s.version == 1 {
		return db.list(sums)
	}
	s.directory, s.content = directory{c.Firsts, c.Places, c.Sums}, d.Content
	return s.checkDirectory(db.Options.MaxLocations)
}

// describe reads a file's description. The sections begin at begin.
func (db *Database) describe() (s *stored, d description, begin int64, err error) {
	s = db.stored
	h := make([]byte, headBytes)
	if _, err := io.ReadFull(s.file, h); err != nil || !bytes.HasPrefix(h, []byte(magic)) {
		return s, d, 0, errors.New("not a database of classify: make one with classify build")
	}
	if s.version = binary.LittleEndian.Uint32(h[8:]); s.version == 0 || s.version > version {
		return s, d, 0, fmt.Errorf("a database of version %d: want 1 to %d; build it anew", s.version, version)
	}
	if s.about, err = s.file.Stat(); err != nil {
		return s, d, 0, err
	}
	n := binary.LittleEndian.Uint64(h[12:])
	if n > mostDescription || int64(n) > s.about.Size()-headBytes {
		return s, d, 0, errDamaged("its head")
	}
	text, err := s.bytes(headBytes, int64(n))
	if err != nil {
		return s, d, 0, err
	}
	if !bytes.Equal(head(s.version, text), h) {
		return s, d, 0, errDamaged("its head")
	}
	if err := json.Unmarshal(text, &d); err != nil {
		return s, d, 0, fmt.Errorf("its description: %w", err)
	}
	return s, d, headBytes + int64(n), nil
}

// sections reads the columns of a file, and finds the sections of chunks, of which it gives the sums.
func (s *stored) sections(d description, last int64, c *columns) (sums [3]uint32, err error) {
	begin, size, chunks := aligned(last), s.about.Size(), []int64{}
	columns := c.of(s.version)
	if len(d.Sections) != len(columns) {
		return sums, errDamaged("the list of sections")
	}
	for i, x := range columns {
		in := d.Sections[i]
		if in.Name != x.name {
			return sums, errDamaged("the list of sections")
		}
		from := begin + in.Offset
		if in.Bytes == 0 {
			from = aligned(last) // nothing lies there
		}
		if in.Offset < 0 || in.Offset%sectionAlign != 0 || from != aligned(last) || in.Bytes < 0 ||
			in.Bytes > max(0, size-from) {
			return sums, errDamaged("the section " + x.name)
		}
		if x.column == nil {
			s.at[i], sums[i], chunks = from, in.Sum, append(chunks, in.Bytes)
		}
		if in.Bytes == 0 {
			continue
		}
		if between, err := s.bytes(last, from-last); err != nil {
			return sums, err
		} else if !zero(between) {
			return sums, errDamaged("the section " + x.name)
		}
		if last = from + in.Bytes; x.column == nil {
			continue
		}
		b, err := s.bytes(from, in.Bytes)
		if err != nil {
			return sums, err
		}
		if checksum(b) != in.Sum {
			return sums, errDamaged("the section " + x.name)
		}
		if err := setBytes(x.column, b); err != nil {
			return sums, fmt.Errorf("%s: %w", x.name, err)
		}
	}
	if last != size {
		return sums, errDamaged("the end")
	}
	return sums, s.setLengths(d, chunks)
}

// setLengths tells whether chunks of so many bytes, or columns of version 1, can have as many features and locations.
func (s *stored) setLengths(d description, bytes []int64) error {
	if s.version == 1 {
		s.features, s.locations = int(bytes[0]/4), int(bytes[2]/8)
		if bytes[0]%4 != 0 || bytes[2]%8 != 0 || bytes[1] != 2*bytes[0] {
			return errDamaged("the length of a section")
		}
		return nil
	}
	s.features, s.locations = d.Features, d.Locations
	if n := bytes[0]; d.Features < 0 || d.Locations < 0 || int64(d.Features) > n/12 || int64(d.Locations) > n/8 ||
		int64(d.Features)*12+int64(d.Locations)*8 != n {
		return errDamaged("the length of a section")
	}
	return nil
}

// largeColumn is the bytes above which memory is asked for room: a file of few bytes can declare large columns, for
// disks keep no zeros.
const largeColumn = 64 << 20

// bytes reads bytes into memory that numbers of any size may lie in.
func (s *stored) bytes(at, n int64) ([]byte, error) {
	if n > largeColumn {
		if room, _ := device.HostMemory(); room > 0 && n > room {
			return nil, fmt.Errorf("%d bytes, for which the machine's memory has no room: use a machine with more; "+
				"or the file is damaged", n)
		}
	}
	b := raw(make([]uint64, (n+7)/8))[:n]
	return b, s.readAt(b, at)
}

// zero tells whether what lies between sections is as it was written.
func zero(b []byte) bool {
	for _, x := range b {
		if x != 0 {
			return false
		}
	}
	return true
}

// take makes of columns what is not an array.
func (db *Database) take(c *columns) error {
	if len(c.TargetWindows) != len(c.TargetTaxa) || len(c.TargetNameEnds) != len(c.TargetTaxa) ||
		len(c.TaxonParents) != len(c.TaxonIDs) || len(c.TaxonRanks) != len(c.TaxonIDs) ||
		len(c.TaxonNameEnds) != len(c.TaxonIDs) ||
		len(c.MergedTo) != len(c.MergedFrom) {
		return errDamaged("the length of a section")
	}
	names, err := named(c.TargetNames, c.TargetNameEnds)
	if err != nil {
		return err
	}
	for i, name := range names {
		db.targets = append(db.targets, target{name, c.TargetTaxa[i], c.TargetWindows[i]})
	}
	t := &Taxonomy{ids: c.TaxonIDs, parents: c.TaxonParents, merged: map[uint32]uint32{},
		index: make(map[uint32]uint32, len(c.TaxonIDs))}
	if t.names, err = named(c.TaxonNames, c.TaxonNameEnds); err != nil {
		return err
	}
	for i, id := range c.TaxonIDs {
		t.index[id] = uint32(i)
		t.ranks = append(t.ranks, Rank(c.TaxonRanks[i]))
	}
	for i, from := range c.MergedFrom {
		t.merged[from] = c.MergedTo[i]
	}
	db.taxonomy = t
	return nil
}

// named cuts a text into names.
func named(text []byte, ends []uint64) (names []string, err error) {
	from := uint64(0)
	for _, end := range ends {
		if end < from || end > uint64(len(text)) {
			return nil, errDamaged("a name")
		}
		names = append(names, string(text[from:end]))
		from = end
	}
	return names, nil
}

// check tells whether all numbers are of something: kernels do not look. Sums are right also where a program wrote
// nonsense.
func (db *Database) check() error {
	t := db.taxonomy
	if len(t.ids) == 0 || t.ids[0] != rootID || len(t.index) != len(t.ids) || len(db.targets) > mostTargets {
		return errDamaged("the taxonomy")
	}
	for i, parent := range t.parents {
		if int(parent) >= len(t.ids) || t.ranks[i] > Unranked {
			return errDamaged("the taxonomy")
		}
	}
	if t.parents[0] != 0 || t.acyclic() != nil {
		return errDamaged("the taxonomy")
	}
	for _, x := range db.targets {
		if int(x.taxon) >= len(t.ids) {
			return errDamaged("a target")
		}
	}
	return nil
}

// of tells whether a location is of a target, and of a window that it has.
func (db *Database) of(location uint64) bool {
	target := location >> 32
	return target < uint64(len(db.targets)) && uint32(location) < db.targets[target].windows
}

// Close closes the file, when the Classifiers and Builders that read more of it are closed, too.
func (db *Database) Close() error {
	if db.stored == nil {
		return nil
	}
	return db.stored.release()
}

// Each calls visit for all features, in order, with their locations in order. The locations are good until visit
// returns. Errors: *genome.InputError for a file that is damaged, or has changed since it was opened.
func (db *Database) Each(visit func(feature uint32, locations []uint64)) error {
	return db.eachChunk(func(x *chunk) error {
		return x.each(func(feature uint32, locations []uint64) error {
			visit(feature, locations)
			return nil
		})
	})
}

// eachChunk calls visit for all chunks, in order. A chunk is good until visit returns.
func (db *Database) eachChunk(visit func(x *chunk) error) error {
	x := &chunk{}
	for c := range db.chunks() {
		if err := db.chunk(c, x); err != nil {
			return err
		}
		if err := visit(x); err != nil {
			return err
		}
	}
	return nil
}

// chunks is how many chunks there are, and first the first feature of one.
func (db *Database) chunks() int {
	features, _ := db.lengths()
	return chunksOf(features)
}

func (db *Database) first(c int) uint32 {
	if db.stored != nil {
		return db.stored.firsts[c]
	}
	return db.features[c*chunkItems]
}

// chunk gives a chunk: it reads one of a file into the memory that x has, or into more.
func (db *Database) chunk(c int, x *chunk) error {
	if db.stored != nil {
		_, err := db.read(c, x, nil)
		return err
	}
	from, end := c*chunkItems, min((c+1)*chunkItems, len(db.features))
	*x = chunk{features: db.features[from:end], entries: db.entries[from:end]}
	for _, e := range x.entries {
		if e>>manyBit != 0 {
			if x.locations == nil {
				x.place = placeOf(e)
			}
			x.locations = db.locations[x.place : placeOf(e)+countOf(e)]
		}
	}
	return nil
}

// each calls visit for the features of a chunk.
func (x *chunk) each(visit func(feature uint32, locations []uint64) error) error {
	one := make([]uint64, 1)
	for i, e := range x.entries {
		l := one
		if one[0] = e &^ (1 << oneBit); e>>manyBit != 0 {
			from := placeOf(e) - x.place
			l = x.locations[from : from+countOf(e)]
		}
		if err := visit(x.features[i], l); err != nil {
			return err
		}
	}
	return nil
}

// lengths are how many features there are, and how many places of locations.
func (db *Database) lengths() (features, locations int) {
	if s := db.stored; s != nil {
		return s.features, s.locations
	}
	return len(db.features), len(db.locations)
}

// Stats computes the figures of the database.
func (db *Database) Stats() Stats {
	features, _ := db.lengths()
	if db.stored != nil {
		return db.stats(features, db.stored.content)
	}
	c := content{}
	for _, e := range db.entries {
		n := uint64(1)
		if e>>manyBit != 0 {
			n = countOf(e)
		}
		c.add(n)
	}
	return db.stats(features, c)
}

func (db *Database) stats(features int, c content) Stats {
	s := Stats{Targets: len(db.targets), Letters: db.letters, Taxa: len(db.taxonomy.ids), Features: features}
	for _, t := range db.targets {
		s.Windows += int64(t.windows)
	}
	s.Locations, s.Most = int64(c.Locations), int(c.Most)
	if n := float64(s.Features); n > 0 {
		s.Mean = float64(s.Locations) / n
		s.Deviation = math.Sqrt(max(0, float64(c.Squares)/n-s.Mean*s.Mean))
	}
	return s
}
