package sketch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/siphash"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

func newCounts[K any](t testing.TB, d *device.Device, o CountMinOptions) *CountMin[K] {
	t.Helper()
	h, err := NewCountMin[K](d, o)
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	return h
}

// countTwin is the Go twin of a CountMin without conservative updates.
type countTwin struct {
	rows  int
	width uint64
	seed  uint64
	words []uint64
}

func newCountTwin(f countMinForm) *countTwin {
	return &countTwin{f.Rows, uint64(f.Width), f.Seed, make([]uint64, 1+uint64(f.Rows)*uint64(f.Width))}
}

// at is which word counts a hash in a row.
func (w *countTwin) at(hash uint64, row int) uint64 {
	x := uint64(row+1) * 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	high, _ := bits.Mul64(hash*(x>>31^x|1)>>32<<32, w.width)
	return 1 + uint64(row)*w.width + high
}

func (w *countTwin) add(key []byte, n uint64) {
	hash := hashed(key, w.seed)
	w.words[0] += n
	for row := range w.rows {
		w.words[w.at(hash, row)] += n
	}
}

func (w *countTwin) estimate(key []byte) uint64 {
	hash, least := hashed(key, w.seed), uint64(math.MaxUint64)
	for row := range w.rows {
		least = min(least, w.words[w.at(hash, row)])
	}
	return least
}

// addAll adds keys, counts[i] times each, or once without counts.
func (w *countTwin) addAll(b []byte, width int, counts []uint64) {
	for i := 0; len(b) > 0; i, b = i+1, b[width:] {
		n := uint64(1)
		if counts != nil {
			n = counts[i]
		}
		w.add(b[:width], n)
	}
}

// wordsOf is all words of a sketch.
func wordsOf(h snapshot.Words) (all []uint64, err error) {
	err = h.Words(context.Background(), func(words []uint64) error {
		all = append(all, words...)
		return nil
	})
	return all, err
}

// differs is an error where a sketch has other words than its twin.
func (w *countTwin) differs(h snapshot.Words) error {
	got, err := wordsOf(h)
	if err == nil && len(got) != len(w.words) {
		err = fmt.Errorf("%d words, want %d", len(got), len(w.words))
	}
	for i, x := range w.words {
		if err == nil && got[i] != x {
			err = fmt.Errorf("word %d of %d is %d, want %d", i, len(got), got[i], x)
		}
	}
	return err
}

// skewed are n keys of which few come often: key 0 a third of the time, and others seldom.
func skewed[K any](n int, seed uint64) []K {
	keys, rng := make([]K, n), rand.New(rand.NewPCG(seed, 5))
	b, width := bytesOf(keys), int(unsafe.Sizeof(*new(K)))
	for i := range n {
		x := uint64(0)
		if rng.IntN(3) > 0 {
			x = uint64(math.Pow(float64(n), rng.Float64())) * 0x9e3779b97f4a7c15
		}
		for j := range min(width, 8) {
			b[i*width+j] = byte(x >> (8 * j))
		}
		b[(i+1)*width-1] ^= byte(x >> 7) // keys that differ in their last bytes alone
	}
	return keys
}

// Counters are those of the Go twin: for keys of every width, with counts and without, from Go's memory and from device
// slices that begin anywhere, in small batches and in such where blocks have counters of their own.
func TestCounters(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		t.Run("4", func(t *testing.T) { counters[uint32](t, d) })
		if few(d) {
			return
		}
		t.Run("16", func(t *testing.T) { counters[[2]uint64](t, d) })
		if testenv.Long() {
			t.Run("1", func(t *testing.T) { counters[uint8](t, d) })
			t.Run("2", func(t *testing.T) { counters[int16](t, d) })
			t.Run("8", func(t *testing.T) { counters[float64](t, d) })
			t.Run("32", func(t *testing.T) { counters[[4]uint64](t, d) })
		}
	})
}

