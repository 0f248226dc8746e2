package frame

import (
	"context"
	"errors"
	"fmt"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/table"
)

// Exporter says how a family gives out what it holds: by ranges of its slots, or of its buckets.
type Exporter struct {
	Slots, Live int64 // the slots there are, and the pairs in them
	// Export writes the pairs of a range to memory, waits, and tells how many there are.
	Export func(st *device.Stream, r Range) (int64, error)
}

// Range is slots in a row, and the addresses where their keys and values go. Limit is the most pairs that go there.
// Values is 0 for a set.
type Range struct {
	First, Slots int64
	Keys, Values uint64
	Limit        int64
}

// Exported tells how many pairs an export wrote. queued is the error if it could not be queued. look waits and counts.
func Exported(queued error, look func() (uint64, error)) (int64, error) {
	if queued != nil {
		return 0, queued
	}
	n, err := look()
	return int64(n), err
}

// All writes all pairs to memory that has room for Live of them.
func (x Exporter) All(f table.Family, st *device.Stream, keys, values uint64) error {
	n, err := x.Export(st, Range{Slots: x.Slots, Keys: keys, Values: values, Limit: x.Live})
	if err == nil {
		err = f.Exported(n, x.Live)
	}
	return err
}

// All implements All of a table: look waits for the stream, and tells how pairs are given out. For a set, which has no
// values, noValues is true and their address is 0.
func All[K, V any](f *Frame, noValues bool, look func(*device.Stream) (Exporter, error)) (keys []K, values []V, err error) {
	err = all(f, sizesOf[K, V](noValues), look, func(rows int64) (columns [2]Column) {
		keys = make([]K, rows)
		columns[0] = Out(keys)
		if !noValues {
			values = make([]V, rows)
			columns[1] = Out(values)
		}
		return columns
	})
	if err != nil {
		return nil, nil, err
	}
	return keys, values, nil
}

// sizesOf are the bytes of a key and of a value, which a set has none of. What knows these alone, and not the types, is compiled once.
func sizesOf[K, V any](noValues bool) (sizes [2]int) {
	sizes[0] = int(unsafe.Sizeof(*new(K)))
	if !noValues {
		sizes[1] = int(unsafe.Sizeof(*new(V)))
	}
	return sizes
}

// all brings all pairs into the columns that into makes for so many.
func all(f *Frame, sizes [2]int, look func(*device.Stream) (Exporter, error), into func(rows int64) [2]Column) error {
	return f.Alone(nil, func(st *device.Stream) error { // it counts in the table's counters
		x, err := look(st)
		if err != nil {
			return err
		}
		var mem [2]device.Slice[byte]
		for i, size := range sizes {
			if size == 0 {
				continue
			}
			if mem[i], err = Make[byte](f, x.Live*int64(size)); err != nil {
				return err
			}
			defer f.Free(mem[i])
		}
		if err := x.All(f.Family, st, mem[0].Addr(), mem[1].Addr()); err != nil {
			return err
		}
		for i, c := range into(x.Live) {
			if c.size == 0 {
				continue
			}
			if err := Download(st, c.bytes(0, c.n), mem[i]); err != nil {
				return err
			}
		}
		return nil
	})
}

// Rows of a chunk, and their bytes, at most: of a GPU as many as make its copies worth their while. The CPU device has
// nothing to wait for.
const (
	chunkOnGPU, chunkBytesOnGPU = 1 << 20, 32 << 20
	chunkOnCPU, chunkBytesOnCPU = 1 << 14, 4 << 20
	leastChunk, leastChunkBytes = 1 << 10, 16 << 10 // before memory is refused
)

// rowsOf is as many rows as so many bytes hold, and no more than most, but one at least.
func (w *chunkWalk) rowsOf(most, bytes int64) int64 {
	return max(1, min(most, bytes/max(1, int64(w.sizes[0]+w.sizes[1]))))
}

