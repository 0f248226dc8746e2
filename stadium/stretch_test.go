package stadium

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// inStretches makes a table take every batch stretch by stretch, of so many buckets at most, in pieces of so many rows.
func inStretches(c *core, buckets int, piece int64) {
	c.stretch.rule = frame.Stretches{MinRows: 1, SlotShare: 1 << 40}
	c.stretch.bytes = buckets * c.cfg.stretchBucket()
	c.stretch.larger = c.stretch.bytes
	c.staged.rule.MinRows = math.MaxInt64
	c.far.listedFrom = math.MaxInt64 // panes in host memory are served where they lie
	c.regions = frame.Regions{MinRows: 1 << 40, PieceRows: piece, MemoryShare: 8, Span: frame.Threads}
}

func stretched[K, V any](o Options, buckets int) *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, to table.Options) (table.Map[K, V], error) {
		o := o
		o.Options = to
		m, err := New[K, V](d, o)
		if err == nil {
			inStretches(m.core, buckets, 500)
		}
		return m, err
	})
}

// Batches that go in stretch by stretch leave what others leave.
func TestStretches(t *testing.T) {
	for _, name := range devices {
		for i, o := range []table.Options{{}, {Capacity: 3000}, {Capacity: 3000, LoadFactor: 1, Seed: 3},
			{MaxBytes: 48 << 10, LoadFactor: 1}, {Capacity: 3000, Hash: kernel.HashIdentity}} {
			t.Run(fmt.Sprint(name, "/", i), func(t *testing.T) {
				t.Parallel()
				d, seed := open(t, name), uint64(i)
				stretched[uint32, uint32](Options{}, 4).Churn(t, d, o, seed, 30, 2500)
				if o.Hash != 0 && !testenv.Long() {
					return // a compilation for each
				}
				stretched[uint64, [2]uint64](Options{Ticket: 4}, 8).Churn(t, d, o, seed, 30, 2500)
				if i%2 == 0 || testenv.Long() {
					stretched[[16]byte, [8]uint64](Options{}, 4).Churn(t, d, o, seed, 30, 2500)
				}
				if testenv.Long() {
					stretched[uint32, uint64](Options{Ticket: 2}, 16).Churn(t, d, o, seed, 30, 2500)
					stretched[uint64, [3]uint32](Options{Ticket: 16}, 4).Churn(t, d, o, seed, 30, 2500)
					stretched[[32]byte, [25]uint32](Options{Ticket: 4}, 4).Churn(t, d, o, seed, 30, 2500)
				}
			})
		}
	}
}

// stretchStory inserts, by batches with equal keys, and deletes, beside a Go map. InsertNew is without flags: those
// would not go stretch by stretch. A value has one number in all its words.
type stretchStory struct {
	o            Options
	buckets      int
	piece        int64
	rows, rounds int
	few          bool // keys, so that most rows find their bucket full
	listed       int  // rows of a stretch, unless it is 0
	seed         uint64
	edit         func(*device.Program) *device.Program
}

