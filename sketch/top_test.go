package sketch

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

func newTop[K any](t testing.TB, d *device.Device, o TopOptions) *Top[K] {
	t.Helper()
	h, err := NewTop[K](d, o)
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	return h
}

// smallParts has tables of the CPU device looked at after so many keys, and those of a GPU that works slowly after few.
func smallParts(t testing.TB, keys int64) {
	was, wasGPU, wasBlocks := topPartCPU, topPartGPU, topBlocks
	topPartCPU = keys
	if testenv.Small() {
		topPartGPU, topBlocks = 1<<11, 4
	}
	t.Cleanup(func() { topPartCPU, topPartGPU, topBlocks = was, wasGPU, wasBlocks })
}

// within is an error where the sketch breaks its promise for keys that came so often.
func within[K comparable](h *Top[K], came map[K]uint64) error {
	if err := h.Check(); err != nil {
		return err
	}
	n, m := uint64(0), uint64(h.s.form.Counters)
	for _, c := range came {
		n += c
	}
	s, err := h.Stats()
	if err != nil {
		return err
	}
	top, err := h.Top(int(m))
	if err != nil {
		return err
	}
	if s.Added != n || s.Error*(m+1) > n {
		return fmt.Errorf("%d of %d keys are added, with an error of %d", s.Added, n, s.Error)
	}
	if want := min(len(came), int(m)); s.Error == 0 && (len(top) != want || int(s.Keys) != len(came)) {
		return fmt.Errorf("%d keys, and %d told, of %d, and %d counters", s.Keys, len(top), len(came), m)
	}
	told, last := map[K]bool{}, ^uint64(0)
	for _, x := range top {
		if told[x.Key] || x.Count > last || x.Count == 0 || x.Error != s.Error || x.Count > came[x.Key] ||
			came[x.Key]-x.Count > x.Error {
			return fmt.Errorf("%v is told to have come %d times or up to %d more, and came %d times", x.Key, x.Count,
				x.Error, came[x.Key])
		}
		told[x.Key], last = true, x.Count
	}
	for k, c := range came {
		if !told[k] && (c > n/m || c > last+s.Error) {
			return fmt.Errorf("%v came %d times of %d, and is not told by %d counters, of which the last has %d", k, c, n, m,
				last)
		}
	}
	return nil
}

// Over a thousand seeds, the bounds of SpaceSaving hold for hostile streams in batches of all sizes, with few counters
// and many, whose tables are cut often and never.
func TestTopOverSeeds(t *testing.T) {
	smallParts(t, 256)
	onEach(t, func(t *testing.T, d *device.Device) {
		n, seeds, counters := 4000, testenv.SeedsOf(1000, 3), testenv.Some([]int{100, 3, 1, 5000}, 2)
		if few(d) {
			seeds, counters = 1, []int{100}
		} else if d.Info().CUDA() { // some tiles for one block
			n = 40_000
		}
		for seed := range uint64(seeds) {
			all := streams(n, seed)
			for _, m := range counters {
				circle := make([]uint32, n) // of one key more than counters
				for i := range circle {
					circle[i] = uint32(i % (m + 1))
				}
				all["one key too many"] = circle
				for name, keys := range all {
					h, err := NewTop[uint32](d, TopOptions{Counters: m})
					must(t, err)
					if seed%2 == 0 {
						h.s.whole, h.s.blocks = 0, 1
					}
					_, came := tally(keys)
					for rest := keys; len(rest) > 0; {
						k := min(len(rest), 1+int(seed+uint64(len(rest)))%(n/2))
						must(t, h.Add(rest[:k]))
						rest = rest[k:]
					}
					if err := within(h, came); err != nil {
						t.Fatalf("%s, seed %d, %d counters: %v", name, seed, m, err)
					}
					must(t, h.Close())
				}
			}
		}
	})
}

// Keys of every width are told apart and given back, with counts and without, from Go's memory and from device slices
// that begin anywhere; where all have room, counts are exact.
func TestTopKeys(t *testing.T) {
	smallParts(t, 3000)
	onEach(t, func(t *testing.T, d *device.Device) {
		t.Run("4", func(t *testing.T) { topKeys[uint32](t, d) })
		if few(d) {
			return
		}
		t.Run("16", func(t *testing.T) { topKeys[[2]uint64](t, d) })
		t.Run("8", func(t *testing.T) { topKeys[int64](t, d) })
		if testenv.Long() {
			t.Run("1", func(t *testing.T) { topKeys[uint8](t, d) })
			t.Run("2", func(t *testing.T) { topKeys[int16](t, d) })
			t.Run("32", func(t *testing.T) { topKeys[[4]uint64](t, d) })
		}
	})
}