func counters[K any](t *testing.T, d *device.Device) {
	width := int(unsafe.Sizeof(*new(K)))
	for _, epsilon := range testenv.Some([]float64{0.01, 0.9, 0.00001}, 2) {
		h := newCounts[K](t, d, CountMinOptions{Epsilon: epsilon, Delta: 0.1, Seed: 5})
		w := newCountTwin(h.s.form)
		sizes := []int{0, 1, 7, 33, 3000, 20_000}
		if few(d) {
			sizes = []int{0, 1, 33, 3000}
		}
		for i, n := range sizes {
			keys, counts := skewed[K](n, uint64(i)), make([]uint64, n)
			for j := range counts {
				counts[j] = uint64(j*j) << (j % 20)
			}
			must(t, errors.Join(h.Add(keys), h.AddCounts(keys, counts)))
			w.addAll(bytesOf(keys), width, nil)
			w.addAll(bytesOf(keys), width, counts)
			on, err := device.From(d, skewed[K](n+20, uint64(100+i)))
			must(t, err)
			times, err := device.From(d, counts)
			must(t, err)
			st, err := d.NewStream()
			must(t, err)
			starts := min(n, 5)
			if few(d) {
				starts = min(n, 2)
			}
			for from := range starts {
				part := on.Slice(from, n)
				must(t, errors.Join(h.AddOn(st, part), h.AddCountsOn(st, part, times.Slice(0, n-from))))
				host, err := part.Host(st)
				must(t, err)
				w.addAll(bytesOf(host), width, nil)
				w.addAll(bytesOf(host), width, counts)
			}
			if err := w.differs(h); err != nil {
				t.Fatalf("epsilon %v, %d keys: %v", epsilon, n, err)
			}
			estimates := make([]uint64, n)
			must(t, h.Estimate(keys, estimates))
			out, err := device.Make[uint64](d, n)
			must(t, err)
			ahead, err := device.From(d, keys)
			must(t, err)
			must(t, h.EstimateOn(st, ahead, out))
			again, err := out.Host(st)
			must(t, err)
			for j, e := range estimates {
				if want := w.estimate(bytesOf(keys[j : j+1])); e != want || again[j] != want {
					t.Fatalf("key %d has an estimate of %d, and of %d on the device, want %d", j, e, again[j], want)
				}
			}
			must(t, errors.Join(on.Free(), times.Free(), out.Free(), ahead.Free(), st.Close()))
		}
		must(t, h.Check())
		must(t, h.Clear())
		must(t, newCountTwin(h.s.form).differs(h))
	}
}

// Keys before the first whole word of 16 bytes, and behind the last, count as all others do.
func TestEdges(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		h := newCounts[uint16](t, d, CountMinOptions{Epsilon: 0.5, Delta: 0.3, Seed: 5})
		h.s.ownFrom = 1
		w := newCountTwin(h.s.form)
		on, err := device.From(d, skewed[uint16](100, 1))
		must(t, err)
		defer on.Free()
		froms, tos := 9, 20
		if few(d) {
			froms, tos = 3, 10 // a word has eight
		}
		for from := range froms {
			for to := range tos {
				part := on.Slice(from, from+to)
				must(t, h.AddOn(nil, part))
				host, err := part.Host(nil)
				must(t, err)
				w.addAll(bytesOf(host), 2, nil)
			}
		}
		must(t, w.differs(h))
	})
}

// streams are hostile and other streams of n keys.
func streams(n int, seed uint64) map[string][]uint32 {
	rng, all := rand.New(rand.NewPCG(seed, 3)), map[string][]uint32{}
	zipf := rand.NewZipf(rng, 1.1, 1, 1<<24)
	for name, key := range map[string]func(i int) uint32{
		"all equal":    func(int) uint32 { return 7 },
		"all distinct": func(i int) uint32 { return uint32(i) * 0x9e3779b1 },
		"alternating":  func(i int) uint32 { return uint32(i % 2) },
		"sorted":       func(i int) uint32 { return uint32(math.Sqrt(float64(i))) },
		"in a circle":  func(i int) uint32 { return uint32(i % 101) },
		"Zipf":         func(int) uint32 { return uint32(zipf.Uint64()) },
		"a late one":   func(i int) uint32 { return uint32(max(0, n-n/8-i)) },
	} {
		keys := make([]uint32, n)
		for i := range keys {
			keys[i] = key(i)
		}
		all[name] = keys
	}
	return all
}

// tally is how often each key came.
func tally[K comparable](keys []K) (distinct []K, came map[K]uint64) {
	came = map[K]uint64{}
	for _, k := range keys {
		if came[k]++; came[k] == 1 {
			distinct = append(distinct, k)
		}
	}
	return distinct, came
}

