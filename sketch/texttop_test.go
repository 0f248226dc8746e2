package sketch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

func newTextTop(t testing.TB, counters int) *TextTop {
	t.Helper()
	h, err := NewTextTop(TextTopOptions{Counters: counters})
	must(t, err)
	return h
}

// textsWithin is an error where the sketch breaks its promise for texts that came so often.
func textsWithin(h *TextTop, came map[string]uint64) error {
	n, m := uint64(0), uint64(h.counters)
	for _, c := range came {
		n += c
	}
	s, e1 := h.Stats()
	top, e2 := h.Top(int(m))
	if err := errors.Join(e1, e2); err != nil {
		return err
	}
	if s.Added != n || s.Error*(m+1) > n || s.Error == 0 && int(s.Keys) != len(came) || s.Keys > 2*int64(m) {
		return fmt.Errorf("%+v, of %d texts that came %d times", s, len(came), n)
	}
	told, last := map[string]bool{}, ^uint64(0)
	for _, x := range top {
		if told[x.Key] || x.Count > last || x.Count == 0 || x.Error != s.Error || x.Count > came[x.Key] ||
			came[x.Key]-x.Count > x.Error {
			return fmt.Errorf("%q is told to have come %d times or up to %d more, and came %d times", x.Key, x.Count,
				x.Error, came[x.Key])
		}
		told[x.Key], last = true, x.Count
	}
	for k, c := range came {
		if !told[k] && c > n/m {
			return fmt.Errorf("%q came %d times of %d, and is not told by %d counters", k, c, n, m)
		}
	}
	return nil
}

// The bounds of SpaceSaving hold for hostile streams in batches of all sizes, as strings and as texts with counts and
// without, with few counters and many, and for sketches of parts that are merged.
func TestTextTop(t *testing.T) {
	const n = 4000
	for seed := range uint64(testenv.SeedsOf(1000, 1)) {
		for name, stream := range streams(n, seed) {
			keys := make([]string, n)
			for i, k := range stream {
				if keys[i] = fmt.Sprint(k); k == 0 {
					keys[i] = "" // is a text, too
				}
			}
			for _, m := range testenv.Some([]int{7, 5000, 1, 100}, 2) {
				h, other, came := newTextTop(t, m), newTextTop(t, m), map[string]uint64{}
				for rest, i := keys, 0; len(rest) > 0; i++ {
					k := min(len(rest), 1+int(seed+uint64(len(rest)))%(n/2))
					counts := make([]uint64, k)
					for j, key := range rest[:k] {
						if counts[j] = 1; i%3 == 1 {
							counts[j] = uint64(j%4) << (j % 9)
						}
						came[key] += counts[j]
					}
					switch i % 3 {
					case 0:
						must(t, h.Add(rest[:k]))
					case 1:
						must(t, h.AddText(text.Of(rest[:k]...), counts))
					case 2:
						must(t, other.AddText(text.Of(rest[:k]...), nil))
					}
					rest = rest[k:]
				}
				maps.DeleteFunc(came, func(_ string, n uint64) bool { return n == 0 })
				must(t, h.Merge(other))
				if err := textsWithin(h, came); err != nil {
					t.Fatalf("%s, seed %d, %d counters: %v", name, seed, m, err)
				}
				if seed == 0 && m < 100 {
					h = reloaded(t, h)
				}
				if err := textsWithin(h, came); err != nil {
					t.Fatalf("%s, seed %d, %d counters, loaded: %v", name, seed, m, err)
				}
				must(t, h.Merge(h))
				for k := range came {
					came[k] *= 2
				}
				if err := textsWithin(h, came); err != nil {
					t.Fatalf("%s, seed %d, %d counters, merged with itself: %v", name, seed, m, err)
				}
				must(t, errors.Join(h.Clear(), textsWithin(h, nil)))
			}
		}
	}
}

// reloaded is the sketch as a file has it, which says all that the sketch says.
func reloaded(t *testing.T, h *TextTop) *TextTop {
	t.Helper()
	var file, again bytes.Buffer
	must(t, h.Save(t.Context(), &file))
	loaded, err := LoadTextTop(t.Context(), bytes.NewReader(file.Bytes()))
	must(t, err)
	must(t, loaded.Save(t.Context(), &again))
	if !bytes.Equal(again.Bytes(), file.Bytes()) {
		t.Fatal("what was loaded is not what is saved")
	}
	a, _ := h.Top(h.counters)
	b, _ := loaded.Top(loaded.counters)
	if !slices.Equal(a, b) || loaded.counters != h.counters {
		t.Fatalf("%v and %d counters are loaded, want %v and %d", b, loaded.counters, a, h.counters)
	}
	return loaded
}

