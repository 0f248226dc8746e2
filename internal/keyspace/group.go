package keyspace

import (
	"math/bits"

	"github.com/warpmap/warpmap/internal/journal"
)

// Group is what is done to several shards and logged as one record, so that after a crash all of it is there or
// nothing. While a snapshot is made there are two logs; then each has a record of its own shards' part.
type Group struct {
	space  *Space
	shards Several
	parts  []part
	spare  []byte // memory of the last part
}

// part is the records of a log.
type part struct {
	log   *journal.File
	buf   []byte
	count int
}

// Group has what is done to shards, which the caller has locked, logged as one record by End, before the caller unlocks
// them. It is nil where there is no log.
func (s *Space) Group(t *Several) *Group { return s.GroupAgain(nil, t) }

// GroupAgain does what Group does, with the memory of a group that has ended, or nil.
func (s *Space) GroupAgain(g *Group, t *Several) *Group {
	if s.disk == nil || s.disk.Sync == NoLog {
		return nil
	}
	if g == nil {
		g = &Group{space: s}
	}
	g.shards = *t
	g.set(g)
	return g
}

func (g *Group) set(to *Group) {
	for w, word := range g.shards {
		for ; word != 0; word &= word - 1 {
			g.space.shards[w*64+bits.TrailingZeros64(word)].group = to
		}
	}
}

// add adds a record. What is very large is several groups.
func (g *Group) add(l *journal.File, e entry) {
	if l == nil {
		return
	}
	i := 0
	for i < len(g.parts) && g.parts[i].log != l {
		i++
	}
	if i == len(g.parts) {
		g.parts = append(g.parts, part{log: l, buf: g.spare})
		g.spare = nil
	}
	p := &g.parts[i]
	p.buf = appendEntry(p.buf, e)
	if p.count++; len(p.buf) > mostGroup {
		p.end()
	}
}

func (p *part) end() {
	switch {
	case p.count == 1 || len(p.buf) > mostBytes:
		p.log.Append(func(b []byte) []byte { return append(b, p.buf...) })
	case p.count > 1:
		logEntry(p.log, entry{kind: kindGroup, value: p.buf})
	}
	if p.buf, p.count = p.buf[:0], 0; cap(p.buf) > mostKept {
		p.buf = nil
	}
}

// mostKept is how many bytes of a group's records are kept for the next.
const mostKept = 16 << 10

// End logs what was done.
func (g *Group) End() {
	if g == nil {
		return
	}
	g.set(nil)
	for i := range g.parts {
		g.parts[i].end()
		g.spare = g.parts[i].buf
	}
	clear(g.parts) // a session that rests keeps no log that a snapshot has replaced
	g.parts = g.parts[:0]
}
