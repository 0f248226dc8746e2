package cache

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// story is a mixed batch on a cache of one bucket or two that is full, with a logical clock and lanes that change
// places at random.
type story struct {
	key, value, group int
	policy            Policy
	values            bool // judges that no value is torn, and no more
}

func (s story) String() string {
	return fmt.Sprintf("%d+%d bytes, %v, groups of %d", s.key, s.value, s.policy, s.group)
}

// spread is a number as bytes, four by four, so that what is torn shows.
func spread(x uint64, width int) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, uint32(x)), width/4)
}

// number is a key as bytes.
func number(x uint64, width int) []byte { return binary.LittleEndian.AppendUint64(nil, x)[:width] }

// tell runs the batch, and judges it. That a pair goes out is an operation, too: it deletes a key that is there.
func (s story) tell(seed uint64) (err error) {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	rng := rand.New(rand.NewPCG(seed, 7))
	o := Options{Capacity: ways * (1 + rng.IntN(2)), Policy: s.policy, Seed: seed + 1, group: s.group}
	c, err := newCore(d, config{keyBytes: s.key, valueBytes: s.value}, o)
	if err != nil {
		return err
	}
	const n, threads, keys = 320, 128, 36
	var there, first []byte
	for k := range uint64(keys) {
		there, first = append(there, number(k, s.key)...), append(first, spread(1000+k, s.value)...)
	}
	events := make([]tabletest.Event, n)
	var ops, asked, put []byte
	for i := range events {
		events[i] = tabletest.Event{Op: table.Op(rng.IntN(4)), Key: uint64(rng.IntN(keys)), Put: uint64(i + 1)}
		if rng.IntN(3) == 0 {
			events[i].Op = table.OpFind
		}
		ops = append(ops, byte(events[i].Op))
		asked, put = append(asked, number(events[i].Key, s.key)...), append(put, spread(events[i].Put, s.value)...)
	}
	addr := func(b []byte) uint64 {
		m, wrong := device.From(d, b)
		err = errors.Join(err, wrong)
		return m.Addr()
	}
	results, e1 := device.From(d, put)
	status, e2 := device.From(d, ops)
	clock, e3 := device.Make[uint64](d, 1+2*n)
	outKeys, e4 := device.From(d, asked)
	outFlags, e5 := device.From(d, make([]byte, n))
	if err = errors.Join(e1, e2, e3, e4, e5, clock.Fill(nil, 0)); err != nil {
		return err
	}
	held := device.Slice[byte]{}
	err = c.frame.Writing(nil, func(st *device.Stream) error {
		err := c.put(st, putParams{Keys: addr(there), Values: addr(first), N: keys})
		if err == nil {
			held, err = device.Make[byte](d, keys)
		}
		return errors.Join(err, c.kernel.find.Launch(st, c.grid(keys), &findParams{Table: c.t, Keys: addr(there),
			Found: held.Addr(), N: keys, Quiet: 1}))
	})
	p := mixedParams{Table: c.t, Ops: addr(ops), Keys: addr(asked), Values: addr(put), Results: results.Addr(),
		Status: status.Addr(), N: n, Now: 2,
		Clock: clock.Addr(), Calls: clock.Addr() + 8, Returns: clock.Addr() + 8 + 8*n, OutKeys: outKeys.Addr(),
		OutFlags: outFlags.Addr()}
	c.clock = 2
	if err = errors.Join(err, c.kernel.mixed.Launch(nil, device.Grid{Blocks: 1, Threads: threads}, &p)); err != nil {
		return err
	}
	in, e0 := held.Host(nil)
	times, e1 := clock.Host(nil)
	got, e2 := results.Host(nil)
	became, e3 := status.Host(nil)
	gone, e4 := outKeys.Host(nil)
	went, e5 := outFlags.Host(nil)
	if err = errors.Join(e0, e1, e2, e3, e4, e5); err != nil {
		return err
	}
	before := map[uint64]uint64{}
	for k := range in {
		if in[k] == 1 {
			before[uint64(k)] = uint64(1000 + k)
		}
	}
	for i := range n {
		e, v := &events[i], got[i*s.value:(i+1)*s.value]
		e.Call, e.Return, e.Status = times[1+i], times[1+n+i], table.Status(became[i])
		e.Got = uint64(binary.LittleEndian.Uint32(v))
		if !bytes.Equal(v, spread(e.Got, s.value)) {
			return fmt.Errorf("operation %d read a torn value: %x", i, v)
		}
		if went[i] == 1 {
			key := binary.LittleEndian.Uint64(append(bytes.Clone(gone[i*s.key:(i+1)*s.key]), make([]byte, 4)...))
			events = append(events, tabletest.Event{Op: table.OpDelete, Key: key, Status: table.Present, Call: e.Call,
				Return: e.Return})
		}
	}
	if len(events) == n {
		return errors.Join(errNoneOut, (&handle{c}).Close())
	}
	if s.values {
		return errors.Join((&handle{c}).Check(), (&handle{c}).Close())
	}
	return errors.Join((&handle{c}).Check(), tabletest.Linearizable(events, before), (&handle{c}).Close())
}

