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

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, name string, with ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, with...)
	if strings.HasPrefix(name, "cpu") {
		must(t, err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() { must(t, d.Close()) })
	return d
}

// onEach runs a test on the CPU device, and on a GPU where there is one.
func onEach(t *testing.T, run func(t *testing.T, d *device.Device)) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) { run(t, open(t, name)) })
	}
}

// few tells that a test takes as few rows and programs as show its point, because kernels run some hundred times slower:
// on a GPU beside compute-sanitizer.
func few(d *device.Device) bool { return d.Info().CUDA() && testenv.Small() }

func newSketch[K any](t testing.TB, d *device.Device, o HyperLogLogOptions) *HyperLogLog[K] {
	t.Helper()
	h, err := NewHyperLogLog[K](d, o)
	must(t, err)
	t.Cleanup(func() { must(t, h.Close()) })
	return h
}

// hashed is the Go twin of key_hash, of a key's bytes.
func hashed(key []byte, seed uint64) uint64 {
	var words [4]uint64
	for i := range key {
		words[i/8] |= uint64(key[i]) << (i % 8 * 8)
	}
	hash := func(x uint64) uint64 { return kernel.Hash64(kernel.HashMurmur, x, seed) }
	wide := func(lo, hi uint64) uint64 { return hash(hash(hi) ^ lo) }
	switch len(key) {
	case 16:
		return wide(words[0], words[1])
	case 32:
		return wide(words[0], words[1]^wide(words[2], words[3]))
	}
	return hash(words[0])
}

// twin is the Go twin of a sketch.
type twin struct {
	precision int
	seed      uint64
	registers []byte
}

func newTwin(o HyperLogLogOptions) *twin {
	return &twin{o.Precision, o.Seed, make([]byte, 1<<o.Precision)}
}

func (w *twin) hash(h uint64) {
	i := h >> (64 - w.precision)
	rank := min(bits.LeadingZeros64(h<<w.precision), 64-w.precision) + 1
	w.registers[i] = max(w.registers[i], byte(rank))
}

func (w *twin) add(key []byte) { w.hash(hashed(key, w.seed)) }

func (w *twin) estimate() float64 {
	counts := make([]int, hashBits+2-w.precision)
	for _, r := range w.registers {
		counts[r]++
	}
	return estimate(counts)
}

// differs is an error where a sketch has other registers than its twin.
func (w *twin) differs(h interface {
	Words(context.Context, func([]uint64) error) error
}) error {
	var got []byte
	err := h.Words(context.Background(), func(words []uint64) error {
		for _, x := range words {
			got = binary.LittleEndian.AppendUint64(got, x)
		}
		return nil
	})
	if err == nil && len(got) != len(w.registers) {
		err = fmt.Errorf("%d registers, want %d", len(got), len(w.registers))
	}
	for i, r := range w.registers {
		if err == nil && got[i] != r {
			err = fmt.Errorf("register %d of %d is %d, want %d", i, len(got), got[i], r)
		}
	}
	return err
}

func bytesOf[K any](keys []K) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(keys))), len(keys)*int(unsafe.Sizeof(*new(K))))
}

// randomKeys are n keys of which one in four came before.
func randomKeys[K any](n int, seed uint64) []K {
	keys := make([]K, n)
	rng, b, width := rand.New(rand.NewPCG(seed, 7)), bytesOf(keys), int(unsafe.Sizeof(*new(K)))
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	for i := range n / 4 {
		copy(b[rng.IntN(n)*width:], b[i*width:(i+1)*width])
	}
	return keys
}

func (w *twin) addAll(b []byte, width int) {
	for ; len(b) > 0; b = b[width:] {
		w.add(b[:width])
	}
}