// Over a thousand seeds, no estimate is too low, and the share of keys whose estimates are further off than epsilon is
// not above delta, with either update and for hostile streams; conservative estimates are no larger than plain ones.
func TestCountMinOverSeeds(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		n, seeds := 3000, testenv.SeedsOf(1000, 3)
		if few(d) {
			seeds = 1
		} else if d.Info().CUDA() { // tiles of several blocks have one key
			n = 60_000
		}
		far, all := map[string]float64{}, map[string]float64{}
		for seed := range uint64(seeds) {
			for name, keys := range streams(n, seed) {
				o := CountMinOptions{Epsilon: 0.02, Delta: 0.05, Seed: seed + 1}
				distinct, came := tally(keys)
				plain := make([]uint64, len(distinct))
				all[name] += float64(len(distinct))
				for _, o.Conservative = range []bool{false, true} {
					h, err := NewCountMin[uint32](d, o)
					must(t, err)
					estimates := make([]uint64, len(distinct))
					must(t, errors.Join(h.Add(keys[:n/3]), h.Add(keys[n/3:]), h.Estimate(distinct, estimates), h.Check()))
					for i, k := range distinct {
						if estimates[i] < came[k] || o.Conservative && estimates[i] > plain[i] {
							t.Fatalf("%s, seed %d: %d is estimated to have come %d times, and plainly %d, and came %d",
								name, seed, k, estimates[i], plain[i], came[k])
						}
						if !o.Conservative && float64(estimates[i]-came[k]) > o.Epsilon*float64(n) {
							far[name]++
						}
					}
					plain = estimates
					must(t, h.Close())
				}
			}
		}
		for name, n := range all {
			t.Logf("%s: %v of %v keys", name, far[name], n)
			if far[name] > 0.05*n {
				t.Errorf("%s: %v of %v keys are off by more than 2%%", name, far[name], n)
			}
		}
	})
}

// Parts that are merged are the whole, of one device, of another, and of a device that is opened twice.
func TestMergeCounts(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		o := CountMinOptions{Epsilon: 0.05, Seed: 9}
		keys, all := skewed[uint64](9000, 1), newCounts[uint64](t, d, o)
		w := newCountTwin(all.s.form)
		w.addAll(bytesOf(keys), 8, nil)
		for i, on := range []*device.Device{d, open(t, "cpu:1"), open(t, d.Info().Name)} {
			part := newCounts[uint64](t, on, o)
			must(t, part.Add(keys[i*3000:(i+1)*3000]))
			before, err := wordsOf(part)
			must(t, err)
			must(t, all.Merge(part))
			if after, err := wordsOf(part); err != nil || fmt.Sprint(after) != fmt.Sprint(before) {
				t.Errorf("what was merged has changed: %v", err)
			}
		}
		must(t, w.differs(all))
		for what, other := range map[string]CountMinOptions{"another seed": {Epsilon: 0.05, Seed: 10},
			"another width": {Epsilon: 0.04, Seed: 9}, "more rows": {Epsilon: 0.05, Delta: 0.001, Seed: 9},
			"conservative": {Epsilon: 0.05, Seed: 9, Conservative: true}} {
			err := all.Merge(newCounts[uint64](t, d, other))
			if err == nil || !strings.Contains(err.Error(), "make both with") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if all.Merge(nil) == nil || all.Merge(&CountMin[uint64]{}) == nil {
			t.Error("merged with nothing")
		}
		must(t, w.differs(all))
		w.addAll(bytesOf(keys), 8, nil)
		must(t, all.Merge(all))
		must(t, w.differs(all))
	})
}

// What is saved is loaded, on any device, and goes on.
func TestSaveAndLoadCounts(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		ctx, other := context.Background(), open(t, "cpu:1")
		for _, o := range []CountMinOptions{{}, {Epsilon: 0.1, Conservative: true}} {
			h := newCounts[uint64](t, d, o)
			must(t, h.Add(skewed[uint64](5000, 2)))
			var file bytes.Buffer
			must(t, h.Save(ctx, &file))
			if size := int64(file.Len()); size > 8*h.s.words()+500 {
				t.Errorf("%+v: a file of %d bytes", o, size)
			}
			again, err := LoadCountMin[uint64](ctx, bytes.NewReader(file.Bytes()), other)
			must(t, err)
			want, e1 := wordsOf(h)
			got, e2 := wordsOf(again)
			if err := errors.Join(e1, e2); err != nil || again.Form() != h.Form() || fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("form %v became %v; %v", h.Form(), again.Form(), err)
			}
			must(t, errors.Join(again.Add([]uint64{5}), again.Close()))
			if h, err := LoadCountMin[uint32](ctx, bytes.NewReader(file.Bytes()), d); err == nil {
				t.Error("a sketch of other keys is loaded")
				h.Close()
			}
			if h, err := LoadHyperLogLog[uint64](ctx, bytes.NewReader(file.Bytes()), d); err == nil {
				t.Error("counts are loaded as registers")
				h.Close()
			}
		}
	})
}

