package filters

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/siphash"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// words are a link's, beside the tables that they are as those of.
func (v Value) words(l link) (out []uint64) {
	for at := l.words(); at < l.words()+int(l.wordsBytes); at += wordBytes {
		out = append(out, binary.LittleEndian.Uint64(v[at:]))
	}
	return out
}

// memory is a Writer of a test.
type memory struct{ v Value }

func (m *memory) Patch(at int, with []byte) []byte {
	if at < 0 || at+len(with) > len(m.v) {
		panic("a patch beyond the filter")
	}
	copy(m.v[at:], with)
	return m.v
}

func (m *memory) Append(more []byte) []byte {
	m.v = append(bytes.Clone(m.v), more...) // what was is no more
	return m.v
}

func item(i int) []byte { return fmt.Appendf(nil, "item %d", i) }

const large = 1 << 28

// Filters hold what was put in, through all links, and err no more often than they may.
func TestBloom(t *testing.T) {
	for _, c := range []struct {
		rate                float64
		capacity, expansion uint64
		items               int
	}{{0.01, 100, 2, 20_000}, {0.001, 1000, 1, 5000}, {0.3, 1, 4, 3000}, {0.0001, 50_000, 0, 50_000}, {1e-9, 10, 2, 100}} {
		v, err := NewBloom(c.rate, c.capacity, c.expansion, large)
		if err != nil {
			t.Fatal(err)
		}
		m, added := &memory{v}, uint64(0)
		for i := range c.items {
			new, err := m.v.AddBloom(m, item(i), large)
			if err != nil {
				t.Fatalf("%v: item %d: %v", c, i, err)
			}
			if new {
				added++
			}
		}
		for i := range c.items {
			if has, _ := m.v.HasBloom(item(i)); !has {
				t.Fatalf("%v: item %d is lost", c, i)
			}
		}
		wrong, tries := 0, 50_000
		for i := range tries {
			if has, _ := m.v.HasBloom(item(-1 - i)); has {
				wrong++
			}
		}
		if most := float64(tries)*c.rate*1.3 + 8; float64(wrong) > most {
			t.Errorf("%v: %d of %d are wrongly in, want at most %.0f", c, wrong, tries, most)
		}
		about, err := m.v.About()
		if err != nil || about.Items != added || added > uint64(c.items) || float64(added) < float64(c.items)*(1-c.rate)*0.95 {
			t.Errorf("%v: %+v, %d were new, %v", c, about, added, err)
		}
		if err := m.v.Check(); err != nil {
			t.Error(err)
		}
	}
	v, _ := NewBloom(0.01, 10, 0, large)
	m := &memory{v}
	for i := range 100 {
		if _, err := m.v.AddBloom(m, item(i), large); err != nil {
			if i < 10 || !errors.Is(err, ErrFull) {
				t.Errorf("item %d: %v", i, err)
			}
			return
		}
	}
	t.Error("a filter that does not grow takes all")
}

