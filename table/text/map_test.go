package text_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// openDevice opens a device for a test.
func openDevice(t testing.TB, name string, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open(name, opts...)
	if name == "cpu" {
		must(t, err)
	}
	testenv.Require(t, "cuda", err)
	t.Cleanup(func() {
		tabletest.NoneForgotten(t, d)
		must(t, d.Close())
	})
	return d
}

// index makes the table below a map.
func index(family table.Family) text.Index {
	return func(d *device.Device, o table.Options) (table.Map[uint64, uint64], error) {
		return warpmap.New[uint64, uint64](d, family, o)
	}
}

// maker makes a map for a test.
type maker func(d *device.Device, o text.Options) (*text.Map[uint64], error)

// everywhere runs a test on the CPU device, where each lane works alone and where the lanes of a warp work together, and on a GPU.
func everywhere(t *testing.T, test func(t *testing.T, d *device.Device, newMap maker)) {
	for _, name := range []string{"cpu", "cpu together", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			deviceName, together := strings.CutSuffix(name, " together")
			d := openDevice(t, deviceName)
			test(t, d, func(d *device.Device, o text.Options) (*text.Map[uint64], error) {
				if together {
					return text.NewTogether[uint64](d, o, index(warpmap.WarpCore))
				}
				return text.New[uint64](d, o, index(warpmap.WarpCore))
			})
		})
	}
}

// twin is a map beside a Go map. Of keys that come twice in a batch the model has all values that may be there.
type twin struct {
	testing.TB
	m     *text.Map[uint64]
	d     *device.Device
	model map[string][]uint64
	rng   *rand.Rand
	limit bool // MaxBytes is set
	count uint64
	// short: device memory may be. vague: positions of keys that are in may be named, for nobody could ask.
	short, vague bool
	lent         []interface{ Free() error }
}

func newTwin(t testing.TB, d *device.Device, newMap maker, o text.Options, seed uint64) *twin {
	t.Helper()
	m, err := newMap(d, o)
	must(t, err)
	t.Cleanup(func() { must(t, m.Close()) })
	return &twin{TB: t, m: m, d: d, model: map[string][]uint64{}, rng: rand.New(rand.NewPCG(seed, 3)), limit: o.MaxBytes > 0}
}

// keysOf puts keys in one of the forms that there are.
func (x *twin) keysOf(keys []string) text.Keys {
	k := text.Of(keys...)
	switch x.rng.IntN(4) {
	case 0:
		k.Offsets32 = make([]int32, len(k.Offsets))
		for i, o := range k.Offsets {
			k.Offsets32[i] = int32(o)
		}
		k.Offsets = nil
	case 1: // what is before and behind is none of ours
		k.Bytes = append(append([]byte("xyz"), k.Bytes...), "behind"...)
		for i := range k.Offsets {
			k.Offsets[i] += 3
		}
	}
	return k
}

func (x *twin) numbers(n int) []uint64 {
	out := make([]uint64, n)
	for i := range out {
		x.count++
		out[i] = x.count
	}
	return out
}

// onDevice tells whether to have a batch on the device, and has for it what memory there is.
func (x *twin) onDevice(keys []string) bool {
	x.Helper()
	need := int64(64 * len(keys))
	for _, k := range keys {
		need += int64(len(k))
	}
	free, _, err := x.d.Memory()
	must(x, err)
	return x.rng.IntN(3) == 0 && need < free
}

// on runs an operation on the device, and gives back what it was lent.
func (x *twin) on(keys []string, op func(st *device.Stream, keys text.KeysOn) error) error {
	x.Helper()
	k, err := x.keysOf(keys).Upload(x.d)
	must(x, err)
	defer func() { must(x, k.Free()) }()
	return op(nil, k)
}

func (x *twin) giveBack() {
	x.Helper()
	for _, s := range x.lent {
		must(x, s.Free())
	}
	x.lent = nil
}

func deviceSlice[T any](x *twin, s []T) device.Slice[T] {
	x.Helper()
	out, err := device.From(x.d, s)
	must(x, err)
	x.lent = append(x.lent, out)
	return out
}

// nothing tells whether a batch ended before it began, for want of memory.
func (x *twin) nothing(err error) bool {
	return x.vague && device.IsOutOfMemory(err) && !errors.As(err, new(*table.FullError))
}

