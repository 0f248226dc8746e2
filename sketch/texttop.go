package sketch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"math"
	"math/bits"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/unique"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// kindTextTop is what files of one say.
const kindTextTop = "texttop"

// TextTopOptions are the options of NewTextTop. The zero value is good.
type TextTopOptions struct {
	// Counters is how many texts have counts, at least: see TopOptions. Twice as many are there at times.
	Counters int
}

// TextTop finds the texts that come most often, with the bound of Top. It is on the host's cores: they must hash the
// texts and keep those that are told, and then a device would have little left to do. It takes some 40 bytes for each
// text that has a count, and the text's length.
//
// All methods are safe for use by several goroutines. Errors of all methods: a TextTop that NewTextTop has not made.
type TextTop struct {
	counters int
	seed     maphash.Seed

	mu    sync.RWMutex // held for reading by a goroutine that adds
	keys  *unique.Keys // guarded by mu
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
	if t.counters == 0 {
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

// prune leaves Counters texts if there are more than twice as many.
func (t *TextTop) prune() {
	if !t.crowded() {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pruneAlone()
}

// crowded reports whether there are more than twice Counters texts.
func (t *TextTop) crowded() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.keys.Len() > 2*int64(t.counters)
}

// pruneAlone does what prune does, for a caller that holds the lock.
func (t *TextTop) pruneAlone() {
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

// first gives the first n texts of twice Counters at most, what was taken from all counts, and how often texts came,
// all together.
func (t *TextTop) first(n int) (top []TopKey[string], less, added uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.pruneAlone() // another may have added, and not pruned yet
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
	if other == nil || other.made() != nil {
		return errors.New("sketch: Merge with no sketch")
	}
	if t.counters != other.counters {
		return fmt.Errorf("sketch: Merge of sketches of %d and %d counters (make both with as many)", t.counters,
			other.counters)
	}
	t.take(other.first(math.MaxInt32))
	t.prune()
	return nil
}

// take counts the texts of another sketch.
func (t *TextTop) take(top []TopKey[string], less, added uint64) {
	words, times := make([]uint64, len(top)), make([]uint64, len(top))
	for i, x := range top {
		words[i], times[i] = maphash.String(t.seed, x.Key), x.Count
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.keys.Add(words, func(i int) []byte { return []byte(top[i].Key) }, times)
	t.added.Add(added)
	t.less += less
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

// A file has these words of 64 bits: how much was added, what was taken from all counts, how many texts follow and how
// many bytes they have together; then of each text its count and its length, in the order of Top; then all bytes,
// and zeros up to a whole word. A FilterForm says how many words there are.

// textTopWords are before the texts.
const textTopWords = 4

// textTopForm is FilterForm.Make of a file.
type textTopForm struct {
	Sketch   string `json:"sketch"`
	Counters int    `json:"counters"`
}

// textTopFile is a TextTop as package snapshot saves and loads it: as it was at one moment.
type textTopFile struct {
	form  table.FilterForm
	words []uint64
}

func (*textTopFile) Family() table.Family     { return family }
func (*textTopFile) Kind() string             { return kindTextTop }
func (f *textTopFile) Form() table.FilterForm { return f.form }
func (f *textTopFile) Used() (bool, error)    { return len(f.words) > 0, nil }
func (f *textTopFile) Clear() error           { f.words = nil; return nil }

func (f *textTopFile) Words(ctx context.Context, do func(words []uint64) error) error {
	for part := range slices.Chunk(f.words, mostWords) {
		if err := crash.Ended(ctx); err != nil {
			return err
		}
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

// SetWords takes words in their order.
func (f *textTopFile) SetWords(first int64, words []uint64) error {
	if have := int64(len(f.words)); first != have || int64(len(words)) > f.form.Words-have {
		return fmt.Errorf("sketch: words %d to %d of a sketch that has %d, behind %d", first, first+int64(len(words)),
			f.form.Words, have)
	}
	f.words = append(f.words, words...)
	return nil
}

// file gives the sketch as it is now.
func (t *TextTop) file() (*textTopFile, error) {
	if err := t.made(); err != nil {
		return nil, err
	}
	top, less, added := t.first(math.MaxInt32)
	words := []uint64{added, less, uint64(len(top)), 0}
	var all []byte
	for _, x := range top {
		words = append(words, x.Count, uint64(len(x.Key)))
		all = append(all, x.Key...)
	}
	words[3] = uint64(len(all))
	for part := range slices.Chunk(all, wordBytes) {
		var word [wordBytes]byte
		copy(word[:], part)
		words = append(words, binary.LittleEndian.Uint64(word[:]))
	}
	make, err := json.Marshal(textTopForm{kindTextTop, t.counters})
	return &textTopFile{table.FilterForm{Words: int64(len(words)), Make: string(make)}, words}, err
}

// Save writes the sketch to w: 16 bytes for each text that has a count, the texts, and some 300 bytes more. What is
// added meanwhile is not in the file. Memory: that of what is written.
func (t *TextTop) Save(ctx context.Context, w io.Writer) error {
	f, err := t.file()
	if err != nil {
		return err
	}
	return snapshot.Sketch[string](f).Save(ctx, w)
}

// SaveFile writes what Save writes to the file at path, and replaces it once all is on the disk: see package snapshot.
func (t *TextTop) SaveFile(ctx context.Context, path string) error {
	f, err := t.file()
	if err != nil {
		return err
	}
	return snapshot.Sketch[string](f).SaveFile(ctx, path)
}

// LoadTextTop makes a sketch of what Save wrote, with as many Counters. It reads r to its end, and takes memory only as
// bytes come: three times those of the file.
//
// Errors: a file that is damaged, cut off, or of another kind; context.Cause(ctx).
func LoadTextTop(ctx context.Context, r io.Reader) (*TextTop, error) {
	file, err := snapshot.NewReader(r)
	if err != nil {
		return nil, err
	}
	if file.Header.Kind != kindTextTop || file.Header.Form == nil {
		return nil, fmt.Errorf("sketch: the file is of a %s, and not of a %s: load it as what it is", file.Header.Kind,
			kindTextTop)
	}
	f := &textTopFile{form: *file.Header.Form}
	t, err := textTopOf(f.form)
	if err == nil {
		err = file.Load(ctx, snapshot.Sketch[string](f))
	}
	if err == nil {
		err = t.parse(f.words)
	}
	if err != nil {
		return nil, err
	}
	return t, nil
}

// textTopOf makes an empty sketch with the form of a file.
func textTopOf(want table.FilterForm) (*TextTop, error) {
	var f textTopForm
	in := json.NewDecoder(strings.NewReader(want.Make))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return nil, fmt.Errorf("sketch: a sketch of form %q: %w", want.Make, err)
	}
	if own, err := json.Marshal(f); err != nil || string(own) != want.Make || f.Sketch != kindTextTop ||
		f.Counters == 0 || want.Words < textTopWords {
		return nil, fmt.Errorf("sketch: a sketch of form %v (want what Save writes)", want)
	}
	return NewTextTop(TextTopOptions{Counters: f.Counters})
}

// parse takes the words of a file apart, and counts their texts. There is one way to write a sketch.
func (t *TextTop) parse(words []uint64) error {
	added, less, n, size := words[0], words[1], words[2], words[3]
	rest := words[textTopWords:]
	if n > 2*uint64(t.counters) || n > uint64(len(rest)/2) ||
		uint64(len(rest))-2*n != size/wordBytes+min(size%wordBytes, 1) {
		return fmt.Errorf("sketch: %d texts of %d bytes in %d words, with %d counters", n, size, len(words), t.counters)
	}
	counts, rest := rest[:2*n], rest[2*n:]
	all := make([]byte, 0, len(rest)*wordBytes)
	for _, w := range rest {
		all = binary.LittleEndian.AppendUint64(all, w)
	}
	if len(bytes.Trim(all[size:], "\x00")) > 0 {
		return errors.New("sketch: bytes behind the last text")
	}
	texts, top, sum := string(all[:size]), make([]TopKey[string], n), uint64(0)
	seen := make(map[string]bool, n)
	for i := range top {
		count, length := counts[2*i], counts[2*i+1]
		if length > uint64(len(texts)) {
			return fmt.Errorf("sketch: text %d of %d has %d bytes, of %d", i, n, length, len(texts))
		}
		top[i] = TopKey[string]{Key: texts[:length], Count: count}
		texts = texts[length:]
		more, over := bits.Add64(sum, count, 0)
		if sum = more; over != 0 || count == 0 || seen[top[i].Key] || i > 0 && !before(top[i-1], top[i]) {
			return fmt.Errorf("sketch: text %d of %d is none that a sketch has", i, n)
		}
		seen[top[i].Key] = true
	}
	if len(texts) > 0 {
		return fmt.Errorf("sketch: %d bytes behind the last text", len(texts))
	}
	if err := bounded(t.counters, sum, less, added); err != nil {
		return err
	}
	t.take(top, less, added)
	return nil
}

// before tells whether a text stands before another in Top.
func before(a, b TopKey[string]) bool {
	return cmp.Or(cmp.Compare(b.Count, a.Count), strings.Compare(a.Key, b.Key)) < 0
}
