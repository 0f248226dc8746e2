package join

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/parquet"
)

// A count that keeps no build row without a match needs to know how often each key comes, and nothing else. So on the
// cores of a CPU the build side's keys go to a tally as they are decoded, and the probe side's are looked up as they
// are: no row of either side has a number.

// tallies tells that a join is such a count, of keys that a tally has room for.
func (c *columnJoin) tallies(build *parquetFile) bool {
	return c.Count && !c.How.keepsBuild() && c.cores &&
		(!c.joiner.plan.wide || c.joiner.plan.sixteen(build, c.probe))
}

// sixteen tells that the keys are one flat column of 16 bytes, such as UUIDs, alike on both sides: two words.
func (p *keyPlan) sixteen(build, probe *parquetFile) bool {
	is := func(f *parquetFile, field int) bool {
		d, _ := wideDomain(f.schema.Field(field).Type)
		col := f.flat(field)
		return d.kind == "binary" && col != nil && col.PhysicalType() == parquet.Types.FixedLenByteArray &&
			widthOf(col) == 16
	}
	return len(p.keys) == 1 && !p.nullsEqual && is(build, p.keys[0].build) && is(probe, p.keys[0].probe)
}

// errNear says that keys lie close together, and need no tally.
var errNear = errors.New("keys lie close together")

// readTally reads the build side's keys into a tally; nil where they lie close together, as far as can be told at once.
func (c *columnJoin) readTally(ctx context.Context, p *parquetFile) (*tally, error) {
	plan := c.joiner.plan
	sixteen := plan.sixteen(p, c.probe)
	c.plain = sixteen || plan.signed(p, c.probe)
	low, high, near := p.near(plan.keys[0].build, nearest)
	if near && c.plain {
		return nil, nil
	}
	pieces := int64(0)
	for g := range p.groups() {
		pieces += (p.groupRows(g) + pieceRows - 1) / pieceRows
	}
	two := sixteen || plan.two()
	t := newTally(p.rows, pieces, two)
	r := &tallyReader{columnJoin: c, tally: t, all: spanOf(nil, nil, 0)}
	r.unsure = !two && len(plan.keys) == 1 && !(c.plain && low < high)
	err := c.eachGroup(ctx, p, func(group int) error { return r.group(p, group) })
	if _, _, near := r.all.close(); err == errNear || err == nil && near && !two {
		return nil, nil
	}
	if err != nil {
		return nil, readError(err, "build")
	}
	if err := p.sameRows(r.rows); err != nil {
		return nil, err
	}
	c.sum.BuildRows, c.sum.Table = p.rows, ""
	c.low, c.high, c.known = r.low, r.high, r.known
	c.Progress(Progress{"read", p.rows, p.rows})
	defer since(&c.stats.building, time.Now())
	t.fill()
	c.Progress(Progress{"build", p.rows, p.rows})
	return t, c.small()
}

// tallyReader reads the build side's row groups.
type tallyReader struct {
	*columnJoin
	*tally
	unsure bool // the file does not tell whether keys lie close together: those of any row group tell

	mu        sync.Mutex
	rows      int64
	all       span    // of the words
	low, high []int64 // of each column
	known     []bool
}

// group takes a row group's keys.
func (r *tallyReader) group(p *parquetFile, group int) error {
	w := r.workspace()
	defer r.scratch.Put(w)
	if r.plain {
		return r.plainGroup(w, p, group)
	}
	columns, err := r.readKeys(p, group, true)
	defer releaseKeys(columns)
	if err != nil {
		return err
	}
	defer since(&r.stats.building, time.Now())
	plan := r.joiner.plan
	rows := columns[0].rows()
	keys, err := r.packKeys(w, columns, rows, true)
	if err != nil {
		return err
	}
	low, high, known := plan.ranges(keys)
	all := spanOf(nil, nil, 0)
	if !plan.two() {
		all = spanOf(keys.words[0], keys.ok, uint(64-8*plan.bytes[0]))
	}
	if !r.note(rows, all, low, high, known) {
		return errNear
	}
	r.takeAll(keys.there())
	return nil
}