func topKeys[K comparable](t *testing.T, d *device.Device) {
	for _, m := range []int{4000, 50} {
		h := newTop[K](t, d, TopOptions{Counters: m, Seed: 5})
		came, sizes := map[K]uint64{}, []int{0, 1, 7, 33, 5000}
		if few(d) {
			sizes = []int{0, 33, 2000}
		}
		for i, n := range sizes {
			keys := skewed[K](n+3, uint64(i))
			if n > 0 {
				for j := range int(unsafe.Sizeof(keys[0])) { // the keys 0 and ^0, as bytes
					bytesOf(keys[:1])[j], bytesOf(keys[1:2])[j] = 0, 255
				}
			}
			counts := make([]uint64, len(keys))
			for j := range counts {
				counts[j] = uint64(j%5) << (j % 20)
			}
			on, err := device.From(d, keys)
			must(t, err)
			times, err := device.From(d, counts)
			must(t, err)
			st, err := d.NewStream()
			must(t, err)
			for from := range min(n, 3) + 1 {
				part, some := on.Slice(from, n+from), times.Slice(from, n+from)
				must(t, errors.Join(h.AddOn(st, part), h.AddCountsOn(st, part, some)))
				must(t, errors.Join(h.Add(keys[from:n+from]), h.AddCounts(keys[from:n+from], counts[from:n+from])))
				for j := from; j < n+from; j++ {
					came[keys[j]] += 2 + 2*counts[j]
				}
			}
			if err := within(h, came); err != nil {
				t.Fatalf("%d counters, %d keys: %v", m, n, err)
			}
			must(t, errors.Join(on.Free(), times.Free(), st.Close()))
		}
		if s, err := h.Stats(); err != nil || m == 4000 && s.Error != 0 || m == 50 && s.Error == 0 && len(came) > 6000 {
			t.Errorf("%d counters: %+v, %v", m, s, err)
		}
		few, err := h.Top(5)
		must(t, err)
		all, err := h.Top(m)
		must(t, err)
		for i, x := range few {
			if len(few) != 5 || x.Count != all[i].Count {
				t.Errorf("number %d of 5 has %d, of %d it has %d", i, x.Count, m, all[i].Count)
			}
		}
		must(t, h.Clear())
		must(t, within(h, map[K]uint64{}))
	}
}

// A stream of many keys, of which few come often, is cut in the blocks of a GPU, and in the table of the CPU device.
func TestTopOfMany(t *testing.T) {
	testenv.ByTurns(t)
	onEach(t, func(t *testing.T, d *device.Device) {
		n, counters := 300_000, []int{0, 100_000}
		if few(d) {
			n, counters = 20_000, []int{0}
		} else if d.Info().CUDA() {
			n = 5_000_000
		}
		keys, came := make([]uint64, n), map[uint64]uint64{}
		rng := rand.New(rand.NewPCG(1, 2))
		for i := range keys {
			if keys[i] = rng.Uint64(); i%7 == 0 {
				keys[i] = uint64(rng.IntN(20))
			}
			came[keys[i]]++
		}
		for _, m := range counters {
			h := newTop[uint64](t, d, TopOptions{Counters: m})
			must(t, h.Add(keys))
			must(t, within(h, came))
		}
	})
}

// Sketches of parts are one of all, of one device, of another, and of a device that is opened twice.
func TestMergeTops(t *testing.T) {
	smallParts(t, 300)
	onEach(t, func(t *testing.T, d *device.Device) {
		keys := skewed[uint64](12_000, 1)
		_, came := tally(keys)
		all := newTop[uint64](t, d, TopOptions{Counters: 200})
		for i, on := range []*device.Device{d, d, open(t, "cpu:1"), open(t, d.Info().Name)} {
			part := newTop[uint64](t, on, TopOptions{Counters: 200})
			must(t, part.Add(keys[i*3000:(i+1)*3000]))
			before, err := part.Top(200)
			must(t, err)
			must(t, all.Merge(part))
			if after, err := part.Top(200); err != nil || len(after) != len(before) || after[0] != before[0] {
				t.Errorf("what was merged has changed: %v", err)
			}
		}
		must(t, within(all, came))
		must(t, all.Merge(all))
		for k := range came {
			came[k] *= 2
		}
		must(t, within(all, came))
		err := all.Merge(newTop[uint64](t, d, TopOptions{Counters: 201}))
		if err == nil || !strings.Contains(err.Error(), "make both with") {
			t.Errorf("other counters: %v", err)
		}
		if all.Merge(nil) == nil || all.Merge(&Top[uint64]{}) == nil {
			t.Error("merged with nothing")
		}
		must(t, within(all, came))
	})
}