// Registers are those of the Go twin: for keys of every width, from Go's memory and from device slices that begin
// anywhere, in small batches and in such where blocks have registers of their own.
func TestRegisters(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		t.Run("1", func(t *testing.T) { registers[uint8](t, d) })
		t.Run("2", func(t *testing.T) { registers[int16](t, d) })
		t.Run("4", func(t *testing.T) { registers[uint32](t, d) })
		t.Run("8", func(t *testing.T) { registers[float64](t, d) })
		t.Run("16", func(t *testing.T) { registers[[2]uint64](t, d) })
		t.Run("32", func(t *testing.T) { registers[[4]uint64](t, d) })
	})
}

func registers[K any](t *testing.T, d *device.Device) {
	width := int(unsafe.Sizeof(*new(K)))
	for _, precision := range testenv.Some([]int{14, 4, 18, 9}, 2) {
		o := HyperLogLogOptions{Precision: precision, Seed: 5}
		h, w := newSketch[K](t, d, o), newTwin(o)
		for i, n := range []int{0, 1, 7, 33, 1000, 100_000} {
			keys := randomKeys[K](n, uint64(i))
			must(t, h.Add(keys))
			w.addAll(bytesOf(keys), width)
			if err := w.differs(h); err != nil {
				t.Fatalf("precision %d, %d keys: %v", precision, n, err)
			}
			on, err := device.From(d, randomKeys[K](n+20, uint64(100+i)))
			must(t, err)
			st, err := d.NewStream()
			must(t, err)
			for from := range min(n, 18) { // 16 bytes of the narrowest keys, and more
				part := on.Slice(from, n+from%3)
				must(t, h.AddOn(st, part))
				host, err := part.Host(st)
				must(t, err)
				w.addAll(bytesOf(host), width)
				if n > 1000 && from > 1 {
					break
				}
			}
			if err := w.differs(h); err != nil {
				t.Fatalf("precision %d, %d keys on the device: %v", precision, n, err)
			}
			must(t, errors.Join(on.Free(), st.Close()))
		}
		must(t, h.Check())
		must(t, h.Clear())
		must(t, newTwin(o).differs(h))
	}
}

// Texts are hashed by SipHash under the seed, whichever way they come, and the same text is the same key.
func TestText(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		o := HyperLogLogOptions{Precision: 10, Seed: 5}
		a, b, w := newSketch[string](t, d, o), newSketch[string](t, d, o), newTwin(o)
		keys := make([]string, 20_000)
		for i := range keys {
			keys[i] = strings.Repeat("ab\x00ü", i%9) + fmt.Sprint(i/2)
			s := siphash.New(o.Seed, kernel.Fmix64(o.Seed))
			w.add(binary.LittleEndian.AppendUint64(nil, s.Of([]byte(keys[i]))))
		}
		must(t, a.Add(keys))
		must(t, a.Add(nil))
		must(t, w.differs(a))
		must(t, b.AddText(text.Of(keys...)))
		must(t, w.differs(b))
		for what, bad := range map[string]text.Keys{
			"ascend":     {Bytes: []byte("abc"), Offsets: []int64{0, 2, 1}},
			"3 bytes of": {Bytes: []byte("abc"), Offsets: []int64{0, 4}},
			"both":       {Offsets: []int64{0}, Offsets32: []int32{0}},
		} {
			if err := b.AddText(bad); err == nil || !strings.Contains(err.Error(), what) {
				t.Errorf("%q: %v", what, err)
			}
		}
		if err := b.AddOn(nil, device.Slice[string]{}); err == nil {
			t.Error("strings in a device slice are added")
		}
		if err := newSketch[uint64](t, d, o).AddText(text.Of("a")); err == nil {
			t.Error("text is added to a sketch of numbers")
		}
		must(t, w.differs(b))
	})
}

