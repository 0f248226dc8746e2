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
const (
	magic        = "warpclas"
	version      = 1
	headBytes    = 64
	sectionAlign = 4096
)

type description struct {
	Options  Options   `json:"options"`
	Letters  int64     `json:"letters"`
	Sections []section `json:"sections"`
}

type section struct {
	Name   string `json:"name"`
	Offset int64  `json:"offset"` // from the end of the description, rounded up
	Bytes  int64  `json:"bytes"`
	Sum    uint32 `json:"crc32c"`
}

// columns are a database as arrays.
type columns struct {
	Features                      []uint32
	Entries, Locations            []uint64
	TargetTaxa, TargetWindows     []uint32
	TargetNames, TaxonNames       []byte
	TargetNameEnds, TaxonNameEnds []uint64
	TaxonIDs, TaxonParents        []uint32
	TaxonRanks                    []byte
	MergedFrom, MergedTo          []uint32
}

// each visits the columns, by address, in the order that they have in a file.
func (c *columns) each(visit func(name string, column any) error) error {
	for _, f := range []struct {
		name   string
		column any
	}{{"features", &c.Features}, {"entries", &c.Entries}, {"locations", &c.Locations}, {"target_taxa", &c.TargetTaxa},
		{"target_windows", &c.TargetWindows}, {"target_names", &c.TargetNames}, {"target_name_ends", &c.TargetNameEnds},
		{"taxon_ids", &c.TaxonIDs}, {"taxon_parents", &c.TaxonParents}, {"taxon_ranks", &c.TaxonRanks}, {"taxon_names",
			&c.TaxonNames},
		{"taxon_name_ends", &c.TaxonNameEnds}, {"merged_from", &c.MergedFrom}, {"merged_to", &c.MergedTo}} {
		if err := visit(f.name, f.column); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	return nil
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
	c := &columns{Features: db.features, Entries: db.entries, Locations: db.locations, TaxonIDs: db.taxonomy.ids,
		TaxonParents: db.taxonomy.parents}
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
	db, err := db.inMemory()
	if err != nil {
		return err
	}
	return files.WriteFile(name, db.write)
}

func (db *Database) write(f *os.File) error {
	c, d := db.columns(), description{Options: db.Options, Letters: db.letters}
	at := int64(0)
	c.each(func(name string, column any) error {
		b := bytesOf(column)
		d.Sections = append(d.Sections, section{name, at, int64(len(b)), checksum(b)})
		at = aligned(at + int64(len(b)))
		return nil
	})
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if _, err = f.Write(head(text)); err != nil {
		return err
	}
	if _, err = f.Write(text); err != nil {
		return err
	}
	begin, i := aligned(int64(headBytes+len(text))), 0
	return c.each(func(_ string, column any) error {
		_, err := f.WriteAt(bytesOf(column), begin+d.Sections[i].Offset)
		i++
		return err
	})
}

func aligned(n int64) int64 { return (n + sectionAlign - 1) / sectionAlign * sectionAlign }

func head(text []byte) []byte {
	h := append(make([]byte, 0, headBytes), magic...)
	h = binary.LittleEndian.AppendUint32(h, version)
	h = binary.LittleEndian.AppendUint64(h, uint64(len(text)))
	h = binary.LittleEndian.AppendUint32(h, crc32.Checksum(text, castagnoli))
	h = h[:headBytes-4]
	return binary.LittleEndian.AppendUint32(h, crc32.Checksum(h, castagnoli))
}

// Open opens a database's file, and checks its checksums: a changed byte is an error. Cost: the whole file is read. Its
// long columns stay in the file, and calls that need them read them again. The caller closes the Database. It does no
// harm if others write to the file, cut it off or replace it: see Changed.
//
// Errors: *genome.InputError, also for a file that is no database, is of another version, or is damaged.
func Open(name string) (*Database, error) {
	db, err := open(name)
	if err != nil {
		return nil, &genome.InputError{Input: name, Err: err}
	}
	return db, nil
}

func open(name string) (*Database, error) {
	f, err := files.OpenRegular(name)
	if err != nil {
		return nil, err
	}
	db := &Database{stored: &stored{name: name, file: f}}
	if err := db.read(); err != nil {
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

func (db *Database) read() (err error) {
	f, h := db.stored.file, make([]byte, headBytes)
	if _, err := io.ReadFull(f, h); err != nil || !bytes.HasPrefix(h, []byte(magic)) {
		return errors.New("not a database of classify: make one with classify build")
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != version {
		return fmt.Errorf("a database of version %d: want %d; build it anew", v, version)
	}
	if db.stored.about, err = f.Stat(); err != nil {
		return err
	}
	size := db.stored.about.Size()
	n := binary.LittleEndian.Uint64(h[12:])
	if n > mostDescription || int64(n) > size-headBytes {
		return errDamaged("its head")
	}
	text, err := db.stored.bytes(headBytes, int64(n))
	if err != nil {
		return err
	}
	if !bytes.Equal(head(text), h) {
		return errDamaged("its head")
	}
	var d description
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("its description: %w", err)
	}
	begin, c, i := aligned(int64(headBytes+n)), &columns{}, 0
	last := int64(headBytes + n)
	long := map[string]*longColumn{"features": &db.stored.features, "entries": &db.stored.entries,
		"locations": &db.stored.locations}
	var sums [3]uint32 // of the long columns
	err = c.each(func(name string, column any) error {
		if i >= len(d.Sections) || d.Sections[i].Name != name {
			return errDamaged("the list of sections")
		}
		s := d.Sections[i]
		if i < len(sums) {
			sums[i] = s.Sum
		}
		i++
		from := begin + s.Offset
		if s.Bytes == 0 {
			return nil
		}
		if s.Offset < 0 || s.Offset%sectionAlign != 0 || from != aligned(last) || s.Bytes < 0 || s.Bytes > size-from {
			return errDamaged("the section")
		}
		if between, err := db.stored.bytes(last, from-last); err != nil {
			return err
		} else if !zero(between) {
			return errDamaged("the section")
		}
		last = from + s.Bytes
		if l := long[name]; l != nil {
			width := int64(itemBytes(column))
			if l.at, l.n = from, int(s.Bytes/width); s.Bytes%width != 0 {
				return fmt.Errorf("%d bytes: want a multiple of %d", s.Bytes, width)
			}
			return nil
		}
		b, err := db.stored.bytes(from, s.Bytes)
		if err != nil {
			return err
		}
		if checksum(b) != s.Sum {
			return errDamaged("the section")
		}
		return setBytes(column, b)
	})
	if err != nil {
		return err
	}
	if last != size {
		return errDamaged("the end")
	}
	db.Options, db.letters = d.Options, d.Letters
	if err := db.Options.complete(); err != nil || db.Options != d.Options || d.Letters < 0 {
		return errDamaged("the description")
	}
	if db.stored.features.n != db.stored.entries.n {
		return errDamaged("the length of a section")
	}
	if err := db.take(c); err != nil {
		return err
	}
	if err := db.check(); err != nil {
		return err
	}
	return db.stored.check(db, sums)
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
	if _, err := s.file.ReadAt(b, at); err == io.EOF {
		return nil, errChanged
	} else if err != nil {
		return nil, err
	}
	return b, nil
}

func itemBytes(column any) int {
	if _, is := column.(*[]uint32); is {
		return 4
	}
	return 8
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

// Close closes the file. A Classifier or a Builder that was made from the database keeps working.
func (db *Database) Close() error {
	if db.stored == nil {
		return nil
	}
	return db.stored.file.Close()
}

func (db *Database) locationsOf(i int) []uint64 {
	e := db.entries[i]
	if e>>manyBit == 0 {
		return []uint64{e &^ (1 << oneBit)}
	}
	from := e & (1<<countShift - 1)
	return db.locations[from : from+e>>countShift&mostLocations]
}

// Each calls visit for all features, in order, with their locations in order. The locations are good until visit
// returns. Errors: *genome.InputError for a file that has changed since it was opened.
func (db *Database) Each(visit func(feature uint32, locations []uint64)) error {
	if db.stored != nil {
		return db.stored.each(visit)
	}
	for i, f := range db.features {
		visit(f, db.locationsOf(i))
	}
	return nil
}

// inMemory is the database with its long columns in memory.
func (db *Database) inMemory() (*Database, error) {
	if db.stored == nil {
		return db, nil
	}
	whole := &Database{Options: db.Options, taxonomy: db.taxonomy, targets: db.targets, letters: db.letters}
	err := db.Each(func(feature uint32, locations []uint64) {
		whole.features = append(whole.features, feature)
		whole.append(locations)
	})
	return whole, err
}

// lengths are how many features there are, and how many places of locations.
func (db *Database) lengths() (features, locations int) {
	if s := db.stored; s != nil {
		return s.features.n, s.locations.n
	}
	return len(db.features), len(db.locations)
}

// Stats computes the figures of the database.
func (db *Database) Stats() Stats {
	s := Stats{Targets: len(db.targets), Letters: db.letters, Taxa: len(db.taxonomy.ids)}
	s.Features, _ = db.lengths()
	for _, t := range db.targets {
		s.Windows += int64(t.windows)
	}
	c := content{}
	if db.stored != nil {
		c = db.stored.content
	}
	for _, e := range db.entries {
		n := uint64(1)
		if e>>manyBit != 0 {
			n = e >> countShift & mostLocations
		}
		c.locations += n
		c.squares += n * n
		c.most = max(c.most, n)
	}
	s.Locations, s.Most = int64(c.locations), int(c.most)
	if n := float64(s.Features); n > 0 {
		s.Mean = float64(s.Locations) / n
		s.Deviation = math.Sqrt(max(0, float64(c.squares)/n-s.Mean*s.Mean))
	}
	return s
}
