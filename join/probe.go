package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
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
	outs  chan arrow.RecordBatch // what comes of it; closed when that is all
	send  func(arrow.RecordBatch) error

	// When outs is closed: the rows that were counted, and the time that it took, without that in which it waited.
	counted      int64
	took, waited time.Duration
	looked       bool // that it was looked up, and not left because there were enough rows
}

func (b *block) release() {
	for _, r := range b.recs {
		r.Release()
	}
}

// blockOuts is how many batches a block may be ahead of the writer.
const blockOuts = 2

// sideBySide is how many blocks are looked up at a time. Tables of a family get one after the other, as does a join
// that may end before its input does; and with a bound of memory there is one where it has no room for batches of
// several.
func (j *joiner) sideBySide(probe array.RecordReader) int {
	n := min(j.Threads, runtime.GOMAXPROCS(0))
	r, ok := probe.(*Reader)
	if n < 2 || j.Limit > 0 || j.index.usesTables() || ok && r.isLive() {
		return 1
	}
	if j.Memory > 0 {
		shares := batchShare * (blocksAhead + 1) * n
		if j.shares > 0 || j.Memory/int64(shares) < leastBatch {
			return 1
		}
		j.shares = shares
	}
	return n
}

// blocksAhead is how many blocks there are for each that is looked up: their results go out in order.
const blocksAhead = 2

// probe streams the probe side: one goroutine reads, one or more look up and take rows, and this one writes.
func (j *joiner) probe(ctx context.Context, probe array.RecordReader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	more, stop := context.WithCancel(ctx) // until there are enough rows
	defer stop()
	if r, ok := probe.(*Reader); ok {
		defer context.AfterFunc(more, r.interrupt)()
	}
	j.beside = j.sideBySide(probe)
	for _, t := range j.takers { // made when one block had their share
		t.limit(j.atOnce())
	}
	// A block is in line before anybody works on it.
	line, tasks := make(chan *block, blocksAhead*j.beside), make(chan *block)
	var reading, writing float64
	var enough atomic.Bool
	var all crash.WaitGroup
	all.Go(func() {
		defer close(line)
		defer close(tasks)
		err := catch("reading the probe side broke off", func() (err error) {
			reading, err = j.read(more, probe, line, tasks)
			return err
		})
		if err != nil && (more.Err() == nil || ctx.Err() != nil) {
			cancel(err)
		}
	})
	for range j.beside {
		all.Go(func() {
			for b := range tasks {
				if !enough.Load() && ctx.Err() == nil {
					clock := time.Now()
					b.looked = true
					err := catch(brokeOff, func() error { return j.block(ctx, b) })
					b.took = time.Since(clock) - b.waited
					if err == errEnough {
						enough.Store(true)
						stop()
					} else if err != nil {
						cancel(err)
					}
				}
				b.release()
				close(b.outs)
			}
		})
	}
	write := func(rec arrow.RecordBatch) {
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
	total, done := rowsOf(probe), int64(0)
	for b := range line {
		for rec := range b.outs {
			write(rec)
		}
		j.sum.OutRows += b.counted
		j.sum.Probing += b.took.Seconds()
		if b.looked {
			done += int64(b.rows)
		}
		if ctx.Err() == nil {
			err := catch(brokeOff, func() error { j.Progress(Progress{"probe", done, total}); return nil })
			if err != nil {
				cancel(err)
			}
		}
	}
	all.Wait()
	if j.How.keepsBuild() && !enough.Load() && ctx.Err() == nil {
		err := catch(brokeOff, func() error {
			return j.rest(ctx, &block{send: func(rec arrow.RecordBatch) error { write(rec); return nil }})
		})
		if err != nil && err != errEnough {
			cancel(err)
		}
	}
	j.sum.ProbeRows, j.sum.Filtered = done, j.index.filtered()
	j.sum.Reading += reading
	j.sum.Writing += writing
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// read cuts the probe side into blocks, which get in line and are tasks then. A batch that is large enough is a block
// as it is where several blocks are looked up side by side: what comes out whole need not be copied.
func (j *joiner) read(ctx context.Context, probe array.RecordReader, line, tasks chan<- *block) (seconds float64,
	err error) {
	enough := j.batch
	if j.beside > 1 {
		enough = max(1, j.batch/wholeShare)
	}
	b := &block{}
	send := func() error {
		if b.rows == 0 {
			return nil
		}
		this := b
		this.outs = make(chan arrow.RecordBatch, blockOuts)
		select {
		case line <- this:
		case <-ctx.Done():
			this.release()
			return ctx.Err()
		}
		select {
		case tasks <- this:
			b = &block{}
			return nil
		case <-ctx.Done():
			this.release()
			close(this.outs)
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
			// The reader's batches may have a larger share.
			to = min(to, from+max(1, j.blockBytes()*rec.NumRows()/max(1, sizeOf(rec))))
			b.recs = append(b.recs, rec.NewSlice(from, to))
			b.rows += int(to - from)
			b.bytes += sizeOf(rec) * (to - from) / rec.NumRows()
			from = to
			if b.rows >= enough || b.bytes >= j.blockBytes() {
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

// wholeShare: a batch of that share of a block's rows is a block as it is.
const wholeShare = 8

// block looks up a block's keys and sends the output's rows.
func (j *joiner) block(ctx context.Context, b *block) error {
	b.send = func(rec arrow.RecordBatch) error {
		clock := time.Now()
		defer func() { b.waited += time.Since(clock) }()
		select {
		case b.outs <- rec:
			return nil
		case <-ctx.Done():
			rec.Release()
			return context.Cause(ctx)
		}
	}
	keys := &packed{}
	for _, r := range b.recs {
		if err := j.plan.pack(keys, r, false); err != nil {
			return err
		}
	}
	keys.settle()
	reps := make([]int64, b.rows)
	if err := j.index.find(keys, reps); err != nil {
		return err
	}
	j.notice(reps)
	if j.Count {
		for _, rep := range reps {
			b.counted += int64(j.times(rep))
		}
		return nil
	}
	takers, err := j.blockTakers(b)
	if err != nil {
		return err
	}
	left, right := make([]loc, 0, min(j.batch, b.rows)), make([]loc, 0, min(j.batch, b.rows))
	flush := func() error {
		err := j.emit(b, takers, left, right)
		left, right = left[:0], right[:0]
		return err
	}
	i := 0
	for c, r := range b.recs {
		for row := range int(r.NumRows()) {
			rep := reps[i]
			i++
			for k := range j.times(rep) {
				if j.Limit > 0 {
					if j.taken == j.Limit {
						return cmp.Or(flush(), errEnough)
					}
					j.taken++
				}
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
						return err
					}
				}
			}
		}
	}
	return flush()
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
