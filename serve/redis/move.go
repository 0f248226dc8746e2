package redis

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

const errNoKey = "ERR no such key"

// kept is a copy of what a key holds.
type kept struct {
	value   []byte
	filter  bool
	expires int64
}

// hold copies what a key holds.
func (c *session) hold(sh *keyspace.Shard, h uint64, key []byte) (v kept, there bool) {
	if v.value, v.expires, there = sh.Peek(h, key, c.now); there && v.value == nil {
		v.value, _, _ = sh.Filter(h, key, c.now)
		v.filter = true
	}
	v.value = bytes.Clone(v.value)
	return v, there
}

// put puts what another key held.
func (c *session) put(sh *keyspace.Shard, h uint64, key []byte, v kept) {
	if v.filter {
		sh.PutFilter(h, key, v.value, v.expires, c.now)
	} else {
		sh.Put(h, key, v.value, v.expires, c.now)
	}
}

// rename is RENAME and RENAMENX.
func rename(c *session, args [][]byte) {
	nx := len(args[0]) == len("renamenx")
	all, hashes := c.lockAll(args[1:3], 1)
	defer c.unlockAll(all)
	from, to := c.s.space.Of(hashes[0]), c.s.space.Of(hashes[1])
	_, _, there := from.Peek(hashes[0], args[1], c.now)
	same := bytes.Equal(args[1], args[2])
	_, _, taken := to.Peek(hashes[1], args[2], c.now)
	switch {
	case !there:
		c.err(errNoKey)
		return
	case nx && (taken || same):
		c.truth(false)
		return
	case !same:
		if !c.held {
			defer c.s.space.Group(all).End()
		}
		v, _ := c.hold(from, hashes[0], args[1])
		from.Delete(hashes[0], args[1], c.now)
		c.put(to, hashes[1], args[2], v)
	}
	if nx {
		c.truth(true)
	} else {
		c.ok()
	}
}

func copyKey(c *session, args [][]byte) {
	replace := false
	for i := 3; i < len(args); i++ {
		switch {
		case is(args[i], "REPLACE"):
			replace = true
		case is(args[i], "DB") && i+1 < len(args):
			if i++; !c.database(args[i]) {
				return
			}
		default:
			c.err(errSyntax)
			return
		}
	}
	if bytes.Equal(args[1], args[2]) {
		c.err("ERR source and destination objects are the same")
		return
	}
	all, hashes := c.lockAll(args[1:3], 1)
	defer c.unlockAll(all)
	from, to := c.s.space.Of(hashes[0]), c.s.space.Of(hashes[1])
	_, _, there := from.Peek(hashes[0], args[1], c.now)
	_, _, taken := to.Peek(hashes[1], args[2], c.now)
	if !there || taken && !replace {
		c.truth(false)
		return
	}
	v, _ := c.hold(from, hashes[0], args[1])
	c.put(to, hashes[1], args[2], v)
	c.truth(true)
}

func randomKey(c *session, _ [][]byte) {
	if !c.s.space.Random(c.now, c.held, func(key []byte) { c.bulk(key) }) {
		c.null()
	}
}

// object is OBJECT ENCODING, IDLETIME, REFCOUNT and FREQ. Encodings are those that Redis gives a value that was just
// set.
func object(c *session, args [][]byte) {
	sub := args[1]
	sh, h := c.lock(args[2])
	defer c.unlock(sh)
	v, _, there := sh.Peek(h, args[2], c.now)
	switch {
	case !there:
		c.null()
	case is(sub, "ENCODING"):
		c.text(encoding(v))
	case is(sub, "IDLETIME"):
		_, idle, _ := sh.Used(h, args[2], c.now)
		c.int(idle / 1000)
	case is(sub, "REFCOUNT"):
		c.int(1)
	default:
		c.err("ERR An LFU maxmemory policy is not selected, access frequency not tracked. Please note that when " +
			"switching between policies at runtime LRU and LFU data will take some time to adjust.")
	}
}

// mostEmbedded is how long a string is at most that Redis keeps beside its head.
const mostEmbedded = 44

func encoding(v []byte) string {
	_, number := resp.Int(v)
	switch {
	case number:
		return "int"
	case v != nil && len(v) <= mostEmbedded:
		return "embstr"
	}
	return "raw"
}

// memory is MEMORY USAGE.
func memory(c *session, args [][]byte) {
	for i := 3; i < len(args); i += 2 { // of lists and such, which are not here
		if !is(args[i], "SAMPLES") || i+1 == len(args) {
			c.err(errSyntax)
			return
		}
		n, ok := c.number(args[i+1])
		if !ok {
			return
		}
		if n < 0 {
			c.err(errSyntax)
			return
		}
	}
	sh, h := c.lock(args[2])
	defer c.unlock(sh)
	if n, _, there := sh.Used(h, args[2], c.now); there {
		c.int(n)
	} else {
		c.null()
	}
}

// wait is WAIT: there are no replicas.
func wait(c *session, args [][]byte) {
	if _, ok := c.number(args[1]); !ok {
		return
	}
	switch n, ok := resp.Int(args[2]); {
	case !ok:
		c.err("ERR timeout is not an integer or out of range")
	case n < 0:
		c.err("ERR timeout is negative")
	default:
		c.int(0)
	}
}

