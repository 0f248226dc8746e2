package sketch

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
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
	for seed := range uint64(testenv.SeedsOf(1000, 2)) {
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
			must(t, errors.Join(top, stats, h.Merge(other), other.Merge(other)))
		})
	}
	wg.Wait()
	must(t, textsWithin(h, came))
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
