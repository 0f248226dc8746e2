package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// Members agree that all have room for a plan before anything of it is sent. If one has not, all try smaller pieces, as
// a cluster does. They can skip the agreement for a plan whose boxes are no larger than those of an earlier plan: every
// member knows what every other had room for, and boxes never shrink.

// boxes is what the bytes of inboxes, outboxes and notes depend on, besides the number of rows. All members have the
// same in one call.
type boxes struct {
	regions, halves     int
	all, mixed, counted bool
}

// boxRows is the number of rows of each rank that all members have room for: received and sent, in a round; and of
// cursors.
type boxRows struct {
	gets, sends []int
	cursors     int
}

// needs returns the room that a plan needs. All members compute the same.
func (j *joint) needs(jb *job, p plan) (boxes, boxRows) {
	b := boxes{regions: jb.order.regions, halves: min(2, len(p.rounds)), all: jb.all, mixed: jb.mixed,
		counted: jb.counts}
	n := boxRows{gets: slices.Clone(p.rows), sends: make([]int, j.size), cursors: j.cursorsOf(jb, p)}
	for _, rd := range p.rounds {
		for rank := range n.sends {
			n.sends[rank] = max(n.sends[rank], rd.to[rank]-rd.from[rank])
		}
	}
	for rank := range n.gets {
		if jb.order.regions > 0 { // one box has both
			n.gets[rank] += n.sends[rank]
		}
	}
	return b, n
}

// within reports whether a plan that needs n rows fits where one that needed m rows did.
func (n boxRows) within(m boxRows) bool {
	if len(m.gets) == 0 || n.cursors > m.cursors {
		return false
	}
	for rank := range n.gets {
		if n.gets[rank] > m.gets[rank] || n.sends[rank] > m.sends[rank] {
			return false
		}
	}
	return true
}

// joined returns the larger of two needs, for each rank.
func (n boxRows) joined(m boxRows) boxRows {
	if len(m.gets) == 0 {
		return n
	}
	out := boxRows{gets: make([]int, len(n.gets)), sends: make([]int, len(n.gets)), cursors: max(n.cursors, m.cursors)}
	for rank := range n.gets {
		out.gets[rank], out.sends[rank] = max(n.gets[rank], m.gets[rank]), max(n.sends[rank], m.sends[rank])
	}
	return out
}

// shortError is the error of a plan for which some member has too little memory. All members get one in the same call,
// and nothing is sent.
type shortError struct{ error }

func (e shortError) Unwrap() error { return e.error }

// roomFor makes room for a plan at all members. It is collective. Errors: a shortError, which is this member's own if
// it has too little memory, and else names the first such rank; any other error of a member.
func (j *joint) roomFor(what string, jb *job, p plan) error {
	if len(p.rounds) == 0 {
		return nil
	}
	b, n := j.needs(jb, p)
	if n.within(j.roomy[b]) {
		return nil
	}
	own, short, err := "", error(nil), j.makeRoom(jb, p)
	if device.IsOutOfMemory(err) {
		short, err = frame.OneLine(err), nil
		own = short.Error()
		for half := range j.m.inbox { // a smaller piece takes less of each
			err = errors.Join(err, j.inbox[half].release(&j.m.inbox[half]), j.outbox[half].release(&j.m.outbox[half]),
				release(&j.m.notes[half]))
		}
	}
	said, err := agreed(j, what, own, err)
	if err != nil {
		clear(j.roomy) // a box may be smaller than before
		return err
	}
	for rank, text := range said {
		switch {
		case text == "":
			continue
		case short == nil:
			short = fmt.Errorf("%s: %s: rank %d: %s", family, what, rank, text)
		}
		clear(j.roomy)
		return shortError{short}
	}
	if j.roomy == nil {
		j.roomy = map[boxes]boxRows{}
	}
	j.roomy[b] = n.joined(j.roomy[b])
	return nil
}

// smaller makes pieces smaller, for the rest of a call whose largest batch has as many rows as largest. piece and most
// are the table's own. It reports whether that was possible. All members do the same.
func (j *joint) smaller(jb *job, largest, piece, most int) bool {
	next := max(tileMost, min(j.piece, largest)/4)
	switch {
	case jb.order.regions > 0 && (j.piece <= regionMost || j.words(largest, next, jb.order) > mostWords):
		jb.order, j.piece = order{}, piece // to split by owners takes less memory, and fewer counts
	case j.piece <= tileMost:
		return false
	default:
		j.piece = next
	}
	chunk := jb.order.chunk(j.piece)
	j.most = max(chunk, min(j.piece+j.piece/8+tileMost, most))
	return true
}
