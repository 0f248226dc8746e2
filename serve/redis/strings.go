package redis

import (
	"math"
	"strconv"

	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// value is what a key holds, for what works on strings. Where it holds a filter, ok is false, and it answers so.
func (c *session) value(sh *keyspace.Shard, h uint64, key []byte) (v []byte, expires int64, there, ok bool) {
	if v, expires, there = sh.Get(h, key, c.now); there && v == nil {
		c.wrongType()
		return nil, 0, false, false
	}
	return v, expires, there, true
}

func (c *session) wrongType() {
	c.err("WRONGTYPE Operation against a key holding the wrong kind of value")
}

func get(c *session, args [][]byte) {
	if !c.held {
		h := c.s.space.Hash(args[1])
		sh := c.s.space.Share(h)
		v, there, expired := sh.Look(h, args[1], c.now)
		if !expired {
			c.string(v, there)
		}
		sh.Unshare()
		if !expired {
			c.s.space.Looked(truth(there), truth(!there))
			return
		}
	}
	sh, h := c.lock(args[1])
	v, _, there := sh.Get(h, args[1], c.now)
	c.string(v, there)
	c.unlock(sh)
}

// string answers with a key's value, which is nil where it is a filter.
func (c *session) string(v []byte, there bool) {
	switch {
	case !there:
		c.null()
	case v == nil:
		c.wrongType()
	default:
		c.bulk(v)
	}
}

// truth is 1 or 0.
func truth(is bool) uint64 {
	if is {
		return 1
	}
	return 0
}

func strlen(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	if v, _, _, ok := c.value(sh, h, args[1]); ok {
		c.int(int64(len(v)))
	}
	c.unlock(sh)
}

// options are those that SET and GETEX share.
type options struct {
	nx, xx, get, keep, persist bool
	unit                       string // of when: EX, PX, EXAT or PXAT
	when                       []byte
}

// parseOptions reads the options of SET or GETEX. Where they are wrong it answers so.
func (c *session) parseOptions(args [][]byte, name string) (o options, ok bool) {
	isSet := name == "set"
	for i := 0; i < len(args); i++ {
		a, more := args[i], i+1 < len(args)
		timed := func(as string) bool {
			return more && is(a, as) && !o.keep && !o.persist && (o.unit == "" || o.unit == as)
		}
		switch {
		case isSet && is(a, "NX") && !o.xx:
			o.nx = true
		case isSet && is(a, "XX") && !o.nx:
			o.xx = true
		case isSet && is(a, "GET"):
			o.get = true
		case isSet && is(a, "KEEPTTL") && !o.persist && o.unit == "":
			o.keep = true
		case !isSet && is(a, "PERSIST") && !o.keep && o.unit == "":
			o.persist = true
		case timed("EX"):
			o.unit, o.when = "EX", args[i+1]
			i++
		case timed("PX"):
			o.unit, o.when = "PX", args[i+1]
			i++
		case timed("EXAT"):
			o.unit, o.when = "EXAT", args[i+1]
			i++
		case timed("PXAT"):
			o.unit, o.when = "PXAT", args[i+1]
			i++
		default:
			c.err(errSyntax)
			return o, false
		}
	}
	return o, true
}

// expires is when a key expires by SET or GETEX, in milliseconds; 0 where that is not told. It answers where it is
// wrong.
func (c *session) expires(o options, name string) (at int64, ok bool) {
	if o.unit == "" {
		return 0, true
	}
	return c.when(o.when, o.unit[0] == 'E', len(o.unit) == 2, name)
}

// when reads a time of seconds or milliseconds, from now or from 1970, which must be positive.
func (c *session) when(arg []byte, seconds, relative bool, name string) (int64, bool) {
	n, ok := c.number(arg)
	if !ok {
		return 0, false
	}
	at, ok := c.instant(n, seconds, relative)
	if !ok || n <= 0 {
		c.badTime(name)
		return 0, false
	}
	return at, true
}

func (c *session) badTime(name string) { c.err("ERR invalid expire time in '" + name + "' command") }

func (c *session) instant(n int64, seconds, relative bool) (at int64, ok bool) {
	if seconds {
		if n > math.MaxInt64/1000 || n < math.MinInt64/1000 {
			return 0, false
		}
		n *= 1000
	}
	if relative {
		if n > math.MaxInt64-c.now {
			return 0, false
		}
		n += c.now
	}
	return n, true
}

func set(c *session, args [][]byte) {
	key, value := args[1], args[2]
	var o options
	at := int64(0)
	if len(args) > 3 {
		var ok bool
		if o, ok = c.parseOptions(args[3:], "set"); !ok {
			return
		}
		if at, ok = c.expires(o, "set"); !ok {
			return
		}
	}
	sh, h := c.lock(key)
	defer c.unlock(sh)
	there, expires := false, int64(0)
	if o.nx || o.xx || o.get || o.keep {
		var old []byte
		if o.get {
			var ok bool
			if old, expires, there, ok = c.value(sh, h, key); !ok {
				return
			}
		} else {
			old, expires, there = sh.Peek(h, key, c.now)
		}
		if o.get && there {
			c.bulk(old)
		} else if o.get {
			c.null()
		}
	}
	if o.nx && there || o.xx && !there {
		if !o.get {
			c.null()
		}
		return
	}
	if o.keep {
		at = expires
	}
	sh.Put(h, key, value, at, c.now)
	if !o.get {
		c.ok()
	}
}

func setNX(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	_, _, there := sh.Peek(h, args[1], c.now)
	if !there {
		sh.Put(h, args[1], args[2], 0, c.now)
	}
	c.truth(!there)
}

// setEX is SETEX, and PSETEX of milliseconds.
func setEX(c *session, args [][]byte) {
	name, seconds := "setex", true
	if len(args[0]) == len("psetex") {
		name, seconds = "psetex", false
	}
	at, ok := c.when(args[2], seconds, true, name)
	if !ok {
		return
	}
	sh, h := c.lock(args[1])
	sh.Put(h, args[1], args[3], at, c.now)
	c.unlock(sh)
	c.ok()
}

// old answers with the value that a key has.
func (c *session) old(value []byte, there bool) {
	if there {
		c.bulk(value)
	} else {
		c.null()
	}
}

func getSet(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, there, ok := c.value(sh, h, args[1])
	if !ok {
		return
	}
	c.old(v, there)
	sh.Put(h, args[1], args[2], 0, c.now)
}

func getDel(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, there, ok := c.value(sh, h, args[1])
	if !ok {
		return
	}
	c.old(v, there)
	if there {
		sh.Delete(h, args[1], c.now)
	}
}

func getEX(c *session, args [][]byte) {
	o, ok := c.parseOptions(args[2:], "getex")
	if !ok {
		return
	}
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, expires, there, ok := c.value(sh, h, args[1])
	if !ok {
		return
	}
	if !there {
		c.null()
		return
	}
	at, ok := c.expires(o, "getex")
	if !ok {
		return
	}
	c.bulk(v)
	switch {
	case at != 0 && at <= c.now:
		sh.Delete(h, args[1], c.now)
	case at != 0 || o.persist && expires != 0:
		sh.Expire(h, args[1], at, c.now)
	}
}

func mget(c *session, args [][]byte) {
	all, hashes := c.several(args[1:], 1)
	if !c.held {
		r := c.s.space.ShareAll(all, c.near)
		done := c.values(args[1:], hashes, false)
		c.s.space.UnshareAll(all, r)
		if done {
			return
		}
		c.s.space.LockAll(all)
		defer c.s.space.UnlockAll(all)
	}
	c.values(args[1:], hashes, true)
}

// values answers with the values of keys, whose shards the caller has locked, or only shares. Then it gives up where a
// key has expired.
func (c *session) values(keys [][]byte, hashes []uint64, locked bool) bool {
	before, hits := len(c.out), uint64(0)
	c.array(len(keys))
	for i, key := range keys {
		if i%warmed == 0 {
			c.s.space.Warm(hashes[i:min(i+warmed, len(hashes))], c.warmAt[:])
		}
		sh := c.s.space.Of(hashes[i])
		var v []byte
		var there, expired bool
		if locked { // what Warm found moves where a key is removed
			v, there, expired = sh.Look(hashes[i], key, c.now)
		} else {
			v, there, expired = sh.LookFrom(c.warmAt[i%warmed], hashes[i], key, c.now)
		}
		switch {
		case expired && !locked:
			c.out = c.out[:before]
			return false
		case expired:
			sh.Peek(hashes[i], key, c.now) // removes it
			c.null()
		case v == nil: // also where there is a filter
			c.null()
		default:
			c.bulk(v)
		}
		hits += truth(there)
		if c.tooMuch() { // the connection ends
			return true
		}
	}
	c.s.space.Looked(hits, uint64(len(keys))-hits)
	return true
}

func mset(c *session, args [][]byte) {
	if len(args)%2 == 0 {
		c.wrongNumber("mset")
		return
	}
	all, hashes := c.lockAll(args[1:], 2)
	c.putAll(all, hashes, args)
	c.unlockAll(all)
	c.ok()
}

func msetNX(c *session, args [][]byte) {
	if len(args)%2 == 0 {
		c.wrongNumber("msetnx")
		return
	}
	all, hashes := c.lockAll(args[1:], 2)
	defer c.unlockAll(all)
	for i, h := range hashes {
		if _, _, there := c.s.space.Of(h).Peek(h, args[1+2*i], c.now); there {
			c.truth(false)
			return
		}
	}
	c.putAll(all, hashes, args)
	c.truth(true)
}

// putAll puts the pairs of MSET or MSETNX, of which a crash leaves all or none.
func (c *session) putAll(all *keyspace.Several, hashes []uint64, args [][]byte) {
	if !c.held {
		defer c.s.space.Group(all).End()
	}
	for i, h := range hashes {
		c.s.space.Of(h).Put(h, args[1+2*i], args[2+2*i], 0, c.now)
	}
}

func appendTo(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	if _, _, _, ok := c.value(sh, h, args[1]); !ok {
		return
	}
	n, ok := sh.Append(h, args[1], args[2], c.s.o.Bulk, c.now)
	if !ok {
		c.err(errTooLong)
		return
	}
	c.int(int64(n))
}

func incr(c *session, args [][]byte) { c.add(args[1], 1) }
func decr(c *session, args [][]byte) { c.add(args[1], -1) }

func incrBy(c *session, args [][]byte) {
	if n, ok := c.number(args[2]); ok {
		c.add(args[1], n)
	}
}

func decrBy(c *session, args [][]byte) {
	n, ok := c.number(args[2])
	if ok && n == math.MinInt64 {
		c.err("ERR decrement would overflow")
	} else if ok {
		c.add(args[1], -n)
	}
}

// add adds to a number that a key holds, or to 0.
func (c *session) add(key []byte, by int64) {
	sh, h := c.lock(key)
	defer c.unlock(sh)
	v, expires, there, ok := c.value(sh, h, key)
	if !ok {
		return
	}
	n := int64(0)
	if there {
		if n, ok = resp.Int(v); !ok {
			c.err(errInt)
			return
		}
	}
	if by < 0 && n < math.MinInt64-by || by > 0 && n > math.MaxInt64-by {
		c.err("ERR increment or decrement would overflow")
		return
	}
	n += by
	c.scratch = strconv.AppendInt(c.scratch[:0], n, 10)
	sh.Put(h, key, c.scratch, expires, c.now)
	c.int(n)
}
