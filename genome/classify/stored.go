package classify

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"sync"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
)

// stored is the long columns of a database where they lie in a file. They are read, and not mapped: a mapped file that
// somebody cuts off ends the process, and one that is written over changes under kernels that do not look. Each chunk
// has its sum from when the file was opened and checked, and is compared with that whenever it is read again. What a
// classifier has on its devices does not depend on the file any more.
type stored struct {
	name      string
	file      *os.File
	about     fs.FileInfo // when it was opened
	features  longColumn
	entries   longColumn
	locations longColumn
	content   content
}

// longColumn is a column of a file, in chunks.
type longColumn struct {
	at   int64
	n    int      // items
	sums []uint32 // of chunks
}

// content is what a chunk of features, or all of them, has.
type content struct {
	first, last uint32
	place       uint64 // of its first feature with several locations
	places      uint64 // of those with several
	locations   uint64
	squares     uint64 // of each feature's locations, summed up
	most        uint64
}

// chunkItems is how many items of a column are read and compared at once.
const chunkItems = 1 << 18

// chunksFor is how many chunks go to a device at once, while the next are read. 16 fill a GPU's bus, and the host gives
// 100 MiB for them. On the CPU two are enough for as many cores as take them, and memory that is new to the process
// costs more than they.
func chunksFor(d *device.Device) int {
	if d.Info().CUDA() {
		return 16
	}
	return 2
}

var errChanged = errors.New("the database is no more what it was when it was opened: somebody writes to it, or cut " +
	"it off; copy a database beside, and rename it to its name")

func (s *stored) changed() error { return &genome.InputError{Input: s.name, Err: errChanged} }

func (c *longColumn) chunks() int { return (c.n + chunkItems - 1) / chunkItems }

// read reads a chunk into the begin of memory.
func read[T uint32 | uint64](s *stored, c *longColumn, i int, into []T) ([]T, error) {
	into = into[:min(chunkItems, c.n-i*chunkItems)]
	_, err := s.file.ReadAt(raw(into), c.at+int64(i)*chunkItems*int64(unsafe.Sizeof(T(0))))
	if err == io.EOF {
		return nil, s.changed()
	} else if err != nil {
		return nil, &genome.InputError{Input: s.name, Err: err}
	}
	return into, nil
}

// again reads a chunk, which must be what it was.
func again[T uint32 | uint64](s *stored, c *longColumn, i int, into []T) ([]T, error) {
	x, err := read(s, c, i, into)
	if err == nil && crc32.Checksum(raw(x), castagnoli) != c.sums[i] {
		err = s.changed()
	}
	return x, err
}

// some reads chunks from … to-1, beside one another.
func some[T uint32 | uint64](s *stored, c *longColumn, from, to int, into []T) ([]T, error) {
	err := ranges(to-from, 1, func(i, _ int) error {
		_, err := again(s, c, from+i, into[i*chunkItems:])
		return err
	})
	return into[:min(c.n, to*chunkItems)-from*chunkItems], err
}

// batch is features with their entries, or locations, on their way to a device.
type batch struct {
	at        int // of the first in its column
	features  []uint32
	entries   []uint64
	locations []uint64
	err       error
}

// batches reads all features with their entries, then all locations, ahead of who takes them, and calls take for each
// batch, which has so many chunks.
func (s *stored) batches(chunks int, take func(b *batch) error) error {
	free, full := make(chan *batch, 2), make(chan *batch, 1)
	quit := make(chan struct{})
	defer close(quit)
	items := min(chunks, max(s.features.chunks(), s.locations.chunks())) * chunkItems
	for range cap(free) {
		free <- &batch{features: make([]uint32, items), entries: make([]uint64, items)}
	}
	go func() {
		defer close(full)
		err := crash.Catch(func() error {
			for _, c := range []*longColumn{&s.features, &s.locations} {
				for from := 0; from < c.chunks(); from += chunks {
					to := min(from+chunks, c.chunks())
					var b *batch
					select {
					case b = <-free:
					case <-quit:
						return nil
					}
					b.at, b.locations = from*chunkItems, nil
					if c == &s.features {
						var other error
						b.features, b.err = some(s, c, from, to, b.features[:cap(b.features)])
						b.entries, other = some(s, &s.entries, from, to, b.entries[:cap(b.entries)])
						b.err = errors.Join(b.err, other)
					} else {
						b.locations, b.err = some(s, c, from, to, b.entries[:cap(b.entries)])
					}
					select {
					case full <- b:
					case <-quit:
						return nil
					}
				}
			}
			return nil
		})
		if err != nil {
			select {
			case full <- &batch{err: err}:
			case <-quit:
			}
		}
	}()
	for b := range full {
		if b.err != nil {
			return b.err
		}
		if err := take(b); err != nil {
			return err
		}
		free <- b
	}
	return nil
}

// cursor gives the locations of a file in order.
type cursor struct {
	s    *stored
	next int // chunk
	room []uint64
	rest []uint64
	both []uint64 // what lies in two chunks
}