// A sketch that nothing has made says so, whatever is asked of it.
func TestHyperLogLogZero(t *testing.T) {
	d := open(t, "cpu")
	keys, err := device.From(d, []uint32{1})
	must(t, err)
	defer keys.Free()
	h := &HyperLogLog[uint32]{}
	_, stats := h.Stats()
	_, used := h.Used()
	_, estimate := h.Estimate()
	_, words := wordsOf(h)
	for what, err := range map[string]error{"Add": h.Add(nil), "AddOn": h.AddOn(nil, keys), "AddText": h.AddText(text.Keys{}),
		"Add of texts": new(HyperLogLog[string]).Add([]string{"a"}), "Stats": stats, "Used": used, "Estimate": estimate,
		"Words": words, "Check": h.Check(), "Clear": h.Clear(), "Merge": h.Merge(h), "SetWords": h.SetWords(0, nil),
		"Merge of one that is made": h.Merge(newSketch[uint32](t, d, HyperLogLogOptions{})),
		"Save":                      h.Save(context.Background(), new(bytes.Buffer))} {
		if err == nil || !strings.Contains(err.Error(), "has not made") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if err := h.Close(); err != nil || h.Form() != (table.FilterForm{}) {
		t.Errorf("%v, %v", err, h.Form())
	}
	if err := newSketch[uint32](t, d, HyperLogLogOptions{}).Merge(h); err == nil {
		t.Error("it is merged")
	}
}

// Over a thousand seeds, the estimates of few and many keys have no bias, and err as the theory says. The registers are
// the twin's, which TestRegisters holds equal to the device's; long runs let the device have its say.
func TestErrorOverSeeds(t *testing.T) {
	const seeds = 1000
	for _, precision := range []int{4, 10} {
		for _, n := range []int{3, 100, 1000, 3000, 20_000} {
			bias, square, worst := 0.0, 0.0, 0.0
			for seed := range uint64(seeds) {
				w := newTwin(HyperLogLogOptions{Precision: precision, Seed: seed + 1})
				for i := range n {
					w.hash(kernel.Hash64(kernel.HashMurmur, uint64(i), w.seed))
				}
				x := w.estimate()/float64(n) - 1
				bias, square, worst = bias+x, square+x*x, max(worst, math.Abs(x))
			}
			want := standardError(precision)
			bias, deviation := bias/seeds, math.Sqrt(square/seeds)
			told := fmt.Sprintf("precision %d, %d keys: a mean of %+.4f, a deviation of %.4f of %.4f, %.4f at most",
				precision, n, bias, deviation, want, worst)
			t.Log(told)
			// The mean of so many is within 4.5/√seeds deviations of the bias that 2^precision registers have. The
			// theory is of many registers: the deviation of 16 is a fifth more. Of few keys, the error is whole keys.
			most := want * 1.08
			if precision < 8 {
				most = want * 1.25
			}
			if high := 1.08 / math.Ldexp(1, precision); bias < -4.5*most/math.Sqrt(seeds) ||
				bias > high+4.5*most/math.Sqrt(seeds) || deviation > most || n > 4<<precision && deviation < 0.9*want ||
				worst > 8*most+1.5/float64(n) {
				t.Error(told)
			}
		}
	}
}

// The same on the device, with the distinct keys counted by a Go map.
func TestErrorOnDevice(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		o := HyperLogLogOptions{Precision: 12}
		square, rounds := 0.0, testenv.SeedsOf(1000, 30)
		keys, distinct := randomKeys[uint32](50_000, 3), map[uint32]bool{}
		for _, k := range keys {
			distinct[k] = true
		}
		n := float64(len(distinct))
		for seed := range uint64(rounds) {
			o.Seed = seed + 1
			h, err := NewHyperLogLog[uint32](d, o)
			must(t, err)
			must(t, errors.Join(h.Add(keys[:20_000]), h.Add(keys[10_000:]), h.Add(keys[:30_000])))
			e, err := h.Estimate()
			must(t, err)
			s, err := h.Stats()
			must(t, err)
			if s.Estimate != e || s.Precision != 12 || s.Bytes != 1<<12 || s.StandardError != standardError(12) ||
				s.Used == 0 || s.Used > 1<<12 {
				t.Errorf("an estimate of %v, and %+v", e, s)
			}
			square += (e/n - 1) * (e/n - 1)
			must(t, h.Close())
		}
		if deviation := math.Sqrt(square / float64(rounds)); deviation > 1.5*standardError(12) {
			t.Errorf("a deviation of %v, want %v", deviation, standardError(12))
		}
	})
}