// savedCounts is a small sketch's file.
func savedCounts(t testing.TB, d *device.Device) []byte {
	t.Helper()
	h := newCounts[uint32](t, d, CountMinOptions{Epsilon: 0.9, Delta: 0.3, Seed: 5})
	must(t, h.Add([]uint32{1, 2, 3, 4, 5}))
	var file bytes.Buffer
	must(t, h.Save(context.Background(), &file))
	return file.Bytes()
}

// A file that is damaged anywhere, cut off anywhere, or of something else is an error, and so are right checksums of
// what no sketch has.
func TestDamagedCounts(t *testing.T) {
	d := open(t, "cpu")
	file := savedCounts(t, d)
	load := func(b []byte) error {
		h, err := LoadCountMin[uint32](context.Background(), bytes.NewReader(b), d)
		if err == nil {
			h.Close()
		}
		return err
	}
	must(t, load(file))
	for i := range file {
		damaged := bytes.Clone(file)
		damaged[i] ^= 1 << (i % 8)
		if load(damaged) == nil {
			t.Errorf("byte %d of %d was changed, and the file was loaded", i, len(file))
		}
		if load(file[:i]) == nil {
			t.Errorf("a file of %d of %d bytes was loaded", i, len(file))
		}
	}
	h := newCounts[uint32](t, d, CountMinOptions{Epsilon: 0.9, Delta: 0.3, Seed: 5})
	must(t, h.Add([]uint32{9}))
	into := snapshot.Sketch[uint32](h).Load(context.Background(), bytes.NewReader(file))
	if into == nil || !strings.Contains(into.Error(), "holds keys already") {
		t.Errorf("loaded into a sketch with keys: %v", into)
	}
	if h.SetWords(h.s.words(), make([]uint64, 1)) == nil || h.SetWords(-1, nil) == nil || h.SetWords(99, nil) == nil {
		t.Error("words that there are not are set")
	}
	must(t, h.SetWords(1, []uint64{6}))
	if err := h.Check(); err == nil || !strings.Contains(err.Error(), "row 0") {
		t.Errorf("a row with a counter too large: %v", err)
	}
	var wrong bytes.Buffer
	must(t, h.Save(context.Background(), &wrong))
	if load(wrong.Bytes()) == nil {
		t.Error("counters that no keys have are loaded")
	}
}