func tellStretches[K, V comparable](d *device.Device, x stretchStory, keyOf func(n uint32) K, valueOf func(n uint32) V) error {
	rng := rand.New(rand.NewPCG(x.seed, 7))
	m, err := New[K, V](d, x.o)
	if err != nil {
		return err
	}
	defer m.Close()
	c := m.core
	inStretches(c, x.buckets, x.piece)
	if x.listed > 0 {
		c.stretch.listed = x.listed
	}
	if x.edit != nil {
		p, err := d.Compile(x.edit(c.stretchProgram()))
		if err != nil {
			return err
		}
		if !c.loadStretches() {
			return errors.New("no kernels")
		}
		if err := errors.Join(device.Bind(p, "insert_stretch", &c.stretch.replacing), device.Bind(p, "insert_stretch_new", &c.stretch.adding)); err != nil {
			return err
		}
	}
	model := map[K]V{}
	for round := range x.rounds {
		keys := make([]K, x.rows+rng.IntN(100))
		values, rowOf := make([]V, len(keys)), map[V]int{}
		universe := uint32(3 * x.rows)
		if x.few {
			universe = uint32(1 + rng.IntN(x.rows))
		}
		for i := range keys {
			keys[i], values[i] = keyOf(rng.Uint32N(universe)), valueOf(uint32(round<<20+i))
			if round == x.rounds-1 && i%3 > 0 { // more than a list holds, in large pieces
				keys[i] = keyOf(uint32(i % 2))
			}
			rowOf[values[i]] = i
		}
		if err := putStretches(d, m, round%2 == 1, keys, values); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		got, found := make([]V, len(keys)), make([]bool, len(keys))
		if err := m.Find(keys, got, found); err != nil {
			return err
		}
		for i, k := range keys {
			old, was := model[k]
			row, ofBatch := rowOf[got[i]]
			switch {
			case !found[i]:
				return fmt.Errorf("round %d: key %v of row %d is not in", round, k, i)
			case round%2 == 1 && was && got[i] != old:
				return fmt.Errorf("round %d: key %v has %v, and had %v before its InsertNew", round, k, got[i], old)
			case !(round%2 == 1 && was) && (!ofBatch || keys[row] != k):
				return fmt.Errorf("round %d: key %v has %v, which is no value of it in the batch", round, k, got[i])
			}
		}
		for i, k := range keys {
			model[k] = got[i]
		}
		if n, err := m.Len(); err != nil || n != len(model) {
			return fmt.Errorf("round %d: %d pairs (want %d), %v", round, n, len(model), err)
		}
		if err := m.Check(); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
		var gone []K
		stay := []int{2, 1}[round%2] // of 3, or of 20: then buckets are empty whose keys have gone on to others
		of := []int{3, 20}[round%2]
		for k := range model {
			if rng.IntN(of) >= stay {
				gone = append(gone, k)
				delete(model, k)
			}
		}
		if n, err := m.Delete(gone, nil); err != nil || n != len(gone) {
			return fmt.Errorf("round %d: %d of %d deleted, %v", round, n, len(gone), err)
		}
		left := make([]K, 0, len(model))
		for k := range model {
			left = append(left, k)
		}
		got, found = make([]V, len(left)), make([]bool, len(left))
		if err := m.Find(left, got, found); err != nil {
			return err
		}
		for i, k := range left {
			if !found[i] || got[i] != model[k] {
				return fmt.Errorf("round %d: key %v has %v (want %v), %t", round, k, got[i], model[k], found[i])
			}
		}
	}
	if !c.stretch.late.Loaded() {
		return errors.New("nothing went in stretch by stretch")
	}
	return nil
}

func putStretches[K, V any](d *device.Device, m *Map[K, V], adds bool, keys []K, values []V) error {
	k, err := device.From(d, keys)
	if err != nil {
		return err
	}
	defer k.Free()
	v, err := device.From(d, values)
	if err != nil {
		return err
	}
	defer v.Free()
	if adds {
		return m.InsertNewOn(nil, k, v, device.Slice[bool]{})
	}
	return m.InsertOn(nil, k, v)
}

func key32(n uint32) uint32       { return n - 2 }
func key64(n uint32) uint64       { return uint64(n)*0x1_0000_0001 - 3 }
func key128(n uint32) [2]uint64   { return [2]uint64{uint64(n % 5), uint64(n)} }
func value64(n uint32) uint64     { return uint64(n) * 0x1_0000_0001 }
func value128(n uint32) [4]uint32 { return [4]uint32{n, n, n, n} }
func value96(n uint32) [3]uint32  { return [3]uint32{n, n, n} }
func valueWide(n uint32) (v [16]uint32) {
	for i := range v {
		v[i] = n
	}
	return v
}

func sized(capacity int, load float64, ticket int, seed uint64) Options {
	return Options{Options: table.Options{Capacity: capacity, LoadFactor: load, Seed: seed + 1}, Ticket: ticket}
}

func TestStretchHistory(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			must(t, tellStretches(d, stretchStory{o: sized(3000, 0, 8, 1), buckets: 4, piece: 500, rows: 3000, rounds: 8, seed: 1}, key32, key32))
		})
	}
}

