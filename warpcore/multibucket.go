package warpcore

import (
	_ "embed"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// MultiBucket is a MultiMap whose slots hold a few values of one key, so that a key with v values takes v/Bucket slots.
// It is MultiBucketHashTable of WarpCore's library; the paper does not have it. Use it for keys with some values each.
// It inserts into fewer slots and reads fewer slots than a MultiMap, and takes less memory if most places of the slots
// are taken. It has no second place to read, as a BucketList has.
//
// K has 4 or 8 bytes, V 4, 8 or 16. MultiBucket has the methods of MultiMap, and their comments hold for it. Where
// these count slots, they mean the slots of pairs that would have one each. For a key with v values, an insert or a
// look-up costs v/(Bucket·Window) windows. A kernel of your own includes "multibucket.cuh": see Program and Use.
type MultiBucket[K, V any] struct{ MultiMap[K, V] }

func _[K, V any](m *MultiBucket[K, V]) table.MultiMap[K, V] { return m }

// MultiBucketOptions are the options of NewMultiBucket: those of table.Options, whose Capacity counts pairs, and some
// of its own. The zero value is good.
type MultiBucketOptions struct {
	table.Options
	// Keys is how many distinct keys the Capacity pairs have. Zero means that each pair has its own key, and so its own
	// slot.
	Keys int
	// Bucket is how many values a slot holds, 1 to 256. Zero means as many as make a slot of 32 bytes, or of 64 if
	// values have 16 bytes. With keys and values of 4 bytes that is 6. Slots of 32, 64 or 128 bytes, which hold 6, 14
	// or 30 such values, begin with a sector of a GPU's memory.
	Bucket int
	// Window is the number of slots that are probed together, 1 to 32. Zero means as many slots as fill 64 bytes, but
	// at least two.
	Window int
	// InsertGroup and FindGroup are how many lanes work on one key: see Options. Zero means one lane for inserts. For
	// look-ups on a GPU, it means one lane for each slot of the window.
	InsertGroup, FindGroup int
}

var (
	//go:embed multibucket.cu
	multibucketCU string
	//go:embed multibucket.cuh
	multibucketCUH string
)

// NewMultiBucket makes an empty table on the device.
//
// Errors: K or V of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError; those
// of kernels that must be compiled, as in New. Cost: as in New.
func NewMultiBucket[K, V any](d *device.Device, o MultiBucketOptions) (*MultiBucket[K, V], error) {
	c, err := newBuckets(d, frame.WidthsOf[K, V](), o)
	return frame.Made(&MultiBucket[K, V]{MultiMap[K, V]{handle{core: c}}}, err)
}

func newBuckets(d *device.Device, w frame.Width, o MultiBucketOptions) (*core, error) {
	if w.Err != nil {
		return nil, w.Err
	}
	c := &core{kind: table.KindMultiMap}
	if err := c.bucketOptions(w, o); err != nil {
		return nil, err
	}
	c.frame.Why = o.Why
	return frame.Made(c, c.frame.Open(family, d, c.begin, c.free))
}

// bucketOptions are those of a core, which checks what they have in common with a MultiMap's.
func (c *core) bucketOptions(w frame.Width, o MultiBucketOptions) error {
	switch {
	case o.Bucket < 0 || o.Bucket > mostBucket:
		return fmt.Errorf("warpcore: slots of %d values (want 1 to %d; 0 for the default)", o.Bucket, mostBucket)
	case o.Keys < 0:
		return fmt.Errorf("warpcore: %d keys (want 0 or more)", o.Keys)
	}
	c.cfg = bucketConfig(w.Key, w.Value, o.Bucket)
	if o.Window == 0 {
		o.Window = leastBucketWindow
		for 2*o.Window*c.cfg.slotBytes() <= windowBytes {
			o.Window *= 2
		}
	}
	if o.Keys > 0 && o.Keys < o.Capacity {
		o.Capacity = int(c.slotsFor(int64(o.Capacity), int64(o.Keys)))
	}
	c.opts = Options{Options: o.Options, Layout: AoS, Window: o.Window, InsertGroup: o.InsertGroup, FindGroup: o.FindGroup}
	return nil
}

// slotsFor is how many slots pairs of so many distinct keys take at most: all slots of a key but one are full.
func (c *core) slotsFor(pairs, keys int64) int64 {
	b := int64(c.cfg.bucket)
	return keys + (pairs-keys+b-1)/b
}

// ahead makes room for a batch, by how many distinct keys it has. sure: there is a slot for all that it needs. Otherwise the batch goes in by parts,
// and limit bounds the windows that an insert reads where there may be no room: by what the values of a key take on average, so that it costs no
// more to refuse them than to put them in.
func (c *core) ahead(st *device.Stream, b frame.Rows) (sure bool, limit uint64, err error) {
	limit = tightProbes
	if c.filled+b.N <= c.limit() {
		return true, limit, nil
	}
	keys, _, err := c.frame.Distinct(st, b.Keys, c.cfg.keyBytes, b.N)
	if device.IsOutOfMemory(err) {
		return false, limit, nil
	} else if err != nil {
		return false, limit, err
	}
	if keys == 0 {
		keys = b.N // it cannot tell
	}
	limit += uint64(2 * b.N / (keys * int64(c.cfg.bucket*c.cfg.window)))
	slots := c.slotsFor(b.N, min(b.N, keys+keys/16+8)) // it is an estimate
	if c.filled+slots > c.limit() {
		if why, err := c.grow(st, c.live()+slots, 0); why != nil || err != nil {
			return false, limit, err
		}
	}
	return c.filled+slots <= c.limit(), limit, nil
}

// Density is the paper's storage density ρ (§IV-C): the bytes of all keys, each counted once, and of all values,
// divided by the bytes of the table. Density walks from every slot to the first slot of its key.
func (m *MultiBucket[K, V]) Density() (density float64, err error) {
	c := m.made()
	err = c.frame.Alone(nil, func(st *device.Stream) error {
		pairs, err := c.look(st)
		if err != nil {
			return err
		}
		keys, err := c.exporting(st, c.kernel.distinct, slotsParams{})
		density = float64(keys*int64(c.cfg.keyBytes)+pairs*int64(c.cfg.valueBytes)) / float64(c.mem.Len())
		return err
	})
	return density, err
}