// refused are the positions of a FullError, checked against the keys.
func (x *twin) refused(err error, keys []string) map[int]bool {
	x.Helper()
	full := (*table.FullError)(nil)
	if !errors.As(err, &full) {
		must(x, err)
		return nil
	}
	if !(x.limit && errors.Is(err, table.ErrMaxBytes)) && !(x.short && device.IsOutOfMemory(err)) || !slices.IsSorted(full.Positions) || len(full.Positions) == 0 {
		x.Fatalf("full: %v", err)
	}
	lost, in := map[int]bool{}, map[string]bool{}
	for _, p := range full.Positions {
		lost[p] = true
	}
	for i, k := range keys {
		in[k] = in[k] || !lost[i]
	}
	for i := range lost {
		if _, old := x.model[keys[i]]; !x.vague && (old || in[keys[i]]) {
			x.Fatalf("position %d is named, and its key %.40q is in (before %t)", i, keys[i], old)
		}
	}
	if n, err := x.m.Len(); !x.nothing(err) && (err != nil || n != full.Len) {
		x.Fatalf("the error has %d keys, and Len %d, %v", full.Len, n, err)
	}
	return lost
}

func (x *twin) insert(keys []string) (refused int) {
	x.Helper()
	defer x.giveBack()
	values := x.numbers(len(keys))
	var err error
	if x.onDevice(keys) {
		err = x.on(keys, func(st *device.Stream, k text.KeysOn) error { return x.m.InsertOn(st, k, deviceSlice(x, values)) })
	} else {
		err = x.m.Insert(x.keysOf(keys), values)
	}
	if x.nothing(err) {
		return len(keys)
	}
	lost, batch := x.refused(err, keys), map[string][]uint64{}
	for i, k := range keys {
		if !lost[i] {
			batch[k] = append(batch[k], values[i])
		}
	}
	maps.Copy(x.model, batch)
	for i, k := range keys {
		if _, in := x.model[k]; lost[i] && in { // perhaps it was replaced before memory was short
			x.model[k] = append(x.model[k], values[i])
		}
	}
	return len(lost)
}

func (x *twin) insertNew(keys []string) (refused int) {
	x.Helper()
	defer x.giveBack()
	values, added := x.numbers(len(keys)), make([]bool, len(keys))
	for i := range added {
		added[i] = true // what is not written shows
	}
	var err error
	count := -1
	if x.onDevice(keys) {
		out := deviceSlice(x, added)
		err = x.on(keys, func(st *device.Stream, k text.KeysOn) error {
			return x.m.InsertNewOn(st, k, deviceSlice(x, values), out)
		})
		must(x, out.Read(nil, added))
	} else {
		count, err = x.m.InsertNew(x.keysOf(keys), values, added)
	}
	if x.nothing(err) {
		return len(keys)
	}
	lost, times, taken := x.refused(err, keys), map[string]int{}, map[string]bool{}
	for i, k := range keys {
		taken[k] = taken[k] || !lost[i]
		if added[i] {
			times[k]++
			if lost[i] || len(x.model[k]) > 0 && times[k] == 1 {
				x.Fatalf("position %d, key %.40q: added, though it is refused (%t) or was in", i, k, lost[i])
			}
		}
	}
	if count >= 0 && count != frame.Count(added) {
		x.Fatalf("%d keys are new by the count, and %d by the flags", count, frame.Count(added))
	}
	for _, k := range keys {
		want := 1
		if _, old := x.model[k]; old || !taken[k] {
			want = 0
		}
		if times[k] != want {
			x.Fatalf("key %.40q was added %d times, want %d", k, times[k], want)
		}
	}
	for i, k := range keys {
		if added[i] {
			x.model[k] = []uint64{values[i]}
		}
	}
	return len(lost)
}

func (x *twin) drop(keys []string) {
	x.Helper()
	defer x.giveBack()
	deleted := make([]bool, len(keys))
	for i := range deleted {
		deleted[i] = true
	}
	var err error
	if x.onDevice(keys) {
		out := deviceSlice(x, deleted)
		err = x.on(keys, func(st *device.Stream, k text.KeysOn) error { return x.m.DeleteOn(st, k, out) })
		must(x, out.Read(nil, deleted))
		if x.nothing(err) && !slices.Contains(deleted, false) {
			return // it did not begin
		}
	} else {
		n := 0
		if n, err = x.m.Delete(x.keysOf(keys), deleted); n != frame.Count(deleted) {
			x.Fatalf("%d keys are deleted by the count, and %d by the flags, %v", n, frame.Count(deleted), err)
		}
	}
	part := x.nothing(err)
	if err != nil && !part {
		x.Fatal(err)
	}
	times := map[string]int{}
	for i, k := range keys {
		if deleted[i] {
			times[k]++
		}
	}
	for _, k := range keys {
		if want := len(x.model[k][:min(1, len(x.model[k]))]); times[k] != want && !(part && times[k] == 0) {
			x.Fatalf("key %.40q was deleted %d times, want %d", k, times[k], want)
		}
	}
	for _, k := range keys {
		if times[k] > 0 {
			delete(x.model, k)
		}
	}
}

