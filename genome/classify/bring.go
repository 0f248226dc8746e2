package classify

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
)

// batch is chunks in a row on their way to a device: their features and entries, and the locations of those with
// several.
type batch struct {
	features  []uint32
	entries   []uint64
	locations []uint64
	place     int // of the first location
	err       error
}

// batchItems is how many features, and about how many locations, go to a GPU at once while the next are read. So many
// fill its bus, and the host gives 80 MB for them.
const batchItems = 2 << 20

// batches reads all chunks of a file ahead of who takes them, into pinned memory, and calls take for each batch.
func (db *Database) batches(d *device.Device, take func(b *batch) error) error {
	s := db.stored
	most := 0 // of a chunk's locations, and of a batch's
	for c := range s.sums {
		most = max(most, int(s.end(c)-s.places[c]))
	}
	most = max(most, min(batchItems, s.locations))
	free, full := make(chan *batch, 2), make(chan *batch, 1)
	for range cap(free) {
		b, done, err := newBatch(d, min(batchItems, chunksOf(s.features)*chunkItems), most)
		if err != nil {
			return err
		}
		defer done()
		free <- b
	}
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		defer close(full)
		for from := 0; from < len(s.sums); {
			var b *batch
			select {
			case b = <-free:
			case <-quit:
				return
			}
			to := from + 1
			for to < len(s.sums) && to-from < batchItems/chunkItems && s.end(to)-s.places[from] <= uint64(most) {
				to++
			}
			b.err = crash.Catch(func() error { return db.readBatch(b, from, to) })
			from = to
			select {
			case full <- b:
			case <-quit:
				return
			}
		}
	}()
	defer func() { // before the memory goes that it reads into
		close(quit)
		<-ended
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

// newBatch makes room in pinned memory, from which a GPU takes it at the rate of its bus. done gives it back.
func newBatch(d *device.Device, items, locations int) (b *batch, done func(), err error) {
	f, err := device.MakeHost[uint32](d, items)
	if err != nil {
		return nil, nil, err
	}
	e, err := device.MakeHost[uint64](d, items+locations)
	if err != nil {
		f.Free()
		return nil, nil, err
	}
	room := e.Slice()
	return &batch{features: f.Slice(), entries: room[:items:items], locations: room[items:]}, func() {
		f.Free()
		e.Free()
	}, nil
}

// readBatch reads the chunks from … to-1, beside one another.
func (db *Database) readBatch(b *batch, from, to int) error {
	s := db.stored
	n := (to-from-1)*chunkItems + s.items(to-1)
	b.features, b.entries = b.features[:n], b.entries[:n]
	b.place = int(s.places[from])
	b.locations = b.locations[:int(s.end(to-1))-b.place]
	return ranges(to-from, 1, func(i, _ int) error {
		c, first := from+i, i*chunkItems
		_, err := db.read(c, &chunk{features: b.features[first:], entries: b.entries[first:]},
			b.locations[int(s.places[c])-b.place:])
		return err
	})
}
