package shard

import (
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// parts returns the rows of each part that source i has in a round.
func (r round) parts(i, parts int, counts []uint64, chunk int) (rows []uint64) {
	rows = make([]uint64, parts)
	for at := r.from[i]; at < r.to[i]; at += chunk {
		for g, n := range counts[at/chunk*parts:][:parts] {
			rows[g] += n
		}
	}
	return rows
}

// layout says where the rows of a round are in the boxes of all members.
type layout struct {
	rows    []int      // of each member's box
	starts  [][]uint64 // of each source: the box row where its rows of each part begin
	largest []int      // rows of the region that has most, of each owner
	waves   []wave
}

// wave is the rows of a few regions. All rows of owner j are rows[j], from at[j] on. Those of source i for owner j are in
// segments[i·owners+j].
type wave struct {
	regions  int
	at, rows []int
	segments []segment
}

// segment is n rows of a source for an owner, from out on in the source's box and from in on in the owner's.
type segment struct{ n, in, out int }

// of returns the segment of source i for owner j.
func (w *wave) of(i, j int) segment { return w.segments[i*len(w.at)+j] }

// layoutOf lays out a round. counts[i] has the rows of each part for each chunk of source i.
func (o order) layoutOf(rd round, counts [][]uint64, chunk int) (b layout) {
	owners := len(counts)
	parts := owners * o.regions
	rows, outbox := make([][]uint64, owners), make([][]int, owners)
	inbox := make([]int, owners) // the next row of each
	largest := make([]uint64, parts)
	for i := range owners {
		rows[i] = rd.parts(i, parts, counts[i], chunk)
		outbox[i] = make([]int, owners)
		next := rd.gets[i]
		for j := range owners {
			outbox[i][j] = next
			if j != i {
				next += rd.n[i][j]
			}
		}
		b.rows = append(b.rows, next)
		b.starts = append(b.starts, make([]uint64, parts))
		for g, n := range rows[i] {
			largest[g] += n
		}
	}
	for j := range owners {
		b.largest = append(b.largest, int(slices.Max(largest[j*o.regions:][:o.regions])))
	}
	from := 0
	waves := o.waves()
	numbers, segments := make([]int, 2*owners*len(waves)), make([]segment, owners*owners*len(waves))
	for k, regions := range waves {
		w := wave{regions: regions, at: numbers[2*k*owners:][:owners], rows: numbers[(2*k+1)*owners:][:owners],
			segments: segments[k*owners*owners:][:owners*owners]}
		for j := range owners {
			w.at[j] = inbox[j]
			for i := range owners {
				s := segment{in: inbox[j], out: outbox[i][j]}
				begin := s.out
				if i == j {
					begin = s.in
				}
				for g := j*o.regions + from; g < j*o.regions+from+regions; g++ {
					b.starts[i][g] = uint64(begin + s.n)
					s.n += int(rows[i][g])
				}
				inbox[j] += s.n
				outbox[i][j] += s.n
				w.segments[i*owners+j] = s
			}
			w.rows[j] = inbox[j] - w.at[j]
		}
		from += regions
		b.waves = append(b.waves, w)
	}
	return b
}

// waves returns the regions of each wave.
func (o order) waves() []int {
	if o.apart {
		return slices.Repeat([]int{1}, o.regions)
	}
	return o.steps
}

// step returns the waves of a step.
func (p *plan) step(r, step int) []wave {
	if !p.order.apart {
		return p.layouts[r].waves[step : step+1]
	}
	from := 0
	for _, n := range p.order.steps[:step] {
		from += n
	}
	return p.layouts[r].waves[from : from+p.order.steps[step]]
}

// stepRows returns the first row of a step in the inbox of owner j, and the number of rows.
func (p *plan) stepRows(r, step, j int) (from, rows int) {
	list := p.step(r, step)
	last := list[len(list)-1]
	return list[0].at[j], last.at[j] + last.rows[j] - list[0].at[j]
}

// boxRows returns rows of member i's box. Pairs are where the keys would be, and take the values' memory, too.
func (p *plan) boxRows(w widths, j *job, box device.Slice[byte], i, r, from, n int) received {
	if p.order.paired {
		pair := w.keyBytes + w.valueBytes
		return received{n: n, keys: box.Slice(from*pair, (from+n)*pair)}
	}
	return w.cut(box, w.columns(p.layouts[r].rows[i], j), from, n)
}

// sortedRows returns how the rows of a round come to owner j's table.
func (p *plan) sortedRows(r, j int) *frame.Sorted {
	return &frame.Sorted{Regions: int64(p.order.regions), Largest: int64(p.layouts[r].largest[j]), Paired: p.order.paired}
}

// chunks returns the steps of a round as chunks of an insert, which are there after ready.
func (p *plan) chunks(r, j int, ready []*device.Event) (chunks []frame.SortedChunk) {
	for step, regions := range p.order.steps {
		_, rows := p.stepRows(r, step, j)
		chunks = append(chunks, frame.SortedChunk{Rows: int64(rows), Regions: int64(regions), Ready: ready[step]})
	}
	return chunks
}