func (x *twin) find(keys []string) {
	x.Helper()
	defer x.giveBack()
	values, found := make([]uint64, len(keys)), make([]bool, len(keys))
	for i := range values {
		values[i], found[i] = ^uint64(0), x.rng.IntN(2) == 0
	}
	var err error
	if x.onDevice(keys) {
		v, f := deviceSlice(x, values), deviceSlice(x, found)
		err = x.on(keys, func(st *device.Stream, k text.KeysOn) error { return x.m.FindOn(st, k, v, f) })
		must(x, errors.Join(v.Read(nil, values), f.Read(nil, found)))
	} else {
		err = x.m.Find(x.keysOf(keys), values, found)
	}
	if x.nothing(err) {
		return
	}
	must(x, err)
	for i, k := range keys {
		may, in := x.model[k]
		if found[i] != in || !in && values[i] != 0 || in && !slices.Contains(may, values[i]) {
			x.Fatalf("position %d, key %.40q of %d bytes: found %t with %d, want %t, one of %d", i, k, len(k), found[i], values[i], in, may)
		}
		if in {
			x.model[k] = []uint64{values[i]}
		}
	}
}

func (x *twin) verify() {
	x.Helper()
	must(x, x.m.Check())
	if n, err := x.m.Len(); err != nil || n != len(x.model) {
		x.Fatalf("Len is %d, %v, want %d", n, err, len(x.model))
	}
	keys, values, err := x.m.All()
	must(x, err)
	seen := map[string]bool{}
	for i, v := range values {
		k := string(keys.At(i))
		if seen[k] || !slices.Contains(x.model[k], v) {
			x.Fatalf("All has key %.40q with %d (twice: %t), want one of %d", k, v, seen[k], x.model[k])
		}
		seen[k] = true
		x.model[k] = []uint64{v}
	}
	if len(seen) != len(x.model) || keys.Len() != len(values) {
		x.Fatalf("All has %d keys, %d values, want %d", len(seen), len(values), len(x.model))
	}
}

// someKey is a key of some kind, one of n of it.
func someKey(rng *rand.Rand, n int) string {
	i := rng.IntN(n)
	switch rng.IntN(8) {
	case 0:
		return strings.Repeat("\x00", i%70)
	case 1:
		return fmt.Sprintf("a\x00%d", i)
	case 2:
		return string([]byte{0xff, 0xfe, byte(i), byte(i >> 8), 0xc0})
	case 3:
		return strings.Repeat("prefix ", 40) + fmt.Sprint(i)
	case 4:
		return strings.Repeat("x", 1000+i%60) // about the length of a block
	case 5:
		return strings.Repeat("long", 300+i%9) + fmt.Sprint(i) + strings.Repeat("end", 700)
	case 6:
		return strings.Repeat("ü", i%20)
	}
	return fmt.Sprint(i)
}

func someKeys(rng *rand.Rand, n, of int) []string {
	keys := make([]string, n)
	for i := range keys {
		keys[i] = someKey(rng, of)
	}
	return keys
}

// rounds is how many a churn has: as many as deletions and growth take, on a CPU in a short run.
func rounds(d *device.Device) int {
	if !d.Info().CUDA() && !testenv.Long() {
		return 20
	}
	return 40
}

func (x *twin) churn(rounds, of, batch int) {
	x.Helper()
	for range rounds {
		keys := someKeys(x.rng, x.rng.IntN(batch), of)
		switch x.rng.IntN(9) {
		case 0, 1:
			x.insert(keys)
		case 2, 3:
			x.insertNew(keys)
		case 4, 5:
			x.drop(keys)
		case 6:
			x.find(keys)
		case 7:
			err := x.m.Grow(x.rng.IntN(2 * of))
			if err != nil && !(x.limit && errors.Is(err, table.ErrMaxBytes)) && !(x.short && device.IsOutOfMemory(err)) {
				x.Fatal(err)
			}
		case 8:
			if x.rng.IntN(5) == 0 {
				must(x, x.m.Clear())
				clear(x.model)
			}
		}
		if err := x.m.Check(); !x.nothing(err) {
			must(x, err)
		}
	}
	if x.vague {
		return // memory is still short
	}
	x.find(someKeys(x.rng, batch, of))
	x.verify()
}

