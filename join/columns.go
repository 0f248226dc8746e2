package join

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/warpmap/warpmap/internal/crash"
)

// From Parquet to Parquet a join goes column by column. For each row group of the probe side the key columns alone are
// read and looked up, by as many goroutines as there are threads. What is found, in the order of the row groups, is cut
// into row groups of the output, and each column of each of them is read, taken and encoded as a task of its own. So a
// column is read where rows of it come out, and one goroutine has one column of one row group in memory. A row group
// all of whose rows come out once, in order, is copied as it stands.

// columnJoin is a join from Parquet to Parquet, or of counts.
type columnJoin struct {
	*joiner
	ctx   context.Context // of the whole join
	probe *parquetFile
	plan  *output
	build []*buildColumn // of the output, nil for the probe's
	enc   *parquetEncoder
	room  *semaphore.Weighted
	stats columnTimes
	low   []int64 // of the build's keys, where known
	high  []int64
	known []bool
	bits  *bitKeys // where set, they take the place of the index
	tally *tally   // so does this
	plain bool     // keys are one column, and the tally's words are its signed numbers or 16 bytes as they are
	most  int      // rows of an output's row group; 0: as many as a row group of the probe side has, where all come out

	scratch sync.Pool // of *matchScratch
}

// columnTimes are nanoseconds of stages, which many goroutines add to.
type columnTimes struct{ reading, building, probing atomic.Int64 }

func since(into *atomic.Int64, start time.Time) { into.Add(int64(time.Since(start))) }

// columns runs a join whose probe side is a Parquet file, into one or, without a writer, to a count.
func (j *joiner) columns(ctx context.Context, build, probe *Reader, plan *output, out *Writer) (err error) {
	c := &columnJoin{joiner: j, probe: probe.pq, plan: plan, build: make([]*buildColumn, len(plan.columns))}
	if out != nil {
		c.enc = out.columns()
	}
	if j.Memory > 0 {
		c.room = semaphore.NewWeighted(j.Memory)
	}
	if j.plan, err = planKeys(build.Schema(), probe.Schema(), j.On, j.NullsEqual); err != nil {
		return err
	}
	defer c.addTimes()
	if build.pq != nil && j.byBits {
		if low, high, ok := c.rangeOf(build.pq); ok {
			if c.bits, err = c.readBits(ctx, build.pq, low, high); err == nil {
				err = j.ready()
			}
			if err != nil {
				return err
			}
		}
	}
	if c.bits == nil && build.pq != nil && c.tallies(build.pq) {
		if c.tally, err = c.readTally(ctx, build.pq); err == nil {
			err = j.ready()
		}
		if err != nil {
			return err
		}
	}
	if c.bits != nil || c.tally != nil {
		return c.run(ctx, out)
	}
	if build.pq != nil {
		err = c.readBuild(ctx, build.pq)
	} else {
		err = c.streamBuild(ctx, build)
	}
	if err != nil {
		return err
	}
	j.watch()
	defer func() {
		if e := j.index.close(); err == nil {
			err = e
		}
	}()
	return c.run(ctx, out)
}

func (c *columnJoin) addTimes() {
	for _, t := range []struct {
		from *atomic.Int64
		to   *float64
	}{{&c.stats.reading, &c.sum.Reading}, {&c.stats.building, &c.sum.Building}, {&c.stats.probing, &c.sum.Probing}} {
		*t.to += time.Duration(t.from.Load()).Seconds()
	}
	if c.enc != nil {
		c.sum.Writing += time.Duration(c.enc.busy.Load()).Seconds()
	}
}

// readError names the side that could not be read, unless the join was cancelled.
func readError(err error, side string) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("reading the %s side: %w", side, err)
}

// run looks the row groups up, and submits what comes out.
func (c *columnJoin) run(ctx context.Context, out *Writer) error {
	c.ctx = ctx
	ctx, cancel := context.WithCancelCause(ctx)
	groups := c.probe.groups()
	units := make([]*unit, groups)
	for g := range units {
		units[g] = &unit{group: g, done: make(chan struct{})}
	}
	ahead := make(chan struct{}, 2*c.Threads) // units that were looked up, and have not come out
	var next atomic.Int64
	var workers crash.WaitGroup
	defer func() { // when nobody looks up any more: after a limit, some still did
		if c.index != nil {
			c.sum.Filtered = c.index.filtered()
		}
	}()
	defer workers.Wait()
	defer cancel(nil)
	for range min(c.Threads, groups) {
		workers.Go(func() {
			for {
				select {
				case ahead <- struct{}{}:
				case <-ctx.Done():
					return
				}
				g := int(next.Add(1)) - 1
				if g >= groups {
					return
				}
				u := units[g]
				u.err = catch("looking up broke off", func() error { return c.match(ctx, u) })
				close(u.done)
				if u.err != nil {
					return
				}
			}
		})
	}
	err := c.sequence(ctx, units, ahead)
	if err == nil && c.enc != nil {
		err = c.enc.wait()
	}
	var ours *columnError
	if errors.As(err, &ours) {
		return ours.error
	}
	if err != nil {
		return out.fail(err)
	}
	return nil
}

// columnError is an error of a column that was to be written, not of the writing.
type columnError struct{ error }