// What is saved is loaded, on any device, and goes on; what is loaded is saved as the same bytes.
func TestSaveAndLoadTops(t *testing.T) {
	smallParts(t, 300)
	onEach(t, func(t *testing.T, d *device.Device) {
		t.Run("4", func(t *testing.T) { saveAndLoadTop[uint32](t, d) })
		if few(d) {
			return
		}
		t.Run("2", func(t *testing.T) { saveAndLoadTop[uint16](t, d) })
		t.Run("16", func(t *testing.T) { saveAndLoadTop[[2]uint64](t, d) })
	})
}

func saveAndLoadTop[K comparable](t *testing.T, d *device.Device) {
	ctx, other := context.Background(), open(t, "cpu:1")
	for _, m := range []int{10, 2000} {
		keys, h := skewed[K](5000, 2), newTop[K](t, d, TopOptions{Counters: m})
		_, came := tally(keys)
		must(t, h.Add(keys))
		var file, same bytes.Buffer
		must(t, h.Save(ctx, &file))
		again, err := LoadTop[K](ctx, bytes.NewReader(file.Bytes()), other)
		must(t, err)
		must(t, within(again, came))
		must(t, again.Save(ctx, &same))
		if !bytes.Equal(file.Bytes(), same.Bytes()) || again.Form() != h.Form() {
			t.Errorf("%d counters: what was loaded is saved otherwise", m)
		}
		must(t, again.Add(keys))
		for k := range came {
			came[k] *= 2
		}
		must(t, errors.Join(within(again, came), again.Close()))
		if h, err := LoadTop[[4]uint64](ctx, bytes.NewReader(file.Bytes()), d); err == nil {
			t.Error("a sketch of other keys is loaded")
			h.Close()
		}
		if h, err := LoadCountMin[K](ctx, bytes.NewReader(file.Bytes()), d); err == nil {
			t.Error("it is loaded as counters")
			h.Close()
		}
	}
}

// savedTop is a small sketch's file.
func savedTop(t testing.TB, d *device.Device) []byte {
	t.Helper()
	h := newTop[uint32](t, d, TopOptions{Counters: 4, Seed: 5})
	must(t, h.Add([]uint32{1, 2, 2, 3, 3, 3}))
	var file bytes.Buffer
	must(t, h.Save(context.Background(), &file))
	return file.Bytes()
}