// Random batches of keys of all kinds, with good hashes, with few, and with one; in little memory and in much.
func TestAgainstAGoMap(t *testing.T) {
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		for i, o := range []text.Options{
			{},
			{Options: table.Options{Hash: kernel.HashIdentity}},
			{Options: table.Options{Hash: kernel.HashConstant}},
			{Options: table.Options{MaxBytes: 64 << 10}, KeyBytes: 500},
			{Options: table.Options{MaxBytes: 40 << 10, Hash: kernel.HashIdentity, Capacity: 1 << 20}},
		} {
			for seed := range uint64(testenv.SeedsOf(12, 2)) {
				t.Run(fmt.Sprint(i, " ", seed), func(t *testing.T) {
					x := newTwin(t, d, newMap, o, seed)
					x.m.SetPart([]int64{1 << 20, 64}[seed%2])
					x.churn(rounds(d), 150, 300)
				})
			}
		}
	})
}

// The table below may be of any family.
func TestEveryFamily(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := openDevice(t, name)
			for _, family := range warpmap.Families(table.KindMap) {
				t.Run(string(family), func(t *testing.T) {
					for _, o := range []text.Options{{}, {Options: table.Options{MaxBytes: 96 << 10}}} {
						x := newTwin(t, d, func(d *device.Device, o text.Options) (*text.Map[uint64], error) {
							return warpmap.NewStrings[uint64](d, family, o)
						}, o, 1)
						x.churn(rounds(d), 300, 500)
						if x.m.Family() != family {
							t.Errorf("the family is %s", x.m.Family())
						}
					}
				})
			}
		})
	}
}

// Under stress lanes change places at every access.
func TestUnderStress(t *testing.T) {
	for seed := range uint64(testenv.SeedsOf(16, 3)) {
		d := openDevice(t, "cpu", device.WithStress(seed))
		o := text.Options{Options: table.Options{Hash: []int{kernel.HashIdentity, kernel.HashConstant, kernel.HashMurmur}[seed%3]}}
		x := newTwin(t, d, func(d *device.Device, o text.Options) (*text.Map[uint64], error) {
			if seed%2 == 0 {
				return text.NewTogether[uint64](d, o, index(warpmap.WarpCore))
			}
			return text.New[uint64](d, o, index(warpmap.WarpCore))
		}, o, seed)
		x.churn(12, 40, 80)
	}
}

// A hash is the same here as there, and SipHash-1-3 is what others call so.
func TestHashes(t *testing.T) {
	key := make([]byte, 16)
	for i := range key {
		key[i] = byte(i)
	}
	k0, k1 := binary.LittleEndian.Uint64(key), binary.LittleEndian.Uint64(key[8:])
	if got := text.SipHash(k0, k1, nil); got != 0xabac0158050fc4dc {
		t.Errorf("SipHash-1-3 of nothing is %#x", got)
	}
	a, b := text.Of("aa", "", "b"), text.Of("a", "ab", "")
	if slices.Equal(a.Offsets, b.Offsets) {
		t.Error("keys are told apart by their offsets")
	}
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		x := newTwin(t, d, newMap, text.Options{}, 5)
		var keys []string
		for n := range 70 {
			keys = append(keys, strings.Repeat("k", n))
		}
		for n := range 340 { // the CPU device hashes some of about one length together
			keys = append(keys, strings.Repeat("j", n/17)+string(rune('a'+n%17)))
		}
		for _, n := range []int{1023, 1024, 1025, 2047, 2048, 2049, 5000, 100_000} {
			keys = append(keys, strings.Repeat("z", n), "y"+strings.Repeat("z", n-1), strings.Repeat("z", n-1)+"y")
		}
		x.insert(keys)
		x.verify() // Check holds the hashes of both sides equal
	})
}

// Who does not set a seed has another one each time.
func TestSeedsAreRandom(t *testing.T) {
	d := openDevice(t, "cpu")
	hashes := map[uint64]bool{}
	for _, seed := range []uint64{0, 0, 0, 7, 7} {
		m, err := text.New[uint64](d, text.Options{Options: table.Options{Seed: seed}}, index(warpmap.WarpCore))
		must(t, err)
		hashes[m.Hash([]byte("key"))] = true
		must(t, m.Close())
	}
	if len(hashes) != 4 {
		t.Errorf("%d hashes of 3 maps without a seed and 2 with one, want 4", len(hashes))
	}
}