// Histories of tables of other kinds and places, and of large stretches.
func TestStretchHistories(t *testing.T) {
	testenv.ByTurns(t)
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			must(t, tellStretches(d, stretchStory{o: sized(20000, 0.95, 4, 2), buckets: 4, piece: 3000, rows: 8000, rounds: 6, seed: 2}, key64, value64))
			must(t, tellStretches(d, stretchStory{o: sized(20000, 0, 2, 3), buckets: 16, piece: 1 << 20, rows: 8000, rounds: 6, seed: 3, few: true}, key32, value64))
			must(t, tellStretches(d, stretchStory{o: sized(3000, 1, 16, 4), buckets: 4, piece: 1 << 20, rows: 3000, rounds: 6, seed: 4}, key128, value128))
			must(t, tellStretches(d, stretchStory{o: sized(5000, 0, 8, 5), buckets: 4, piece: 2000, rows: 4000, rounds: 6, seed: 5}, key128, valueWide))
			must(t, tellStretches(d, stretchStory{o: sized(5000, 0, 4, 6), buckets: 8, piece: 2000, rows: 4000, rounds: 6, seed: 6, few: true}, key64, value96))
			for _, where := range places {
				o := sized(3000, 0, 8, 7)
				o.DeviceBytes, o.pane = where.DeviceBytes, where.pane
				must(t, tellStretches(d, stretchStory{o: o, buckets: 4, piece: 1 << 20, rows: 3000, rounds: 4, seed: 7}, key32, key32))
			}
			if d.Info().CUDA() { // stretches as large as elsewhere
				of := func(c config, bytes int) int { return 1 << c.cut(bytes, regionShift) }
				must(t, tellStretches(d, stretchStory{o: sized(1<<20, 0, 8, 7), buckets: of(config{4, 4, 8, 0}, stretchBytes), piece: 1 << 20, rows: 800000, rounds: 4}, key32, key32))
				must(t, tellStretches(d, stretchStory{o: sized(1<<20, 0.95, 8, 8), buckets: of(config{8, 8, 8, 0}, stretchLarger), piece: 1 << 20, rows: 800000, rounds: 4}, key64, value64))
				must(t, tellStretches(d, stretchStory{o: sized(1<<20, 0, 8, 9), buckets: of(config{16, 64, 8, 0}, stretchBytes), piece: 1 << 20, rows: 800000, rounds: 4}, key128, valueWide))
			}
		})
	}
}

// stretchStress is one history under stress, of the seed's sort.
func stretchStress(d *device.Device, seed uint64, edit func(*device.Program) *device.Program) error {
	x := stretchStory{o: sized(2000, 0, 8, seed), buckets: 4, piece: 1 << 20, rows: 1200, rounds: 3, seed: seed, few: seed%3 == 0, edit: edit}
	if seed/4%2 == 1 { // rows go on along their chains
		x.o.LoadFactor, x.rows, x.listed = 0.95, 2100, int(seed/8%2)*5
	}
	switch seed % 4 {
	case 0:
		return tellStretches(d, x, key32, key32)
	case 1:
		x.o.Ticket = 2
		return tellStretches(d, x, key32, value64)
	case 2:
		x.o.Ticket, x.o.LoadFactor = 4, 1
		return tellStretches(d, x, key64, value128)
	}
	return tellStretches(d, x, key128, valueWide)
}