// Bad arguments, closed sketches, devices, streams and slices say what they are, and change nothing.
func TestCountMinErrors(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		nan := math.NaN()
		for _, o := range []CountMinOptions{{Epsilon: -1}, {Epsilon: 1}, {Epsilon: 1e-10}, {Epsilon: nan}, {Delta: -1},
			{Delta: 1}, {Delta: 1e-15}, {Delta: nan}} {
			if h, err := NewCountMin[uint32](d, o); err == nil {
				t.Errorf("%+v: no error", o)
				h.Close()
			}
		}
		if _, err := NewCountMin[uint32](nil, CountMinOptions{}); err == nil {
			t.Error("a sketch on no device")
		}
		if _, err := NewCountMin[[]string](d, CountMinOptions{}); err == nil {
			t.Error("a sketch of lists of strings")
		}
		h := newCounts[uint32](t, d, CountMinOptions{Epsilon: 0.1})
		again := open(t, "cpu:1")
		foreign, err := device.From(again, []uint32{1, 2})
		must(t, err)
		defer foreign.Free()
		own, err := device.From(d, []uint32{1, 2})
		must(t, err)
		counts, err := device.From(d, []uint64{1, 2, 3})
		must(t, err)
		defer func() { must(t, errors.Join(own.Free(), counts.Free())) }()
		st, err := again.NewStream()
		must(t, err)
		for what, err := range map[string]error{
			"a slice of another device is added":    h.AddOn(nil, foreign),
			"a stream of another device is taken":   h.AddOn(st, own),
			"more counts than keys on the device":   h.AddCountsOn(nil, own, counts),
			"more counts than keys":                 h.AddCounts([]uint32{1}, []uint64{1, 2}),
			"no counts":                             h.AddCounts([]uint32{1}, nil),
			"more estimates than keys":              h.Estimate([]uint32{1}, []uint64{1, 2}),
			"more estimates on the device":          h.EstimateOn(nil, own, counts),
			"estimates of another device's keys":    h.EstimateOn(nil, foreign, counts.Slice(0, 2)),
			"estimates on another device's streams": h.EstimateOn(st, own, counts.Slice(0, 2)),
		} {
			if err == nil {
				t.Error(what)
			}
		}
		must(t, st.Close())
		if s, err := h.Stats(); s.Added != 0 || err != nil || s.Rows != 5 || s.Width != 28 || s.Bytes != 8*(1+5*28) {
			t.Errorf("the sketch is %+v, %v", s, err)
		}
		must(t, errors.Join(h.AddOn(nil, own), h.Close(), h.Close()))
		_, stats := h.Stats()
		_, used := h.Used()
		same := CountMinOptions{Epsilon: 0.1, Seed: h.s.form.Seed}
		for what, err := range map[string]error{"Add": h.Add([]uint32{1}), "Add of nothing": h.Add(nil),
			"AddCounts": h.AddCounts([]uint32{1}, []uint64{1}), "AddOn": h.AddOn(nil, own), "Stats": stats, "Used": used,
			"AddCountsOn": h.AddCountsOn(nil, own, counts.Slice(0, 2)), "Estimate": h.Estimate(nil, nil),
			"EstimateOn": h.EstimateOn(nil, own, counts.Slice(0, 2)), "Check": h.Check(), "Clear": h.Clear(),
			"Merge with itself": h.Merge(h), "SetWords": h.SetWords(0, nil),
			"Save":                  h.Save(context.Background(), new(bytes.Buffer)),
			"Merge of a closed one": newCounts[uint32](t, d, same).Merge(h),
			"Merge of a closed one of another device": newCounts[uint32](t, again, same).Merge(h)} {
			if !errors.Is(err, table.ErrClosed) || !strings.Contains(err.Error(), "sketch: ") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %v", what, err, table.ErrClosed)
			}
		}
		if open := frame.OpenTables(d); len(open) != 1 { // that which is closed behind this test
			t.Errorf("open: %v", open)
		}
	})
}

// Texts count by their hashes, as Go strings and in the form of package text, with counts and without. What is no list
// of texts, or no sketch of texts, is an error, and what is saved is loaded.
func TestCountText(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		o := CountMinOptions{Epsilon: 0.01, Delta: 0.1, Seed: 5}
		h := newCounts[string](t, d, o)
		w, state := newCountTwin(h.s.form), siphash.New(o.Seed, kernel.Fmix64(o.Seed))
		n := 10_000
		if few(d) {
			n = 1000
		}
		keys, came := make([]string, n), make([]uint64, n)
		for i := range keys {
			keys[i], came[i] = strings.Repeat("ab\x00ü", i%9)+fmt.Sprint(i/2), uint64(i%3)
			s := state
			w.add(binary.LittleEndian.AppendUint64(nil, s.Of([]byte(keys[i]))), 2+2*came[i])
		}
		list := text.Of(keys...)
		must(t, errors.Join(h.Add(keys), h.AddText(list, nil), h.AddCounts(keys, came), h.AddText(list, came), h.Add(nil),
			h.AddCounts(nil, nil), h.AddText(text.Keys{}, nil)))
		must(t, w.differs(h))
		about, again := make([]uint64, len(keys)), make([]uint64, len(keys))
		must(t, errors.Join(h.Estimate(keys, about), h.EstimateText(list, again), h.Estimate(nil, nil)))
		for i, k := range keys {
			s := state
			want := w.estimate(binary.LittleEndian.AppendUint64(nil, s.Of([]byte(k))))
			if about[i] != want || again[i] != want || want < 2+2*came[i] {
				t.Fatalf("%q is estimated to have come %d times, and %d, want %d", k, about[i], again[i], want)
			}
		}
		var file bytes.Buffer
		must(t, h.Save(context.Background(), &file))
		if h, err := LoadCountMin[uint64](context.Background(), bytes.NewReader(file.Bytes()), d); err == nil {
			t.Error("counts of texts are loaded as those of numbers")
			h.Close()
		}
		loaded, err := LoadCountMin[string](context.Background(), &file, d)
		must(t, err)
		must(t, errors.Join(w.differs(loaded), loaded.Close()))
		bad := text.Keys{Bytes: []byte("abc"), Offsets: []int64{0, 4}}
		numbers := newCounts[uint64](t, d, o)
		for what, err := range map[string]error{
			"texts that are none":           h.AddText(bad, nil),
			"estimates of these":            h.EstimateText(bad, make([]uint64, 1)),
			"strings in a device slice":     h.AddOn(nil, device.Slice[string]{}),
			"these with counts":             h.AddCountsOn(nil, device.Slice[string]{}, device.Slice[uint64]{}),
			"estimates of a device slice":   h.EstimateOn(nil, device.Slice[string]{}, device.Slice[uint64]{}),
			"texts into a sketch of words":  numbers.AddText(text.Of("a"), nil),
			"estimates of a sketch of such": numbers.EstimateText(text.Of("a"), make([]uint64, 1)),
			"more counts than texts":        h.AddText(text.Of("a"), []uint64{1, 2}),
			"fewer counts than texts":       h.AddCounts([]string{"a", "b"}, []uint64{1}),
			"fewer estimates than texts":    h.EstimateText(text.Of("a"), nil),
			"more estimates than texts":     h.Estimate([]string{"a"}, make([]uint64, 2)),
		} {
			if err == nil || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", what, err)
			}
		}
		must(t, w.differs(h))
		must(t, h.Close())
		for what, err := range map[string]error{"Add": h.Add(keys), "AddText": h.AddText(list, nil),
			"AddCounts": h.AddCounts(keys, came), "Add of nothing": h.Add(nil), "Estimate": h.Estimate(keys, about),
			"EstimateText": h.EstimateText(list, about)} {
			if !errors.Is(err, table.ErrClosed) {
				t.Errorf("%s: %v, want %v", what, err, table.ErrClosed)
			}
		}
	})
}

