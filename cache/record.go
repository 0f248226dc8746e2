package cache

import (
	"context"
	"fmt"
	"slices"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// Record is a pair's value with what a cache knows of it, to be kept in a file: its score, and how long it still
// lives, in sixteenths of a second, or 0 for ever. Kernels write it as it stands here.
type Record[V any] struct {
	Value V
	Score uint32
	Left  uint32
}

// Records gives every pair to do, with its record, in chunks, as Chunks does.
func (m *Cache[K, V]) Records(ctx context.Context, do func(keys []K, records []Record[V]) error) error {
	c := m.core
	if n := int(unsafe.Sizeof(Record[V]{})); n != c.cfg.valueBytes+8 {
		return fmt.Errorf("cache: a record of %d bytes, with a value of %d", n, c.cfg.valueBytes)
	}
	if c.cfg.expires {
		if _, err := m.Sweep(); err != nil {
			return err
		}
	}
	return frame.Chunks(ctx, &c.frame, c.recording, do)
}

// recording is how records are given out: where values would be.
func (c *core) recording(st *device.Stream) (frame.Exporter, error) {
	live, err := c.look(st)
	return frame.Exporter{Slots: int64(c.t.Count), Live: live, Export: func(st *device.Stream, r frame.Range) (int64,
		error) {
		n, err := c.each(st, c.kernel.export, slotsParams{First: uint64(r.First), N: uint64(r.Slots), Keys: r.Keys,
			Records: r.Values,
			Limit:   uint64(r.Limit), Time: c.time()})
		return int64(n), err
	}}, err
}

// Restore puts pairs with the scores and the times that they had, as Records gave them, of a cache with the same
// policy. Where the bucket of a pair is full of pairs with higher scores, it does not go in. The clock of an LRU cache
// goes on from the largest score, and scores that leave it no room count as the largest that does. In a cache without times to live, pairs live for ever. Errors: as Insert.
func (m *Cache[K, V]) Restore(keys []K, records []Record[V]) error {
	c := m.core
	values, scores := make([]V, len(records)), make([]uint32, len(records))
	var lives []uint32
	if c.cfg.expires {
		lives = make([]uint32, len(records))
	}
	for i := range records {
		values[i], scores[i] = records[i].Value, records[i].Score
		if lives != nil {
			lives[i] = records[i].Left
		}
	}
	if err := c.frame.Family.CheckNamed("records", len(keys), len(records)); err != nil || len(keys) == 0 {
		return err
	}
	if c.cfg.policy == LRU {
		for i := range scores { // the clock is not set back between the parts of a file
			scores[i] = min(scores[i], mostClock-1<<20)
		}
		if err := c.frame.Locked(func() error {
			c.clock = max(c.clock, slices.Max(scores))
			return nil
		}); err != nil {
			return err
		}
	}
	return c.insert(len(keys), frame.In(keys), frame.In(values), frame.In(scores), frame.In(lives))
}