// The estimator's ends: nothing is 0, few keys are nearly exact, and full registers are no number of keys.
func TestEstimator(t *testing.T) {
	counts := func(p int, zeros, last int) []int {
		c := make([]int, 66-p)
		c[0], c[65-p] = zeros, last
		c[1] += 1<<p - zeros - last
		return c
	}
	if e := estimate(counts(4, 16, 0)); e != 0 {
		t.Errorf("no keys: %v", e)
	}
	if e := estimate(counts(14, 1<<14-1, 0)); math.Abs(e-1) > 0.001 {
		t.Errorf("one register of many: %v", e)
	}
	if e := estimate(counts(4, 0, 16)); e != 1<<64 {
		t.Errorf("every register is full: %v", e)
	}
	if e := estimate(counts(4, 0, 15)); math.IsNaN(e) || e < 1 {
		t.Errorf("nearly every register is full: %v", e)
	}
}

// Parts that are merged are the whole, of one device, of another, and of a device that is opened twice.
func TestMerge(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		o := HyperLogLogOptions{Precision: 11, Seed: 9}
		keys, w := randomKeys[uint64](30_000, 1), newTwin(o)
		w.addAll(bytesOf(keys), 8)
		all := newSketch[uint64](t, d, o)
		for i, on := range []*device.Device{d, open(t, "cpu:1"), open(t, d.Info().Name)} {
			part := newSketch[uint64](t, on, o)
			must(t, part.Add(keys[i*10_000:(i+1)*10_000]))
			before, err := part.Estimate()
			must(t, err)
			must(t, all.Merge(part))
			must(t, all.Merge(part))
			if after, err := part.Estimate(); err != nil || after != before {
				t.Errorf("what was merged has %v, had %v, %v", after, before, err)
			}
		}
		must(t, all.Merge(all))
		must(t, w.differs(all))
		for what, other := range map[string]HyperLogLogOptions{"another seed": {Precision: 11, Seed: 10},
			"another precision": {Precision: 12, Seed: 9}} {
			err := all.Merge(newSketch[uint64](t, d, other))
			if err == nil || !strings.Contains(err.Error(), "make both with") {
				t.Errorf("%s: %v", what, err)
			}
		}
		if all.Merge(nil) == nil || all.Merge(&HyperLogLog[uint64]{}) == nil {
			t.Error("merged with nothing")
		}
		must(t, w.differs(all))
	})
}

// Two that are merged into each other at once, beside batches, wait for one another in no circle.
func TestMergesAtOnce(t *testing.T) {
	d, other := open(t, "cpu"), open(t, "cpu:1")
	o := HyperLogLogOptions{Precision: 8, Seed: 9}
	sketches := []*HyperLogLog[uint32]{}
	for _, on := range []*device.Device{d, d, other} {
		sketches = append(sketches, newSketch[uint32](t, on, o))
	}
	keys, w := randomKeys[uint32](3000, 1), newTwin(o)
	w.addAll(bytesOf(keys), 4)
	var wg sync.WaitGroup
	for i, s := range sketches {
		for j, from := range sketches {
			wg.Go(func() {
				for range 20 {
					if err := errors.Join(s.Add(keys[i*1000:(i+1)*1000]), s.Merge(from)); err != nil {
						t.Errorf("%d from %d: %v", i, j, err)
					}
				}
			})
		}
	}
	wg.Wait()
	for _, from := range sketches {
		must(t, sketches[0].Merge(from))
	}
	must(t, w.differs(sketches[0]))
}