// Chunks implements Chunks of a table. While do has one chunk, the next is brought from the device, so that two are in
// memory, there and here.
func Chunks[K, V any](ctx context.Context, f *Frame, look func(*device.Stream) (Exporter, error), do func(keys []K, values []V) error) error {
	return chunks(ctx, f, false, look, do)
}

// KeyChunks implements Chunks of a set.
func KeyChunks[K any](ctx context.Context, f *Frame, look func(*device.Stream) (Exporter, error), do func(keys []K) error) error {
	return chunks(ctx, f, true, look, func(keys []K, _ []byte) error { return do(keys) })
}

func chunks[K, V any](ctx context.Context, f *Frame, noValues bool, look func(*device.Stream) (Exporter, error), do func(keys []K, values []V) error) (err error) {
	w := &chunkWalk{f: f, look: look, sizes: sizesOf[K, V](noValues)}
	return w.walk(ctx, func(c *chunk) error {
		return do(elements[K](c.host[0].Slice(), c.n), elements[V](c.host[1].Slice(), c.n))
	})
}

// elements are the first n in memory, or none without it.
func elements[T any](mem []byte, n int) []T {
	if len(mem) == 0 {
		return nil
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(mem))), n)
}

// walk gives every chunk to do.
func (w *chunkWalk) walk(ctx context.Context, do func(c *chunk) error) (err error) {
	come := make(chan error, 1)
	fetch := func(c *chunk) { go func() { come <- crash.Catch(func() error { return w.fetch(c) }) }() }
	fetch(&w.chunk[0])
	coming := true
	defer func() { // of a panic of do, too
		if coming {
			<-come
		}
		err = OneLine(errors.Join(err, w.free()))
	}()
	for i := 0; ; i++ {
		err := <-come
		coming = false
		if err == nil {
			err = crash.Ended(ctx)
		}
		if err != nil {
			return err
		}
		c, last := &w.chunk[i%2], w.first == w.slots
		if !last {
			coming = true
			fetch(&w.chunk[(i+1)%2])
		}
		if c.n > 0 {
			if err := do(c); err != nil {
				return err
			}
		}
		if last {
			return nil
		}
	}
}