// A file that is damaged anywhere, or cut off anywhere, is an error, and so are words that no sketch has.
func TestDamagedTops(t *testing.T) {
	d := open(t, "cpu")
	file := savedTop(t, d)
	load := func(b []byte) error {
		h, err := LoadTop[uint32](context.Background(), bytes.NewReader(b), d)
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
	h := newTop[uint32](t, d, TopOptions{Counters: 4})
	must(t, h.Add([]uint32{9}))
	into := snapshot.Sketch[uint32](h).Load(context.Background(), bytes.NewReader(file))
	if into == nil || !strings.Contains(into.Error(), "holds keys already") {
		t.Errorf("loaded into a sketch with keys: %v", into)
	}
	good := []uint64{6, 0, 3, 3, 3, 2, 2, 1, 1, 0, 0}
	must(t, h.SetWords(0, good))
	must(t, within(h, map[uint32]uint64{1: 1, 2: 2, 3: 3}))
	must(t, errors.Join(h.SetWords(0, good[:5]), h.SetWords(5, good[5:])))
	must(t, within(h, map[uint32]uint64{1: 1, 2: 2, 3: 3}))
	for what, words := range map[string][]uint64{
		"more keys than counters": {6, 0, 5, 3, 3, 2, 2, 1, 1, 0, 0},
		"counts of more keys":     {5, 0, 3, 3, 3, 2, 2, 1, 1, 0, 0},
		"counts of fewer keys":    {7, 0, 3, 3, 3, 2, 2, 1, 1, 0, 0},
		"an error too large":      {10, 1, 3, 3, 3, 2, 2, 1, 1, 0, 0},
		"a huge error":            {10, 1 << 63, 3, 3, 3, 2, 2, 1, 1, 0, 0},
		"a key without count":     {5, 0, 3, 3, 3, 2, 2, 0, 1, 0, 0},
		"keys out of order":       {6, 0, 3, 2, 3, 3, 2, 1, 1, 0, 0},
		"a key twice":             {6, 0, 3, 3, 3, 2, 2, 1, 3, 0, 0},
		"a key twice in a row":    {7, 0, 3, 3, 3, 3, 3, 1, 1, 0, 0},
		"a key of 5 bytes":        {6, 0, 3, 3, 3, 2, 2 | 1<<32, 1, 1, 0, 0},
		"more behind the keys":    {6, 0, 3, 3, 3, 2, 2, 1, 1, 0, 1},
		"counts that overflow":    {4, 0, 2, 1<<64 - 1, 3, 5, 2, 0, 0, 0, 0},
	} {
		if err := h.SetWords(0, words); err == nil || !strings.HasPrefix(err.Error(), "sketch: ") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, h.SetWords(0, good[:3]))
	if h.SetWords(4, good[4:]) == nil || h.SetWords(-1, nil) == nil || h.SetWords(3, append(good[3:], 0)) == nil {
		t.Error("words that there are not are set")
	}
	must(t, within(h, map[uint32]uint64{1: 1, 2: 2, 3: 3}))
}

// Check finds what is wrong in a table.
func TestCheckTop(t *testing.T) {
	d := open(t, "cpu")
	for what, spoil := range map[string]func(head []uint64, slots []uint64){
		"keys in the table": func(head, _ []uint64) { head[2]++ },
		"has lost":          func(head, _ []uint64) { head[3]++ },
		"counts of":         func(head, _ []uint64) { head[1]++ },
		"has tag": func(_, slots []uint64) {
			for i := range slots {
				if i%2 == 1 && slots[i]>>32 == slotTaken {
					slots[i] -= 1 << 32
				}
			}
		},
	} {
		h := newTop[uint32](t, d, TopOptions{Counters: 4, Seed: 5})
		must(t, h.Add([]uint32{1, 2, 3}))
		must(t, h.Check())
		slots := device.View[uint64](h.s.slots, 0, h.s.slots.Len()/8)
		head, err := h.s.head.Host(nil)
		must(t, err)
		words, err := slots.Host(nil)
		must(t, err)
		spoil(head, words)
		must(t, errors.Join(h.s.head.Write(nil, head), slots.Write(nil, words)))
		if err := h.Check(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// Bad arguments, closed sketches, devices, streams and slices say what they are, and change nothing.
func TestTopErrors(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		for _, m := range []int{-1, 1<<24 + 1} {
			if h, err := NewTop[uint32](d, TopOptions{Counters: m}); err == nil {
				t.Errorf("%d counters: no error", m)
				h.Close()
			}
		}
		if _, err := NewTop[uint32](nil, TopOptions{}); err == nil {
			t.Error("a sketch on no device")
		}
		if _, err := NewTop[string](d, TopOptions{}); err == nil {
			t.Error("a sketch of strings")
		}
		h := newTop[uint32](t, d, TopOptions{Counters: 9})
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
		_, none := h.Top(0)
		_, many := h.Top(10)
		for what, err := range map[string]error{
			"a slice of another device is added":  h.AddOn(nil, foreign),
			"a stream of another device is taken": h.AddOn(st, own),
			"more counts than keys on the device": h.AddCountsOn(nil, own, counts),
			"more counts than keys":               h.AddCounts([]uint32{1}, []uint64{1, 2}),
			"no counts":                           h.AddCounts([]uint32{1}, nil),
			"the first 0":                         none,
			"more than counters":                  many,
		} {
			if err == nil {
				t.Error(what)
			}
		}
		must(t, st.Close())
		if s, err := h.Stats(); s.Added != 0 || err != nil || s.Counters != 9 || s.Keys != 0 || s.Bytes < 1000 {
			t.Errorf("the sketch is %+v, %v", s, err)
		}
		must(t, errors.Join(h.AddOn(nil, own), h.Close(), h.Close()))
		_, stats := h.Stats()
		_, used := h.Used()
		_, top := h.Top(3)
		_, words := wordsOf(h)
		same := TopOptions{Counters: 9}
		for what, err := range map[string]error{"Add": h.Add([]uint32{1}), "Add of nothing": h.Add(nil), "Top": top,
			"AddCounts": h.AddCounts([]uint32{1}, []uint64{1}), "AddOn": h.AddOn(nil, own), "Stats": stats, "Used": used,
			"AddCountsOn": h.AddCountsOn(nil, own, counts.Slice(0, 2)), "Check": h.Check(), "Clear": h.Clear(),
			"Merge with itself": h.Merge(h), "SetWords": h.SetWords(0, nil), "Words": words,
			"Save":                  h.Save(context.Background(), new(bytes.Buffer)),
			"Merge of a closed one": newTop[uint32](t, d, same).Merge(h),
			"Merge into it":         h.Merge(newTop[uint32](t, d, same)),
			"Merge of a closed one of another device": newTop[uint32](t, again, same).Merge(h)} {
			if !errors.Is(err, table.ErrClosed) || !strings.Contains(err.Error(), "sketch: ") ||
				strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v, want %v", what, err, table.ErrClosed)
			}
		}
	})
}

// A sketch that nothing has made says so, whatever is asked of it.
func TestTopZero(t *testing.T) {
	d := open(t, "cpu")
	keys, err := device.From(d, []uint32{1})
	must(t, err)
	counts, err := device.From(d, []uint64{1})
	must(t, err)
	defer func() { must(t, errors.Join(keys.Free(), counts.Free())) }()
	h := new(Top[uint32])
	_, stats := h.Stats()
	_, used := h.Used()
	_, words := wordsOf(h)
	_, top := h.Top(1)
	for what, err := range map[string]error{"Add": h.Add(nil), "AddCounts": h.AddCounts(nil, nil), "Stats": stats,
		"AddOn": h.AddOn(nil, keys), "AddCountsOn": h.AddCountsOn(nil, keys, counts), "Used": used, "Words": words,
		"Top": top, "Check": h.Check(), "Clear": h.Clear(), "Merge": h.Merge(h), "SetWords": h.SetWords(0, nil),
		"Save": h.Save(context.Background(), new(bytes.Buffer))} {
		if err == nil || !strings.Contains(err.Error(), "has not made") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := h.Close(); err != nil || h.Form() != (table.FilterForm{}) {
		t.Errorf("%v, %v", err, h.Form())
	}
}

// Batches of several goroutines and streams, and merges in a circle, are all counted.
func TestTopAtOnce(t *testing.T) {
	smallParts(t, 300)
	onEach(t, func(t *testing.T, d *device.Device) {
		h, other := newTop[uint32](t, d, TopOptions{Counters: 60}), newTop[uint32](t, d, TopOptions{Counters: 60})
		each := 3000
		if few(d) {
			each = 500
		}
		keys := skewed[uint32](8*each, 5)
		_, came := tally(keys)
		var wg sync.WaitGroup
		for i := range 8 {
			part := keys[i*each : (i+1)*each]
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
				_, err := h.Top(5)
				must(t, errors.Join(err, h.Merge(other), other.Merge(other), newTop[uint32](t, d, TopOptions{Counters: 60}).Merge(h)))
			})
		}
		wg.Wait()
		must(t, within(h, came))
	})
}