// plainGroup is group for plain keys.
func (r *tallyReader) plainGroup(w *matchScratch, p *parquetFile, group int) error {
	defer since(&r.stats.building, time.Now())
	v, err := p.vec(group, r.joiner.plan.keys[0].build, nil)
	if err != nil {
		return err
	}
	if v.dict != nil && v.width == 16 {
		v = v.plain()
	}
	defer v.spare()
	rows := v.n
	words, seconds := v.plainWords(w)
	all := spanOf(nil, nil, 0)
	all.n, all.low, all.high = len(words), 0, math.MaxUint64
	for _, x := range words {
		all.least, all.most = min(all.least, int64(x)), max(all.most, int64(x))
	}
	if !r.note(rows, all, []int64{all.least}, []int64{all.most}, []bool{seconds == nil}) {
		return errNear
	}
	r.takeAll(words, seconds)
	return nil
}

// plainWords are the keys that are there, of numbers with or without a dictionary, or of 16 bytes without one.
func (v *vec) plainWords(w *matchScratch) (words, seconds []uint64) {
	if v.width == 16 {
		w.keys.words[0] = slices.Grow(w.keys.words[0][:0], v.n)[:v.n]
		w.keys.words[1] = slices.Grow(w.keys.words[1][:0], v.n)[:v.n]
		for i := range v.n {
			b := v.fixed[16*i : 16*i+16]
			w.keys.words[0][i], w.keys.words[1][i] = binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:])
		}
	} else {
		values := v.int64s(&w.room)
		words = unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(values))), len(values))
		if v.valid == nil {
			return words, nil
		}
		w.keys.words[0] = append(w.keys.words[0][:0], words...)
	}
	w.keys.ok = append(w.keys.ok[:0], v.valid...)
	return w.keys.there()
}

// takeAll takes keys piece by piece.
func (r *tallyReader) takeAll(words, seconds []uint64) {
	for len(words) > 0 {
		n := min(len(words), pieceRows)
		if seconds == nil {
			r.take(words[:n], nil)
		} else {
			r.take(words[:n], seconds[:n])
			seconds = seconds[n:]
		}
		words = words[n:]
	}
}

// note notes how far a row group's keys are apart, and tells whether to go on.
func (r *tallyReader) note(rows int, s span, low, high []int64, known []bool) bool {
	if _, _, near := s.close(); near && r.unsure {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.rows += int64(rows)
	r.all.join(s)
	if r.known == nil {
		r.low, r.high, r.known = low, high, known
		return true
	}
	for i := range low {
		r.low[i], r.high[i] = min(r.low[i], low[i]), max(r.high[i], high[i])
	}
	return true
}

// there gives the words of those rows that can match, in the memory of all.
func (p *packed) there() (words, seconds []uint64) {
	words, seconds = p.words[0], p.words[1]
	if !slices.Contains(p.ok, false) {
		return words, seconds
	}
	n := 0
	for i, ok := range p.ok {
		if ok {
			words[n] = words[i]
			if seconds != nil {
				seconds[n] = seconds[i]
			}
			n++
		}
	}
	if seconds != nil {
		seconds = seconds[:n]
	}
	return words[:n], seconds
}

// matchPlain counts what comes out of a row group by plain keys: they are looked up page by page, and each entry of a
// dictionary once.
func (c *columnJoin) matchPlain(u *unit) error {
	w := c.workspace()
	defer c.scratch.Put(w)
	defer since(&c.stats.probing, time.Now())
	found, pairs := int64(0), int64(0)
	var dict *vec // whose entries w.times are of
	err := c.probe.pages(u.group, c.joiner.plan.keys[0].probe, c.inReach(0), func(v *vec, from int) error {
		if from == 0 {
			found, pairs = 0, 0
		}
		if v.dict == nil {
			f, p := c.tally.count(v.plainWords(w))
			found, pairs = found+f, pairs+p
			return nil
		}
		if dict != v.dict {
			words, seconds := v.dict.plainWords(w)
			dict, w.times = v.dict, c.tally.timesOf(words, seconds, w.times)
		}
		for i, code := range v.codes {
			if v.valid == nil || v.valid[i] {
				pairs += int64(w.times[code])
				found += int64(min(w.times[code], 1))
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the probe side: %w", err)
	}
	u.out = c.comesOut(int64(u.rows), found, pairs)
	return nil
}

// comesOut is how many rows come out of some, of which so many have a match, and so many together.
func (c *columnJoin) comesOut(rows, found, pairs int64) int64 {
	switch c.How {
	case Semi:
		return found
	case Anti:
		return rows - found
	case Left:
		return rows - found + pairs
	}
	return pairs
}