// What is saved is loaded, on any device, and goes on.
func TestSaveAndLoad(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		ctx, other := context.Background(), open(t, "cpu:1")
		for _, precision := range []int{4, 14, 18} {
			o := HyperLogLogOptions{Precision: precision}
			h := newSketch[uint64](t, d, o)
			must(t, h.Add(randomKeys[uint64](5000, 2)))
			var file bytes.Buffer
			must(t, h.Save(ctx, &file))
			if size := file.Len(); size > 1<<precision+500 {
				t.Errorf("precision %d: a file of %d bytes", precision, size)
			}
			again, err := LoadHyperLogLog[uint64](ctx, &file, other)
			must(t, err)
			if again.Form() != h.Form() {
				t.Errorf("form %v became %v", h.Form(), again.Form())
			}
			more := randomKeys[uint64](5000, 3)
			must(t, errors.Join(h.Add(more), again.Add(more)))
			want, e1 := h.Estimate()
			got, e2 := again.Estimate()
			if got != want || e1 != nil || e2 != nil {
				t.Errorf("an estimate of %v, want %v; %v, %v", got, want, e1, e2)
			}
			must(t, again.Close())
		}
		words := newSketch[string](t, d, HyperLogLogOptions{Seed: 7})
		must(t, words.Add([]string{"a", "b", "a"}))
		var file bytes.Buffer
		must(t, words.Save(ctx, &file))
		again, err := LoadHyperLogLog[string](ctx, bytes.NewReader(file.Bytes()), d)
		must(t, err)
		if e, err := again.Estimate(); err != nil || math.Round(e) != 2 {
			t.Errorf("%v keys, %v", e, err)
		}
		must(t, again.Close())
		if h, err := LoadHyperLogLog[uint64](ctx, &file, d); err == nil {
			t.Error("a sketch of strings is loaded as one of numbers")
			h.Close()
		}
	})
}

// saved is a small sketch's file.
func saved(t testing.TB, d *device.Device) []byte {
	t.Helper()
	h := newSketch[uint32](t, d, HyperLogLogOptions{Precision: 4, Seed: 5})
	must(t, h.Add([]uint32{1, 2, 3, 4, 5}))
	var file bytes.Buffer
	must(t, h.Save(context.Background(), &file))
	return file.Bytes()
}