// Keys of 10 MB, which differ in a byte.
func TestLongKeys(t *testing.T) {
	const n = 10 << 20
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		x := newTwin(t, d, newMap, text.Options{}, 5)
		var keys []string
		for _, at := range []int{0, n / 2, n - 1} {
			b := []byte(strings.Repeat("0123456789abcdef", n/16))
			b[at] ^= 1
			keys = append(keys, string(b))
		}
		keys = append(keys, keys[0], keys[1][:n-1], "short")
		x.insert(keys)
		x.find(append(keys, keys[2][1:]))
		x.drop(keys[:1])
		x.find(keys)
		x.insertNew(keys)
		x.verify()
	})
}

// Very many keys with one prefix of 60 bytes; in long runs a million.
func TestEqualPrefixes(t *testing.T) {
	n := 30_000
	if testenv.Long() {
		n = 1_000_000
	}
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		x := newTwin(t, d, newMap, text.Options{Options: table.Options{Capacity: n / 4}}, 5)
		prefix := strings.Repeat("the same for all keys ", 3)[:60]
		keys := make([]string, n)
		for i := range keys {
			keys[i] = prefix + fmt.Sprint(i)
		}
		x.insert(keys[:n/2])
		x.insertNew(keys)
		x.find(keys)
		x.drop(keys[n/4:])
		x.find(keys)
		x.insert(keys[n/3 : n/2])
		x.verify()
		s, err := x.m.Stats()
		must(t, err)
		if s.GarbageBytes > s.UsedBytes/2 {
			t.Errorf("%d bytes of %d are garbage", s.GarbageBytes, s.UsedBytes)
		}
	})
}

// At the bound: what is named is not in, all else is; what is deleted makes room again, for keys of other lengths, too.
func TestFull(t *testing.T) {
	rounds := 4
	if testenv.Long() {
		rounds = 12
	}
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		for _, hash := range []int{kernel.HashMurmur, kernel.HashIdentity} {
			x := newTwin(t, d, newMap, text.Options{Options: table.Options{MaxBytes: 128 << 10, Hash: hash}, KeyBytes: 100}, 5)
			key := func(i, n int) string { return fmt.Sprint(i, " ") + strings.Repeat("-", n) }
			next, in := 0, []string{}
			for round := range rounds {
				keys := make([]string, 9000)
				for i := range keys {
					keys[i] = key(next+x.rng.IntN(6000), 20+round*13)
				}
				next += 6000
				if round%2 == 0 && x.insert(keys) == 0 || round%2 == 1 && x.insertNew(keys) == 0 {
					t.Fatalf("round %d: all of 6000 keys have room in 128 KiB", round)
				}
				x.find(keys)
				x.verify()
				s, err := x.m.Stats()
				must(t, err)
				if s.Bytes > 128<<10 || s.Len < 300 || s.LoadFactor > 1 {
					t.Fatalf("%+v", s)
				}
				in = in[:0]
				for k := range x.model {
					in = append(in, k)
				}
				slices.Sort(in)
				x.insert(in) // those that are in have room
				x.drop(in[:len(in)/2])
				few := []string{key(next, 10), key(next+1, 10), key(next, 10)}
				if lost := x.insert(few); lost > 0 {
					t.Fatalf("half of %d keys was deleted, and %d have no room", len(in), lost)
				}
				x.drop(in)
				x.drop(few)
				x.verify()
			}
		}
	})
}

// At the bound a few small keys are deleted and come again, round after round: they always have room, and the records are not moved for every few of them.
// So it is where the index is what is full.
func TestAgainAtTheBound(t *testing.T) {
	rounds := 100
	if testenv.Long() {
		rounds = 2000
	}
	d := openDevice(t, "cpu")
	for _, family := range warpmap.Families(table.KindMap) {
		for _, keyBytes := range []int{20, 200} {
			t.Run(fmt.Sprint(family, " ", keyBytes), func(t *testing.T) {
				x := newTwin(t, d, func(d *device.Device, o text.Options) (*text.Map[uint64], error) {
					return text.New[uint64](d, o, index(family))
				}, text.Options{Options: table.Options{MaxBytes: 256 << 10}, KeyBytes: keyBytes}, 5)
				var keys, in []string
				for i := range 12_000 {
					keys = append(keys, fmt.Sprint(i)+strings.Repeat("-", i%50))
				}
				if x.insert(keys) == 0 {
					t.Fatal("all of 12,000 keys have room in 256 KiB")
				}
				for k := range x.model {
					in = append(in, k)
				}
				slices.Sort(in)
				before, err := x.m.Stats()
				must(t, err)
				moves, put := 0, 0
				for range rounds {
					few := make([]string, 1+x.rng.IntN(5))
					for i := range few {
						few[i] = in[x.rng.IntN(len(in))]
						put += 24 + len(few[i]) + 16
					}
					x.drop(few)
					if n := x.insert(few); n > 0 {
						t.Fatalf("%d of %d keys that were deleted have no room", n, len(few))
					}
					after, err := x.m.Stats()
					must(t, err)
					if after.GarbageBytes <= before.GarbageBytes { // of what was deleted, too
						moves++
					}
					before = after
				}
				if most := 1 + put/(int(before.ArenaBytes)/40); moves > most {
					t.Errorf("%d bytes were put, and the records of an arena of %d were moved %d times, want %d at most", put, before.ArenaBytes, moves, most)
				}
				x.verify()
			})
		}
	}
}

