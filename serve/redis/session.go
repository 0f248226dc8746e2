package redis

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// session is what a server knows of a connection, and what it does with its bytes. Only its loop, or its goroutine,
// calls its methods; others read the atomic fields.
type session struct {
	s       *Server
	id      int64
	near    int // for Space.ShareAll: the number of the thread, or of the session
	addr    string
	local   string
	since   time.Time
	version int  // of the protocol
	known   bool // has said the password, if there is one
	in      *resp.Parser
	out     []byte   // replies that were not sent yet
	from    int      // where those of this round begin
	now     int64    // milliseconds since 1970, when this round began
	closing bool     // once the replies are sent
	wrote   bool     // something that must be in the log before the replies are sent
	more    bool     // requests may be left in the parser, since many replies wait
	done    int64    // requests of this round
	usual   *command // that was looked up last
	strange int64    // since when it has not said the password, in milliseconds since 1970
	half    int64    // since when a part of a request is there; 0: there is none

	last atomic.Int64 // milliseconds since 1970, when something came or went
	name atomic.Pointer[string]
	lib  [2]atomic.Pointer[string] // the name and version of the client's library
	cmd  atomic.Pointer[command]   // the last one

	killed atomic.Bool            // by CLIENT KILL: no client any more, even before its connection has ended
	end    atomic.Pointer[func()] // ends the connection, from any goroutine; nil where nobody has taken it yet

	multi    multi
	held     bool // EXEC has locked the shards of all keys that it names
	overflow bool // replies of EXEC were thrown away
	mute     mute
	heard    bool // CLIENT REPLY ON came

	ahead   [warmed]asked // the requests that are answered together
	hashes  []uint64      // scratch memory of commands
	warmAt  [warmed]int
	group   *keyspace.Group // the last of sets
	scratch []byte
}

// A round ends for a connection with so many bytes of replies. They are sent before it goes on.
const mostRound = 1 << 20

// mostKept is how many hashes a session keeps memory for.
const mostKept = 1 << 12

// endsBy says how the connection is ended, once something has taken it.
func (c *session) endsBy(end func()) {
	c.end.Store(&end)
	if c.killed.Load() {
		end()
	}
}

// die is CLIENT KILL by another session. It tells whether it was the first.
func (c *session) die() bool {
	if c.killed.Swap(true) {
		return false
	}
	if end := c.end.Load(); end != nil {
		(*end)()
	}
	return true
}

func (c *session) touch(now time.Time) {
	c.now = now.UnixMilli()
	c.last.Store(c.now)
}

// run answers the requests that are whole.
func (c *session) run(now time.Time) {
	c.touch(now)
	c.more, c.done, c.from = false, 0, len(c.out)
	var last *command
	for !c.closing && !c.more {
		n, got, of, err := c.look()
		if got > 0 {
			last = of
			c.done += int64(got)
			c.checkOutput()
		}
		for i := got; i < n && !c.closing; i++ {
			if len(c.out)-c.from >= mostRound {
				c.in.Back(c.ahead[i].at)
				c.more, err = true, nil
				break
			}
			last = c.do(c.ahead[i].args)
			c.done++
			c.checkOutput()
		}
		if err != nil && !c.closing {
			c.err("ERR " + err.Error())
			c.s.metrics.broken.Add(1)
			c.closing = true
		}
		if n == 0 {
			break
		}
	}
	if last != nil {
		c.cmd.Store(last)
	}
	c.s.metrics.requests.Add(c.done)
	if cap(c.hashes) > mostKept {
		c.hashes = nil
	}
	c.in.Keep()
	switch {
	case !c.in.Partial():
		c.half = 0
	case c.half == 0 || c.done > 0:
		c.half = c.now
	}
}

// checkOutput ends the connection where there are more replies than a client may have: what is in is not for sending
// any more.
func (c *session) checkOutput() {
	if c.tooMuch() || c.overflow {
		c.s.metrics.overflows.Add(1)
		c.out = nil
		c.closing = true
	}
}

// tooMuch tells whether this round has more bytes of replies than a client may have.
func (c *session) tooMuch() bool { return len(c.out)-c.from > c.s.o.Output }

// look takes out the next requests, some at once, and reads what their first keys lead to. So the processor waits for
// all of that at once. Those that come first it answers, where they are GET, or SET without options, and tells how many
// these are, and of what command. Before a client has said its password, what comes next depends on that.
func (c *session) look() (n, got int, of *command, err error) {
	c.in.Done()
	most := warmed
	if !c.known {
		most = 1
	}
	var all keyspace.Several
	c.hashes = c.hashes[:0]
	gets, sets := 0, 0
	for ; n < most; n++ {
		at := c.in.At()
		args, failed := c.in.Next()
		if err = failed; len(args) == 0 {
			break
		}
		c.ahead[n] = asked{at, args}
		if len(args) == 2 || len(args) == 3 { // most that ask for a key
			hash := c.s.space.Hash(args[1])
			c.hashes = append(c.hashes, hash)
			all.Add(hash)
		}
		if gets == n && len(args) == getCommand.arity && is(args[0], getCommand.name) {
			gets++
		}
		if sets == n && len(args) == 3 && is(args[0], setCommand.name) {
			sets++
		}
	}
	heard := c.known && !c.multi.open && c.mute == heardAgain
	switch bound, _ := c.s.space.Bounds(); {
	case len(c.hashes) < leastWarmed:
	case heard && sets >= leastWarmed && bound == 0: // at a bound others may have to go, from any shard
		return n, c.sets(sets), setCommand, err
	default:
		r := c.s.space.ShareAll(&all, c.near)
		c.s.space.Warm(c.hashes, c.warmAt[:])
		if heard {
			got = c.gets(gets)
		}
		c.s.space.UnshareAll(&all, r)
	}
	return n, got, getCommand, err
}

