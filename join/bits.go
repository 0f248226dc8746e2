package join

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
)

// Semi and anti joins, and counts of inner joins in which no key of the build side comes twice, ask whether a key is
// there and nothing else. Where the keys are one column of signed numbers that lie close together, a bit for each
// number between the least and the largest answers that: the keys are looked up page by page as they are decoded, and
// are nowhere kept.

// nearestBits is how many numbers there may be for each key where a bit for each of them takes the place of a table: 8
// bytes a key.
const nearestBits = 64

// bitKeys are the build side's keys.
type bitKeys struct {
	low, high int64
	bits      []uint64
	twice     atomic.Bool // some key comes more than once
	beyond    atomic.Bool // some key is not between low and high
}

// rangeOf tells what the build file says of its keys, and whether a bit for each number will do.
func (c *columnJoin) rangeOf(build *parquetFile) (low, high int64, ok bool) {
	if !c.asks() || !c.joiner.plan.signed(build, c.probe) {
		return 0, 0, false
	}
	return build.near(c.joiner.plan.keys[0].build, nearestBits)
}

// near tells the least and the largest value of a column, and whether there are at most so many numbers between them
// for each row, by what the file says.
func (p *parquetFile) near(field int, most uint64) (low, high int64, ok bool) {
	low, high = math.MaxInt64, math.MinInt64
	for g := range p.groups() {
		if p.groupRows(g) == 0 {
			continue
		}
		lo, hi, ok := p.bounds(g, field)
		if !ok {
			return 0, 0, false
		}
		low, high = min(low, lo), max(high, hi)
	}
	width := uint64(high) - uint64(low)
	// a broken file may say anything
	return low, high, low <= high && width < most*uint64(p.rows)+1024 && width/8 < machine()/8
}

// signed tells that the keys are one flat column of signed numbers, alike on both sides.
func (p *keyPlan) signed(build, probe *parquetFile) bool {
	if len(p.keys) != 1 || p.wide || p.keys[0].none || p.keys[0].buildDiv != 1 || p.keys[0].probeDiv != 1 {
		return false
	}
	number := func(f *parquetFile, field int) bool {
		t := f.schema.Field(field).Type
		col := f.flat(field)
		return col != nil && sameBytes(col, t) && t.ID() != arrow.UINT32 && t.ID() != arrow.UINT64
	}
	return number(build, p.keys[0].build) && number(probe, p.keys[0].probe)
}

// readBits reads the build side's keys into bits; nil where they are not as the file says, or a key comes twice that
// may not.
func (c *columnJoin) readBits(ctx context.Context, p *parquetFile, low, high int64) (*bitKeys, error) {
	b := &bitKeys{low: low, high: high, bits: make([]uint64, (uint64(high)-uint64(low))/64+1)}
	err := c.eachGroup(ctx, p, func(group int) error {
		defer since(&c.stats.building, time.Now())
		var room []int64
		return p.pages(group, c.joiner.plan.keys[0].build, nil, func(v *vec, _ int) error {
			b.add(v, &room)
			return nil
		})
	})
	if err != nil {
		return nil, readError(err, "build")
	}
	if b.beyond.Load() || b.twice.Load() && c.How == Inner {
		return nil, nil
	}
	c.sum.BuildRows, c.sum.Near, c.sum.Table = p.rows, true, ""
	c.low, c.high, c.known = []int64{low}, []int64{high}, []bool{true}
	c.Progress(Progress{"build", p.rows, p.rows})
	return b, c.small()
}

// int64s gives a page's numbers, of null rows any, in room where they do not stand so in the file.
func (v *vec) int64s(room *[]int64) []int64 {
	if v.width == 8 && v.dict == nil {
		w := words[uint64](v.fixed)
		return unsafe.Slice((*int64)(unsafe.Pointer(unsafe.SliceData(w))), len(w))
	}
	of := v
	if v.dict != nil {
		of = v.dict
	}
	out := slices.Grow((*room)[:0], max(v.n, of.n))[:of.n]
	if of.width == 8 {
		copy(out, of.int64s(nil))
	} else {
		for i, x := range words[uint32](of.fixed) {
			out[i] = int64(int32(x))
		}
	}
	if *room = out; v.dict == nil || of.n == 0 {
		return out[:v.n]
	}
	values := make([]int64, v.n)
	for i, c := range v.codes {
		values[i] = out[c]
	}
	return values
}

// add sets the bits of a page's keys. Neighbours that share a word are set together.
func (b *bitKeys) add(v *vec, room *[]int64) {
	at, mask, twice := uint64(0), uint64(0), uint64(0)
	for i, x := range v.int64s(room) {
		if v.valid != nil && !v.valid[i] {
			continue
		}
		if x < b.low || x > b.high {
			b.beyond.Store(true)
			return
		}
		d := uint64(x) - uint64(b.low)
		if d/64 != at {
			if mask != 0 {
				twice |= atomic.OrUint64(&b.bits[at], mask) & mask
			}
			at, mask = d/64, 0
		}
		bit := uint64(1) << (d % 64)
		twice |= mask & bit
		mask |= bit
	}
	if mask != 0 {
		twice |= atomic.OrUint64(&b.bits[at], mask) & mask
	}
	if twice != 0 {
		b.twice.Store(true)
	}
}

// look appends to rows those of a page whose keys are there, or with not those whose keys are not.
func (b *bitKeys) look(rows []uint32, v *vec, from int, not bool, room *[]int64) []uint32 {
	n := len(rows)
	rows = slices.Grow(rows, v.n)[:n+v.n]
	values := v.int64s(room)
	invert := uint64(0)
	if not {
		invert = 1
	}
	for i, x := range values {
		hit := invert
		if d := uint64(x) - uint64(b.low); d/64 < uint64(len(b.bits)) && (v.valid == nil || v.valid[i]) {
			hit ^= b.bits[d/64] >> (d % 64) & 1
		}
		rows[n] = uint32(from + i)
		n += int(hit)
	}
	return rows[:n]
}

// matchBits looks a row group up by bits, page by page.
func (c *columnJoin) matchBits(u *unit) error {
	defer since(&c.stats.probing, time.Now())
	w := c.workspace()
	defer c.scratch.Put(w)
	out := int64(0)
	w.rows = w.rows[:0]
	err := c.probe.pages(u.group, c.joiner.plan.keys[0].probe, c.inReach(0), func(v *vec, from int) error {
		if from == 0 {
			out, w.rows = 0, w.rows[:0]
		}
		before := len(w.rows)
		w.rows = c.bits.look(w.rows, v, from, c.How == Anti, &w.room)
		if out += int64(len(w.rows) - before); c.enc == nil {
			w.rows = w.rows[:0]
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("reading the probe side: %w", err)
	}
	u.out, u.whole = out, out == int64(u.rows)
	if c.enc != nil && !u.whole {
		u.chosen = slices.Clone(w.rows)
	}
	return nil
}