// Batches in which keys come again and again, more than one part of a batch has.
func TestDuplicates(t *testing.T) {
	n := 40_000 // look-ups in an index that is full are slow
	if testenv.Long() {
		n = 400_000
	}
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		for _, o := range []text.Options{{}, {Options: table.Options{MaxBytes: int64(n) * 5 / 2}}} {
			x := newTwin(t, d, newMap, o, 5)
			x.m.SetPart(int64(n) / 13)
			keys := make([]string, n)
			for i := range keys {
				keys[i] = fmt.Sprint("key ", x.rng.IntN(1+x.rng.IntN(n/10)))
			}
			x.insertNew(keys)
			x.insert(keys)
			x.find(keys)
			x.verify()
			x.drop(keys)
			x.verify()
		}
	})
}

// With little device memory work goes on in smaller parts, and what has no room is named.
func TestShortOfMemory(t *testing.T) {
	sizes := []int64{12 << 20, 6 << 20, 3 << 20}
	for _, bytes := range sizes[:testenv.Seeds(len(sizes))] {
		d := openDevice(t, "cpu", device.WithMemory(bytes))
		m, err := text.New[uint64](d, text.Options{}, index(warpmap.WarpCore))
		must(t, err)
		keys, values := make([]string, 100_000), make([]uint64, 100_000)
		for i := range keys {
			keys[i], values[i] = fmt.Sprint("some key that takes memory, number ", i), uint64(i)
		}
		err = m.Insert(text.Of(keys...), values)
		full := (*table.FullError)(nil)
		if !errors.As(err, &full) || !device.IsOutOfMemory(err) {
			t.Fatalf("100,000 keys in %s: %v", device.Bytes(bytes), err)
		}
		if in := int64(len(keys) - len(full.Positions)); in < bytes/300 {
			t.Errorf("%d keys are in %s, of some 70 bytes each", in, device.Bytes(bytes))
		}
		lost := make([]bool, len(keys))
		for _, p := range full.Positions {
			lost[p] = true
		}
		got, found := make([]uint64, len(keys)), make([]bool, len(keys))
		must(t, m.Find(text.Of(keys...), got, found))
		for i := range keys {
			if found[i] == lost[i] || found[i] && got[i] != values[i] {
				t.Fatalf("%s: key %d is found %t with %d, and refused %t", device.Bytes(bytes), i, found[i], got[i], lost[i])
			}
		}
		t.Logf("%s: %d of %d keys are in", device.Bytes(bytes), frame.Count(found), len(keys))
		must(t, m.Check())
		must(t, m.Close())
	}
}

// Goroutines with keys of their own see all that they did, and nothing else.
func TestGoroutines(t *testing.T) {
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		m, err := newMap(d, text.Options{})
		must(t, err)
		defer m.Close()
		var work sync.WaitGroup
		for g := range 8 {
			work.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(g), 9))
				model := map[string]uint64{}
				for round := range 15 {
					keys := someKeys(rng, 100, 60)
					for i := range keys {
						keys[i] = fmt.Sprint(g, " ") + keys[i]
					}
					values := make([]uint64, len(keys))
					for i, k := range keys {
						values[i] = uint64(len(k)) // equal for equal keys
					}
					switch round % 4 {
					case 0, 1:
						err := m.Insert(text.Of(keys...), values)
						for i, k := range keys {
							model[k] = values[i]
						}
						if err != nil {
							t.Error(err)
						}
					case 2:
						if _, err := m.Delete(text.Of(keys...), nil); err != nil {
							t.Error(err)
						}
						for _, k := range keys {
							delete(model, k)
						}
					default:
						found := make([]bool, len(keys))
						if err := m.Find(text.Of(keys...), values, found); err != nil {
							t.Error(err)
						}
						for i, k := range keys {
							if want, in := model[k]; found[i] != in || values[i] != want {
								t.Errorf("goroutine %d: %.30q: found %t with %d, want %t with %d", g, k, found[i], values[i], in, want)
								return
							}
						}
					}
				}
			})
		}
		work.Wait()
		must(t, m.Check())
	})
}

