package sketch

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/unique"
	"github.com/warpmap/warpmap/table/text"
)

// TextTopOptions are the options of NewTextTop. The zero value is good.
type TextTopOptions struct {
	// Counters is how many texts have counts, at least: see TopOptions. Twice as many are there at times.
	Counters int
}

// TextTop finds the texts that come most often, with the bound of Top. It is on the host's cores: they must hash the
// texts and keep those that are told, and then a device would have little left to do. It takes some 40 bytes for each
// text that has a count, and the text's length. It is not saved.
//
// All methods are safe for use by several goroutines. Errors of all methods: a TextTop that NewTextTop has not made.
type TextTop struct {
	counters int
	seed     maphash.Seed

	mu    sync.RWMutex // held for reading by whoever adds
	keys  *unique.Keys
	added atomic.Uint64
	less  uint64 // what Prune has taken; guarded by mu
}

// NewTextTop makes an empty sketch. Errors: Counters out of range.
func NewTextTop(o TextTopOptions) (*TextTop, error) {
	if o.Counters == 0 {
		o.Counters = defaultCounters
	}
	if o.Counters < 1 || o.Counters > mostCounters {
		return nil, fmt.Errorf("sketch: %d counters (want 1 to %d, or 0 for %d)", o.Counters, mostCounters,
			defaultCounters)
	}
	return &TextTop{counters: o.Counters, seed: maphash.MakeSeed(), keys: unique.New(true, true)}, nil
}

func (t *TextTop) made() error {
	if t.keys == nil {
		return errors.New("sketch: a TextTop that NewTextTop has not made")
	}
	return nil
}

// Add counts each text of a batch. Cost: each is hashed and looked up by one core.
func (t *TextTop) Add(keys []string) error { return t.add(len(keys), ofStrings(keys), nil) }

// AddText does what Add does, with texts in the form of package text, which need not be UTF-8. counts may be nil; else
// text i came counts[i] times, and all counts together must be less than 2^64. Errors: also what is no list of texts.
func (t *TextTop) AddText(keys text.Keys, counts []uint64) error {
	if err := keys.Check(); err != nil {
		return err
	}
	if err := family.CheckNamed("counts", keys.Len(), frame.OptionalLen(counts)); err != nil {
		return err
	}
	return t.add(keys.Len(), keys.At, counts)
}

// add counts n texts, which at gives, on all cores.
func (t *TextTop) add(n int, at func(i int) []byte, counts []uint64) error {
	if err := t.made(); err != nil {
		return err
	}
	for first := 0; first < n; first += mostText { // so that many are not there at once
		end := min(n, first+mostText)
		t.addPart(first, end, at, counts)
		t.prune()
	}
	return nil
}

// addPart counts texts first … end-1.
func (t *TextTop) addPart(first, end int, at func(i int) []byte, counts []uint64) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	part := max(leastText, (end-first-1)/runtime.GOMAXPROCS(0)+1)
	var all crash.WaitGroup
	for from := first; from < end; from += part {
		all.Go(func() {
			words, to := make([]uint64, 0, part), min(from+part, end)
			sum := uint64(to - from)
			var times []uint64
			if counts != nil {
				sum = 0
			}
			some := make([]int, 0, part) // those that came at all
			for i := from; i < to; i++ {
				if counts != nil {
					if counts[i] == 0 {
						continue
					}
					times, sum = append(times, counts[i]), sum+counts[i]
				}
				words, some = append(words, maphash.Bytes(t.seed, at(i))), append(some, i)
			}
			t.keys.Add(words, func(i int) []byte { return at(some[i]) }, times)
			t.added.Add(sum)
		})
	}
	all.Wait()
}

// prune leaves Counters texts where twice as many are there.
func (t *TextTop) prune() {
	if t.keys.Len() <= 2*int64(t.counters) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.keys.Len() > 2*int64(t.counters) { // else another has done it meanwhile
		t.less += t.keys.Prune(t.counters)
	}
}

// Top gives the n texts that came most often, or fewer where there are fewer, the most frequent first, and those that
// count the same in the order of their bytes. Counts are those of Top.Top. Errors: n below 1 or over Counters.
func (t *TextTop) Top(n int) ([]TopKey[string], error) {
	if err := t.made(); err != nil {
		return nil, err
	}
	if n < 1 || n > t.counters {
		return nil, fmt.Errorf("sketch: the first %d texts (want 1 to %d, which is how many counters there are)", n,
			t.counters)
	}
	top, _, _ := t.first(n)
	return top, nil
}

// first gives the first n texts, what was taken from all counts, and how often texts came, all together.
func (t *TextTop) first(n int) (top []TopKey[string], less, added uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.keys.Top(n, func(a, b unique.Count) int { return bytes.Compare(a.Text, b.Text) }) {
		top = append(top, TopKey[string]{string(c.Text), c.Times, t.less})
	}
	return top, t.less, t.added.Load()
}

// Merge counts what another sketch has counted, which stays as it is; of a sketch itself, everything counts twice. All
// counts of both must add up to less than 2^64. Errors: another number of Counters. Cost: as Add of the other's texts.
func (t *TextTop) Merge(other *TextTop) error {
	if err := t.made(); err != nil {
		return err
	}
	if other == nil || other.keys == nil {
		return errors.New("sketch: Merge with no sketch")
	}
	if t.counters != other.counters {
		return fmt.Errorf("sketch: Merge of sketches of %d and %d counters (make both with as many)", t.counters,
			other.counters)
	}
	top, less, added := other.first(math.MaxInt32)
	words, times := make([]uint64, len(top)), make([]uint64, len(top))
	for i, x := range top {
		words[i], times[i] = maphash.String(t.seed, x.Key), x.Count
	}
	t.mu.Lock()
	t.keys.Add(words, func(i int) []byte { return []byte(top[i].Key) }, times)
	t.added.Add(added)
	t.less += less
	t.mu.Unlock()
	t.prune()
	return nil
}

// Stats measures the sketch. Bytes are of the host's memory.
func (t *TextTop) Stats() (TopStats, error) {
	if err := t.made(); err != nil {
		return TopStats{}, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return TopStats{Counters: t.counters, Keys: t.keys.Len(), Added: t.added.Load(), Error: t.less,
		Bytes: t.keys.Bytes()}, nil
}

// Clear takes all texts out.
func (t *TextTop) Clear() error {
	if err := t.made(); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys, t.less = unique.New(true, true), 0
	t.added.Store(0)
	return nil
}
