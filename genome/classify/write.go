package classify

import (
	"encoding/json"
	"errors"
	"hash/crc32"
	"os"
)

// writer writes a database's file in one go: nobody needs to know before how many features there are.
type writer struct {
	f       *os.File
	at      int64  // where out goes
	out     []byte // of chunks
	x       chunk
	written stored // directory, lengths and content
}

const (
	// firstSection is where the chunks begin. The description comes before them, and is written last.
	firstSection = sectionAlign
	// writeBytes are written at once.
	writeBytes = 4 << 20
)

func newWriter(f *os.File) *writer { return &writer{f: f, at: firstSection} }

// take writes the next features, as many as there are.
func (w *writer) take(from *chunk) error {
	x, place := &w.x, from.place
	for at := 0; at < len(from.features); {
		n := min(chunkItems-len(x.features), len(from.features)-at)
		x.features = append(x.features, from.features[at:at+n]...)
		begin := place
		by := w.written.locations + len(x.locations) - int(begin)
		for _, e := range from.entries[at : at+n] {
			count := uint64(1)
			if e>>manyBit != 0 {
				count = countOf(e)
				place += count
			}
			w.written.content.add(count)
			x.entries = append(x.entries, moved(e, by))
		}
		x.locations = append(x.locations, from.locations[begin-from.place:place-from.place]...)
		if at += n; len(x.features) < chunkItems {
			break
		}
		if err := w.flush(); err != nil {
			return err
		}
	}
	return nil
}

// flush ends a chunk.
func (w *writer) flush() error {
	x, s := &w.x, &w.written
	if len(x.features) == 0 {
		return nil
	}
	sum := uint32(0)
	for _, b := range [][]byte{raw(x.features), raw(x.entries), raw(x.locations)} {
		sum = crc32.Update(sum, castagnoli, b)
		w.out = append(w.out, b...)
	}
	s.firsts, s.places = append(s.firsts, x.features[0]), append(s.places, uint64(s.locations))
	s.sums = append(s.sums, sum)
	s.features += len(x.features)
	s.locations += len(x.locations)
	x.features, x.entries, x.locations = x.features[:0], x.entries[:0], x.locations[:0]
	if len(w.out) < writeBytes {
		return nil
	}
	return w.write()
}

func (w *writer) write() error {
	_, err := w.f.WriteAt(w.out, w.at)
	w.at += int64(len(w.out))
	w.out = w.out[:0]
	return err
}

// finish writes what a database has beside its features.
func (w *writer) finish(db *Database) error {
	if err := errors.Join(w.flush(), w.write()); err != nil {
		return err
	}
	s := &w.written
	d := description{Options: db.Options, Letters: db.letters, Features: s.features, Locations: s.locations,
		Content: s.content}
	c := db.columns()
	c.Firsts, c.Places, c.Sums = s.firsts, s.places, s.sums
	at := int64(0)
	for _, x := range c.of(version) {
		if x.column == nil {
			d.Sections = append(d.Sections, section{Name: x.name, Offset: at, Bytes: w.at - firstSection})
			at = aligned(w.at - firstSection)
			continue
		}
		b := bytesOf(x.column)
		d.Sections = append(d.Sections, section{x.name, at, int64(len(b)), checksum(b)})
		if _, err := w.f.WriteAt(b, firstSection+at); err != nil {
			return err
		}
		at = aligned(at + int64(len(b)))
	}
	text, err := json.Marshal(d)
	if err != nil {
		return err
	}
	if headBytes+len(text) > firstSection {
		return errors.New("a description that is too long") // numbers have no more than 20 digits
	}
	_, err = w.f.WriteAt(append(head(version, text), text...), 0)
	return err
}