// A file that is cut off anywhere, has a bit that is wrong, is of another sketch or has more behind it, is an error, and
// so are the words of no sketch. A file that SaveFile writes is what Save writes.
func TestTextTopFiles(t *testing.T) {
	h := newTextTop(t, 2)
	must(t, h.Add([]string{"a", "bcd", "a", "", "a text that takes more than a word"}))
	var buffer bytes.Buffer
	must(t, h.Save(t.Context(), &buffer))
	file := buffer.Bytes()
	load := func(file []byte) error {
		_, err := LoadTextTop(t.Context(), io.MultiReader(bytes.NewReader(file))) // of no known length
		return err
	}
	must(t, load(file))
	for i := range file {
		wrong := bytes.Clone(file)
		wrong[i] ^= 4
		if load(file[:i]) == nil || load(wrong) == nil {
			t.Fatalf("a file is loaded that ends with byte %d, or in which that is wrong", i)
		}
	}
	path := filepath.Join(t.TempDir(), "top")
	must(t, h.SaveFile(t.Context(), path))
	saved, err := os.ReadFile(path)
	if must(t, err); !bytes.Equal(saved, file) {
		t.Error("SaveFile writes another file than Save")
	}
	var other bytes.Buffer
	must(t, newSketch[uint32](t, open(t, "cpu"), HyperLogLogOptions{Precision: 4}).Save(t.Context(), &other))
	if load(other.Bytes()) == nil || load(append(file, 0)) == nil {
		t.Error("the file of another sketch is loaded, or one that has more behind it")
	}
	stopped, stop := context.WithCancel(t.Context())
	stop()
	if err := h.Save(stopped, io.Discard); !errors.Is(err, context.Canceled) {
		t.Errorf("Save of one that has stopped: %v", err)
	}
	text := func(s string) uint64 {
		var b [8]byte
		copy(b[:], s)
		return binary.LittleEndian.Uint64(b[:])
	}
	must(t, newTextTop(t, 2).parse([]uint64{6, 1, 2, 3, 2, 1, 1, 2, text("abc")}))
	for what, words := range map[string][]uint64{
		"fewer added than counted":  {5, 1, 2, 3, 2, 1, 1, 2, text("abc")},
		"nothing taken, and lost":   {6, 0, 2, 3, 2, 1, 1, 2, text("abc")},
		"more taken than can be":    {6, 1 << 63, 2, 3, 2, 1, 1, 2, text("abc")},
		"out of order":              {6, 1, 2, 3, 1, 2, 2, 1, text("bca")},
		"one twice":                 {6, 1, 2, 2, 2, 1, 1, 1, text("aa")},
		"a count of 0":              {6, 1, 2, 3, 2, 1, 0, 2, text("abc")},
		"counts that overflow":      {2, 0, 2, 2, 1<<64 - 1, 1, 3, 1, text("ab")},
		"lengths that overflow":     {6, 1, 2, 3, 2, 1<<64 - 2, 1, 5, text("abc")},
		"a length that is too long": {6, 1, 2, 3, 2, 1, 1, 3, text("abc")},
		"bytes that are no text's":  {6, 1, 2, 3, 2, 1, 1, 1, text("abc")},
		"bytes behind the last":     {6, 1, 2, 3, 2, 1, 1, 2, text("abcd")},
		"more texts than there are": {6, 1, 1 << 62, 3, 2, 1, 1, 2, text("abc")},
		"more bytes than there are": {6, 1, 2, 1<<64 - 1, 2, 1, 1, 2, text("abc")},
		"a word too many":           {6, 1, 2, 3, 2, 1, 1, 2, text("abc"), 0},
		"too many texts":            {5, 0, 5, 5, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, text("abcde")},
	} {
		h := newTextTop(t, 2)
		if err := h.parse(words); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		} else if s, _ := h.Stats(); s.Added != 0 || s.Keys != 0 {
			t.Errorf("%s: %+v behind an error", what, s)
		}
	}
}

// FuzzLoadTextTop: whatever a file holds, it is loaded as what it says, or not at all.
func FuzzLoadTextTop(f *testing.F) {
	h := newTextTop(f, 2)
	must(f, h.Add([]string{"a", "bc", "a"}))
	var file bytes.Buffer
	must(f, h.Save(context.Background(), &file))
	f.Add(file.Bytes())
	f.Add(file.Bytes()[:file.Len()-1])
	f.Add(append(bytes.Clone(file.Bytes()), 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		testenv.Bounded(t, len(file), func() {
			h, err := LoadTextTop(context.Background(), bytes.NewReader(file))
			if err != nil {
				return
			}
			var again bytes.Buffer
			if must(t, h.Save(context.Background(), &again)); !bytes.Equal(again.Bytes(), file) {
				t.Error("what was loaded is not what is saved")
			}
		})
	})
}

