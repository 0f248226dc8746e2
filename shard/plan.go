package shard

import (
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// plan is how a batch goes: round by round, in each of which every source sends some rows, and no owner gets more than
// its inbox holds.
type plan struct {
	rounds []round
	rows   []int // the most that an owner gets in a round
	sent   int   // the most that a source sends in a round
	// order is that in which owners get rows; with one, layouts says where the rows of each round are.
	order   order
	layouts []layout
}

// sorted makes the plan one of rows in an order. counts[i] has the rows of each part for each chunk of source i. Rows
// go as columns if a region has many more rows than others: a table that takes pairs builds its parts from as many rows
// each, and would want columns then.
func (p *plan) sorted(o order, counts [][]uint64, chunk int) {
	p.order = o
	for _, rd := range p.rounds {
		b := o.layoutOf(rd, counts, chunk)
		for j, largest := range b.largest {
			p.order.paired = p.order.paired && largest*o.regions <= unevenRegions*rd.gets[j]+unevenRows
		}
		p.layouts = append(p.layouts, b)
	}
}

// steps returns how many steps a round has; rows that are not sorted go in one.
func (p *plan) steps() int { return max(1, len(p.order.steps)) }

// starts returns the cursors of all rounds of a source.
func (p *plan) starts(source int) (all []uint64) {
	for _, b := range p.layouts {
		all = append(all, b.starts[source]...)
	}
	return all
}

// round is the rows from[i] to to[i] of each source i. Those of source i that owner j gets are to stand in j's inbox
// from at[i][j] on, n[i][j] of them.
type round struct {
	from, to []int
	at, n    [][]int
	gets     []int // rows of each owner
}

// chunkOf is the rows of a chunk: a piece has several, so that rounds can be cut where an owner gets much.
func chunkOf(piece int) int { return max(1, piece/16/tileMost) * tileMost }

// chunk is chunkOf for rows that go in that order.
func (o order) chunk(piece int) int {
	if o.regions == 0 {
		return chunkOf(piece)
	}
	return max(1, piece/8/regionMost) * regionMost
}

// newPlan deals out chunks: counts[i] has for each chunk of source i, of which the last may be shorter, how many rows
// each owner gets. A source sends no more than piece rows in a round, and an owner gets no more than most, which is at
// least a chunk.
func newPlan(sizes []int, counts [][]uint64, chunk, piece, most int) plan {
	owners := len(sizes)
	p := plan{rows: make([]int, owners)}
	next := make([]int, owners) // chunk of each source
	for {
		r := newRound(sizes, next, chunk)
		for took := true; took; {
			took = false
			for i := range sizes {
				if next[i]*chunk >= sizes[i] || (r.to[i]-r.from[i])+min(chunk, sizes[i]-next[i]*chunk) > max(piece,
					chunk) || !r.take(i, counts[i][next[i]*owners:][:owners], most) {
					continue
				}
				next[i]++
				r.to[i] = min(next[i]*chunk, sizes[i])
				took = true
			}
		}
		if !r.place(&p) {
			return p
		}
		p.rounds = append(p.rounds, r)
	}
}

func newRound(sizes, next []int, chunk int) round {
	r := round{gets: make([]int, len(sizes))}
	for i := range sizes {
		at := min(next[i]*chunk, sizes[i])
		r.from, r.to = append(r.from, at), append(r.to, at)
		r.at, r.n = append(r.at, make([]int, len(sizes))), append(r.n, make([]int, len(sizes)))
	}
	return r
}

// take adds a chunk of source i, if no owner gets more than most.
func (r *round) take(i int, counts []uint64, most int) bool {
	for j, n := range counts {
		if r.gets[j]+int(n) > most {
			return false
		}
	}
	for j, n := range counts {
		r.gets[j] += int(n)
		r.n[i][j] += int(n)
	}
	return true
}

// place says where each segment stands, and tells whether there is any.
func (r *round) place(p *plan) bool {
	any := false
	for j := range r.gets {
		at := 0
		for i := range r.at {
			r.at[i][j] = at
			at += r.n[i][j]
		}
		p.rows[j] = max(p.rows[j], at)
	}
	for i := range r.from {
		p.sent = max(p.sent, r.to[i]-r.from[i])
		any = any || r.to[i] > r.from[i]
	}
	return any
}

// widths are the bytes of a table's keys and values; a set has no values.
type widths struct{ keyBytes, valueBytes int }

// value is the width of the column of values: of sets that of counts.
func (w widths) value() int { return max(w.valueBytes, 4) }

// columns are where the columns of so many rows stand in an inbox or an outbox.
type columns struct{ values, out, flags, marks, bytes, outBytes int }

// columns lays out rows of a job: keys, values, those that come back, flags and marks. But of mixed batches, what comes
// back stands where the values came, and there are no marks. What comes back has outBytes a row.
func (w widths) columns(rows int, j *job) (at columns) {
	next := func(width int) (from int) {
		from, at.bytes = at.bytes, at.bytes+int(frame.Align(int64(rows*width)))
		return from
	}
	next(w.keyBytes)
	at.values = next(w.value())
	at.out = at.values
	at.outBytes = w.value()
	if j.counts {
		at.outBytes = 4
	}
	if j.mixed {
		at.out = next(w.value())
		at.marks = next(1)
	}
	at.flags = next(1)
	return at
}

// cut is n rows of an inbox or an outbox, from one on.
func (w widths) cut(mem device.Slice[byte], at columns, from, n int) received {
	column := func(first, width int) device.Slice[byte] {
		return mem.Slice(first+from*width, first+(from+n)*width)
	}
	r := received{n: n, keys: column(0, w.keyBytes), values: column(at.values, w.value()),
		out: column(at.out, at.outBytes), flags: column(at.flags, 1)}
	if at.marks != 0 {
		r.marks = column(at.marks, 1)
	}
	return r
}

// notes are where a round's places and bases stand.
type notes struct{ bases, bytes int }

func (w widths) notesOf(rows, owners int) notes {
	tile := tileRows(w.keyBytes, w.value())
	bases := int(frame.Align(int64(2 * rows)))
	return notes{bases, bases + (rows+tile-1)/tile*8*owners}
}

// tiles is a grid for kernels that take tiles.
func (w widths) tiles(m *member, rows int) device.Grid {
	tile := int64(tileRows(w.keyBytes, w.value()))
	return device.Grid{Blocks: min((int64(rows)+tile-1)/tile, 8*int64(m.d.Info().Multiprocessors)), Threads: threads}
}