// A sketch that nothing has made says so, whatever is asked of it.
func TestCountMinZero(t *testing.T) {
	d := open(t, "cpu")
	keys, err := device.From(d, []uint32{1})
	must(t, err)
	counts, err := device.From(d, []uint64{1})
	must(t, err)
	defer func() { must(t, errors.Join(keys.Free(), counts.Free())) }()
	for _, h := range []*CountMin[uint32]{{}} {
		_, stats := h.Stats()
		_, used := h.Used()
		_, words := wordsOf(h)
		for what, err := range map[string]error{"Add": h.Add(nil), "AddCounts": h.AddCounts(nil, nil), "Stats": stats,
			"AddOn": h.AddOn(nil, keys), "AddCountsOn": h.AddCountsOn(nil, keys, counts), "Used": used, "Words": words,
			"Estimate": h.Estimate(nil, nil), "EstimateOn": h.EstimateOn(nil, keys, counts), "Check": h.Check(),
			"Clear": h.Clear(), "Merge": h.Merge(h), "SetWords": h.SetWords(0, nil),
			"AddText": h.AddText(text.Keys{}, nil), "EstimateText": h.EstimateText(text.Keys{}, nil),
			"Save": h.Save(context.Background(), new(bytes.Buffer))} {
			if err == nil || !strings.Contains(err.Error(), "has not made") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := h.Close(); err != nil || h.Form() != (table.FilterForm{}) {
			t.Errorf("%v, %v", err, h.Form())
		}
	}
}

// Batches of several goroutines and streams, and merges in a circle, are all counted.
func TestCountsAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		o := CountMinOptions{Epsilon: 0.1, Seed: 4}
		h, other := newCounts[uint32](t, d, o), newCounts[uint32](t, d, o)
		w := newCountTwin(h.s.form)
		keys := skewed[uint32](8*3000, 5)
		w.addAll(bytesOf(keys), 4, nil)
		var wg sync.WaitGroup
		for i := range 8 {
			part := keys[i*3000 : (i+1)*3000]
			wg.Go(func() {
				if i%2 == 0 {
					must(t, h.Add(part))
					return
				}
				st, err := d.NewStream()
				must(t, err)
				on, err := device.From(d, part)
				must(t, err)
				must(t, errors.Join(h.AddOn(st, on), st.Sync(), on.Free(), st.Close()))
			})
			wg.Go(func() {
				must(t, newCounts[uint32](t, d, o).Merge(other))
				must(t, h.Merge(other))
				must(t, other.Merge(other))
			})
		}
		wg.Wait()
		must(t, w.differs(h))
	})
}