// sets does so many requests, which are SET without options, some with the shards of their keys locked at once, and
// logged at once. It tells how many: fewer where their replies are as many as a round has.
func (c *session) sets(n int) (done int) {
	for done < n && len(c.out)-c.from < min(mostRound, c.s.o.Output) {
		some := c.hashes[done:min(done+setsAtOnce, n)]
		var all keyspace.Several
		for _, hash := range some {
			all.Add(hash)
		}
		c.s.space.LockAll(&all)
		c.s.space.Warm(some, c.warmAt[:])
		c.group = c.s.space.GroupAgain(c.group, &all)
		c.held = true
		for range some {
			if why := c.refused(setCommand.flags, 0); why != "" {
				c.err(why)
			} else {
				c.wrote = true
				set(c, c.ahead[done].args)
			}
			done++
		}
		c.held = false
		c.group.End()
		c.s.space.UnlockAll(&all)
	}
	return done
}

// setsAtOnce is how many keys a thread locks for SETs at once: others wait for their shards.
const setsAtOnce = 16

// gets answers so many requests, which are GET, as far as it can for one who only shares the shards, and tells how
// many.
func (c *session) gets(n int) (got int) {
	hits := uint64(0)
	for got < n && len(c.out)-c.from < min(mostRound, c.s.o.Output) {
		key, hash := c.ahead[got].args[1], c.hashes[got]
		v, there, expired := c.s.space.Of(hash).LookFrom(c.warmAt[got], hash, key, c.now)
		if expired {
			break
		}
		got++
		c.string(v, there)
		hits += truth(there)
	}
	c.s.space.Looked(hits, uint64(got)-hits)
	return got
}

// warmed is how many keys are looked up at once, as far as the processor can; below leastWarmed it is not worth it.
const warmed, leastWarmed = 64, 4

// asked is a request, and where it begins.
type asked struct {
	at   int
	args [][]byte
}

// A request that is half sent has the timeout again for each of so many bytes that came: large ones take their time.
const timeoutBytes = 1 << 20

// due is when the client should be given up if nothing happens, in milliseconds since 1970. Bytes that trickle in give
// no more time to one that has not said its password, and little to a request.
func (c *session) due() int64 {
	const longest = 365 * 24 * time.Hour // so that no sum is too large
	last, timeout := c.last.Load(), min(c.s.o.Timeout, longest).Milliseconds()
	at := int64(math.MaxInt64)
	switch {
	case len(c.out) > 0:
		at = last + timeout
	case c.in.Partial():
		at = min(last+timeout, c.half+timeout*int64(1+c.in.Came()/timeoutBytes))
	case c.known && c.s.idle.Load() > 0:
		at = last + min(c.s.idle.Load(), longest.Milliseconds())
	}
	if !c.known {
		at = min(at, c.strange+timeout)
	}
	return at
}

// sent says that all replies were sent. While they waited the client was not read, which is not its fault.
func (c *session) sent(now time.Time) {
	if c.half > 0 {
		c.half = now.UnixMilli()
	}
}

func (c *session) ok()                  { c.out = append(c.out, "+OK\r\n"...) }
func (c *session) err(text string)      { c.out = resp.AppendError(c.out, text); c.s.metrics.errors.Add(1) }
func (c *session) int(n int64)          { c.out = resp.AppendInt(c.out, n) }
func (c *session) bulk(s []byte)        { c.out = resp.AppendBulk(c.out, s) }
func (c *session) text(s string)        { c.out = resp.AppendBulk(c.out, s) }
func (c *session) null()                { c.out = resp.AppendNull(c.out, c.version) }
func (c *session) array(n int)          { c.out = resp.AppendArray(c.out, n) }
func (c *session) pairs(n int)          { c.out = resp.AppendMap(c.out, c.version, n) }
func (c *session) simple(word string)   { c.out = resp.AppendSimple(c.out, word) }
func (c *session) verbatim(text string) { c.out = resp.AppendVerbatim(c.out, c.version, text) }

// truth answers with 1 or 0.
func (c *session) truth(is bool) {
	if is {
		c.out = append(c.out, ":1\r\n"...)
	} else {
		c.out = append(c.out, ":0\r\n"...)
	}
}