// stressedTop counts keys in blocks whose lanes change places at random, with summaries that are cut and tables that
// are, and with counts and merges.
func stressedTop(seed uint64, mode device.Option) error {
	d, err := device.Open("cpu", mode)
	if err != nil {
		return err
	}
	defer d.Close()
	if err := stressedTopOf[uint32](d, seed, []int{40, 400}[seed%2]); err != nil {
		return err
	}
	return stressedTopOf[[2]uint64](d, seed, 7)
}

func stressedTopOf[K comparable](d *device.Device, seed uint64, m int) error {
	h, err := NewTop[K](d, TopOptions{Counters: m, Seed: seed + 1})
	if err != nil {
		return err
	}
	defer h.Close()
	came := map[K]uint64{}
	for i, n := range []int{200, 50, 1100, 1600} {
		keys, counts := skewed[K](n, seed<<8|uint64(i)), make([]uint64, n)
		if i == 0 { // half of the counters have nearly all, and some keys too many come once
			copy(keys, randomKeys[K](n, seed))
			for j := range n * 9 / 10 {
				keys[j] = keys[n-1-j%(m/2+1)]
			}
		}
		if i == 3 { // more than the table holds
			keys = append(keys[:600], randomKeys[K](1000, seed)...)
		}
		for j, k := range keys {
			counts[j] = uint64(j%4) << (j % 24)
			if came[k]++; i == 3 {
				came[k] += counts[j]
			}
		}
		if err := h.Add(keys); err != nil {
			return err
		}
		if i == 3 {
			if err := h.AddCounts(keys, counts); err != nil {
				return err
			}
		}
		if err := within(h, came); err != nil {
			return fmt.Errorf("%d counters, batch %d: %w", m, i, err)
		}
	}
	if err := h.Merge(h); err != nil {
		return err
	}
	for k := range came {
		came[k] *= 2
	}
	return within(h, came)
}

