package stadium

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func upload[T any](t testing.TB, d *device.Device, x []T) device.Slice[T] {
	t.Helper()
	s, err := device.From(d, x)
	must(t, err)
	return s
}

func host[T any](t testing.TB, s device.Slice[T]) []T {
	t.Helper()
	x, err := s.Host(s.Device().Stream())
	must(t, err)
	return x
}

// checked does to a table what it does to a map of Go's, and compares.
type checked[K, V workload.Wide] struct {
	testing.TB
	d    *device.Device
	t    *stash[K, V]
	want map[K]V
}

func (c *checked[K, V]) insert(numbers []int, salt uint64) {
	c.Helper()
	keys, values := make([]K, len(numbers)), make([]V, len(numbers))
	for i, x := range numbers {
		keys[i], values[i] = workload.Widen[K](uint64(x)*2654435761), workload.Widen[V](uint64(x)+salt)
		c.want[keys[i]] = values[i]
	}
	must(c, c.t.InsertOn(c.d.Stream(), upload(c, c.d, keys), upload(c, c.d, values)))
	c.count()
}

func (c *checked[K, V]) count() {
	c.Helper()
	s, err := c.t.Stats()
	if err != nil || s.Len != len(c.want) || s.Capacity != c.t.size || (s.HostBytes > 0) != c.t.o.host {
		c.Fatalf("%+v, %v, want %d pairs", s, err, len(c.want))
	}
}

func (c *checked[K, V]) erase(numbers []int) {
	c.Helper()
	keys := make([]K, len(numbers))
	for i, x := range numbers {
		keys[i] = workload.Widen[K](uint64(x) * 2654435761)
	}
	deleted := upload(c, c.d, make([]bool, len(keys)))
	must(c, c.t.DeleteOn(c.d.Stream(), upload(c, c.d, keys), deleted))
	for i, got := range host(c, deleted) {
		if _, want := c.want[keys[i]]; got != want {
			c.Fatalf("key %d is deleted: %v, want %v", numbers[i], got, want)
		}
	}
	for _, k := range keys {
		delete(c.want, k)
	}
	c.count()
}

func (c *checked[K, V]) find(numbers []int) {
	c.Helper()
	keys, none := make([]K, len(numbers)), make([]V, len(numbers))
	for i, x := range numbers {
		keys[i], none[i] = workload.Widen[K](uint64(x)*2654435761), workload.Widen[V](99)
	}
	results, found := upload(c, c.d, none), upload(c, c.d, make([]bool, len(keys)))
	must(c, c.t.FindOn(c.d.Stream(), upload(c, c.d, keys), results, found))
	values, is := host(c, results), host(c, found)
	for i, k := range keys {
		if v, ok := c.want[k]; ok != is[i] || values[i] != v {
			c.Fatalf("key %d is %v, %v, want %v, %v", numbers[i], values[i], is[i], v, ok)
		}
	}
}

// numbers are from … to-1, in random order.
func numbers(rng *rand.Rand, from, to int) []int {
	x := rng.Perm(to - from)
	for i := range x {
		x[i] += from
	}
	return x
}

// likeAMap inserts, looks up and deletes, and fills what was deleted with other keys, until half the keys are others.
func likeAMap[K, V workload.Wide](t testing.TB, d *device.Device, o stashOptions) {
	t.Helper()
	s, err := newStash[K, V](d, o)
	must(t, err)
	defer s.Close()
	c := &checked[K, V]{t, d, s, map[K]V{}}
	rng := rand.New(rand.NewPCG(7, uint64(o.ticket)))
	n := o.pairs
	c.insert(numbers(rng, 0, n*2/3), 1)
	c.insert(numbers(rng, n*2/3, n), 1)
	c.find(numbers(rng, 0, 2*n))
	if !o.without {
		c.erase(numbers(rng, n/4, n*5/8))
		c.find(numbers(rng, 0, n+n/8))
		c.insert(numbers(rng, n, n+n*5/8-n/4), 2)
		c.find(numbers(rng, n/2, n*3/2))
		c.erase(numbers(rng, n/2, n)) // of which some are absent
	}
	must(t, s.Clear())
	c.want = map[K]V{}
	c.find(numbers(rng, 0, 100))
	c.insert(numbers(rng, 0, n/2), 3)
	c.find(numbers(rng, 0, n))
}

func TestStash(t *testing.T) {
	d := benchtest.CPU(t)
	for i, ticket := range []int{1, 2, 4, 8} {
		for _, l := range []lanes{plain, together, hybrid} {
			t.Run(fmt.Sprintf("%v %d", l, ticket), func(t *testing.T) {
				likeAMap[uint32, uint32](t, d, stashOptions{pairs: 1700, load: []float64{0.8, 0.95, 0.99, 0.5}[i], ticket: ticket, lanes: l, host: i%2 == 0, blocks: 1})
			})
		}
	}
	likeAMap[uint64, uint64](t, d, stashOptions{pairs: 2000, load: 0.9, ticket: 4, lanes: hybrid})
	likeAMap[uint64, uint64](t, d, stashOptions{pairs: 2000, load: 0.9, ticket: 4, without: true, host: true})
}

func TestWidths(t *testing.T) {
	d := benchtest.CPU(t)
	o := stashOptions{pairs: 1500, load: 0.9, ticket: 8, lanes: hybrid}
	likeAMap[[4]uint64, uint32](t, d, o)
	if testenv.Long() {
		likeAMap[uint32, uint64](t, d, o)
		likeAMap[uint64, uint32](t, d, o)
		likeAMap[uint32, [2]uint64](t, d, o)
		likeAMap[[2]uint64, [2]uint64](t, d, o)
		likeAMap[[4]uint64, [4]uint64](t, d, o)
	}
}

func TestStashUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range testenv.SeedsOf(8, 2) {
		d, err := device.Open("cpu", device.WithStress(uint64(seed)))
		must(t, err)
		defer d.Close()
		likeAMap[uint32, uint32](t, d, stashOptions{pairs: 1500, load: 0.97, ticket: 4, lanes: lanes(seed % 3), blocks: 1})
	}
}

// A full table has all its buckets taken, and one pair more is refused before anything is inserted. Equal keys have a bucket each, which are deleted
// one by one.
func TestFullAndEqualKeys(t *testing.T) {
	d := benchtest.CPU(t)
	for _, l := range []lanes{plain, together} {
		s, err := newStash[uint32, uint32](d, stashOptions{pairs: 997, load: 1, ticket: 4, lanes: l, blocks: 1})
		must(t, err)
		defer s.Close()
		st, keys, values := d.Stream(), make([]uint32, 997), make([]uint32, 997)
		for i := range keys {
			keys[i], values[i] = uint32(i/10), uint32(i)
		}
		dk, dv := upload(t, d, keys), upload(t, d, values)
		must(t, s.InsertOn(st, dk, dv))
		if stats, err := s.Stats(); err != nil || stats.LoadFactor != 1 {
			t.Errorf("%+v, %v", stats, err)
		}
		if err := s.InsertOn(st, dk.Slice(0, 1), dv.Slice(0, 1)); err == nil {
			t.Error("a full table takes another pair")
		}
		results, found := upload(t, d, make([]uint32, 997)), upload(t, d, make([]bool, 997))
		one := dk.Slice(50, 51)
		for left := 10; left >= 0; left-- {
			must(t, s.FindOn(st, one, results, found))
			if is, v := host(t, found)[0], host(t, results)[0]; is != (left > 0) || is && v/10 != 5 {
				t.Errorf("%d pairs of key 5 left: %v, value %d", left, is, v)
			}
			must(t, s.DeleteOn(st, one, found))
			if host(t, found)[0] != (left > 0) {
				t.Errorf("of %d pairs of key 5 one is not deleted", left)
			}
		}
	}
}

// Slices of inserts beside look-ups of keys of the slice before, and of keys that are just being inserted: these may be absent, or have their value.
func TestSlicesUnderStress(t *testing.T) {
	for seed := range testenv.SeedsOf(8, 2) {
		d, err := device.Open("cpu", device.WithStress(uint64(seed)))
		must(t, err)
		defer d.Close()
		const batch, batches = 384, 4
		s, err := newStash[uint32, uint32](d, stashOptions{pairs: batch * batches, load: 0.95, ticket: []int{4, 1}[seed%2], lanes: lanes(seed % 3), access: true, blocks: 1, host: seed%2 > 0})
		must(t, err)
		defer s.Close()
		st := d.Stream()
		// What an earlier life of the table has left in it must not be found.
		stale := make([]uint32, batch*batches)
		for i := range stale {
			stale[i] = uint32(i) * 2654435761
		}
		must(t, s.InsertOn(st, upload(t, d, stale), upload(t, d, make([]uint32, len(stale)))))
		must(t, s.Clear())
		for b := range batches {
			var ops []table.Op
			var keys, values []uint32
			for row := range 3 * batch / 32 {
				for lane := range 32 {
					i := row/3*32 + lane // of the batch
					op, of := table.OpInsert, b
					if row%3 > 0 {
						op, of = table.OpFind, b-row%3+1
					}
					k := uint32((of*batch+i)%(batch*batches)) * 2654435761
					if of < 0 {
						k = uint32(batch*batches+i) * 2654435761
					}
					ops, keys, values = append(ops, op), append(keys, k), append(values, k^77)
				}
			}
			results, status := upload(t, d, make([]uint32, len(ops))), upload(t, d, make([]table.Status, len(ops)))
			must(t, s.MixedOn(st, batch, upload(t, d, ops), upload(t, d, keys), upload(t, d, values), results, status))
			got, is := host(t, results), host(t, status)
			for i, op := range ops {
				present := is[i] == table.Present
				if op == table.OpFind && (present && got[i] != values[i] || !present && got[i] != 0 || i/32%3 == 2 && present != (b > 0)) {
					t.Fatalf("seed %d, batch %d, row %d: key %d is %v, %d", seed, b, i/32, keys[i], is[i], got[i])
				}
			}
		}
		if stats, err := s.Stats(); err != nil || stats.Len != batch*batches {
			t.Errorf("%+v, %v", stats, err)
		}
	}
}

func TestPrimes(t *testing.T) {
	for n, want := range map[int]int{0: 3, 4: 5, 5: 5, 90: 97, 1 << 20: 1048583, 376470589: 376470589} {
		if got := primeFrom(n); n < 1e6 && got != want || got < n {
			t.Errorf("%d is the prime number from %d on, want %d", got, n, want)
		}
	}
	if _, err := newStash[uint32, uint32](benchtest.CPU(t), stashOptions{pairs: 1 << 31, load: 0.8, ticket: 1}); err == nil {
		t.Error("a table of more than 2³¹ buckets is made")
	}
}

func TestKernelsCompileForGPUs(t *testing.T) {
	designs := map[design]string{{4, 4, 4, true}: "sm_90", {16, 4, 8, false}: "sm_90"}
	if testenv.Long() {
		for i, ticket := range []int{1, 2, 4, 8} {
			for j, w := range widths {
				designs[design{w.key, w.value, ticket, j == 0}] = []string{"sm_70", "sm_80", "sm_90"}[(i+j)%3]
			}
		}
	}
	for c, arch := range designs {
		_, err := device.CompileFor(arch, c.program())
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		must(t, err)
	}
}
