package classify

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/genome"
)

// stored is the features, entries and locations of a database where they lie in a file, in chunks. They are read, and
// not mapped: a mapped file that somebody cuts off ends the process, and one that is written over changes under kernels
// that do not look. Nothing of a chunk is used before its sum and all of its numbers are found right, whenever that is:
// so a file opens without a look at its chunks, and what is damaged is an error where it would be used.
type stored struct {
	name      string
	file      *os.File
	taken     atomic.Int64 // bytes that were read of it
	users     atomic.Int32 // the Database, until it is closed, and those that read more of it later
	about     fs.FileInfo  // when it was opened
	version   uint32
	at        [3]int64 // of the chunks; or, in version 1, of the columns of features, entries and locations
	features  int
	locations int
	directory
	content content // of all chunks
}

// directory tells of chunks.
type directory struct {
	firsts []uint32 // their first features
	places []uint64 // of their first locations
	sums   []uint32 // CRC-32C of their features, entries and locations, one after the other
}

// content sums up features.
type content struct {
	Locations uint64 `json:"locations"`
	Squares   uint64 `json:"squares"` // of each feature's locations, summed up
	Most      uint64 `json:"most"`
}

func (c *content) add(locations uint64) {
	c.Locations += locations
	c.Squares += locations * locations
	c.Most = max(c.Most, locations)
}

func (c *content) join(x content) {
	c.Locations += x.Locations
	c.Squares += x.Squares
	c.Most = max(c.Most, x.Most)
}

// chunkItems is how many features a chunk has; the last has the rest. The first read of a database brings in a chunk
// for each of its features, and of 10 GB the directory takes 1 MB.
const chunkItems = 1 << 13

// chunk is features in a row, their entries, and the locations of those that have several.
type chunk struct {
	features  []uint32
	entries   []uint64
	locations []uint64
	place     uint64 // of the first location
}

var errChanged = errors.New("the database is no more what it was when it was opened: somebody writes to it, or cut " +
	"it off; copy a database beside, and rename it to its name")

func chunksOf(features int) int { return (features + chunkItems - 1) / chunkItems }

// items is how many features chunk c has, and end where the locations of chunk c end.
func (s *stored) items(c int) int { return min(chunkItems, s.features-c*chunkItems) }
func (s *stored) end(c int) uint64 {
	if c+1 < len(s.places) {
		return s.places[c+1]
	}
	return uint64(s.locations)
}

// begins are where the features, entries and locations of a chunk lie.
func (s *stored) begins(c int) (at [3]int64) {
	first, n, place := int64(c)*chunkItems, int64(s.items(c)), int64(s.places[c])
	if s.version == 1 {
		return [3]int64{s.at[0] + 4*first, s.at[1] + 8*first, s.at[2] + 8*place}
	}
	at[0] = s.at[0] + 12*first + 8*place
	at[1] = at[0] + 4*n
	at[2] = at[1] + 8*n
	return at
}

// readAt fills memory from the file.
func (s *stored) readAt(b []byte, at int64) error {
	s.taken.Add(int64(len(b)))
	if _, err := s.file.ReadAt(b, at); err == io.EOF {
		return s.input(errChanged)
	} else if err != nil {
		return s.input(err)
	}
	return nil
}

func (s *stored) input(err error) error { return &genome.InputError{Input: s.name, Err: err} }

// wrong is the error of a chunk that is not what it should be.
func (s *stored) wrong(what string) error {
	now, err := s.file.Stat()
	if err == nil && (now.Size() != s.about.Size() || !now.ModTime().Equal(s.about.ModTime())) {
		return s.input(errChanged)
	}
	return s.input(errDamaged(what))
}

// read reads a chunk into the memory that it has, or into more, and checks it. The locations go where to says, if it is
// not nil.
func (db *Database) read(c int, x *chunk, to []uint64) (content, error) {
	s := db.stored
	n, places := s.items(c), int(s.end(c)-s.places[c])
	x.features, x.entries = slices.Grow(x.features[:0], n)[:n], slices.Grow(x.entries[:0], n)[:n]
	if x.locations = to; to == nil {
		x.locations = slices.Grow(x.locations[:0], places)
	}
	x.locations, x.place = x.locations[:places], s.places[c]
	sum := uint32(0)
	begins := s.begins(c)
	for i, b := range [][]byte{raw(x.features), raw(x.entries), raw(x.locations)} {
		if err := s.readAt(b, begins[i]); err != nil {
			return content{}, err
		}
		sum = crc32.Update(sum, castagnoli, b)
	}
	if sum != s.sums[c] {
		return content{}, s.wrong("a section")
	}
	return db.checkChunk(c, x)
}