// A file that is damaged anywhere, cut off anywhere, or of something else is an error, and leaves no sketch open.
func TestDamage(t *testing.T) {
	d := open(t, "cpu")
	file := saved(t, d)
	load := func(b []byte) error {
		h, err := LoadHyperLogLog[uint32](context.Background(), bytes.NewReader(b), d)
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
	if load(append(bytes.Clone(file), 0)) == nil {
		t.Error("a file with something behind it was loaded")
	}
	used := newSketch[uint32](t, d, HyperLogLogOptions{Precision: 4, Seed: 5})
	must(t, used.Add([]uint32{9}))
	into := snapshot.Sketch[uint32](used).Load(context.Background(), bytes.NewReader(file))
	if into == nil || !strings.Contains(into.Error(), "holds keys already") {
		t.Errorf("loaded into a sketch with keys: %v", into)
	}
	// Right checksums of what no sketch has.
	for what, words := range map[string][]uint64{"a register of 62": {0, 62 << 40}, "a register of 255": {255}} {
		if err := used.SetWords(0, words); err == nil || !strings.Contains(err.Error(), "at most 61 can be") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if used.SetWords(1, make([]uint64, 2)) == nil || used.SetWords(-1, nil) == nil || used.SetWords(3, nil) == nil {
		t.Error("words that there are not are set")
	}
	must(t, used.SetWords(1, []uint64{61 << 56}))
	must(t, used.Check())
}

// Bad arguments, closed sketches, devices, streams and slices say what they are, and change nothing.
func TestErrors(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		for _, o := range []HyperLogLogOptions{{Precision: 3}, {Precision: 19}, {Precision: -1}} {
			if h, err := NewHyperLogLog[uint32](d, o); err == nil {
				t.Errorf("%+v: no error", o)
				h.Close()
			}
		}
		if _, err := NewHyperLogLog[uint32](nil, HyperLogLogOptions{}); err == nil {
			t.Error("a sketch on no device")
		}
		if _, err := NewHyperLogLog[[3]uint32](d, HyperLogLogOptions{}); err == nil {
			t.Error("a sketch of keys of 12 bytes")
		}
		if _, err := NewHyperLogLog[*int](d, HyperLogLogOptions{}); err == nil {
			t.Error("a sketch of pointers")
		}
		h := newSketch[uint32](t, d, HyperLogLogOptions{})
		again := open(t, "cpu:1")
		foreign, err := device.From(again, []uint32{1, 2})
		must(t, err)
		defer foreign.Free()
		if h.AddOn(nil, foreign) == nil {
			t.Error("a slice of another device is added")
		}
		own, err := device.From(d, []uint32{1, 2})
		must(t, err)
		st, err := again.NewStream()
		must(t, err)
		if h.AddOn(st, own) == nil {
			t.Error("a stream of another device is taken")
		}
		must(t, st.Close())
		must(t, own.Free())
		if err := h.AddOn(nil, own); !errors.Is(err, device.ErrFreed) {
			t.Errorf("a slice that is freed: %v", err)
		}
		if e, err := h.Estimate(); e != 0 || err != nil {
			t.Errorf("the sketch has %v keys, %v", e, err)
		}
		own, err = device.From(d, []uint32{1, 2})
		must(t, err)
		defer func() { own.Free() }()
		must(t, h.Close())
		must(t, h.Close())
		_, estimate := h.Estimate()
		_, stats := h.Stats()
		_, used := h.Used()
		words := newSketch[string](t, d, HyperLogLogOptions{})
		must(t, words.Close())
		for what, err := range map[string]error{"Add": h.Add([]uint32{1}), "Add of nothing": h.Add(nil),
			"AddOn": h.AddOn(nil, own), "Estimate": estimate, "Stats": stats, "Used": used, "Check": h.Check(),
			"Clear": h.Clear(), "Merge with itself": h.Merge(h), "SetWords": h.SetWords(0, nil),
			"Save":                  h.Save(context.Background(), new(bytes.Buffer)),
			"Merge of a closed one": newSketch[uint32](t, d, HyperLogLogOptions{Seed: h.s.opts.Seed}).Merge(h),
			"Merge of a closed one of another device": newSketch[uint32](t, again,
				HyperLogLogOptions{Seed: h.s.opts.Seed}).Merge(h),
			"strings": words.Add([]string{"a"}), "no strings": words.Add(nil), "text": words.AddText(text.Of("a"))} {
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

// A device that is closed under a sketch says so.
func TestClosedDevice(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	h, err := NewHyperLogLog[uint32](d, HyperLogLogOptions{})
	must(t, err)
	must(t, d.Close())
	_, estimate := h.Estimate()
	for what, err := range map[string]error{"Add": h.Add([]uint32{1}), "Estimate": estimate, "Clear": h.Clear()} {
		if closed := errors.Is(err, device.ErrClosed) || errors.Is(err, device.ErrFreed); !closed ||
			strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
	must(t, h.Close())
}

// Batches of several goroutines and streams are all in.
func TestAtOnce(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		o := HyperLogLogOptions{Precision: 6, Seed: 4}
		h, w := newSketch[uint32](t, d, o), newTwin(o)
		keys := randomKeys[uint32](8*20_000, 5)
		w.addAll(bytesOf(keys), 4)
		var wg sync.WaitGroup
		for i := range 8 {
			part := keys[i*20_000 : (i+1)*20_000]
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
		}
		wg.Wait()
		must(t, w.differs(h))
	})
}

// stressed adds keys to a sketch whose lanes change places at random, with blocks' own registers and without, and
// merges it into another. Few registers have every lane in the way of others.
func stressed(seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	defer d.Close()
	for _, own := range []bool{false, true} {
		o := HyperLogLogOptions{Precision: 4 + int(seed%2), Seed: seed + 1}
		h, err := NewHyperLogLog[uint32](d, o)
		if err != nil {
			return err
		}
		all, err := NewHyperLogLog[uint32](d, o)
		if err != nil {
			return err
		}
		if h.s.ownFrom = 1 << 40; own {
			h.s.ownFrom = 1
		}
		w := newTwin(o)
		for i := range uint64(3) {
			keys := randomKeys[uint32](701, seed<<8|i)
			w.addAll(bytesOf(keys), 4)
			if err := errors.Join(h.Add(keys), all.Merge(h)); err != nil {
				return err
			}
			if err := errors.Join(w.differs(h), w.differs(all)); err != nil {
				return fmt.Errorf("own registers %t, batch %d: %w", own, i, err)
			}
		}
		if err := errors.Join(h.Close(), all.Close()); err != nil {
			return err
		}
	}
	return nil
}

func TestStress(t *testing.T) {
	seeds := testenv.Seeds(100)
	testenv.Tried(t, seeds, "histories")
	for seed := range uint64(seeds) {
		seed += testenv.FirstSeed()
		if err := stressed(seed); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// The tests above find defects that are put into the kernels on purpose: what an update or a merge loses above all.
func TestStressFindsDefects(t *testing.T) {
	text := hyperLogLogCU
	defer func() { hyperLogLogCU = text }()
	defects := []struct{ name, old, now string }{
		{"an update that another lane's store undoes", "u32 seen = cas(word, was, now);",
			"u32 seen = was; store_relaxed(word, now);"},
		{"a word that has changed is given up", "was = seen;\n", "return;\n"},
		{"own registers are read before they are there", "to[w] = load_relaxed(all + w);\n        block_sync();",
			"to[w] = load_relaxed(all + w);"},
		{"own registers are merged before all keys are in", "if (!p.own) return;\n    block_sync();",
			"if (!p.own) return;"},
		{"a merge that is lost", "raise(all + i, to[i]);", "if (i) raise(all + i, to[i]);"},
		{"a merge of what another sketch has that is lost", "w < p.words; w +=", "w + 1 < p.words; w +="},
		{"the last keys are left out", "i = tail + grid_thread(); i < p.n", "i = tail + grid_thread(); i < tail"},
		{"the last load is left out", "first < whole; first +=", "first + 1 < whole; first +="},
		{"a rank of zeros alone", "1ull << (precision - 1)", "1ull"},
	}
	for _, c := range defects {
		if n := strings.Count(text, c.old); n != 1 {
			t.Errorf("%s: the kernels have %d times\n%s", c.name, n, c.old)
		}
	}
	for _, c := range testenv.Some(defects, 2) {
		t.Run(c.name, func(t *testing.T) {
			hyperLogLogCU = strings.Replace(text, c.old, c.now, 1)
			for seed := range uint64(20) {
				if err := errors.Join(stressed(seed), zeros(seed)); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("none of 20 seeds finds the defect")
		})
	}
}

// zeros adds keys whose hashes end in zeros alone behind the register, or nearly so.
func zeros(seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	defer d.Close()
	o := HyperLogLogOptions{Precision: 4, Seed: seed + 1}
	h, err := NewHyperLogLog[uint64](d, o)
	if err != nil {
		return err
	}
	defer h.Close()
	w, keys := newTwin(o), []uint64{}
	for i := range uint64(16) {
		keys = append(keys, keyOf(i<<60|i&7, o.Seed))
	}
	w.addAll(bytesOf(keys), 8)
	if w.registers[8] != 61 || w.registers[1] != 60 {
		return nil // the twin is wrong: TestHighRanks says so
	}
	return errors.Join(h.Add(keys), w.differs(h))
}

// keyOf is the key of 8 bytes that has a hash.
func keyOf(h, seed uint64) uint64 {
	inverse := func(a uint64) uint64 { // by Newton's method, which doubles the right bits with each step
		x := a
		for range 5 {
			x *= 2 - a*x
		}
		return x
	}
	h ^= h >> 33
	h *= inverse(0xc4ceb9fe1a85ec53)
	h ^= h >> 33
	h *= inverse(0xff51afd7ed558ccd)
	h ^= h >> 33
	return h - 0x9e3779b97f4a7c15*(seed+1)
}

// The highest ranks there are come from keys whose hashes are zeros behind the register.
func TestHighRanks(t *testing.T) {
	onEach(t, func(t *testing.T, d *device.Device) {
		for _, precision := range []int{4, 14, 18} {
			o := HyperLogLogOptions{Precision: precision, Seed: 3}
			h := newSketch[uint64](t, d, o)
			must(t, h.Add([]uint64{keyOf(0, o.Seed), keyOf(1<<(64-precision)|1, o.Seed)}))
			var first uint64
			must(t, h.Words(context.Background(), func(words []uint64) error { first = words[0]; return nil }))
			if want := uint64(65-precision) | uint64(64-precision)<<8; first != want {
				t.Errorf("precision %d: registers %#x, want %#x", precision, first, want)
			}
		}
	})
}

// Kernels compile for GPUs on machines that have none.
func TestCompilesForGPUs(t *testing.T) {
	for i, width := range testenv.Some([]int{4, 1, 2, 8, 16, 32}, 1) {
		_, err := device.CompileFor([]string{"sm_90", "sm_75", "sm_80"}[i%3], hyperLogLogProgram(width))
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}

// FuzzForm: a sketch is made of a form that it then has, or the error is a line, and nothing stays open.
func FuzzForm(f *testing.F) {
	const most = 1 << 20
	d := open(f, "cpu", device.WithMemory(most))
	own := newSketch[uint32](f, d, HyperLogLogOptions{Precision: 5, Seed: 5}).Form()
	f.Add(own.Words, own.Make)
	f.Add(own.Words*2, own.Make)
	f.Add(int64(1)<<43, own.Make)
	f.Add(own.Words, own.Make+"{")
	f.Add(own.Words, strings.ToUpper(own.Make))
	f.Add(own.Words, strings.Replace(own.Make, `"precision":5`, `"precision":63`, 1))
	f.Add(int64(-1), "{}")
	f.Add(int64(1), "null")
	f.Fuzz(func(t *testing.T, words int64, text string) {
		testenv.Bounded(t, len(text), func() {
			form := table.FilterForm{Words: words, Make: text}
			h, err := ofForm[uint32](d, form)
			if err != nil {
				if strings.Contains(err.Error(), "\n") {
					t.Errorf("an error that is no line: %q", err)
				}
				return
			}
			if got := h.Form(); got != form || 8*words > 1<<mostPrecision {
				t.Errorf("a sketch of form %v has form %v", form, got)
			}
			must(t, h.Close())
		})
	})
}

// FuzzLoad: whatever a file holds, it is loaded as what it says, or not at all.
func FuzzLoad(f *testing.F) {
	d := open(f, "cpu", device.WithMemory(1<<20))
	file := saved(f, d)
	f.Add(file)
	f.Add(file[:len(file)-1])
	f.Add(append(bytes.Clone(file), 0))
	f.Add([]byte("warpmap\n"))
	f.Fuzz(func(t *testing.T, file []byte) {
		testenv.Bounded(t, len(file), func() {
			h, err := LoadHyperLogLog[uint32](context.Background(), bytes.NewReader(file), d)
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

func BenchmarkAdd(b *testing.B) {
	testenv.UsersKernels(b)
	d := open(b, "cpu")
	h := newSketch[uint32](b, d, HyperLogLogOptions{})
	keys := make([]uint32, 1<<24)
	for i := range keys {
		keys[i] = uint32(i)
	}
	must(b, h.Add(keys))
	b.SetBytes(4 << 24)
	for b.Loop() {
		must(b, h.Add(keys))
	}
}