func TestStretchesUnderStress(t *testing.T) {
	testenv.ByTurns(t)
	for seed := range uint64(testenv.Seeds(24)) {
		if err := stretchStress(open(t, "cpu", device.WithStress(seed)), seed, nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}

// Defects that are planted in a copy must be found.
func TestStretchesFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	const file = "stadium-stretch.cu"
	tabletest.FindsDefects(t, []tabletest.Defect{
		{Name: "a slot is taken without asking who was first", File: file, Old: "            if (!(seen >> slot & 1)) return slot;", New: "            return slot;"},
		{Name: "buckets are not settled", File: file, Old: "fresh & fresh - 1 && perhaps_twice(i, fresh)", New: "false"},
		{Name: "a pair that goes keeps its ticket", File: file, Old: "Board::set(tickets_of(i), (u32)lowest_bit(left), GIVEN_BACK);", New: ";"},
		{Name: "a pair that goes leaves a ticket that ends searches", File: file, Old: "(u32)lowest_bit(left), GIVEN_BACK);", New: "(u32)lowest_bit(left), (1u << C::TICKET_BITS) - 1);"},
		{Name: "keys from before are not looked for", File: file, Old: "if (seen >> Mark::WAS) {", New: "if (false) {"},
		{Name: "keys are not looked for in other buckets", File: file, Old: "return ended || !x.went_on(to.beyond) ? ABSENT : PERHAPS_BEYOND;", New: "return ABSENT;"},
		{Name: "a bucket that sent keys on is taken for a new one", File: file, Old: "(went_on ? WENT_ON : 0)", New: "0"},
		{Name: "slots that were taken are not read", File: file, Old: "            bool read = stage.old;", New: "            bool read = false;"},
		{Name: "rows that find no room are forgotten", File: file, Old: "if (left) list(row);", New: ";"},
		{Name: "what was listed is dropped if another key is in the bucket", File: file, Old: "if (holds<false>(bucket, (u32)lowest_bit(maybe), k)) return true;", New: "return true;"},
		{Name: "a value is written by two rows", File: file, Old: "or_of(replaced + bucket, 1u << slot) >> slot & 1) return;", New: "false) return;"},
		{Name: "a ticket given back keeps its bits", File: file, Old: "if (ticket & ~was) or_of(word, ticket << shift);", New: ";"},
		{Name: "a bucket that is passed does not send keys on", File: file, Old: "if (load_relaxed(word) & bit) and_of(word, ~bit);", New: ";"},
		{Name: "a bucket is passed that was not full when the round began", File: file, Old: "return (mark & (ALL | TAKEN_NOW)) == ALL;", New: "return (mark & ALL) == ALL;"},
		{Name: "keys from before are not looked for behind the first bucket", File: file, Old: "if (!(mark >> Mark::WAS)) break;", New: "break;"},
		{Name: "listed keys are not looked for among those of the batch", File: file, Old: "if (is_among(bucket, Mark::fresh(mark), to, k)) return IS_IN;", New: ";"},
		{Name: "a row that waits does not see its key", File: file, Old: "return is_among(bucket, fresh, to, k) ? IS_IN : WAITS;", New: "return WAITS;"},
		{Name: "a key is put into a bucket twice by a round", File: file, Old: "if (is_among(bucket, fresh & (1u << slot) - 1, to, k)) {", New: "if (false) {"},
		{Name: "a ticket is not given back behind a round", File: file, Old: "Board::set(tickets_of(bucket), slot, GIVEN_BACK);", New: ";"},
		{Name: "pairs of a round are not counted", File: file, Old: "            added++;", New: "            ;"},
		{Name: "rows for which the list has no room are lost", File: file, Old: "bool all = stage.full > p.listed;", New: "bool all = false;\nif (stage.full > p.listed) stage.full = p.listed;"},
		{Name: "rows that leave are lost", File: file, Old: "if (is != IS_IN) leave((u64)stage.base + number, k, v);", New: ";"},
	}, 60, func(t *testing.T, seed uint64, edit func(*device.Program) *device.Program) error {
		return stretchStress(open(t, "cpu", device.WithStress(seed)), seed, edit)
	})
}

// A stretch of a large table leaves few rows over: so many of 1,000 at most. A second batch finds the others where the
// first has put them.
func TestStretchesLeaveFew(t *testing.T) {
	for load, most := range map[float64]int{0.8: 2, 0.95: 25} {
		m, err := New[uint32, uint32](open(t, "cpu"), sized(int(load*200000), load, 8, 1))
		must(t, err)
		c := m.core
		inStretches(c, 256, 1<<20)
		k := &c.kernel.replacing
		listed := k.listed
		k.listed = k.left // which has nothing to do: rows that are left over are lost
		keys, values := make([]uint32, c.limit()), make([]uint32, c.limit())
		for i := range keys {
			keys[i], values[i] = uint32(i), ^uint32(i)
		}
		must(t, putStretches(c.frame.Device, m, false, keys, keys))
		must(t, m.Check())
		n, err := m.Len()
		must(t, err)
		if left := len(keys) - n; left*1000 > most*len(keys) || left == 0 {
			t.Errorf("load %g: %d of %d rows are left over", load, left, len(keys))
		}
		k.listed = listed
		must(t, putStretches(c.frame.Device, m, false, keys, values))
		must(t, m.Check())
		got, found := make([]uint32, len(keys)), make([]bool, len(keys))
		must(t, m.Find(keys, got, found))
		for i := range keys {
			if !found[i] || got[i] != values[i] {
				t.Fatalf("load %g: key %d: %d, %t", load, i, got[i], found[i])
			}
		}
		must(t, m.Close())
	}
}

// A table that may not grow refuses what finds no slot, and names it exactly, though most of the batch went in by
// stretches.
func TestStretchesRefuse(t *testing.T) {
	for _, name := range devices {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			must(t, stretchesRefuse(d, 64<<10, key32, key32))
			must(t, stretchesRefuse(d, 512<<10, key128, valueWide))
		})
	}
}