// Threads that work on one batch, and on the same keys, lose no conservative update.
func TestConservativeThreads(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		keys := make([]uint32, 4*cpuBlock)
		if few(d) {
			keys = keys[:10_000]
		}
		for i := range keys {
			keys[i] = uint32(i*i) % 5003
		}
		distinct, came := tally(keys)
		h, estimates := newCounts[uint32](t, d, CountMinOptions{Conservative: true}), make([]uint64, len(distinct))
		must(t, errors.Join(h.Add(keys), h.Estimate(distinct, estimates), h.Check()))
		for i, k := range distinct {
			if estimates[i] < came[k] {
				t.Fatalf("%d came %d times, and is estimated to have come %d times", k, came[k], estimates[i])
			}
		}
	})
}

// stressedCounts adds keys to sketches whose lanes change places at random: with blocks' own counters and without, with
// counts and without, with conservative updates and without. Few counters have every lane in the way of others.
func stressedCounts(seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	defer d.Close()
	const n = 601
	keys := skewed[uint32](n, seed)
	for j := range n / 3 { // a row of equal keys, which one load has
		keys[j] = keys[j/8]
	}
	distinct, came := tally(keys)
	plain := make([]uint64, len(distinct))
	o := CountMinOptions{Epsilon: 0.3, Delta: 0.1, Seed: seed + 1}
	for _, own := range []bool{true, false} {
		if err := stressedOnce(d, o, own, keys, distinct, came, plain); err != nil {
			return fmt.Errorf("own counters %t: %w", own, err)
		}
	}
	defer func(was int) { together = was }(together)
	for o.Conservative = true; together >= 0; together-- {
		if err := stressedOnce(d, o, false, keys, distinct, came, plain); err != nil {
			return fmt.Errorf("conservative, tiles %d: %w", together, err)
		}
	}
	return nil
}

// stressedOnce is a part of stressedCounts. Twice the keys come, the second time with counts.
func stressedOnce(d *device.Device, o CountMinOptions, own bool, keys, distinct []uint32, came map[uint32]uint64,
	plain []uint64) error {
	h, err := NewCountMin[uint32](d, o)
	if err != nil {
		return err
	}
	defer h.Close()
	if h.s.ownFrom = 1 << 40; own {
		h.s.ownFrom = 1
	}
	w, counts := newCountTwin(h.s.form), make([]uint64, len(keys))
	for i := range counts {
		counts[i] = 1
	}
	for range 2 {
		w.addAll(bytesOf(keys), 4, nil)
	}
	estimates := make([]uint64, len(distinct))
	if err := errors.Join(h.Add(keys), h.AddCounts(keys, counts), h.Estimate(distinct, estimates)); err != nil {
		return err
	}
	if !o.Conservative {
		copy(plain, estimates)
		return w.differs(h)
	}
	for i, k := range distinct {
		if estimates[i] < 2*came[k] || estimates[i] > plain[i] {
			return fmt.Errorf("%d came %d times, and the estimate is %d, plainly %d", k, 2*came[k], estimates[i], plain[i])
		}
	}
	return h.Check()
}