// Chunks break off when the map is changed, by an error of do's, and by the context's; Pairs may stop early.
func TestChunks(t *testing.T) {
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		x := newTwin(t, d, newMap, text.Options{}, 5)
		keys := make([]string, 40_000)
		for i := range keys {
			keys[i] = strings.Repeat(fmt.Sprint(i), 50)
		}
		x.insert(append(keys, strings.Repeat("longer than a chunk ", 400_000), ""))
		chunks := 0
		err := x.m.Chunks(context.Background(), func(k text.Keys, v []uint64) error {
			if chunks++; chunks == 2 {
				return x.m.Insert(text.Of("new"), []uint64{1})
			}
			return nil
		})
		if !errors.Is(err, table.ErrChanged) || chunks < 2 {
			t.Errorf("%d chunks of a map that was changed: %v", chunks, err)
		}
		x.model["new"] = []uint64{1}
		x.verify()
		own := errors.New("own")
		if err := x.m.Chunks(context.Background(), func(text.Keys, []uint64) error { return own }); err != own {
			t.Error(err)
		}
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(own)
		if err := x.m.Chunks(ctx, func(text.Keys, []uint64) error { return nil }); err != own {
			t.Error(err)
		}
		pairs, failed := x.m.Pairs(context.Background())
		n := 0
		for k, v := range pairs {
			if !slices.Contains(x.model[k], v) {
				t.Fatalf("%.40q has %d", k, v)
			}
			if n++; n == 100 {
				break
			}
		}
		if n != 100 || failed() != nil {
			t.Error(n, failed())
		}
	})
}

// All gives the map as it was at one time, though others insert meanwhile: of each batch both keys or none.
func TestAllBesideInserts(t *testing.T) {
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		m, err := newMap(d, text.Options{KeyBytes: 500})
		must(t, err)
		defer func() { must(t, m.Close()) }()
		keys := make([]string, 20_000) // several stretches
		for i := range keys {
			keys[i] = strings.Repeat(fmt.Sprintf("%05d", i), 100)
		}
		must(t, m.Insert(text.Of(keys...), make([]uint64, len(keys))))
		var stop atomic.Bool
		done := make(chan int)
		go func() {
			n := 0
			for ; !stop.Load(); n++ {
				if err := m.Insert(text.Of(fmt.Sprint("a", n), fmt.Sprint("b", n)), []uint64{1, 2}); err != nil {
					t.Error(err)
					break
				}
			}
			done <- n
		}()
		for range 5 {
			all, values, err := m.All()
			if err != nil {
				t.Error(err)
				break
			}
			if n := all.Len(); n != len(values) || n < len(keys) || n%2 != 0 {
				t.Errorf("%d keys and %d values of a map that has %d, and two more at a time", n, len(values), len(keys))
			}
			seen := map[string]bool{}
			for i := range all.Len() {
				seen[string(all.At(i))] = true
			}
			if len(seen) != all.Len() {
				t.Errorf("%d keys, of which %d differ", all.Len(), len(seen))
			}
			for k := range seen {
				if k[0] == 'a' && !seen["b"+k[1:]] {
					t.Errorf("%s is there alone", k)
				}
			}
		}
		stop.Store(true)
		if n := <-done; n == 0 {
			t.Error("nothing was inserted meanwhile: the test tests nothing")
		}
	})
}

