package serve

import (
	"context"
	"runtime"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/internal/crash"
)

// job is a block of a request's reads, with their mates.
type job struct {
	*classify.Result
	letters int
	err     error
	done    chan struct{} // closed when verdicts are there, or err is
}

// batcher puts blocks of requests together. Those that come while others are under way wait for one another, no longer
// than these take. Small ones go first: a client with a few reads does not wait for those with millions.
type batcher struct {
	c       *classify.Classifier
	letters int       // of a batch, about
	small   chan *job // of smallLetters at most
	large   chan *job
	metrics *metrics
	stop    context.CancelCauseFunc
	workers crash.Group
	ended   chan struct{}
	once    sync.Once
}

const smallLetters = 1 << 14

// newBatcher calls stop with an error that the device does not recover from.
func newBatcher(c *classify.Classifier, letters int, m *metrics, stop context.CancelCauseFunc) (*batcher, error) {
	b := &batcher{c: c, letters: letters, small: make(chan *job), large: make(chan *job), metrics: m, stop: stop,
		ended: make(chan struct{})}
	for range max(2, min(4, runtime.GOMAXPROCS(0))) {
		w, err := c.NewWorker()
		if err != nil {
			b.close()
			return nil, err
		}
		b.workers.Go(func() error {
			defer w.Close()
			b.run(w)
			return nil
		})
	}
	return b, nil
}

// close ends the workers. Nothing may be submitted any more.
func (b *batcher) close() {
	b.once.Do(func() { close(b.ended) })
	b.workers.Wait()
}

// submit hands a job to a worker. It is done later. Errors: ctx's.
func (b *batcher) submit(ctx context.Context, j *job) error {
	to := b.large
	if j.letters <= smallLetters {
		to = b.small
	}
	select {
	case to <- j:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *batcher) run(w *classify.Worker) {
	for {
		select {
		case j := <-b.small:
			b.classify(w, b.gather(j))
		case j := <-b.large: // small ones go with it
			b.classify(w, b.gather(j))
		case <-b.ended:
			return
		}
	}
}

// gather takes what else waits, as far as it fits.
func (b *batcher) gather(j *job) []*job {
	batch, letters := []*job{j}, j.letters
	for _, from := range []chan *job{b.small, b.large} {
		for more := true; more && letters < b.letters; {
			select {
			case j := <-from:
				batch, letters = append(batch, j), letters+j.letters
			default:
				more = false
			}
		}
	}
	return batch
}

// classify does a batch; where the device has too little memory for all at once, one by one.
func (b *batcher) classify(w *classify.Worker, batch []*job) {
	results := make([]*classify.Result, len(batch))
	for i, j := range batch {
		results[i] = j.Result
	}
	err := crash.Catch(func() error { return w.Classify(results...) })
	if device.IsOutOfMemory(err) && len(batch) > 1 {
		for _, j := range batch {
			b.classify(w, []*job{j})
		}
		return
	}
	b.metrics.batches.Add(1)
	if err != nil && !device.IsOutOfMemory(err) {
		b.stop(err)
	}
	for _, j := range batch {
		j.err = err
		close(j.done)
	}
}
