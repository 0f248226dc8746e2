package cache

import (
	"encoding/binary"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
)

// Check downloads the cache and checks the invariants that the package's comment lists. It is slow: use it in tests,
// or if you suspect a fault.
func (h *handle) Check() error {
	c := h.made()
	return c.frame.Inspect(c.look, func() device.Slice[byte] { return c.mem }, c.checkImage)
}

func (c *core) checkImage(mem []byte) error {
	if most := c.opts.Bytes; most > 0 && int64(len(mem)) > most {
		return fmt.Errorf("cache: check: %d bytes, and %d were allowed", len(mem), most)
	}
	if most, has := c.opts.HostBytes, int64(c.values.Len()); most > 0 && has > most {
		return fmt.Errorf("cache: check: %d bytes of host memory, and %d were allowed", has, most)
	}
	live := int64(0)
	for b := range c.t.Count {
		bucket := mem[int64(b)*c.cfg.bucketBytes():]
		if version := binary.LittleEndian.Uint32(bucket); version&1 != 0 {
			return fmt.Errorf("cache: check: bucket %d is locked, version %d", b, version)
		}
		seen := map[uint64]int{}
		for i := range ways {
			tag, score := bucket[tagsOffset+i], binary.LittleEndian.Uint32(bucket[scoresOffset+4*i:])
			if tag == 0 {
				continue
			}
			live++
			key := kernel.Pattern(bucket[headBytes+i*c.cfg.slotBytes():], c.cfg.keyBytes)
			home, want := c.cfg.where(key, &c.t)
			other, twice := seen[key]
			switch {
			case home != b || want != tag:
				return fmt.Errorf("cache: check: key %#x, tag %d in slot %d of bucket %d, belongs in bucket %d with tag %d", key, tag, i, b, home, want)
			case twice:
				return fmt.Errorf("cache: check: key %#x is in slots %d and %d of bucket %d", key, other, i, b)
			case c.cfg.policy == LRU && score > c.clock:
				return fmt.Errorf("cache: check: key %#x was used in batch %d, and there were %d", key, score, c.clock)
			case c.cfg.policy == LFU && score == 0:
				return fmt.Errorf("cache: check: key %#x was never used", key)
			}
			seen[key] = i
		}
	}
	if told := c.counters.Seen.live(); live != told {
		return fmt.Errorf("cache: check: %d pairs, the counters say %d", live, told)
	}
	return nil
}