// A cuckoo filter counts, and gives back what was put in, beside a map.
func TestCuckoo(t *testing.T) {
	for seed := range uint64(testenv.Seeds(20)) {
		r := rand.New(rand.NewPCG(seed, 1))
		capacity := []uint64{1, 30, 1000, 40_000}[seed%4]
		v, err := NewCuckoo(capacity, 1+seed%2, large)
		if err != nil {
			t.Fatal(err)
		}
		m, there, in := &memory{v}, map[int]int{}, 0
		for range 30_000 {
			i := r.IntN(6000)
			switch r.IntN(5) {
			case 0, 1, 2:
				onlyNew := r.IntN(2) == 0
				added, err := m.v.AddCuckoo(m, item(i), onlyNew, large)
				if err != nil && !(errors.Is(err, ErrTooMany) && there[i] > 20) && !errors.Is(err, ErrLarge) {
					t.Fatalf("seed %d: %v of one that is in %d times", seed, err, there[i])
				}
				if onlyNew && added && there[i] > 0 || !onlyNew && err == nil && !added {
					t.Fatalf("seed %d: %v of one that is in %d times", seed, added, there[i])
				}
				if added {
					there[i]++
					in++
				}
			case 3:
				if there[i] > 0 { // by which no other item is lost
					if ok, err := m.v.DeleteCuckoo(m, item(i)); !ok || err != nil {
						t.Fatalf("seed %d: one that is in %d times is not deleted, %v", seed, there[i], err)
					}
					there[i]--
					in--
				}
			case 4:
				if n, _ := m.v.CountCuckoo(item(i)); n < there[i] {
					t.Fatalf("seed %d: %d times in, %d were put in", seed, n, there[i])
				}
			}
		}
		wrong, tries := 0, 20_000
		for i := range tries {
			if n, _ := m.v.CountCuckoo(item(-1 - i)); n > 0 {
				wrong++
			}
		}
		about, _ := m.v.About()
		if most := float64(tries)*0.0006*float64(about.Links) + 8; float64(wrong) > most {
			t.Errorf("seed %d: %d of %d are wrongly in, with %d links", seed, wrong, tries, about.Links)
		}
		if err := m.v.Check(); err != nil || about.Items != uint64(in) {
			t.Errorf("seed %d: %+v, want %d items, %v", seed, about, in, err)
		}
	}
}

// A cuckoo filter takes as many items as it was made for, of one link.
func TestCuckooTakesItsCapacity(t *testing.T) {
	for _, n := range []int{1, 2, 15, 28, 29, 100, 1000, 30_000, 100_000} {
		v, err := NewCuckoo(uint64(n), 0, large)
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{v}
		for i := range n {
			if _, err := m.v.AddCuckoo(m, item(i), false, large); err != nil {
				t.Fatalf("of %d items the one at %d: %v", n, i, err)
			}
		}
		if err := m.v.Check(); err != nil {
			t.Error(err)
		}
	}
}

// One item is in as often as two buckets have slots, and no more links are made for it.
func TestOneItemOften(t *testing.T) {
	v, _ := NewCuckoo(1000, 2, large)
	m := &memory{v}
	for i := range 100 {
		_, err := m.v.AddCuckoo(m, item(7), false, large)
		if want := i >= 2*Slots; (err != nil) != want || want && !errors.Is(err, ErrTooMany) {
			t.Fatalf("time %d: %v", i, err)
		}
	}
	if about, _ := m.v.About(); about.Links != 1 || about.Items != 2*Slots {
		t.Errorf("%+v", about)
	}
}

// keyOf is the key that a table of 8-byte keys has for an item.
func keyOf(v Value, i int) uint64 {
	s := siphash.New(v.u64(atSeed), v.u64(atSeed+8))
	return s.Of(item(i))
}

