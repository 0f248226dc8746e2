package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap/internal/crash"
)

// block is a stretch of probe rows that is looked up at once: small batches are put together, large ones cut.
type block struct {
	recs  []arrow.RecordBatch
	rows  int
	bytes int64
}

func (b *block) release() {
	for _, r := range b.recs {
		r.Release()
	}
}

// probe streams the probe side: one goroutine reads, one writes, and this one looks up and takes rows.
func (j *joiner) probe(ctx context.Context, probe array.RecordReader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	more, stop := context.WithCancel(ctx) // until there are enough rows
	defer stop()
	if r, ok := probe.(*Reader); ok {
		defer context.AfterFunc(more, r.interrupt)()
	}
	blocks, outs := make(chan *block, 1), make(chan arrow.RecordBatch, 1)
	var reading, writing float64
	var both crash.WaitGroup
	both.Go(func() {
		defer close(blocks)
		err := catch("reading the probe side broke off", func() (err error) {
			reading, err = j.read(more, probe, blocks)
			return err
		})
		if err != nil && (more.Err() == nil || ctx.Err() != nil) {
			cancel(err)
		}
	})
	both.Go(func() {
		for rec := range outs {
			if ctx.Err() == nil {
				clock := time.Now()
				if err := catch("it broke off", func() error { return j.sink(rec) }); err != nil {
					cancel(fmt.Errorf("writing the output: %w", err))
				}
				writing += time.Since(clock).Seconds()
				j.sum.OutRows += rec.NumRows()
			}
			rec.Release()
		}
	})
	total, done := rowsOf(probe), int64(0)
	enough := false
	for b := range blocks {
		if !enough && ctx.Err() == nil {
			err := catch(brokeOff, func() error {
				clock := time.Now()
				waiting, err := j.block(ctx, b, outs)
				j.sum.Probing += (time.Since(clock) - waiting).Seconds()
				done += int64(b.rows)
				j.Progress(Progress{"probe", done, total})
				return err
			})
			if err == errEnough {
				enough = true
				stop()
			} else if err != nil {
				cancel(err)
			}
		}
		b.release()
	}
	if j.How.keepsBuild() && !enough && ctx.Err() == nil {
		if err := catch(brokeOff, func() error { return j.rest(ctx, outs) }); err != nil && err != errEnough {
			cancel(err)
		}
	}
	close(outs)
	both.Wait()
	j.sum.ProbeRows, j.sum.Filtered = done, j.index.filtered()
	j.sum.Reading += reading
	j.sum.Writing += writing
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// read cuts the probe side into blocks.
func (j *joiner) read(ctx context.Context, probe array.RecordReader, blocks chan<- *block) (seconds float64,
	err error) {
	b := &block{}
	send := func() error {
		if b.rows == 0 {
			return nil
		}
		select {
		case blocks <- b:
			b = &block{}
			return nil
		case <-ctx.Done():
			b.release()
			return ctx.Err()
		}
	}
	for {
		clock := time.Now()
		more := probe.Next()
		seconds += time.Since(clock).Seconds()
		if !more {
			break
		}
		rec := probe.RecordBatch()
		for from := int64(0); from < rec.NumRows(); {
			to := min(rec.NumRows(), from+int64(j.batch))
			b.recs = append(b.recs, rec.NewSlice(from, to))
			b.rows += int(to - from)
			b.bytes += sizeOf(rec) * (to - from) / rec.NumRows()
			from = to
			if b.rows >= j.batch || j.Memory > 0 && b.bytes >= j.atOnce() {
				if err := send(); err != nil {
					return seconds, err
				}
			}
		}
		if r, ok := probe.(*Reader); ok && r.isLive() { // nobody knows when more comes
			if err := send(); err != nil {
				return seconds, err
			}
		}
	}
	if err := probe.Err(); err != nil {
		b.release()
		return seconds, fmt.Errorf("reading the probe side: %w", err)
	}
	return seconds, send()
}

// block looks up a block's keys and sends the output's rows; it returns the time it waited for the writer.
func (j *joiner) block(ctx context.Context, b *block, outs chan<- arrow.RecordBatch) (waiting time.Duration,
	err error) {
	keys := &packed{}
	for _, r := range b.recs {
		if err := j.plan.pack(keys, r, false); err != nil {
			return 0, err
		}
	}
	keys.settle()
	reps := make([]int64, b.rows)
	if err := j.index.find(keys, reps); err != nil {
		return 0, err
	}
	j.notice(reps)
	if j.Count {
		for _, rep := range reps {
			j.sum.OutRows += int64(j.times(rep))
		}
		return 0, nil
	}
	takers, err := j.blockTakers(b)
	if err != nil {
		return 0, err
	}
	left, right := make([]loc, 0, j.batch), make([]loc, 0, j.batch)
	flush := func() error {
		w, err := j.emit(ctx, b, takers, left, right, outs)
		waiting += w
		left, right = left[:0], right[:0]
		return err
	}
	i := 0
	for c, r := range b.recs {
		for row := range int(r.NumRows()) {
			rep := reps[i]
			i++
			for k := range j.times(rep) {
				if j.Limit > 0 && j.taken == j.Limit {
					return waiting, cmp.Or(flush(), errEnough)
				}
				j.taken++
				left = append(left, loc{c, row})
				if len(j.payload) > 0 {
					if rep >= 0 {
						right = append(right, j.buildLoc(j.index.match(rep, k)))
					} else {
						right = append(right, null)
					}
				}
				if len(left) == j.batch {
					if err := flush(); err != nil {
						return waiting, err
					}
				}
			}
		}
	}
	return waiting, flush()
}

// watch makes room for notice.
func (j *joiner) watch() {
	if j.How.keepsBuild() {
		j.seen = make([]uint32, (j.sum.BuildRows+31)/32)
	}
}

// notice marks the representatives that were found, where build rows without a match come out.
func (j *joiner) notice(reps []int64) {
	if !j.How.keepsBuild() {
		return
	}
	last := int64(-1)
	for _, rep := range reps {
		if rep < 0 || rep == last {
			continue
		}
		last = rep
		if word, bit := &j.seen[rep/32], uint32(1)<<(rep%32); atomic.LoadUint32(word)&bit == 0 {
			atomic.OrUint32(word, bit)
		}
	}
}

// times is how often a probe row comes out whose keys have the given representative.
func (j *joiner) times(rep int64) int {
	switch {
	case rep >= 0 && j.How.pairs():
		return j.index.matches(rep)
	case j.How.keepsProbe(), j.How == Semi && rep >= 0, j.How == Anti && rep < 0:
		return 1
	}
	return 0
}

// errEnough ends a join that has as many rows as were asked for.
var errEnough = errors.New("enough rows")