// take gives the next n, which are good until it is called again.
func (c *cursor) take(n int) (_ []uint64, err error) {
	if n > len(c.rest) {
		c.both = append(c.both[:0], c.rest...)
		if c.rest, err = again(c.s, &c.s.locations, c.next, c.room); err != nil {
			return nil, err
		}
		c.next++
		n -= len(c.both)
		c.both, c.rest = append(c.both, c.rest[:n]...), c.rest[n:]
		return c.both, nil
	}
	l := c.rest[:n]
	c.rest = c.rest[n:]
	return l, nil
}

// each is Each.
func (s *stored) each(visit func(feature uint32, locations []uint64)) error {
	features, entries := make([]uint32, chunkItems), make([]uint64, chunkItems)
	locations := cursor{s: s, room: make([]uint64, chunkItems)}
	one := make([]uint64, 1)
	for i := range s.features.chunks() {
		f, err := again(s, &s.features, i, features)
		if err != nil {
			return err
		}
		e, err := again(s, &s.entries, i, entries)
		if err != nil {
			return err
		}
		for j, feature := range f {
			one[0] = e[j] &^ (1 << oneBit)
			l := one
			if e[j]>>manyBit != 0 {
				if l, err = locations.take(int(e[j] >> countShift & mostLocations)); err != nil {
					return err
				}
			}
			visit(feature, l)
		}
	}
	return nil
}

// check reads all columns for the first time, keeps the sums of their chunks, and tells whether their sums and all
// numbers are right: kernels do not look, and sums are right also where a program wrote nonsense.
func (s *stored) check(db *Database, sums [3]uint32) error {
	contents := make([]content, s.features.chunks())
	for _, c := range []*longColumn{&s.features, &s.entries, &s.locations} {
		c.sums = make([]uint32, c.chunks())
	}
	pool := sync.Pool{New: func() any {
		return &batch{features: make([]uint32, chunkItems), entries: make([]uint64, chunkItems)}
	}}
	err := ranges(len(contents), 1, func(i, _ int) error {
		b := pool.Get().(*batch)
		defer pool.Put(b)
		f, err := read(s, &s.features, i, b.features)
		if err != nil {
			return err
		}
		e, err := read(s, &s.entries, i, b.entries)
		if err != nil {
			return err
		}
		s.features.sums[i], s.entries.sums[i] = crc32.Checksum(raw(f), castagnoli), crc32.Checksum(raw(e), castagnoli)
		contents[i], err = db.contentOf(f, e)
		return err
	})
	if err != nil {
		return err
	}
	err = ranges(s.locations.chunks(), 1, func(i, _ int) error {
		b := pool.Get().(*batch)
		defer pool.Put(b)
		l, err := read(s, &s.locations, i, b.entries)
		if err != nil {
			return err
		}
		s.locations.sums[i] = crc32.Checksum(raw(l), castagnoli)
		for _, at := range l {
			if !db.of(at) {
				return errDamaged("a location")
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.features.sum(4) != sums[0] || s.entries.sum(8) != sums[1] || s.locations.sum(8) != sums[2] {
		return errDamaged("a section")
	}
	all := &s.content
	for i, c := range contents {
		if i > 0 && c.first <= all.last {
			return errDamaged("the order of features")
		}
		if c.places > 0 && c.place != all.places {
			return errDamaged("the order of locations")
		}
		all.last = c.last
		all.places += c.places
		all.locations += c.locations
		all.squares += c.squares
		all.most = max(all.most, c.most)
	}
	if all.places != uint64(s.locations.n) {
		return errDamaged("the number of locations")
	}
	return nil
}

// contentOf checks features and their entries, and sums them up.
func (db *Database) contentOf(features []uint32, entries []uint64) (c content, err error) {
	c.first, c.last = features[0], features[len(features)-1]
	for i, e := range entries {
		if i > 0 && features[i] <= features[i-1] {
			return c, errDamaged("the order of features")
		}
		n := uint64(1)
		if e>>manyBit == 0 {
			if e>>oneBit != 1 || !db.of(e&^(1<<oneBit)) {
				return c, errDamaged("an entry")
			}
		} else {
			place := e & (1<<countShift - 1)
			if n = e >> countShift & mostLocations; n < 2 || n > uint64(db.Options.MaxLocations) {
				return c, errDamaged("an entry")
			}
			if c.places == 0 {
				c.place = place
			} else if place != c.place+c.places {
				return c, errDamaged("the order of locations")
			}
			c.places += n
		}
		c.locations += n
		c.squares += n * n
		c.most = max(c.most, n)
	}
	return c, nil
}

// sum is the checksum of a whole column, whose items have so many bytes.
func (c *longColumn) sum(size int) uint32 {
	all := uint32(0)
	for i, sum := range c.sums {
		all = times(all, power(size*min(chunkItems, c.n-i*chunkItems))) ^ sum
	}
	return all
}

// Changed tells how the file of a database differs from what it was when it was opened. It returns nil if the file does
// not differ, or if there is no file. A Classifier that was made from the database stays as it was. Cost: a look at the
// file's properties, not at its content. Errors: *genome.InputError.
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