// FuzzTextTopWords: a form and words are those of a sketch, which then has them, or an error.
func FuzzTextTopWords(f *testing.F) {
	const form = `{"sketch":"texttop","counters":2}`
	words := func(s string, w ...uint64) (b []byte) {
		for _, x := range w {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return append(b, s+strings.Repeat("\x00", -len(s)&7)...)
	}
	f.Add(form, words("abc", 6, 1, 2, 3, 2, 1, 1, 2))
	f.Add(form, words("", 3, 0, 1, 0, 3, 0))
	f.Add(form, words("abc", 6, 1, 2, 3, 1, 2, 2, 1))
	f.Add(`{"sketch":"texttop","counters":16777217}`, words("", 0, 0, 0, 0))
	f.Add(`{"counters":2,"sketch":"texttop"}`, words("", 0, 0, 0, 0))
	f.Fuzz(func(t *testing.T, form string, b []byte) {
		testenv.Bounded(t, len(b), func() {
			given := make([]uint64, len(b)/8)
			for i := range given {
				given[i] = binary.LittleEndian.Uint64(b[8*i:])
			}
			want := table.FilterForm{Words: int64(len(given)), Make: form}
			h, err := textTopOf(want)
			if err == nil {
				err = h.parse(given)
			}
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("%q", err)
				}
				return
			}
			file, err := h.file()
			if must(t, err); file.form != want || !slices.Equal(file.words, given) {
				t.Errorf("%v has %v", want, file)
			}
		})
	})
}

// What several goroutines add and merge is all counted.
func TestTextTopAtOnce(t *testing.T) {
	h, other, came := newTextTop(t, 60), newTextTop(t, 60), map[string]uint64{}
	keys := make([]string, 8*3000)
	for i, k := range skewed[uint32](len(keys), 5) {
		keys[i] = fmt.Sprint(k)
		came[keys[i]]++
	}
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			part := keys[i*3000 : (i+1)*3000]
			must(t, errors.Join(h.Add(part[:1000]), h.AddText(text.Of(part[1000:]...), nil)))
		})
		wg.Go(func() {
			_, top := h.Top(5)
			_, stats := h.Stats()
			must(t, errors.Join(top, stats, h.Save(t.Context(), io.Discard), h.Merge(other), other.Merge(other)))
		})
	}
	wg.Wait()
	must(t, textsWithin(h, came))
}

// All methods may be called concurrently, those too that take texts out: the race detector watches. Counts are never more
// than what came.
func TestTextTopIsSharedWithClear(t *testing.T) {
	h, other := newTextTop(t, 3), newTextTop(t, 3)
	texts := strings.Fields("a b c d e f g h i j")
	var wg sync.WaitGroup
	for _, do := range []func() error{
		func() error { return h.Add(texts) },
		func() error { return other.Add(texts) },
		h.Clear,
		func() error { return h.Merge(other) },
		func() error { return other.Merge(h) },
		func() error { _, err := h.Stats(); return err },
		func() error { return other.Save(t.Context(), io.Discard) },
		func() error {
			top, err := h.Top(2)
			if len(top) > 2 {
				t.Errorf("the first 2 texts are %v", top)
			}
			return err
		},
	} {
		wg.Go(func() {
			for range 100 {
				if err := do(); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

// Bad arguments, and a sketch that nothing has made, are errors that are a line.
func TestTextTopErrors(t *testing.T) {
	_, few := NewTextTop(TextTopOptions{Counters: -1})
	_, many := NewTextTop(TextTopOptions{Counters: 1<<24 + 1})
	h, zero := newTextTop(t, 9), &TextTop{}
	must(t, h.Add([]string{"a"}))
	_, none := h.Top(0)
	_, more := h.Top(10)
	_, top := zero.Top(1)
	_, stats := zero.Stats()
	for what, err := range map[string]error{"fewer counters than one": few, "too many": many, "the first 0": none,
		"more than counters": more, "more counts than texts": h.AddText(text.Of("a"), []uint64{1, 2}),
		"no list of texts":      h.AddText(text.Keys{Bytes: []byte("abc"), Offsets: []int64{0, 4}}, nil),
		"merged with nothing":   h.Merge(nil),
		"merged with a zero":    h.Merge(zero),
		"merged with another":   h.Merge(newTextTop(t, 8)),
		"Add to a zero":         zero.Add(nil),
		"AddText to a zero":     zero.AddText(text.Of("a"), nil),
		"Top of a zero":         top,
		"Stats of a zero":       stats,
		"Clear of a zero":       zero.Clear(),
		"a zero is merged into": zero.Merge(h)} {
		if err == nil || !strings.HasPrefix(err.Error(), "sketch: ") && what != "no list of texts" ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, textsWithin(h, map[string]uint64{"a": 1}))
	if o, err := NewTextTop(TextTopOptions{}); err != nil || o.counters != defaultCounters {
		t.Errorf("%+v, %v", o, err)
	}
}
