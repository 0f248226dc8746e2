package cache

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
)

// The tests above must find defects that are put into a copy of the code on purpose. It runs beside no other test,
// because it changes the kernels' text.
func TestPlantedDefectsAreFound(t *testing.T) {
	testenv.ByTurns(t)
	kernels, header, cover, stretch := kernelsCU, cacheCUH, coverCU, stretchCU
	defer func() { kernelsCU, cacheCUH, coverCU, stretchCU = kernels, header, cover, stretch }()
	alone := func(p Policy, churn func(*device.Device, Options, uint64, int, int, int) error) func(seed uint64) error {
		return func(seed uint64) error {
			d, err := device.Open("cpu")
			must(t, err)
			defer d.Close()
			return churn(d, Options{Capacity: 40, Policy: p}, seed, 60, 200, 120)
		}
	}
	timed := func(seed uint64) error {
		d, err := device.Open("cpu")
		must(t, err)
		defer d.Close()
		return churn[uint64, uint64](d, Options{Capacity: 40, TimeToLive: 1500 * time.Millisecond}, seed, 60, 100, 120)
	}
	covering := func(seed uint64) error {
		d, err := device.Open("cpu")
		must(t, err)
		return errors.Join(covers[uint64](d, Options{Capacity: 640, tile: 16}, seed, 300), d.Close())
	}
	ordered := func(uint64) error {
		d, err := device.Open("cpu")
		must(t, err)
		return errors.Join(inOrder(d, Options{Capacity: 1001 * ways, early: true}, 40_000), d.Close())
	}
	weighed := func(seed uint64) error {
		d, err := device.Open("cpu")
		must(t, err)
		return errors.Join(covers[uint64](d, Options{Capacity: 640, early: true}, seed, 3000), d.Close())
	}
	inStretches := func(seed uint64) error {
		d, err := device.Open("cpu", device.WithStress(seed))
		must(t, err)
		defer d.Close()
		return churn[uint64, uint64](d, Options{Capacity: 36, early: true}, seed, 4, 2500, 60)
	}
	stressed := func(p Policy, group int, churn func(*device.Device, Options, uint64, int, int,
		int) error) func(seed uint64) error {
		return func(seed uint64) error { return underStress(churn, p, group, seed) }
	}
	for _, c := range []struct {
		name     string
		text     *string
		run      func(seed uint64) error
		old, now string
	}{
		{
			"a bucket has no lock", &cacheCUH, stressed(LRU, 1, churn[uint64, uint64]),
			"bool got = !(version & 1);", "bool got = true;",
		},
		{
			"a bucket is locked by one lane at a time, but chosen in before", &kernelsCU, stressed(LFU, 4,
				churn[uint64, [16]uint32]),
			"bool got = busy && lock<false>(h.bucket, version, again);\n            if (got) x",
			"if (busy) x = choose<C>(h, load_relaxed(version_at(h.bucket)), k, score, p.scores != 0, p.time, p.out_count != 0);\n            bool got = busy && lock<false>(h.bucket, version, again);\n            if (false) x",
		},
		{
			"an evicted pair is still found", &cacheCUH, alone(LRU, churn[uint64, uint64]),
			"    store_relaxed(word_at<C>(h.bucket, x.slot), word_of<C>(k, v));\n",
			"    if (x.fate != EVICTS) store_relaxed(word_at<C>(h.bucket, x.slot), word_of<C>(k, v));\n",
		},
		{
			"an erased pair is still found", &kernelsCU, alone(LRU, churn[uint64, uint64]),
			"if (there) store_relaxed(tag_at(h.bucket, x.slot), (u8)0);", "",
		},
		{
			"a tag that matches stands for the key", &cacheCUH, alone(LFU, churn[uint32, uint32]),
			"if (key_of<C>(w) == k) return i;", "return i;",
		},
		{
			"an evicted pair keeps its tag", &cacheCUH, alone(LRU, churn[uint32, uint32]),
			"if (x.fate != UPDATES) store_relaxed(tag_at", "if (x.fate == ADDS) store_relaxed(tag_at",
		},
		{
			"a pair that has ended is found", &cacheCUH, timed,
			"over = ended<C>(h.bucket, i, time);", "over = false;",
		},
		{
			"a pair that has ended is not the first to go", &cacheCUH, timed,
			"if (ended<C>(h.bucket, x.slot, time)) return x;", ";",
		},
		{
			"a pair that is replaced ends when it would have", &cacheCUH, timed,
			"        store_relaxed(expiry_at<C>(h.bucket, x.slot), expiry);",
			"        if (x.fate != UPDATES) store_relaxed(expiry_at<C>(h.bucket, x.slot), expiry);",
		},
		{
			"pairs of equal scores do not go in turn", &cacheCUH, alone(LFU, churn[uint64, uint64]),
			"(s == least && after < turn)", "(s == least && i < x.slot)",
		},
		{
			"a look-up does not count as use", &kernelsCU, alone(LRU, churn[uint64, uint64]),
			"if (found && !p.quiet) touch", "if (false) touch",
		},
		{
			"a quiet look-up does", &kernelsCU, alone(LFU, churn[uint64, uint64]),
			"if (found && !p.quiet) touch", "if (found) touch",
		},
		{
			"what goes out has the new value", &kernelsCU, alone(LRU, churn[uint64, [16]uint32]),
			"copy_out<C>(g, place, row);", "copy_in<C>(g, in, place);\n                copy_out<C>(g, place, row);",
		},
		{
			"the value of an absent key is left as it was", &kernelsCU, alone(LRU, churn[uint64, [16]uint32]),
			"copy_zero<C>(g, found ? 0 : to);", "",
		},
		{
			"a row comes for others with another key", &coverCU, covering,
			"add(&count[rows.first_of(", "add(&count[i ? i - 1 : rows.first_of(",
		},
		{
			"a row that comes for others counts once", &cacheCUH, covering,
			"add(score, times)", "add(score, 1u)",
		},
		{
			"counts of a tile begin with those of the last", &coverCU, covering,
			"count[i] = 0;", ";",
		},
		{
			"a mark is another bucket's", &cacheCUH, ordered,
			"1u << ((u32)number % 2 * 16 + slot)", "1u << slot",
		},
		{
			"a mark stays", &kernelsCU, ordered,
			"marks = exchange(word, 0u);", "marks = load_relaxed(word);",
		},
		{
			"a pair that is marked keeps its score", &kernelsCU, ordered,
			"if (marks >> lane & 1) store_relaxed", "if (marks >> lane & 2) store_relaxed",
		},
		{
			"a row of a stretch that comes for others counts once", &stretchCU, weighed,
			"counts.updated += weight - 1;", ";",
		},
		{
			"a row of a stretch comes in before all are counted that it comes for", &stretchCU, weighed,
			"add(&stage.count[one], 1u);\n        }\n        block_sync();", "add(&stage.count[one], 1u);\n        }",
		},
		{
			"a value is that of a row of another tile", &stretchCU, inStretches,
			"paired_input<C>(p.rows.values, first + i)", "paired_input<C>(p.rows.values, load_readonly(starts) + i)",
		},
		{
			"a stretch is written back before all rows are in", &stretchCU, inStretches,
			"    block_sync();\n    for (u32 i = thread_index(); i < words", "    for (u32 i = thread_index(); i < words",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			kernelsCU, cacheCUH, coverCU, stretchCU = kernels, header, cover, stretch
			if n := strings.Count(*c.text, c.old); n != 1 {
				t.Fatalf("the kernels have %d times\n%s", n, c.old)
			}
			*c.text = strings.Replace(*c.text, c.old, c.now, 1)
			const seeds = 50
			for seed := range uint64(seeds) {
				if err := c.run(seed); err != nil {
					t.Logf("seed %d: %.300v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds the defect", seeds)
		})
	}
}

// An order that is missing is found by the memory model.
func TestModelFindsMissingOrder(t *testing.T) {
	kernels, header := kernelsCU, cacheCUH
	by := func(text *string, group int, churn func(*device.Device, Options, uint64, int, int, int) error) func(string,
		uint64) error {
		return func(now string, seed uint64) error {
			defer func() { kernelsCU, cacheCUH = kernels, header }()
			*text = now
			return underStress(churn, LRU, group, seed)
		}
	}
	tells := func(text *string, s story) func(string, uint64) error {
		s.values = true // of all orders, histories that are that long take seconds
		return func(now string, seed uint64) error {
			defer func() { kernelsCU, cacheCUH = kernels, header }()
			*text = now
			return s.tell(seed)
		}
	}
	tabletest.FindMissingOrder(t, 100, []tabletest.MissingOrder{
		tabletest.Missing("who takes the lock does not acquire", header, "or_acquire(version_at(bucket), 1u)",
			"or_of(version_at(bucket), 1u)",
			by(&cacheCUH, 1, churn[uint64, uint64])),
		tabletest.Missing("who gives it back does not release", header,
			"store_release(version_at(bucket), version + 2)",
			"store_relaxed(version_at(bucket), version + 2)", by(&cacheCUH, 1, churn[uint64, uint64])),
		tabletest.Missing("the tile does not meet behind its copies", kernels,
			"if (!C::PAIRED && Tile::LANES > 1) g.sync();", "", by(&kernelsCU, 4, churn[uint64,
				[16]uint32])),
		tabletest.Missing("a change comes before the odd version", header, "if (READERS && got) fence_acq_rel();", "",
			tells(&cacheCUH, stories[1])),
		tabletest.Missing("the version is looked at too soon", kernels, "fence_acq_rel(); // before", "// before",
			tells(&kernelsCU, stories[1])),
	})
}