// Words implements Words of a filter that has its words in mem.
func Words(ctx context.Context, f *Frame, mem device.Slice[uint64], do func(words []uint64) error) error {
	if err := f.Usable(); err != nil {
		return err
	}
	words, changes := make([]uint64, min(chunkOnGPU, mem.Len())), uint64(0)
	for first := 0; first < mem.Len(); first += len(words) {
		if err := crash.Ended(ctx); err != nil {
			return err
		}
		words = words[:min(len(words), mem.Len()-first)]
		err := f.Alone(nil, func(st *device.Stream) error {
			if first == 0 {
				changes = f.changes
			} else if changes != f.changes {
				return fmt.Errorf("%s: %w", f.Family, table.ErrChanged)
			}
			return Download(st, words, mem.Slice(first, first+len(words)))
		})
		if err == nil {
			err = do(words)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// chunk is memory for some pairs, a column of keys and one of values, on the device and here.
type chunk struct {
	mem  [2]device.Slice[byte]
	host [2]device.Host[byte]
	room int64 // for pairs
	n    int   // pairs in it
}

// chunkWalk goes over a table's slots.
type chunkWalk struct {
	f            *Frame
	look         func(*device.Stream) (Exporter, error)
	sizes        [2]int // see sizesOf
	begun        bool
	changes      uint64 // of the frame when it began
	first, slots int64  // the next slot, and how many there are
	step         int64  // slots at once
	chunk        [2]chunk
	failed       bool // the last fetch
}

// fetch brings the pairs of the next slots.
func (w *chunkWalk) fetch(c *chunk) error {
	w.failed = true // of a panic, too
	err := w.f.Alone(nil, func(st *device.Stream) error {
		x, err := w.look(st)
		if err != nil {
			return err
		}
		if !w.begun {
			if w.begun, w.changes, w.slots = true, w.f.changes, x.Slots; x.Live == 0 {
				w.first = w.slots
				return nil
			}
		}
		if w.changes != w.f.changes {
			return fmt.Errorf("%s: %w", w.f.Family, table.ErrChanged)
		}
		if c.room == 0 {
			rows := w.rowsOf(chunkOnCPU, chunkBytesOnCPU)
			if w.f.Device.Info().CUDA() {
				rows = w.rowsOf(chunkOnGPU, chunkBytesOnGPU)
			}
			first := w.chunk[0].room == 0
			if !first {
				rows = min(rows, w.chunk[0].room)
			}
			if err := w.makeLess(c, min(rows, x.Live), first); err != nil {
				return err
			}
		}
		return w.fill(st, x, c)
	})
	w.failed = err != nil
	return err
}

// fill takes as many slots as their pairs have room, by how full all are; a slot that holds more than that gets the room.
func (w *chunkWalk) fill(st *device.Stream, x Exporter, c *chunk) error {
	room := c.room
	if w.step == 0 {
		w.step = x.Slots
		if room < x.Live {
			w.step = max(1, int64(float64(x.Slots)*float64(room)/float64(x.Live)*15/16))
		}
	}
	for {
		slots := min(w.step, w.slots-w.first)
		n, err := x.Export(st, Range{First: w.first, Slots: slots, Keys: c.mem[0].Addr(), Values: c.mem[1].Addr(), Limit: room})
		switch {
		case err != nil:
			return err
		case n <= room:
			w.first += slots
			if n < room/4 { // behind a place that is more crowded than others
				w.step *= 2
			}
			return w.download(st, c, int(n))
		case slots > 1:
			w.step = max(1, min(slots-1, int64(float64(slots)*float64(room)/float64(n)*15/16)))
		default:
			if err := errors.Join(c.release(), w.make(c, n)); err != nil {
				return err
			}
			room = n
		}
	}
}

func (w *chunkWalk) download(st *device.Stream, c *chunk, n int) error {
	c.n = n
	var err error
	for i, size := range w.sizes {
		if size == 0 {
			continue
		}
		err = errors.Join(err, c.mem[i].ReadAsync(st, c.host[i], n*size))
	}
	return errors.Join(err, st.SyncOf(w.f.Device))
}

// makeLess makes room for rows, or for fewer where memory is short: the first chunk then leaves as much for the second.
func (w *chunkWalk) makeLess(c *chunk, rows int64, first bool) error {
	least := w.rowsOf(leastChunk, leastChunkBytes)
	for short := false; ; rows /= 2 {
		err := w.make(c, rows)
		again := device.IsOutOfMemory(err)
		if rows <= least || !again && (err != nil || !short || !first) {
			return err
		}
		if err := c.release(); err != nil {
			return err
		}
		first, short = first && again, true
	}
}

// make makes room for rows. What there is of it after an error is for release.
func (w *chunkWalk) make(c *chunk, rows int64) (err error) {
	for i, size := range w.sizes {
		if size == 0 {
			continue
		}
		if c.mem[i], err = Make[byte](w.f, rows*int64(size)); err != nil {
			return err
		}
		if c.host[i], err = device.MakeHost[byte](w.f.Device, int(rows)*size); err != nil {
			return err
		}
	}
	c.room = rows
	return nil
}

// release gives a chunk's memory back, behind the work of streams that may be using it: none where all was waited for,
// for the streams of the table's users may be closed.
func (c *chunk) release(busy ...*device.Stream) error {
	old := *c
	*c = chunk{}
	return errors.Join(old.mem[0].FreeAfter(busy...), old.mem[1].FreeAfter(busy...), old.host[0].Free(), old.host[1].Free())
}

// free gives all memory back. What a fetch queued before it failed is waited for.
func (w *chunkWalk) free() (err error) {
	var busy []*device.Stream
	if w.failed {
		w.f.Guard(func() { busy, err = w.f.order.Idle() })
	}
	for i := range w.chunk {
		err = errors.Join(err, w.chunk[i].release(busy...))
	}
	if errors.Is(err, device.ErrClosed) { // the device: it has freed all
		return nil
	}
	return err
}
