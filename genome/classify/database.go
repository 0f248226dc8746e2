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
	"syscall"
	"unsafe"

	"github.com/warpmap/warpmap/genome"
)

// Database is a database in host memory: of a Builder, or mapped from a file. It may be used by several goroutines.
type Database struct {
	Options   Options
	taxonomy  *Taxonomy
	targets   []target
	letters   int64
	features  []uint32 // in order
	entries   []uint64 // one a feature
	locations []uint64 // of features with several
	file      []byte   // where it is mapped
}

// A file is a head of headBytes: magic, version, length and checksum of a description in JSON, checksum of these; the description; the sections
// it names, each at a multiple of sectionAlign. All numbers have their low byte first.
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
		{"taxon_ids", &c.TaxonIDs}, {"taxon_parents", &c.TaxonParents}, {"taxon_ranks", &c.TaxonRanks}, {"taxon_names", &c.TaxonNames},
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
	c := &columns{Features: db.features, Entries: db.entries, Locations: db.locations, TaxonIDs: db.taxonomy.ids, TaxonParents: db.taxonomy.parents}
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

// Save writes the database to a file, which appears under its name when it is whole.
func (db *Database) Save(name string) error {
	return genome.WriteFile(name, db.write)
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

// Open maps a database's file, and checks its sums: a byte that has changed is an error. Cost: a reading of the whole file. The caller closes it.
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
	if i, err := os.Stat(name); err == nil && !i.Mode().IsRegular() {
		return nil, errors.New("a pipe, a folder or a device: want the database's file, which is mapped")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := make([]byte, headBytes)
	if _, err := io.ReadFull(f, h); err != nil || !bytes.HasPrefix(h, []byte(magic)) {
		return nil, errors.New("not a database of classify: make one with classify build")
	}
	if v := binary.LittleEndian.Uint32(h[8:]); v != version {
		return nil, fmt.Errorf("a database of version %d: want %d; build it anew", v, version)
	}
	i, err := f.Stat()
	if err != nil {
		return nil, err
	}
	n := binary.LittleEndian.Uint64(h[12:])
	if n > uint64(i.Size()) || i.Size() > math.MaxInt {
		return nil, errDamaged("its head")
	}
	file, err := syscall.Mmap(int(f.Fd()), 0, int(i.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("mapping: %w", err)
	}
	db := &Database{file: file}
	if err := db.read(n); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

func errDamaged(what string) error {
	return fmt.Errorf("%s is damaged: copy the database again, or build it anew", what)
}

func (db *Database) read(n uint64) error {
	if n > uint64(len(db.file)-headBytes) {
		return errDamaged("its head")
	}
	text := db.file[headBytes : headBytes+n]
	if !bytes.Equal(head(text), db.file[:headBytes]) {
		return errDamaged("its head")
	}
	var d description
	if err := json.Unmarshal(text, &d); err != nil {
		return fmt.Errorf("its description: %w", err)
	}
	begin, c, i := aligned(int64(headBytes+n)), &columns{}, 0
	last := int64(headBytes + n)
	err := c.each(func(name string, column any) error {
		if i >= len(d.Sections) || d.Sections[i].Name != name {
			return errDamaged("the list of sections")
		}
		s := d.Sections[i]
		i++
		from := begin + s.Offset
		if s.Bytes == 0 {
			return setBytes(column, nil)
		}
		if s.Offset < 0 || s.Offset%sectionAlign != 0 || from < last || s.Bytes < 0 || s.Bytes > int64(len(db.file))-from || !zero(db.file[last:from]) {
			return errDamaged("the section")
		}
		last = from + s.Bytes
		b := db.file[from:last]
		if checksum(b) != s.Sum {
			return errDamaged("the section")
		}
		return setBytes(column, b)
	})
	if err != nil {
		return err
	}
	if last != int64(len(db.file)) {
		return errDamaged("the end")
	}
	db.Options, db.letters = d.Options, d.Letters
	if err := db.Options.complete(); err != nil || db.Options != d.Options || d.Letters < 0 {
		return errDamaged("the description")
	}
	if err := db.take(c); err != nil {
		return err
	}
	return db.check()
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
	if len(c.Entries) != len(c.Features) || len(c.TargetWindows) != len(c.TargetTaxa) || len(c.TargetNameEnds) != len(c.TargetTaxa) ||
		len(c.TaxonParents) != len(c.TaxonIDs) || len(c.TaxonRanks) != len(c.TaxonIDs) || len(c.TaxonNameEnds) != len(c.TaxonIDs) ||
		len(c.MergedTo) != len(c.MergedFrom) {
		return errDamaged("the length of a section")
	}
	db.features, db.entries, db.locations = c.Features, c.Entries, c.Locations
	names, err := named(c.TargetNames, c.TargetNameEnds)
	if err != nil {
		return err
	}
	for i, name := range names {
		db.targets = append(db.targets, target{name, c.TargetTaxa[i], c.TargetWindows[i]})
	}
	t := &Taxonomy{ids: c.TaxonIDs, parents: c.TaxonParents, merged: map[uint32]uint32{}, index: make(map[uint32]uint32, len(c.TaxonIDs))}
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

// check tells whether all numbers are of something: kernels do not look. Sums are right also where a program wrote nonsense.
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
	err := ranges(len(db.features), checkedFeatures, func(from, to int) error {
		for i := from; i < to; i++ {
			if i > 0 && db.features[i] <= db.features[i-1] {
				return errDamaged("the order of features")
			}
			if !db.sound(db.entries[i]) {
				return errDamaged("an entry")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return ranges(len(db.locations), checkedFeatures, func(from, to int) error {
		for _, at := range db.locations[from:to] {
			if !db.of(at) {
				return errDamaged("a location")
			}
		}
		return nil
	})
}

// sound tells whether an entry has locations that are there.
func (db *Database) sound(e uint64) bool {
	if e>>manyBit == 0 {
		return e>>oneBit == 1 && db.of(e&^(1<<oneBit))
	}
	n, from := e>>countShift&mostLocations, e&(1<<countShift-1)
	return n > 1 && n <= uint64(db.Options.MaxLocations) && from <= uint64(len(db.locations)) && n <= uint64(len(db.locations))-from
}

// of tells whether a location is of a target, and of a window that it has.
func (db *Database) of(location uint64) bool {
	target := location >> 32
	return target < uint64(len(db.targets)) && uint32(location) < db.targets[target].windows
}

// Close unmaps the file. Nothing of the database may be used any more.
func (db *Database) Close() error {
	if db.file == nil {
		return nil
	}
	file := db.file
	*db = Database{}
	return syscall.Munmap(file)
}

func (db *Database) locationsOf(i int) []uint64 {
	e := db.entries[i]
	if e>>manyBit == 0 {
		return []uint64{e &^ (1 << oneBit)}
	}
	from := e & (1<<countShift - 1)
	return db.locations[from : from+e>>countShift&mostLocations]
}

// Each calls visit for all features, in order, with their locations in order.
func (db *Database) Each(visit func(feature uint32, locations []uint64)) {
	for i, f := range db.features {
		visit(f, db.locationsOf(i))
	}
}

// Stats counts.
func (db *Database) Stats() Stats {
	s := Stats{Targets: len(db.targets), Letters: db.letters, Taxa: len(db.taxonomy.ids), Features: len(db.features)}
	for _, t := range db.targets {
		s.Windows += int64(t.windows)
	}
	squares := 0.0
	for _, e := range db.entries {
		n := 1
		if e>>manyBit != 0 {
			n = int(e >> countShift & mostLocations)
		}
		s.Locations += int64(n)
		s.Most = max(s.Most, n)
		squares += float64(n * n)
	}
	if n := float64(s.Features); n > 0 {
		s.Mean = float64(s.Locations) / n
		s.Deviation = math.Sqrt(max(0, squares/n-s.Mean*s.Mean))
	}
	return s
}