// database tells whether a number is that of the only database, or answers that it is not.
func (c *session) database(arg []byte) bool {
	n, ok := c.number(arg)
	switch {
	case !ok:
		return false
	case n != int64(int32(n)):
		c.err("ERR value is out of range, value must between -2147483648 and 2147483647")
	case n != 0:
		c.err("ERR DB index is out of range")
	}
	return n == 0
}

func selectDB(c *session, args [][]byte) {
	if c.database(args[1]) {
		c.ok()
	}
}

// kill is CLIENT KILL.
func kill(c *session, args [][]byte) {
	addr, local, id, itself, none := "", "", int64(0), true, false
	if len(args) == 3 {
		addr = string(args[2])
	} else {
		itself = false
	}
	for i := 2; len(args) > 3 && i < len(args); i += 2 {
		if i+1 == len(args) {
			c.err(errSyntax)
			return
		}
		switch a, v := args[i], args[i+1]; {
		case is(a, "ID"):
			n, ok := resp.Int(v)
			if id = n; !ok || n < 1 {
				c.err("ERR client-id should be greater than 0")
				return
			}
		case is(a, "TYPE"):
			switch strings.ToLower(string(v)) {
			case "normal":
			case "master", "replica", "slave", "pubsub":
				none = true
			default:
				c.err("ERR Unknown client type '" + string(text(v, 128)) + "'")
				return
			}
		case is(a, "ADDR"):
			addr = string(v)
		case is(a, "LADDR"):
			local = string(v)
		case is(a, "USER"):
			if string(v) != "default" {
				c.err("ERR No such user '" + string(text(v, 128)) + "'")
				return
			}
		case is(a, "SKIPME") && is(v, "YES"):
			itself = false
		case is(a, "SKIPME") && is(v, "NO"):
			itself = true
		default:
			c.err(errSyntax)
			return
		}
	}
	n := int64(0)
	for _, other := range c.s.clients() {
		if none || addr != "" && addr != other.addr || local != "" && local != other.local ||
			id != 0 && id != other.id || other == c && !itself {
			continue
		}
		if other == c {
			c.closing = true
		} else if !other.die() {
			continue
		}
		n++
	}
	switch {
	case len(args) > 3:
		c.int(n)
	case n == 0:
		c.err("ERR No such client")
	default:
		c.ok()
	}
}

// reply is CLIENT REPLY.
func reply(c *session, how []byte) {
	switch {
	case is(how, "ON"):
		c.mute, c.heard = heardAgain, true
		c.ok()
	case is(how, "OFF"):
		c.mute = muteAll
	case is(how, "SKIP"):
		if c.mute != muteAll {
			c.mute = muteNext
		}
	default:
		c.err(errSyntax)
	}
}

// mute is which replies a client wants.
type mute int

const (
	heardAgain mute = iota // all
	muteNext               // not the next
	muteAll                // none
)

// configSet is CONFIG SET of the few settings that can change.
func configSet(c *session, args [][]byte) {
	if len(args)%2 == 1 {
		c.err(errSyntax)
		return
	}
	most, policy := c.s.space.Bounds()
	idle := c.s.idle.Load()
	for i := 2; i < len(args); i += 2 {
		name, value := strings.ToLower(string(args[i])), string(args[i+1])
		wrong := ""
		for j := 2; j < i; j += 2 {
			if strings.EqualFold(string(args[j]), name) {
				name = "duplicate"
			}
		}
		switch name {
		case "duplicate":
			wrong = "duplicate parameter"
		case "maxmemory":
			n, ok := sizeOf(value)
			if most = n; !ok {
				wrong = "argument must be a memory value"
			}
		case "maxmemory-policy":
			switch strings.ToLower(value) {
			case "noeviction":
				policy = NoEviction
			case "allkeys-lru":
				policy = LRU
			default:
				wrong = "argument must be one of the following: noeviction, allkeys-lru"
			}
		case "timeout":
			n, err := strconv.ParseInt(value, 10, 32)
			if idle = n * 1000; err != nil || n < 0 {
				wrong = "argument couldn't be parsed into an integer"
			}
		default:
			if !c.s.known(name) {
				c.err("ERR Unknown option or number of arguments for CONFIG SET - '" + string(text(args[i], 128)) + "'")
				return
			}
			wrong = "can't set immutable config"
		}
		if wrong != "" {
			c.err(fmt.Sprintf("ERR CONFIG SET failed (possibly related to argument '%s') - %s",
				text(args[i], 128), wrong))
			return
		}
	}
	c.s.space.Bound(most, policy, c.held)
	c.s.idle.Store(idle)
	c.ok()
}

// known tells whether a setting is there that cannot change.
func (s *Server) known(name string) bool {
	for _, setting := range s.settings() {
		if setting[0] == name {
			return true
		}
	}
	return false
}

// sizeOf reads a size as Redis does, such as 100mb.
func sizeOf(text string) (n int64, ok bool) {
	digits := strings.TrimRight(strings.ToLower(text), "bkmg")
	scale := map[string]int64{"": 1, "b": 1, "k": 1000, "kb": 1 << 10, "m": 1e6, "mb": 1 << 20, "g": 1e9, "gb": 1 << 30}
	by, ok := scale[strings.ToLower(text[len(digits):])]
	n, err := strconv.ParseInt(digits, 10, 64)
	if !ok || err != nil || n < 0 || n > 1<<62/by {
		return 0, false
	}
	return n * by, true
}