// The words of a link are those of the tables whose layout it has.
func TestWordsAreThoseOfTables(t *testing.T) {
	testenv.ByTurns(t) // for kernels are compiled
	d, err := device.Open("cpu")
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	const n = 5000
	bloom, err := NewBloom(0.001, n, 0, large)
	if err != nil {
		t.Fatal(err)
	}
	tags, err := NewCuckoo(n, 0, large)
	if err != nil {
		t.Fatal(err)
	}
	m, k := &memory{bloom}, &memory{tags}
	var bloomKeys, tagKeys []uint64
	for i := range n {
		m.v.AddBloom(m, item(i), large)
		k.v.AddCuckoo(k, item(i), false, large)
		bloomKeys = append(bloomKeys, keyOf(m.v, i))
		tagKeys = append(tagKeys, keyOf(k.v, i))
	}
	all, _ := m.v.links()
	f, err := warpcore.NewFilter[uint64](d, warpcore.FilterOptions{Block: blockBytes, Hashes: int(all[0].second),
		FilterOptions: table.FilterOptions{Bytes: int64(all[0].wordsBytes), Seed: tableSeed}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Insert(bloomKeys); err != nil {
		t.Fatal(err)
	}
	var words []uint64
	if err := f.Words(t.Context(), func(w []uint64) error { words = append(words, w...); return nil }); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(words, m.v.words(all[0])) {
		t.Error("a Bloom filter has other words than one of warpcore")
	}
	all, _ = k.v.links()
	c, err := cuckoo.New[uint64](d, cuckoo.Options{TagBits: tagBits,
		FilterOptions: table.FilterOptions{Capacity: n, Seed: tableSeed}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	words = k.v.words(all[0])
	if got := c.Form().Words; got < int64(len(words)) || got > int64(len(words)+4) { // there are versions behind them
		t.Fatalf("%d words, one of cuckoo has %d", len(words), got)
	}
	if err := c.SetWords(0, words); err != nil {
		t.Fatal(err)
	}
	found := make([]bool, n)
	if err := c.Contains(tagKeys, found); err != nil {
		t.Fatal(err)
	}
	if i := slices.Index(found, false); i >= 0 {
		t.Errorf("a filter of cuckoo does not find item %d among the words of one here", i)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
}

// Whatever bytes a value has, nothing is read beyond them, and time is bounded.
func FuzzValue(f *testing.F) {
	bloom, _ := NewBloom(0.01, 3, 2, large)
	tags, _ := NewCuckoo(3, 2, large)
	m, k := &memory{bloom}, &memory{tags}
	for i := range 20 {
		m.v.AddBloom(m, item(i), large)
		k.v.AddCuckoo(k, item(i), false, large)
	}
	f.Add([]byte(m.v))
	f.Add([]byte(k.v))
	f.Add([]byte(k.v[:70]))
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			m := &memory{bytes.Clone(text)}
			if m.v.IsBloom() {
				m.v.HasBloom(item(1))
				m.v.AddBloom(m, item(2), 1<<16)
			} else if m.v.IsCuckoo() {
				m.v.CountCuckoo(item(1))
				m.v.AddCuckoo(m, item(2), false, 1<<16)
				m.v.DeleteCuckoo(m, item(3))
			}
			if _, err := m.v.About(); err == nil {
				m.v.Grows(10)
			}
		})
	})
}

// Items that are deleted take no others with them, though links have tags of others that are like theirs.
func TestDeletionsFromChains(t *testing.T) {
	const n = 12_000
	for seed := range testenv.Seeds(20) {
		v, err := NewCuckoo(64, uint64(1+seed%3), large)
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{v}
		in := 0
		for i := range n {
			if _, err := m.v.AddCuckoo(m, item(i), false, large); err != nil {
				break // of 64 links of 64 items
			}
			in++
		}
		for i := 0; i < in; i += 2 {
			if ok, _ := m.v.DeleteCuckoo(m, item(i)); !ok {
				t.Fatalf("seed %d: item %d of %d is not found", seed, i, in)
			}
		}
		for i := 1; i < in; i += 2 {
			if n, _ := m.v.CountCuckoo(item(i)); n == 0 {
				t.Errorf("seed %d: item %d of %d is lost", seed, i, in)
			}
		}
	}
}

// A filter from which as much is deleted as comes does not grow for ever: older links take what was freed in them.
func TestChurn(t *testing.T) {
	const window, n = 2000, 20_000
	for expansion, capacity := range []uint64{2600, 600, 600} {
		v, err := NewCuckoo(capacity, uint64(expansion), large)
		if err != nil {
			t.Fatal(err)
		}
		m := &memory{v}
		for i := range n {
			if added, err := m.v.AddCuckoo(m, item(i), false, large); !added || err != nil {
				t.Fatalf("expansion %d: item %d: %v", expansion, i, err)
			}
			if i < window {
				continue
			}
			if ok, err := m.v.DeleteCuckoo(m, item(i-window)); !ok || err != nil {
				t.Fatalf("expansion %d: item %d is lost, %v", expansion, i-window, err)
			}
			if back := i - i%window/2; i%97 == 0 {
				if n, _ := m.v.CountCuckoo(item(back)); n == 0 {
					t.Fatalf("expansion %d: item %d is lost behind %d", expansion, back, i)
				}
			}
		}
		about, _ := m.v.About()
		if err := m.v.Check(); err != nil || about.Items != window || about.Links > 6 {
			t.Errorf("expansion %d: %+v, %v", expansion, about, err)
		}
	}
}