// checkChunk tells whether all numbers of a chunk are right: kernels do not look, and sums are right also where a
// program wrote nonsense.
func (db *Database) checkChunk(c int, x *chunk) (content, error) {
	s := db.stored
	all, err := db.contentOf(x)
	if err != nil {
		return all, err
	}
	next := uint64(noFeature)
	if c+1 < len(s.firsts) {
		next = uint64(s.firsts[c+1])
	}
	if x.features[0] != s.firsts[c] || uint64(x.features[len(x.features)-1]) >= next {
		return all, s.wrong("the order of features")
	}
	return all, db.checkLocations(x.locations)
}

func (db *Database) checkLocations(l []uint64) error {
	for _, at := range l {
		if !db.of(at) {
			return db.stored.wrong("a location")
		}
	}
	return nil
}

// contentOf checks the features of a chunk and their entries, and sums them up.
func (db *Database) contentOf(x *chunk) (c content, err error) {
	s, place := db.stored, x.place
	for i, e := range x.entries {
		if i > 0 && x.features[i] <= x.features[i-1] {
			return c, s.wrong("the order of features")
		}
		n := uint64(1)
		if e>>manyBit == 0 {
			if e>>oneBit != 1 || !db.of(e&^(1<<oneBit)) {
				return c, s.wrong("an entry")
			}
		} else {
			if n = countOf(e); n < 2 || n > uint64(db.Options.MaxLocations) {
				return c, s.wrong("an entry")
			}
			if placeOf(e) != place {
				return c, s.wrong("the order of locations")
			}
			place += n
		}
		c.add(n)
	}
	if place != x.place+uint64(len(x.locations)) {
		return c, s.wrong("the number of locations")
	}
	return c, nil
}

// countOf and placeOf are of the entry of a feature with several locations.
func countOf(entry uint64) uint64 { return entry >> countShift & mostLocations }
func placeOf(entry uint64) uint64 { return entry & (1<<countShift - 1) }

// Check reads the whole database, and tells whether all of it is as it was written. Errors: *genome.InputError.
func (db *Database) Check() error {
	s := db.stored
	if s == nil {
		return nil
	}
	contents := make([]content, len(s.sums))
	pool := sync.Pool{New: func() any { return new(chunk) }}
	err := ranges(len(contents), 1, func(c, _ int) (err error) {
		x := pool.Get().(*chunk)
		defer pool.Put(x)
		contents[c], err = db.read(c, x, nil)
		return err
	})
	if err != nil {
		return err
	}
	all := content{}
	for _, c := range contents {
		all.join(c)
	}
	if all != s.content {
		return s.wrong("the description")
	}
	return nil
}

