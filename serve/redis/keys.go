package redis

import (
	"bytes"
	"strconv"
	"strings"

	"github.com/warpmap/warpmap/internal/filters"
	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

func del(c *session, args [][]byte) {
	all, hashes := c.lockAll(args[1:], 1)
	n := int64(0)
	if !c.held && len(hashes) > 1 {
		defer c.unlockAll(all)
		defer c.s.space.Group(all).End()
	} else {
		defer c.unlockAll(all)
	}
	for i, h := range hashes {
		if c.s.space.Of(h).Delete(h, args[1+i], c.now) {
			n++
		}
	}
	c.int(n)
}

// exists is EXISTS, and TOUCH, which alone says that the keys are used.
func exists(c *session, args [][]byte) {
	look := (*keyspace.Shard).Peek
	if args[0][0]|0x20 == 't' {
		look = (*keyspace.Shard).Get
	}
	all, hashes := c.lockAll(args[1:], 1)
	n := int64(0)
	for i, h := range hashes {
		if _, _, there := look(c.s.space.Of(h), h, args[1+i], c.now); there {
			n++
		}
	}
	c.unlockAll(all)
	c.int(n)
}

// expire is EXPIRE, PEXPIRE, EXPIREAT and PEXPIREAT.
func expire(c *session, args [][]byte) {
	name := string(bytes.ToLower(args[0]))
	var nx, xx, gt, lt bool
	for _, a := range args[3:] {
		switch {
		case is(a, "NX"):
			nx = true
		case is(a, "XX"):
			xx = true
		case is(a, "GT"):
			gt = true
		case is(a, "LT"):
			lt = true
		default:
			c.err("ERR Unsupported option " + string(text(a, len(a))))
			return
		}
	}
	switch {
	case nx && (xx || gt || lt):
		c.err("ERR NX and XX, GT or LT options at the same time are not compatible")
		return
	case gt && lt:
		c.err("ERR GT and LT options at the same time are not compatible")
		return
	}
	n, ok := c.number(args[2])
	if !ok {
		return
	}
	at, ok := c.instant(n, name[0] != 'p', !strings.HasSuffix(name, "at"))
	if !ok {
		c.badTime(name)
		return
	}
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	_, was, there := sh.Peek(h, args[1], c.now)
	switch {
	case !there, nx && was != 0, xx && was == 0, gt && (was == 0 || at <= was), lt && was != 0 && at >= was:
		c.truth(false)
		return
	case at <= c.now:
		sh.Delete(h, args[1], c.now)
	default:
		sh.Expire(h, args[1], at, c.now)
	}
	c.truth(true)
}

// ttl is TTL, PTTL, EXPIRETIME and PEXPIRETIME.
func ttl(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	_, at, there := sh.Peek(h, args[1], c.now)
	c.unlock(sh)
	switch {
	case !there:
		c.int(-2)
		return
	case at == 0:
		c.int(-1)
		return
	}
	if args[0][len(args[0])-1]|0x20 == 'l' {
		at = max(0, at-c.now)
	}
	if args[0][0]|0x20 != 'p' {
		at = at/1000 + (at%1000+500)/1000
	}
	c.int(at)
}

func persist(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	_, at, there := sh.Peek(h, args[1], c.now)
	if there && at != 0 {
		sh.Expire(h, args[1], 0, c.now)
	}
	c.truth(there && at != 0)
}

func typeOf(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, there := sh.Peek(h, args[1], c.now)
	switch {
	case !there:
		c.simple("none")
	case v != nil:
		c.simple("string")
	default:
		v, _, _ := sh.Filter(h, args[1], c.now)
		c.simple(filterType(v))
	}
}

// types are which keys a scan gives.
type types int

const (
	texts types = 1 << iota
	blooms
	cuckoos
	every = texts | blooms | cuckoos
)

func (t types) has(filter filters.Value) bool {
	of := blooms
	switch {
	case filter == nil:
		of = texts
	case filter.IsCuckoo():
		of = cuckoos
	}
	return t&of != 0
}

func typesOf(name []byte) types {
	switch {
	case is(name, "STRING"):
		return texts
	case is(name, bloomType):
		return blooms
	case is(name, cuckooType):
		return cuckoos
	}
	return 0
}

// keys answers with all keys that match, in no order.
func keys(c *session, args [][]byte) {
	c.list(0, everyKey, args[1], every)
}

// list appends the keys from a cursor on, behind their number, which is known when they are there.
func (c *session) list(cursor uint64, n int, pattern []byte, wanted types) (next uint64) {
	all := string(pattern) == "*"
	found, over := 0, false
	c.scratch = c.scratch[:0]
	next = c.s.space.Scan(cursor, n, c.now, c.held, func(key, filter []byte) {
		if over = over || len(c.scratch) > c.s.o.Output; wanted.has(filter) && !over && (all || match(pattern, key)) {
			c.scratch = resp.AppendBulk(c.scratch, key)
			found++
		}
	})
	if n < everyKey { // SCAN answers with the cursor first
		c.array(2)
		c.text(strconv.FormatUint(next, 10))
	}
	c.array(found)
	c.out = append(c.out, c.scratch...)
	if cap(c.scratch) > mostRound {
		c.scratch = nil
	}
	return next
}

func scan(c *session, args [][]byte) {
	cursor, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil && len(args[1]) > 0 { // nothing is 0 there, too
		c.err("ERR invalid cursor")
		return
	}
	n, pattern, wanted := int64(10), []byte("*"), every
	for i := 2; i < len(args); i += 2 {
		switch more := i+1 < len(args); {
		case more && is(args[i], "COUNT"):
			var ok bool
			if n, ok = c.number(args[i+1]); !ok {
				return
			}
			if n < 1 {
				c.err(errSyntax)
				return
			}
		case more && is(args[i], "MATCH"):
			pattern = args[i+1]
		case more && is(args[i], "TYPE"):
			wanted = typesOf(args[i+1])
		default:
			c.err(errSyntax)
			return
		}
	}
	c.list(cursor, int(min(n, everyKey-1)), pattern, wanted)
}

func dbsize(c *session, _ [][]byte) { c.int(c.s.space.Len()) }

func flush(c *session, args [][]byte) {
	if len(args) > 2 || len(args) == 2 && !is(args[1], "ASYNC") && !is(args[1], "SYNC") {
		c.err(errSyntax)
		return
	}
	c.s.space.Clear(c.held)
	c.ok()
}

// match tells whether a text matches a pattern of *, ?, [a-c], [^a] and \ before what stands for itself, as in Redis.
// Cost: their lengths' product at the worst.
func match(pattern, text []byte) bool {
	var star, again []byte // behind the last *, and what it has not taken yet
	for {
		if len(pattern) > 0 && pattern[0] == '*' {
			pattern = pattern[1:]
			star, again = pattern, text
			if len(pattern) == 0 {
				return true
			}
			continue
		}
		if len(text) == 0 {
			return len(pattern) == 0
		}
		if rest, ok := matchOne(pattern, text[0]); ok {
			pattern, text = rest, text[1:]
			continue
		}
		if star == nil || len(again) == 0 {
			return false
		}
		again = again[1:]
		pattern, text = star, again
	}
}

// matchOne takes what stands for one byte off a pattern that does not begin with *.
func matchOne(pattern []byte, c byte) (rest []byte, ok bool) {
	if len(pattern) == 0 {
		return nil, false
	}
	switch pattern[0] {
	case '?':
		return pattern[1:], true
	case '[':
		return matchClass(pattern[1:], c)
	case '\\':
		if len(pattern) >= 2 {
			pattern = pattern[1:]
		}
	}
	return pattern[1:], pattern[0] == c
}

func matchClass(p []byte, c byte) (rest []byte, ok bool) {
	not := len(p) > 0 && p[0] == '^'
	if not {
		p = p[1:]
	}
	for {
		switch {
		case len(p) >= 2 && p[0] == '\\':
			ok = ok || p[1] == c
			p = p[2:]
		case len(p) == 0:
			return p, ok != not
		case p[0] == ']':
			return p[1:], ok != not
		case len(p) >= 3 && p[1] == '-':
			ok = ok || c >= min(p[0], p[2]) && c <= max(p[0], p[2])
			p = p[3:]
		default:
			ok = ok || p[0] == c
			p = p[1:]
		}
	}
}

// everyKey is a number of keys that is never reached.
const everyKey = 1 << 50
