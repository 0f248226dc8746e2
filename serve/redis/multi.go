package redis

import (
	"fmt"
	"strings"

	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// multi is the transaction of a session.
type multi struct {
	open    bool // behind MULTI
	wrong   bool // a command was refused, so EXEC is
	queue   []queued
	bytes   int                        // of the queue
	watches map[string]*keyspace.Watch // by their keys
	watched int                        // bytes of these
}

// queued is a command that waits for EXEC.
type queued struct {
	cmd   *command
	args  [][]byte
	needs int64 // bytes of memory, as far as EXEC knew before it began
}

// queuedBytes is about what a command, an argument of one, or a watch takes beside its bytes.
const queuedBytes = 64

func multiBegin(c *session, _ [][]byte) {
	if c.multi.open {
		c.err("ERR MULTI calls can not be nested")
		return
	}
	c.multi.open = true
	c.ok()
}

func discard(c *session, _ [][]byte) {
	if !c.multi.open {
		c.err("ERR DISCARD without MULTI")
		return
	}
	c.endMulti()
	c.ok()
}

// endMulti forgets the transaction, and what is watched.
func (c *session) endMulti() {
	c.unwatch()
	c.multi = multi{}
}

// enqueue keeps a command for EXEC.
func (c *session) enqueue(cmd *command, args [][]byte) {
	m := &c.multi
	if m.wrong { // nothing of it will be done
		c.simple("QUEUED")
		return
	}
	n := queuedBytes * (1 + len(args))
	for _, a := range args {
		n += len(a)
	}
	if m.bytes+n > c.s.o.Request {
		c.reject(fmt.Sprintf("ERR a transaction of more than %d bytes", c.s.o.Request))
		return
	}
	m.bytes += n
	all := make([]byte, 0, n)
	own := make([][]byte, len(args))
	for i, a := range args {
		from := len(all)
		all = append(all, a...)
		own[i] = all[from:len(all):len(all)]
	}
	m.queue = append(m.queue, queued{cmd, own, 0})
	c.simple("QUEUED")
}

// reject answers with an error to what is refused before it is done. So a transaction is refused as a whole.
func (c *session) reject(text string) {
	if c.multi.open {
		c.multi.wrong, c.multi.queue, c.multi.bytes = true, nil, 0
	}
	c.err(text)
}

// abort ends a transaction that is refused.
func (c *session) abort(why string) {
	c.endMulti()
	c.err("EXECABORT Transaction discarded because of: " + strings.TrimPrefix(why, "ERR "))
}

// execute does all that was queued at one moment: it locks the shards of all keys first.
func execute(c *session, _ [][]byte) {
	m := &c.multi
	if !m.open {
		c.err("ERR EXEC without MULTI")
		return
	}
	defer c.endMulti()
	var all keyspace.Several
	var kinds flags
	needs := int64(0)
	for i, q := range m.queue {
		kinds |= q.cmd.flags
		q.cmd.keys(q.args, func(key []byte) { all.Add(c.s.space.Hash(key)) })
		if q.cmd.flags&write != 0 {
			m.queue[i].needs = c.needs(q.cmd, q.args)
			needs += m.queue[i].needs
		}
	}
	if why := c.refused(kinds, needs); why != "" {
		c.abort(why)
		return
	}
	if m.wrong {
		c.err("EXECABORT Transaction discarded because of previous errors.")
		return
	}
	for _, w := range m.watches {
		all.Add(w.Hash())
	}
	if kinds&everyShard != 0 {
		all = keyspace.Every
	}
	c.s.space.LockAll(&all)
	defer c.s.space.UnlockAll(&all)
	for _, w := range m.watches {
		if c.s.space.Of(w.Hash()).Touched(w, c.now) {
			c.out = resp.AppendNullArray(c.out, c.version)
			c.unwatchHeld()
			return
		}
	}
	c.unwatchHeld()
	if kinds&write != 0 {
		c.wrote = true
		defer c.s.space.Group(&all).End()
	}
	c.held = true
	defer func() { c.held = false }()
	c.array(len(m.queue))
	for _, q := range m.queue {
		if c.outgrown(q) {
			c.s.metrics.full.Add(1)
			c.err(errFull)
		} else {
			q.cmd.do(c, q.args)
		}
		if c.tooMuch() {
			c.overflow, c.out = true, c.out[:c.from] // all is done, though nobody is told
		}
	}
}

// outgrown tells whether a command of EXEC needs more memory behind those before it than was known, and there is not so
// much: a copy of what was only just put, for one.
func (c *session) outgrown(q queued) bool {
	if q.cmd.flags&write == 0 || q.cmd.more == nil {
		return false
	}
	n := c.needs(q.cmd, q.args)
	return n > q.needs && !c.s.space.Fits(n)
}

// keys gives the keys of a request to do.
func (cmd *command) keys(args [][]byte, do func(key []byte)) {
	last := cmd.last
	if last < 0 {
		last += len(args)
	}
	for i := cmd.first; cmd.first > 0 && i <= min(last, len(args)-1); i += cmd.step {
		do(args[i])
	}
}

func watch(c *session, args [][]byte) {
	if c.multi.open {
		c.err("ERR WATCH inside MULTI is not allowed")
		return
	}
	for _, key := range args[1:] {
		if c.multi.watches[string(key)] != nil {
			continue
		}
		n := 2*len(key) + queuedBytes
		if c.multi.watched+n > c.s.o.Request {
			c.err(fmt.Sprintf("ERR keys of more than %d bytes are watched", c.s.o.Request))
			return
		}
		c.multi.watched += n
		sh, h := c.lock(key)
		w := sh.Watch(h, key, c.now)
		c.unlock(sh)
		if c.multi.watches == nil {
			c.multi.watches = map[string]*keyspace.Watch{}
		}
		c.multi.watches[string(key)] = w
	}
	c.ok()
}

func unwatch(c *session, _ [][]byte) {
	if c.held {
		c.unwatchHeld()
	} else {
		c.unwatch()
	}
	c.ok()
}

func (c *session) unwatch() {
	for _, w := range c.multi.watches {
		sh := c.s.space.Lock(w.Hash())
		sh.Unwatch(w)
		sh.Unlock()
	}
	c.multi.watches, c.multi.watched = nil, 0
}

// unwatchHeld does what unwatch does in EXEC, which has locked the shards.
func (c *session) unwatchHeld() {
	for _, w := range c.multi.watches {
		c.s.space.Of(w.Hash()).Unwatch(w)
	}
	c.multi.watches, c.multi.watched = nil, 0
}