// What is wrong is an error before anything is done.
func TestBadInput(t *testing.T) {
	d := openDevice(t, "cpu")
	m, err := text.New[uint64](d, text.Options{}, index(warpmap.WarpCore))
	must(t, err)
	two := text.Of("a", "b")
	values, flags := make([]uint64, 2), make([]bool, 2)
	must(t, m.Insert(two, values))
	other := openDevice(t, "cpu:1")
	elsewhere, err := two.Upload(other)
	must(t, err)
	wild, err := two.Upload(d)
	must(t, err)
	must(t, wild.Offsets.Write(nil, []int64{0, 5, 2}))
	on := func(n int) device.Slice[uint64] {
		s, err := device.From(d, make([]uint64, n))
		must(t, err)
		t.Cleanup(func() { must(t, s.Free()) })
		return s
	}
	none := device.Slice[bool]{}
	for name, err := range map[string]error{
		"few values":         m.Insert(two, values[:1]),
		"no values":          m.Insert(two, nil),
		"few flags":          m.Find(two, values, flags[:1]),
		"no flags":           m.Contains(two, nil),
		"empty flags":        m.Find(two, values, flags[:0]),
		"descending offsets": m.Find(text.Keys{Bytes: []byte("ab"), Offsets: []int64{0, 2, 1}}, values, flags),
		"negative offsets":   m.Find(text.Keys{Bytes: []byte("ab"), Offsets32: []int32{-1, 0, 1}}, values, flags),
		"offsets too far":    m.Find(text.Keys{Bytes: []byte("ab"), Offsets: []int64{0, 2, 3}}, values, flags),
		"both offsets":       m.Find(text.Keys{Bytes: []byte("ab"), Offsets: []int64{0, 1, 2}, Offsets32: []int32{0, 1, 2}}, values, flags),
		"another device":     m.FindOn(nil, elsewhere, on(2), none),
		"wild offsets":       m.FindOn(nil, wild, on(2), none),
		"wild to insert":     m.InsertOn(nil, wild, on(2)),
		"wild to delete":     m.DeleteOn(nil, wild, none),
		"few on the device":  m.InsertOn(nil, wild, on(1)),
		"grow":               m.Grow(-1),
		"grow far":           m.Grow(1 << 47),
	} {
		if err == nil {
			t.Errorf("%s: no error", name)
		} else if !strings.Contains(name, "wild") {
			t.Logf("%s: %v", name, err)
		}
	}
	must(t, errors.Join(elsewhere.Free(), m.Check()))
	if n, err := m.Len(); n != 2 || err != nil {
		t.Errorf("%d keys, %v, want 2", n, err)
	}
	for _, o := range []text.Options{{KeyBytes: -1}, {Options: table.Options{MaxBytes: 1}}, {Options: table.Options{Capacity: 1 << 46}}, {Options: table.Options{MaxBytes: -1}}, {Options: table.Options{Hash: 9}}} {
		if m, err := text.New[uint64](d, o, index(warpmap.WarpCore)); err == nil {
			t.Errorf("%+v: no error", o)
			m.Close()
		}
	}
	if _, err := warpmap.NewStrings[string](d, warpmap.WarpCore, text.Options{}); err == nil {
		t.Error("values with pointers: no error")
	}
	if _, err := warpmap.NewStrings[uint64](nil, warpmap.WarpCore, text.Options{}); err == nil {
		t.Error("no device: no error")
	}
	must(t, errors.Join(m.Close(), m.Close()))
	_, e1 := m.Len()
	_, e2 := m.Delete(two, nil)
	_, e3 := m.Stats()
	_, _, e4 := m.All()
	for i, err := range []error{e1, e2, e3, e4, m.Insert(two, values), m.Find(two, values, flags), m.Insert(text.Keys{}, nil), m.Clear(), m.Grow(1), m.Check(), m.FindOn(nil, wild, device.Slice[uint64]{}, none)} {
		if !errors.Is(err, table.ErrClosed) {
			t.Errorf("call %d of a closed map: %v", i, err)
		}
	}
	must(t, wild.Free())
}

// Arrow's arrays as arrow-go gives them, slices of others among them.
func TestArrow(t *testing.T) {
	for _, k := range []text.Keys{
		text.Arrow([]int32{0, 1, 1, 3}, []byte("abc")),
		text.Arrow([]int64{2, 3, 3, 5}, []byte("__abc")),
		text.Arrow([]int32{2, 3, 3, 5}, []byte("abc")), // as ValueBytes of a slice
	} {
		if got := k.Strings(); !slices.Equal(got, []string{"a", "", "bc"}) {
			t.Errorf("%q", got)
		}
	}
	if text.Arrow[int32](nil, nil).Len() != 0 || (text.Keys{}).Len() != 0 {
		t.Error("no keys")
	}
}

// Kernels compile for GPUs on machines that have none.
func TestCompilesForGPUs(t *testing.T) {
	widths := []int{8, 4, 16}
	for i, bytes := range widths[:testenv.Seeds(len(widths))] {
		_, err := device.CompileFor([]string{"sm_75", "sm_80", "sm_90"}[i], text.Program(bytes, true))
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}