func stretchesRefuse[K, V comparable](d *device.Device, bytes int64, keyOf func(uint32) K, valueOf func(uint32) V) error {
	m, err := New[K, V](d, Options{Options: table.Options{MaxBytes: bytes, LoadFactor: 1, Capacity: 1 << 16, Seed: 1}})
	if err != nil {
		return err
	}
	defer m.Close()
	inStretches(m.core, 4, 1<<20)
	capacity := int(m.core.capacity())
	for part := range 3 { // the second is more than there is room for, the third finds none
		keys, values := make([]K, capacity*2/3), make([]V, capacity*2/3)
		for i := range keys {
			keys[i], values[i] = keyOf(uint32(part*len(keys)+i)), valueOf(uint32(i))
		}
		var full *table.FullError
		if err := m.Insert(keys, values); err != nil && !errors.As(err, &full) {
			return err
		}
		found, got := make([]bool, len(keys)), make([]V, len(keys))
		if err := errors.Join(m.Check(), m.Find(keys, got, found)); err != nil {
			return err
		}
		refused := map[int]bool{}
		if full != nil {
			for _, p := range full.Positions {
				refused[p] = true
			}
		}
		for i := range keys {
			if found[i] == refused[i] || found[i] && got[i] != values[i] {
				return fmt.Errorf("part %d: position %d: found %t, refused %t", part, i, found[i], refused[i])
			}
		}
		if n, err := m.Len(); err != nil || n != min(capacity, (part+1)*len(keys)) {
			return fmt.Errorf("part %d: %d pairs of %d slots, %v", part, n, capacity, err)
		}
	}
	if !m.core.stretch.late.Loaded() {
		return errors.New("nothing went in stretch by stretch")
	}
	return nil
}

// Where memory is short, batches go in by smaller pieces, or as they are.
func TestStretchesInLittleMemory(t *testing.T) {
	for share, taken := range map[int64]bool{8: true, 1 << 20: false} {
		d := open(t, "cpu", device.WithMemory(512<<10))
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 4000}})
		must(t, err)
		inStretches(m.core, 4, 1<<20)
		m.core.regions.MemoryShare = share
		keys := make([]uint32, 4000)
		for i := range keys {
			keys[i] = uint32(i)
		}
		must(t, m.Insert(keys, keys))
		must(t, m.Check())
		if n, err := m.Len(); err != nil || n != len(keys) {
			t.Error(n, err)
		}
		s, err := m.Stats()
		must(t, err)
		if inOrder := s.ScratchBytes > 8<<10; inOrder != taken {
			t.Errorf("%d bytes of scratch memory", s.ScratchBytes)
		}
		must(t, m.Close())
	}
}

// Stretches are of a power of two of buckets, fit a block, and so many fit a multiprocessor.
func TestStretchSizes(t *testing.T) {
	var text strings.Builder
	for _, c := range []config{{4, 4, 8, 0}, {8, 8, 8, 0}, {16, 64, 8, 0}, {4, 8, 8, 0}, {32, 16, 16, 0}, {8, 4096, 8, 0}} {
		fmt.Fprintf(&text, "%d+%d %d %d\n", c.keyBytes, c.valueBytes, 1<<c.cut(stretchBytes, regionShift), 1<<c.cut(stretchLarger, regionShift))
		for bytes, listed := range map[int]int{stretchBytes: stretchListed, stretchLarger: stretchListedLarger} {
			fixed := 4*listed + stretchFixed
			if block := c.stretchBucket()<<c.cut(bytes, regionShift) + fixed; block > bytes+fixed || block > 99<<10 {
				t.Errorf("%v: %d bytes of shared memory", c, block)
			}
		}
	}
	t.Log("\n" + text.String())
}
