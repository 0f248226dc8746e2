package keyspace

import "math/bits"

// Group is what is done to several shards and logged as one record, so that after a crash all of it is there or
// nothing.
type Group struct {
	space  *Space
	shards Several
	buf    []byte // records
	count  int    // how many
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
func (g *Group) add(e entry) {
	g.buf = appendEntry(g.buf, e)
	if g.count++; len(g.buf) > mostGroup {
		g.end()
	}
}

func (g *Group) end() {
	switch {
	case g.count == 1 || len(g.buf) > mostBytes:
		g.space.log.Append(func(b []byte) []byte { return append(b, g.buf...) })
	case g.count > 1:
		logEntry(g.space.log, entry{kind: kindGroup, value: g.buf})
	}
	if g.buf, g.count = g.buf[:0], 0; cap(g.buf) > mostKept {
		g.buf = nil
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
	g.end()
}