// list makes the directory of a file of version 1, which is read for that, and checks all sums.
func (db *Database) list(sums [3]uint32) error {
	s := db.stored
	n := chunksOf(s.features)
	s.firsts, s.places, s.sums = make([]uint32, n), make([]uint64, n), make([]uint32, n)
	var parts [3][]uint32
	for i := range parts {
		parts[i] = make([]uint32, n)
	}
	pool := sync.Pool{New: func() any {
		return &chunk{features: make([]uint32, chunkItems), entries: make([]uint64, chunkItems)}
	}}
	err := ranges(n, 1, func(c, _ int) error {
		x := pool.Get().(*chunk)
		defer pool.Put(x)
		features, entries := x.features[:s.items(c)], x.entries[:s.items(c)]
		begins := s.begins(c)
		if err := errors.Join(s.readAt(raw(features), begins[0]), s.readAt(raw(entries), begins[1])); err != nil {
			return err
		}
		parts[0][c] = crc32.Checksum(raw(features), castagnoli)
		parts[1][c] = crc32.Checksum(raw(entries), castagnoli)
		s.firsts[c] = features[0]
		for _, e := range entries {
			if e>>manyBit != 0 {
				s.places[c] += countOf(e)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	all := uint64(0)
	for c, places := range s.places {
		s.places[c], all = all, all+places
	}
	if all != uint64(s.locations) {
		return errDamaged("the number of locations")
	}
	if err := s.checkDirectory(db.Options.MaxLocations); err != nil {
		return err
	}
	if joined(parts[0], func(c int) int { return 4 * s.items(c) }) != sums[0] ||
		joined(parts[1], func(c int) int { return 8 * s.items(c) }) != sums[1] {
		return errDamaged("a section")
	}
	return db.listLocations(parts, sums[2])
}

// listLocations is list's second half, which knows where the locations of each chunk lie.
func (db *Database) listLocations(parts [3][]uint32, sum uint32) error {
	s := db.stored
	contents := make([]content, len(s.sums))
	pool := sync.Pool{New: func() any { return new(chunk) }}
	err := ranges(len(contents), 1, func(c, _ int) (err error) {
		x := pool.Get().(*chunk)
		defer pool.Put(x)
		n := int(s.end(c) - s.places[c])
		x.locations = slices.Grow(x.locations[:0], n)[:n]
		begins := s.begins(c)
		if err := s.readAt(raw(x.locations), begins[2]); err != nil {
			return err
		}
		parts[2][c] = crc32.Checksum(raw(x.locations), castagnoli)
		s.sums[c] = joined([]uint32{parts[0][c], parts[1][c], parts[2][c]}, func(i int) int {
			return []int{4 * s.items(c), 8 * s.items(c), 8 * n}[i]
		})
		contents[c], err = db.read(c, x, nil)
		return err
	})
	if err != nil {
		return err
	}
	if joined(parts[2], func(c int) int { return 8 * int(s.end(c)-s.places[c]) }) != sum {
		return errDamaged("a section")
	}
	for _, c := range contents {
		s.content.join(c)
	}
	return nil
}

// checkDirectory tells whether the chunks that a directory tells of can be.
func (s *stored) checkDirectory(most int) error {
	n := chunksOf(s.features)
	if len(s.firsts) != n || len(s.places) != n || len(s.sums) != n || n == 0 && s.locations > 0 {
		return errDamaged("the length of a section")
	}
	for c := range n {
		if c > 0 && s.firsts[c] <= s.firsts[c-1] || c == 0 && s.places[c] != 0 || s.end(c) < s.places[c] ||
			s.end(c)-s.places[c] > uint64(s.items(c)*most) {
			return errDamaged("the order of features")
		}
	}
	return nil
}

// joined is the checksum of parts that lie one after the other, each of so many bytes.
func joined(sums []uint32, size func(i int) int) uint32 {
	all, last, factor := uint32(0), -1, uint32(0)
	for i, sum := range sums {
		if n := size(i); n != last {
			last, factor = n, power(n)
		}
		all = times(all, factor) ^ sum
	}
	return all
}

// use has the file stay open until release.
func (s *stored) use() { s.users.Add(1) }
func (s *stored) release() error {
	if s.users.Add(-1) > 0 {
		return nil
	}
	return s.file.Close()
}

// Changed tells how the file of a database differs from what it was when it was opened. It returns nil if the file does
// not differ, or if there is no file. Cost: a look at the file's properties, not at its content. Errors:
// *genome.InputError.
func (db *Database) Changed() error {
	s := db.stored
	if s == nil {
		return nil
	}
	now, err := os.Stat(s.name)
	how := ""
	switch {
	case errors.Is(err, fs.ErrNotExist):
		how = "is gone"
	case err != nil:
		how = err.Error()
	case !os.SameFile(now, s.about):
		how = "was replaced by another file"
	case now.Size() != s.about.Size():
		how = fmt.Sprintf("has %d bytes, and had %d", now.Size(), s.about.Size())
	case !now.ModTime().Equal(s.about.ModTime()):
		how = "was written to"
	default:
		return nil
	}
	return &genome.InputError{Input: s.name, Err: fmt.Errorf("the database %s since it was loaded", how)}
}
