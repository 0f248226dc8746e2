package redis

import (
	"encoding/binary"
	"math"
	"math/bits"

	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// within brings a range whose negative ends count from the last of n, into what is there. It is empty where from > to.
func within(from, to, n int64) (int64, int64) {
	if from < 0 && to < 0 && from > to {
		return 0, -1
	}
	if from < 0 {
		from = max(0, n+from)
	}
	if to < 0 {
		to = max(0, n+to)
	}
	return from, min(to, n-1)
}

// getRange is GETRANGE and SUBSTR.
func getRange(c *session, args [][]byte) {
	from, ok := c.number(args[2])
	if !ok {
		return
	}
	to, ok := c.number(args[3])
	if !ok {
		return
	}
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, _, ok := c.value(sh, h, args[1])
	if !ok {
		return
	}
	if from, to = within(from, to, int64(len(v))); from > to {
		c.bulk(nil)
		return
	}
	c.bulk(v[from : to+1])
}

const errTooLong = "ERR string exceeds maximum allowed size (proto-max-bulk-len)"

func setRange(c *session, args [][]byte) {
	at, ok := c.number(args[2])
	if !ok {
		return
	}
	if at < 0 {
		c.err("ERR offset is out of range")
		return
	}
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, _, ok := c.value(sh, h, args[1])
	switch {
	case !ok:
	case len(args[3]) == 0:
		c.int(int64(len(v)))
	case at > int64(c.s.o.Bulk-len(args[3])):
		c.err(errTooLong)
	default:
		c.int(int64(c.patch(sh, h, args[1], len(v), int(at), args[3])))
	}
}

// patch writes into a key's value of so many bytes, behind zeros where it is shorter, and gives its length then.
func (c *session) patch(sh *keyspace.Shard, h uint64, key []byte, length, at int, with []byte) int {
	if n := at + len(with); n > length { // Append logs these zeros: a value is written by as few bytes as that allows
		more := make([]byte, n-length)
		if at >= length {
			copy(more[at-length:], with)
			with = nil
		} else {
			defer c.together(h).End() // both parts
			copy(more, with[length-at:])
			with = with[:length-at]
		}
		length, _ = sh.Append(h, key, more, c.s.o.Bulk, c.now)
	}
	if len(with) > 0 {
		sh.Patch(h, key, at, with)
	}
	return length
}

// bitAt reads the number of a bit, or answers that it is none.
func (c *session) bitAt(arg []byte) (at int64, ok bool) {
	at, ok = resp.Int(arg)
	if ok = ok && at >= 0 && at>>3 < int64(c.s.o.Bulk); !ok {
		c.err("ERR bit offset is not an integer or out of range")
	}
	return at, ok
}

func setBit(c *session, args [][]byte) {
	at, ok := c.bitAt(args[2])
	if !ok {
		return
	}
	to, ok := resp.Int(args[3])
	if !ok || to>>1 != 0 {
		c.err("ERR bit is not an integer or out of range")
		return
	}
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, _, ok := c.value(sh, h, args[1])
	if !ok {
		return
	}
	was, i, shift := byte(0), int(at>>3), 7-at&7
	if i < len(v) {
		was = v[i]
	}
	if now := was&^(1<<shift) | byte(to)<<shift; now != was || i >= len(v) {
		c.patch(sh, h, args[1], len(v), i, []byte{now})
	}
	c.truth(was>>shift&1 == 1)
}

func getBit(c *session, args [][]byte) {
	at, ok := c.bitAt(args[2])
	if !ok {
		return
	}
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	if v, _, _, ok := c.value(sh, h, args[1]); ok {
		c.truth(at>>3 < int64(len(v)) && v[at>>3]>>(7-at&7)&1 == 1)
	}
}

func bitCount(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, there, ok := c.value(sh, h, args[1])
	if !ok {
		return
	}
	if !there {
		c.int(0)
		return
	}
	from, to, n, byBits := int64(0), int64(math.MaxInt64), int64(len(v)), false
	if len(args) > 2 {
		if len(args) != 4 && len(args) != 5 {
			c.err(errSyntax)
			return
		}
		if from, ok = c.number(args[2]); ok {
			to, ok = c.number(args[3])
		}
		if !ok {
			return
		}
		if from < 0 && to < 0 && from > to {
			c.int(0)
			return
		}
		if len(args) == 5 && !is(args[4], "BYTE") {
			if byBits = is(args[4], "BIT"); !byBits {
				c.err(errSyntax)
				return
			}
		}
	}
	if byBits {
		n *= 8
	}
	if from, to = within(from, to, n); from > to {
		c.int(0)
		return
	}
	if !byBits {
		c.int(ones(v[from : to+1]))
		return
	}
	first, last := v[from>>3]>>(8-from&7)<<(8-from&7), v[to>>3]&(1<<(7-to&7)-1) // what is before and behind the range
	c.int(ones(v[from>>3:to>>3+1]) - int64(bits.OnesCount8(first)+bits.OnesCount8(last)))
}

func ones(b []byte) (n int64) {
	for ; len(b) >= 8; b = b[8:] {
		n += int64(bits.OnesCount64(binary.LittleEndian.Uint64(b)))
	}
	for _, v := range b {
		n += int64(bits.OnesCount8(v))
	}
	return n
}
