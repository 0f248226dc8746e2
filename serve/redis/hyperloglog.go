package redis

import (
	"bytes"
	"math"

	"github.com/warpmap/warpmap/sketch"
)

// A value that is a sketch: a head, and registers.
const (
	sketchHead      = "warpmap hll 01\n\x0e" // ends with the precision
	sketchRegisters = 1 << 14
	sketchSeed      = 0x9e3779b97f4a7c15 // is part of the format
)

// registersOf are those of a value; nil where it is none.
func registersOf(value []byte) sketch.Registers {
	if len(value) != len(sketchHead)+sketchRegisters || !bytes.HasPrefix(value, []byte(sketchHead)) {
		return nil
	}
	r := sketch.Registers(value[len(sketchHead):])
	if r.Check() != nil {
		return nil
	}
	return r
}

func (c *session) noSketch() { c.err("WRONGTYPE Key is not a valid HyperLogLog string value.") }

// emptySketch is the value of a sketch that has had nothing, in the session's scratch memory.
func (c *session) emptySketch() []byte {
	c.scratch = append(c.scratch[:0], sketchHead...)
	c.scratch = append(c.scratch, make([]byte, sketchRegisters)...)
	return c.scratch
}

func pfadd(c *session, args [][]byte) {
	key := args[1]
	sh, h := c.lock(key)
	defer c.unlock(sh)
	v, _, there, ok := c.value(sh, h, key)
	if !ok {
		return
	}
	if !there {
		value := c.emptySketch()
		r := sketch.Registers(value[len(sketchHead):])
		for _, text := range args[2:] {
			i, rank := r.Place(text, sketchSeed)
			r[i] = max(r[i], rank)
		}
		sh.Put(h, key, value, 0, c.now)
		c.truth(true)
		return
	}
	r := registersOf(v)
	if r == nil {
		c.noSketch()
		return
	}
	defer c.together(h).End()
	changed := false
	for _, text := range args[2:] {
		if i, rank := r.Place(text, sketchSeed); rank > r[i] {
			sh.Patch(h, key, len(sketchHead)+i, []byte{rank})
			changed = true
		}
	}
	c.truth(changed)
}

// union is the sketch of all that keys hold, in the session's scratch memory. Their shards are locked.
func (c *session) union(keys [][]byte, hashes []uint64) (value []byte, ok bool) {
	value = c.emptySketch()
	to := sketch.Registers(value[len(sketchHead):])
	for i, key := range keys {
		v, _, there := c.s.space.Of(hashes[i]).Get(hashes[i], key, c.now)
		if !there {
			continue
		}
		if v == nil {
			c.wrongType()
			return nil, false
		}
		r := registersOf(v)
		if r == nil || to.Merge(r) != nil {
			c.noSketch()
			return nil, false
		}
	}
	return value, true
}

func pfcount(c *session, args [][]byte) {
	all, hashes := c.lockAll(args[1:], 1)
	value, ok := c.union(args[1:], hashes)
	c.unlockAll(all)
	if ok {
		n := math.Round(sketch.Registers(value[len(sketchHead):]).Estimate())
		c.int(int64(min(n, math.MaxInt64/2)))
	}
}

func pfmerge(c *session, args [][]byte) {
	all, hashes := c.lockAll(args[1:], 1)
	defer c.unlockAll(all)
	value, ok := c.union(args[1:], hashes)
	if !ok {
		return
	}
	to := c.s.space.Of(hashes[0])
	_, expires, _ := to.Peek(hashes[0], args[1], c.now)
	to.Put(hashes[0], args[1], value, expires, c.now)
	c.ok()
}
