package join

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// emit takes the rows of one output batch and sends it, in halves if their text does not fit one array.
func (j *joiner) emit(b *block, takers []*taker, left, right []loc) error {
	if len(left) == 0 {
		return nil
	}
	cols := make([]arrow.Array, len(takers))
	// A block that is one batch, and comes out whole, need not be copied.
	whole := len(b.recs) == 1 && len(left) == b.rows
	for i := 0; whole && i < len(left); i++ {
		whole = left[i].row == i
	}
	errs := j.eachColumn(len(cols), func(c int) (err error) {
		var data arrow.ArrayData
		from := j.out.columns[c]
		switch {
		case from.build:
			data, err = takers[c].take(right)
		case whole:
			cols[c] = b.recs[0].Column(from.at)
			cols[c].Retain()
			return nil
		default:
			data, err = takers[c].take(left)
		}
		if err == nil {
			cols[c] = array.MakeFromData(data)
			data.Release()
		}
		return err
	})
	for c, err := range errs {
		if errors.Is(err, errTooBig) && len(left) > 1 {
			h := len(left) / 2
			var first, second []loc
			if len(right) > 0 {
				first, second = right[:h], right[h:]
			}
			if err := j.emit(b, takers, left[:h], first); err != nil {
				return err
			}
			return j.emit(b, takers, left[h:], second)
		}
		if err != nil {
			return fmt.Errorf("column %q: %w", j.out.schema.Field(c).Name, err)
		}
	}
	rec := array.NewRecordBatch(j.out.schema, cols, int64(len(left)))
	for _, c := range cols {
		c.Release()
	}
	return b.send(rec)
}

// eachColumn is each, on this goroutine alone where others have blocks of their own.
func (j *joiner) eachColumn(n int, f func(int) error) []error {
	if j.beside < 2 {
		return each(n, f)
	}
	errs := make([]error, n)
	for i := range errs {
		errs[i] = f(i)
	}
	return errs
}

// blockTakers makes a taker for each column of the output, over a block for the probe's.
func (j *joiner) blockTakers(b *block) ([]*taker, error) {
	var all []*taker
	next := 0
	for i, c := range j.out.columns {
		if c.build {
			all = append(all, j.takers[next])
			next++
			continue
		}
		chunks := make([]arrow.ArrayData, len(b.recs))
		for i, r := range b.recs {
			chunks[i] = r.Column(c.at).Data()
		}
		t, err := newTaker(j.out.schema.Field(i).Type, chunks)
		if err != nil {
			return nil, fmt.Errorf("probe column %q: %w", j.out.schema.Field(i).Name, err)
		}
		all = append(all, t.limit(j.atOnce()))
	}
	return all, nil
}

// buildLoc finds the chunk of a build row.
func (j *joiner) buildLoc(row int64) loc {
	if len(j.starts) == 2 {
		return loc{0, int(row)}
	}
	from, to := 0, len(j.starts)-2 // chunks that it may be in
	if k := int(row >> stretchBits); k+1 < len(j.stretches) {
		from, to = int(j.stretches[k]), int(j.stretches[k+1])
	}
	for from < to {
		if m := (from + to) / 2; j.starts[m+1] > row {
			to = m
		} else {
			from = m + 1
		}
	}
	return loc{from, int(row - j.starts[from])}
}

// stretchBits: the build side's rows are in stretches of 2 to the power of that, whose first rows' chunks are noted.
const stretchBits = 10

// note notes the chunks of the stretches' first rows.
func (j *joiner) note() {
	j.stretches = make([]int32, j.starts[len(j.starts)-1]>>stretchBits+1)
	c := 0
	for k := range j.stretches {
		for c+2 < len(j.starts) && j.starts[c+1] <= int64(k)<<stretchBits {
			c++
		}
		j.stretches[k] = int32(c)
	}
}

// rest sends the build rows without a match.
func (j *joiner) rest(ctx context.Context, none *block) error {
	rows := j.unmatched()
	if j.Limit > 0 {
		rows = rows[:min(int64(len(rows)), j.Limit-j.taken)]
	}
	if j.Count {
		j.sum.OutRows += int64(len(rows))
		return nil
	}
	takers, err := j.blockTakers(none)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(rows, j.batch) {
		left, right := make([]loc, len(batch)), make([]loc, len(batch))
		for i, row := range batch {
			left[i], right[i] = null, j.buildLoc(row)
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := j.emit(none, takers, left, right); err != nil {
			return err
		}
	}
	return nil
}

// unmatched lists the build rows without a match.
func (j *joiner) unmatched() []int64 {
	matched := make([]bool, j.sum.BuildRows)
	for i, word := range j.seen {
		for ; word != 0; word &= word - 1 {
			rep := int64(32*i + bits.TrailingZeros32(word))
			for k := range j.index.matches(rep) {
				matched[j.index.match(rep, k)] = true
			}
		}
	}
	var rows []int64
	for row, m := range matched {
		if !m {
			rows = append(rows, int64(row))
		}
	}
	return rows
}