func TestStressTop(t *testing.T) {
	seeds := testenv.Seeds(40)
	testenv.Tried(t, seeds, "histories")
	for seed := range uint64(seeds) {
		seed += testenv.FirstSeed()
		if err := stressedTop(seed, device.WithStress(seed)); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// A block's summary is cut exactly by the first count that is not to stay, also by one that has several digits.
func TestTopCutsLargeCounts(t *testing.T) {
	d := open(t, "cpu", device.WithStress(1))
	for _, m := range []int{1, 3, 4} {
		h := newTop[uint64](t, d, TopOptions{Counters: m})
		h.s.blocks = 1
		counts, keys := []int{5003, 4090, 3500, 2049, 700}, []uint64{}
		for i, n := range counts {
			keys = append(keys, slices.Repeat([]uint64{uint64(i)}, n)...)
		}
		rand.New(rand.NewPCG(1, 2)).Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
		must(t, h.Add(keys))
		top, err := h.Top(m)
		must(t, err)
		for i, x := range top {
			if len(top) != m || x.Key != uint64(i) || int(x.Count) != counts[i]-counts[m] || int(x.Error) != counts[m] {
				t.Errorf("%d counters: number %d is %+v", m, i, x)
			}
		}
		must(t, h.Check())
	}
}

// The stress test finds defects that are put into the kernels on purpose: counts that a merge loses, and such that are
// taken away twice, above all.
func TestStressFindsDefectsOfTop(t *testing.T) {
	text := topCU
	defer func() { topCU = text }()
	defects := []struct {
		name, old, now string
		model          bool // it shows under the memory model
	}{
		{"a merge of a summary that is lost", "fresh += enter(p.table, key_hash(s.t.k[i], p.table.seed), s.t.k[i], s.came[i]);",
			"if (i) fresh += enter(p.table, key_hash(s.t.k[i], p.table.seed), s.t.k[i], s.came[i]);", false},
		{"what is taken from a summary's counts is taken twice", "came[to++] = c[j] - less;", "came[to++] = c[j] > 2 * less ? c[j] - 2 * less : 1;", false},
		{"what is taken from the table's counts is taken twice", "s->count - h->cut;", "s->count > 2 * h->cut ? s->count - 2 * h->cut : 1;", false},
		{"what is taken from counts is not told", "if (thread_index() == 0 && less) add(&head_of(p.table)->less, less);", "", false},
		{"what is taken from the table is not told", "h->less += h->cut;", "", false},
		{"a summary is cut by the key behind the right one", "s.cut(kept, begin < end ? Summary::KEEP : (u32)p.most)",
			"s.cut(kept, begin < end ? Summary::KEEP - 50 : (u32)p.most / 2)", false},
		{"a key that is seen before it is written", "cas(&s.tag, (u32)FREE, (u32)BUSY) == FREE", "cas(&s.tag, (u32)FREE, (u32)TAKEN) == FREE", true},
		{"two lanes that take one slot", "cas(&s.tag, (u32)FREE, (u32)BUSY) == FREE", "true", false},
		{"a merge of another sketch that is lost", "if (c) fresh += enter(",
			"if (c && i + 1 < n) fresh += enter(", false},
		{"rows are brought together before they are there", "n += kept;\n        block_sync();", "n += kept;", false},
		{"rows are read before they are together", "s.together(n, p.table.seed);\n        block_sync();", "s.together(n, p.table.seed);", false},
		{"the table is cut a digit too high", "h->cut = h->cut << SKETCH_BIN_BITS | bin;", "h->cut = h->cut << SKETCH_BIN_BITS | bin + 1;", false},
	}
	for _, c := range defects {
		if n := strings.Count(text, c.old); n != 1 {
			t.Errorf("%s: the kernels have %d times\n%s", c.name, n, c.old)
		}
	}
	for _, c := range testenv.Some(defects, 2) {
		t.Run(c.name, func(t *testing.T) {
			topCU = strings.Replace(text, c.old, c.now, 1)
			for seed := range uint64(20) {
				mode := device.WithStress(seed)
				if c.model {
					mode = device.WithMemoryModel(seed)
				}
				if err := stressedTop(seed, mode); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("none of 20 seeds finds the defect")
		})
	}
}

// Kernels compile for GPUs on machines that have none.
func TestTopCompilesForGPUs(t *testing.T) {
	for i, width := range testenv.Some([]int{4, 1, 2, 8, 16, 32}, 1) {
		_, err := device.CompileFor([]string{"sm_90", "sm_75", "sm_80"}[i%3], topProgram(width, []int64{112, 62, 80}[i%3]<<10))
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}

// FuzzTopForm: a sketch is made of a form that it then has, or the error is a line, and nothing stays open.
func FuzzTopForm(f *testing.F) {
	smallParts(f, 1<<8)
	d := open(f, "cpu", device.WithMemory(1<<20))
	own := newTop[uint32](f, d, TopOptions{Counters: 9}).Form()
	f.Add(own.Words, own.Make)
	f.Add(own.Words*2, own.Make)
	f.Add(own.Words, own.Make+"{")
	f.Add(int64(3+2<<24), strings.Replace(own.Make, `"counters":9`, `"counters":16777216`, 1))
	f.Add(int64(-1), "{}")
	f.Fuzz(func(t *testing.T, words int64, text string) {
		testenv.Bounded(t, len(text), func() {
			form := table.FilterForm{Words: words, Make: text}
			h, err := topOf[uint32](d, form)
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

// FuzzLoadTop: whatever a file holds, it is loaded as what it says, or not at all.
func FuzzLoadTop(f *testing.F) {
	smallParts(f, 1<<8)
	d := open(f, "cpu", device.WithMemory(1<<20))
	file := savedTop(f, d)
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Add(append(bytes.Clone(file), 0))
	f.Fuzz(func(t *testing.T, file []byte) {
		testenv.Bounded(t, len(file), func() {
			h, err := LoadTop[uint32](context.Background(), bytes.NewReader(file), d)
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

// FuzzTopWords: words are those of a sketch, which then has them, or an error, and nothing changes.
func FuzzTopWords(f *testing.F) {
	smallParts(f, 1<<8)
	d := open(f, "cpu", device.WithMemory(1<<20))
	h := newTop[uint16](f, d, TopOptions{Counters: 4})
	words := func(w ...uint64) (b []byte) {
		for _, x := range w {
			b = binary.LittleEndian.AppendUint64(b, x)
		}
		return b
	}
	f.Add(words(6, 0, 3, 3, 3, 2, 2, 1, 1, 0, 0))
	f.Add(words(26, 4, 3, 3, 3, 2, 2, 1, 1, 0, 0))
	f.Add(words(6, 0, 1, 6, 65535, 0, 0, 0, 0, 0, 0))
	f.Add(words(1<<63, 1<<62, 4, 3, 3, 3, 2, 2, 1, 1, 0))
	f.Fuzz(func(t *testing.T, b []byte) {
		testenv.Bounded(t, len(b), func() {
			given := make([]uint64, 11)
			for i := range min(len(given), len(b)/8) {
				given[i] = binary.LittleEndian.Uint64(b[8*i:])
			}
			before, err := wordsOf(h)
			must(t, err)
			if h.SetWords(0, given) == nil {
				before = given
			}
			after, err := wordsOf(h)
			must(t, errors.Join(err, h.Check()))
			if !slices.Equal(after, before) {
				t.Errorf("words %v became %v", before, after)
			}
		})
	})
}

func BenchmarkTop(b *testing.B) {
	testenv.UsersKernels(b)
	d := open(b, "cpu")
	const n = 1 << 23
	for _, m := range []int{1000, 1 << 20} {
		for stream, keys := range streams(n, 1) {
			b.Run(fmt.Sprintf("%d/%s", m, stream), func(b *testing.B) {
				h := newTop[uint32](b, d, TopOptions{Counters: m})
				must(b, h.Add(keys))
				b.SetBytes(4 * n)
				for b.Loop() {
					must(b, h.Add(keys))
				}
			})
		}
	}
}
