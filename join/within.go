package join

import (
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Options.Memory bounds what is decoded, not what lies in files: a value of a dictionary counts as often as it comes. A
// build side that takes more goes to disk (partition.go). Batches are as small as they must be for several to be in
// memory at a time. From Parquet to Parquet a column of a row group is in memory whole; where that is too much, the
// join goes by batches. What cannot be read in part is not bounded: a row, a page of Parquet, a batch of Arrow.

// atOnce is about how many bytes of a batch are in memory, of which several are at a time.
func (j *joiner) atOnce() int64 {
	switch {
	case j.Memory > 0:
		return max(j.Memory/int64(max(j.shares, batchShare)), leastBatch)
	case j.beside > 1:
		return besideBatch
	}
	return math.MaxInt32
}

// besideBatch is that of a column where blocks are looked up side by side: seven batches for each may wait for the
// writer. Those of 65,536 rows are smaller, if a value has less than 128 bytes.
const besideBatch = 8 << 20

// blockBytes is about how many bytes a block of probe rows may have.
func (j *joiner) blockBytes() int64 {
	if j.Memory == 0 && j.beside > 1 {
		return 4 * besideBatch
	}
	return j.atOnce()
}

// within has readers, and the join with so many columns in its output, make batches that memory has room for.
func (j *joiner) within(columns int, readers ...*Reader) error {
	if rows := j.atOnce() / valueBytes / int64(max(1, columns)); j.Memory > 0 {
		j.batch = int(min(int64(j.batch), max(1, rows)))
	}
	for i, r := range readers {
		if j.Memory == 0 || r.within == nil {
			continue
		}
		if err := r.within(j.atOnce()); err != nil {
			return readError(err, []string{"build", "probe"}[i])
		}
	}
	return nil
}

// valueBytes is what a value takes in a batch of the output, but for its text.
const valueBytes = 16

// A batch takes one of so many shares of memory, and so many bytes at least: with less, time goes into batches.
const batchShare, leastBatch = 16, 1 << 18

// sizeOf is about how many bytes of memory a batch has.
func sizeOf(rec arrow.RecordBatch) (n int64) {
	for _, c := range rec.Columns() {
		n += int64(c.Data().SizeInBytes())
	}
	return n
}

// needed is about how many bytes of memory the build side will take: columns as their files have them, or decoded,
// where each row has its own of a dictionary's values.
func (j *joiner) needed(build *Reader, plan *output, decoded bool, memory int64) (int64, error) {
	rows := min(max(0, build.likely()), 1<<40) // a broken file may say anything
	if build.pq == nil {
		// compressed text is larger than its file
		return max(build.size, 8*rows*int64(build.schema.NumFields())) + 16*rows, nil
	}
	if !decoded {
		return j.columnBytes(build, plan, func(g, i int) (int64, error) { return build.pq.bytes(g, i), nil })
	}
	// What is certainly enough for all is told at once.
	if n, err := j.columnBytes(build, plan, build.pq.mostDecoded); err != nil || n <= memory {
		return n, err
	}
	return j.columnBytes(build, plan, build.pq.decoded)
}

// columnBytes is what the build side takes, by the bytes of its columns that come out, and of keys that are no numbers.
func (j *joiner) columnBytes(build *Reader, plan *output, of func(group, field int) (int64, error)) (int64, error) {
	rows := min(max(0, build.likely()), 1<<40)
	n := int64(len(j.On)) * 16 * rows
	for i, field := range build.schema.Fields() {
		key := slices.ContainsFunc(j.On, func(p Pair) bool { return p.Build == field.Name }) &&
			build.pq.widthOf(i) == 0
		if !key && (j.Count || !slices.Contains(plan.columns, source{true, i})) {
			continue
		}
		bytes := int64(0)
		for g := range build.pq.groups() {
			more, err := of(g, i)
			if err != nil {
				return 0, readError(err, "build")
			}
			bytes += min(more, math.MaxInt64/4-bytes)
		}
		n = min(n+max(bytes, 4*rows), math.MaxInt64/4)
	}
	return n, nil
}

// way is how a join goes.
type way struct {
	parts   int   // that the build side is split into, on disk; 1: it is not
	most    int64 // bytes of one
	columns bool  // column by column, from Parquet to Parquet or to a count
}

// way chooses it.
func (j *joiner) way(build, probe *Reader, plan *output) (w way, err error) {
	memory := j.Memory
	if memory == 0 {
		memory = int64(min(machine(), 1<<62)) / 2
	}
	w.parts = 1
	if w.columns, err = j.byColumns(build, probe, plan); err != nil {
		return w, err
	}
	needed, err := j.needed(build, plan, build.pq != nil && !w.columns, memory)
	if err != nil {
		return w, err
	}
	if w.most = max(memory/4, leastParted); j.part > 0 {
		w.most = j.part
	}
	if j.part > 0 || j.part == 0 && needed > max(memory, leastParted) {
		w.parts, w.columns = int(min(mostParts, needed/w.most+1)), false
	}
	return w, nil
}

// byColumns reports whether a join can go column by column: from Parquet to a Parquet file, to a count or to nowhere,
// with a column of a row group in memory for each thread. The files of a folder take batches.
func (j *joiner) byColumns(build, probe *Reader, plan *output) (bool, error) {
	to := j.writeOptions()
	f, _ := to.format(j.Out)
	if probe.pq == nil || !j.Count && (f != Parquet && f != "" || to.folder(j.Out)) {
		return false, nil
	}
	if j.Memory == 0 || j.part < 0 {
		return true, nil
	}
	for _, c := range plan.columns {
		if c.build && !j.Count && (build.pq == nil || build.pq.flat(c.at) == nil) {
			return false, nil // a whole row group's are taken at once, whatever they take
		}
	}
	for i, field := range probe.schema.Fields() {
		key := slices.ContainsFunc(j.On, func(p Pair) bool { return p.Probe == field.Name })
		if !key && (j.Count || !slices.Contains(plan.columns, source{at: i})) {
			continue
		}
		for g := range probe.pq.groups() {
			n, err := probe.pq.bytes(g, i), error(nil)
			if probe.pq.flat(i) == nil {
				n, err = probe.pq.mostDecoded(g, i)
			}
			if err != nil {
				return false, readError(err, "probe")
			}
			if n > j.Memory/chunkShare {
				return false, nil
			}
		}
	}
	return true, nil
}

// chunkShare: a column of a row group takes one of so many shares of memory at most.
const chunkShare = 8