func TestStressCounts(t *testing.T) {
	seeds := testenv.Seeds(60)
	testenv.Tried(t, seeds, "histories")
	for seed := range uint64(seeds) {
		seed += testenv.FirstSeed()
		if err := stressedCounts(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// The stress test finds defects that are put into the kernels on purpose.
func TestStressFindsDefectsOfCounts(t *testing.T) {
	source, shared := countMinCU, countingCUH
	defer func() { countMinCU, countingCUH = source, shared }()
	defects := []struct{ name, old, now string }{
		{"two equal keys that see the same least", "cas(lock, 0u, 1u) != 0", "false"},
		{"a conservative update that takes a counter back", "max_of(all + (u64)row * width + place(hash, row, width), least + n)",
			"store_relaxed(all + (u64)row * width + place(hash, row, width), least + n)"},
		{"a row that is not counted", "for (u32 row = 0; row < SKETCH_ROWS; row++)\n        add(counters",
			"for (u32 row = 1; row < SKETCH_ROWS; row++)\n        add(counters"},
		{"own counters that are not empty", "own[c] = 0;\n    block_sync();", "own[c] = 0;"},
		{"own counters that are added before all have counted", "});\n    block_sync();\n", "});\n"},
		{"a lost merge of a block's counters", "if (own[c]) add(counters(p.words) + c, (u64)own[c]);\n    }",
			"if (own[c] && c) add(counters(p.words) + c, (u64)own[c]);\n    }"},
		{"the keys of a tile are read before they are there", "t.came[i] = 0;\n        block_sync();", "t.came[i] = 0;"},
		{"a tile is put before all its keys are counted", "sum += times;\n        }\n        block_sync();",
			"sum += times;\n        }"},
		{"equal keys of a load that count as one", "run = more ? run + 1 : 1;", "run = 1;"},
		{"the last load is left out", "first < whole; first +=", "first + 1 < whole; first +="},
	}
	for _, c := range defects {
		if n := strings.Count(source+shared, c.old); n != 1 {
			t.Errorf("%s: the kernels have %d times\n%s", c.name, n, c.old)
		}
	}
	for _, c := range testenv.Some(defects, 2) {
		t.Run(c.name, func(t *testing.T) {
			countMinCU, countingCUH = strings.Replace(source, c.old, c.now, 1), strings.Replace(shared, c.old, c.now, 1)
			for seed := range uint64(20) {
				if err := stressedCounts(seed); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("none of 20 seeds finds the defect")
		})
	}
}

// Kernels compile for GPUs on machines that have none.
func TestCountMinCompilesForGPUs(t *testing.T) {
	for i, width := range testenv.Some([]int{4, 1, 2, 8, 16, 32}, 1) {
		_, err := device.CompileFor([]string{"sm_90", "sm_75", "sm_80"}[i%3], countMinProgram(width, []int{5, 1, 32}[i%3]))
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}

// FuzzCountMinForm: a sketch is made of a form that it then has, or the error is a line, and nothing stays open.
func FuzzCountMinForm(f *testing.F) {
	d := open(f, "cpu", device.WithMemory(1<<20))
	own := newCounts[uint32](f, d, CountMinOptions{Epsilon: 0.9, Delta: 0.3, Seed: 5}).Form()
	f.Add(own.Words, own.Make)
	f.Add(own.Words*2, own.Make)
	f.Add(own.Words, own.Make+"{")
	f.Add(own.Words, strings.Replace(own.Make, `"width":4`, `"width":4000000000`, 1))
	f.Add(int64(2147483648)*3+1, strings.Replace(own.Make, `"width":4`, `"width":2147483648`, 1))
	f.Add(int64(-1), "{}")
	f.Fuzz(func(t *testing.T, words int64, text string) {
		testenv.Bounded(t, len(text), func() {
			form := table.FilterForm{Words: words, Make: text}
			h, err := countMinOf[uint32](d, form)
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("an error that is no line: %q", err)
				}
				return
			}
			if got := h.Form(); got != form || 8*words > 1<<20 {
				t.Errorf("a sketch of form %v has form %v", form, got)
			}
			must(t, h.Close())
		})
	})
}

// FuzzLoadCountMin: whatever a file holds, it is loaded as what it says, or not at all.
func FuzzLoadCountMin(f *testing.F) {
	d := open(f, "cpu", device.WithMemory(1<<20))
	file := savedCounts(f, d)
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Add(append(bytes.Clone(file), 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		testenv.Bounded(t, len(file), func() {
			h, err := LoadCountMin[uint32](context.Background(), bytes.NewReader(file), d)
			if err != nil {
				return
			}
			var again bytes.Buffer
			must(t, errors.Join(h.Check(), h.Save(context.Background(), &again), h.Close()))
			if !bytes.Equal(again.Bytes(), file) {
				t.Error("what was loaded is not what is saved")
			}
		})
	})
}

func BenchmarkCountMin(b *testing.B) {
	testenv.UsersKernels(b)
	d := open(b, "cpu")
	const n = 1 << 23
	for name, o := range map[string]CountMinOptions{"default": {}, "large": {Epsilon: 1e-6},
		"conservative": {Conservative: true}} {
		for stream, keys := range streams(n, 1) {
			b.Run(name+"/"+stream, func(b *testing.B) {
				h := newCounts[uint32](b, d, o)
				must(b, h.Add(keys))
				b.SetBytes(4 * n)
				for b.Loop() {
					must(b, h.Add(keys))
				}
			})
		}
	}
}
