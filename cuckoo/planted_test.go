package cuckoo

import (
	"errors"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
)

// underStress tells a story under stress.
func underStress(s story, seed uint64) error {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	return errors.Join(s.tell(d, seed), d.Close())
}

// alone tells a story without stress.
func alone(s story, seed uint64) error {
	d, err := device.Open("cpu")
	if err != nil {
		return err
	}
	return errors.Join(s.tell(d, seed), d.Close())
}

// takesFirst is a move that takes the tag out before it puts it into the other bucket.
const takesFirst = `    if (steps > 1) return TRY_AGAIN;
    u64 *slot = w.at(chain[0].bucket) + chain[0].word, was = load_relaxed(slot);
    if (((u32)(was >> chain[0].shift) & Shape<C>::TAGS) != chain[0].tag) return TRY_AGAIN;
    if (cas(slot, was, was ^ (u64)(chain[0].tag ^ tag) << chain[0].shift) != was) return TRY_AGAIN;
    if (put_in<C>(w.at(to), load_bucket<C>(w.at(to)), chain[0].tag)) return MADE_WAY;
`

// The stories must find defects that are put into a copy of the code on purpose. The test runs beside no other, because
// it changes the kernels' text.
func TestPlantedDefectsAreFound(t *testing.T) {
	testenv.ByTurns(t)
	kernels, header, stretch := kernelsCU, cuckooCUH, stretchCU
	defer func() { kernelsCU, cuckooCUH, stretchCU = kernels, header, stretch }()
	for _, c := range []struct {
		name     string
		text     *string
		run      func(s story, seed uint64) error
		s        story
		old, now string
	}{
		{
			"a move takes before it copies", &cuckooCUH, underStress, stories[6],
			"    if (!put_in<C>(w.at(to), room, chain[steps - 1].tag)) return TRY_AGAIN;\n", takesFirst,
		},
		{
			"a move takes what is in the slot now", &cuckooCUH, underStress, stories[0],
			"& Shape<C>::TAGS) == s.tag) {", "& Shape<C>::TAGS) != 0) {",
		},
		{
			"a copy too many stays", &cuckooCUH, underStress, stories[0],
			"    for (int i = 0; i < CUCKOO_SEARCHES; i++) {\n        u64 *there", "    for (int i = 0; i < 0; i++) {\n        u64 *there",
		},
		{
			"a move leaves no mark", &cuckooCUH, alone, stories[1],
			"mark<C>(w.at(chain[i].bucket), chain[i].tag);", ";",
		},
		{
			"an insert into the second bucket leaves no mark", &cuckooCUH, alone, stories[1],
			"    mark<C>(w.at(first), tag);\n", "",
		},
		{
			"a tag is put in by a store", &cuckooCUH, underStress, stories[2],
			"u64 seen = cas(at + x.word, x.seen, x.seen | (u64)tag << x.shift);",
			"u64 seen = x.seen;\n        store_relaxed(at + x.word, x.seen | (u64)tag << x.shift);",
		},
		{
			"a deletion takes another key's tag", &cuckooCUH, alone, stories[1],
			"if (take_from<C>(p.first(), home, p.tag)) return true;",
			"if (home.w[0] & Shape<C>::TAGS && take_from<C>(p.first(), home, (u32)home.w[0] & Shape<C>::TAGS)) return true;",
		},
		{
			"a deletion looks in one bucket", &cuckooCUH, alone, stories[2],
			"return home.marked(p.tag) && take_from", "return false && take_from",
		},
		{
			"a key is taken out twice", &cuckooCUH, underStress, stories[3],
			"cas(at + x.word, x.seen, x.seen ^ (u64)tag << x.shift);\n        if (seen == x.seen) return true;",
			"cas(at + x.word, x.seen, x.seen ^ (u64)tag << x.shift);\n        return true;",
		},
		{
			"a key that found no room is not told", &kernelsCU, alone, stories[3],
			"settle(p.rows.refused, p.rows.attempt, position, !in,", "settle(p.rows.refused, p.rows.attempt, position, false,",
		},
		{
			"a key that another was in the way of is told, and is in", &cuckooCUH, underStress, stories[0],
			"if (x != TRY_AGAIN) return x == MADE_WAY;", "return false;",
		},
		{
			"a look-up does not see a tag come back", &cuckooCUH, underStress, stories[4],
			"if (load_relaxed(p.window.version) == version) return false;", "return false;",
		},
		{
			"a window is written back before all keys are in", &stretchCU, underStress, stories[7],
			"        block_sync();\n        if (thread_index() == 0) waiting.n = waiting.moves = 0;\n        block_sync();\n",
			"        if (thread_index() == 0) waiting.n = waiting.moves = 0;\n",
		},
		{
			"a key that found no room in its window is not told", &stretchCU, underStress, stories[7],
			"or_of_memory(at<u32>(p.refused) + position / 32, 1u << position % 32);", "",
		},
		{
			"keys that wait at the end are forgotten", &stretchCU, underStress, stories[7],
			"    job.insert_waiting(waiting, 0);\n", "",
		},
		{
			"a key that waits is another", &stretchCU, underStress, stories[7],
			"row = i < n ? waiting.row[i] : 0;", "row = i < n ? i : 0;",
		},
		{
			"a key that was in is told as one that was not", &stretchCU, underStress, stories[7],
			"at<u8>(p.told)[i] = 1;", "at<u8>(p.told)[i] = i > 0;",
		},
		{
			"a move does not count", &cuckooCUH, underStress, stories[4],
			"    add(w.version, 1u);\n", "",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			kernelsCU, cuckooCUH, stretchCU = kernels, header, stretch
			if n := strings.Count(*c.text, c.old); n != 1 {
				t.Fatalf("the kernels have %d times\n%s", n, c.old)
			}
			*c.text = strings.Replace(*c.text, c.old, c.now, 1)
			const seeds = 200
			for seed := range uint64(seeds) {
				if err := c.run(c.s, seed); err != nil {
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
	header := cuckooCUH
	tells := func(s story) func(string, uint64) error {
		return func(now string, seed uint64) error {
			defer func() { cuckooCUH = header }()
			cuckooCUH = now
			return underStress(s, seed)
		}
	}
	tabletest.FindMissingOrder(t, 400, []tabletest.MissingOrder{
		tabletest.Missing("a copy before the version", header, "    fence_acq_rel(); // the mark and the copy come before the version\n", "",
			tells(stories[4])),
		tabletest.Missing("the version before the tag is gone", header, "    fence_acq_rel(); // and the version before the tag is gone\n",
			"", tells(stories[4])),
		tabletest.Missing("a bucket before its mark", header,
			"        fence_acq_rel(); // whoever took the tag out marked the bucket before, and copied the tag\n", "", tells(story{16, 300, false, true, false})),
		tabletest.Missing("the second bucket before the version", header,
			"        fence_acq_rel(); // whoever brought the tag back counted the version up before\n", "", tells(stories[4])),
		tabletest.Missing("a version before the buckets", header, "load_acquire(p.window.version)", "load_relaxed(p.window.version)",
			tells(stories[4])),
	})
}