var stories = []story{
	{key: 8, value: 8, group: 1}, {key: 8, value: 64, group: 1, policy: LFU}, {key: 4, value: 4, group: 1,
		policy: LFU}, {key: 8, value: 64, group: 4},
	{key: 8, value: 12, group: 1, policy: LFU}, {key: 4, value: 8, group: 1, policy: Scored}, {key: 4, value: 32,
		group: 2, policy: Aged},
	{key: 8, value: 16, group: 8, policy: LFU},
}

// errNoneOut says that no pair of a history went out, as it may be where newcomers are worth less than what is there.
var errNoneOut = errors.New("no pair went out")

func TestHistories(t *testing.T) {
	for _, s := range testenv.Some(stories, 4) {
		t.Run(s.String(), func(t *testing.T) {
			seeds := testenv.Seeds(200)
			testenv.Tried(t, seeds, "histories")
			quiet := 0
			for seed := range uint64(seeds) {
				seed += testenv.FirstSeed()
				switch err := s.tell(seed); {
				case errors.Is(err, errNoneOut):
					quiet++
				case err != nil:
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
			if 2*quiet > seeds {
				t.Errorf("of %d histories, %d had no pair that went out", seeds, quiet)
			}
		})
	}
}

// Defects that are planted in a copy must be found by histories.
func TestHistoriesFindDefects(t *testing.T) {
	testenv.ByTurns(t)
	kernels, header := kernelsCU, cacheCUH
	defer func() { kernelsCU, cacheCUH = kernels, header }()
	for _, c := range []struct {
		name     string
		s        story
		text     *string
		old, now string
	}{
		{"a look-up does not look at the version again", stories[1], &kernelsCU,
			"got = load_relaxed(version_at(h.bucket)) == version;", ";"},
		{"it looks at a bucket that is locked", stories[1], &kernelsCU, "got = C::PAIRED || !(version & 1);",
			"got = true;"},
		{"a bucket has no lock", stories[0], &cacheCUH, "bool got = !(version & 1);", "bool got = true;"},
		{"a tag is there before its word", stories[0], &cacheCUH,
			"    store_relaxed(word_at<C>(h.bucket, x.slot), word_of<C>(k, v));\n",
			"    if (x.fate != UPDATES) store_relaxed(tag_at(h.bucket, x.slot), h.tag);\n    store_relaxed(word_at<C>(h.bucket, x.slot), word_of<C>(k, v));\n"},
		{"a tag that matches stands for the key", stories[2], &cacheCUH, "if (key_of<C>(w) == k) return i;",
			"return i;"},
	} {
		t.Run(c.name, func(t *testing.T) {
			kernelsCU, cacheCUH = kernels, header
			if n := strings.Count(*c.text, c.old); n != 1 {
				t.Fatalf("the kernels have %d times\n%s", n, c.old)
			}
			*c.text = strings.Replace(*c.text, c.old, c.now, 1)
			for seed := range uint64(100) {
				if err := c.s.tell(seed); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("none of 100 seeds finds the defect")
		})
	}
}
