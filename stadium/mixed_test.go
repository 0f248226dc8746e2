package stadium

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// spread is a number as bytes, four by four, so that what is torn shows.
func spread(x uint64, width int) []byte {
	return bytes.Repeat(binary.LittleEndian.AppendUint32(nil, uint32(x)), width/4)
}

// keyOf is a key of so many bytes. Of wide ones each word is a bit or two, so that half of one and half of another may be a third.
func keyOf(x uint64, width int) (b []byte) {
	for range width/4 - 1 {
		b, x = binary.LittleEndian.AppendUint32(b, uint32(x&1)), x>>1
	}
	return binary.LittleEndian.AppendUint32(b, uint32(x))
}

// story is a mixed batch on a small table that is half full, or more, with a logical clock and lanes that change places at random.
type story struct {
	key, value, ticket int
	kernels            string // instead of the package's
	host               bool   // the slots are in host memory, a pane for each region
}

func (s story) String() string {
	return fmt.Sprintf("%d+%d bytes, ticket=%d, host=%t", s.key, s.value, s.ticket, s.host)
}

func (s story) table(d *device.Device, seed uint64) (*core, error) {
	c := &core{cfg: config{keyBytes: s.key, valueBytes: s.value}, opts: Options{Ticket: s.ticket, Options: table.Options{Capacity: 48, LoadFactor: 1, Seed: seed}}}
	if s.host {
		c.opts.DeviceBytes, c.opts.pane = -1, 1
	}
	return c, c.frame.Open(family, d, c.begin, c.free)
}

// tell runs the batch, and judges it.
func (s story) tell(seed uint64) (err error) {
	d, err := device.Open("cpu", device.WithStress(seed))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	c, err := s.table(d, seed)
	if err != nil {
		return err
	}
	const n, threads = 640, 64
	rng := rand.New(rand.NewPCG(seed, 7))
	keys, before := 36+rng.IntN(30), map[uint64]uint64{}
	var there, first []byte
	for k := range keys {
		if rng.IntN(4) > 0 {
			before[uint64(k)] = uint64(1000 + k)
			there, first = append(there, keyOf(uint64(k), s.key)...), append(first, spread(uint64(1000+k), s.value)...)
		}
	}
	events := make([]tabletest.Event, n)
	var ops, asked, put []byte
	for i := range events {
		events[i] = tabletest.Event{Op: table.Op(rng.IntN(4)), Key: uint64(rng.IntN(keys)), Put: uint64(i + 1)}
		ops = append(ops, byte(events[i].Op))
		asked, put = append(asked, keyOf(events[i].Key, s.key)...), append(put, spread(events[i].Put, s.value)...)
	}
	addr := func(b []byte) uint64 {
		m, wrong := device.From(d, b)
		err = errors.Join(err, wrong)
		return m.Addr()
	}
	results, e1 := device.From(d, put)
	status, e2 := device.From(d, ops)
	clock, e3 := device.Make[uint64](d, 1+2*n)
	if err = errors.Join(e1, e2, e3, clock.Fill(nil, 0)); err != nil {
		return err
	}
	err = c.frame.Writing(nil, func(st *device.Stream) error {
		_, why, err := c.insertion(&c.kernel.replacing).Put(st, frame.Rows{Keys: addr(there), Values: addr(first), N: int64(len(before))})
		return errors.Join(why, err)
	})
	k := c.kernel.mixed
	if s.kernels != "" {
		p := c.program("stadium", kernelsCU)
		p.Files[1].Text = s.kernels
		m, wrong := d.Compile(p)
		if wrong != nil {
			return wrong
		}
		k, wrong = device.KernelOf[mixedParams](m, "mixed")
		err = errors.Join(err, wrong)
	}
	p := mixedParams{Table: c.table(), Ops: addr(ops), Keys: addr(asked), Values: addr(put), Results: results.Addr(), Status: status.Addr(), Refused: addr(make([]byte, n)),
		N: n, Limit: ^uint64(0), Clock: clock.Addr(), Calls: clock.Addr() + 8, Returns: clock.Addr() + 8 + 8*n}
	if err = errors.Join(err, k.Launch(nil, device.Grid{Blocks: 1, Threads: threads}, &p)); err != nil {
		return err
	}
	times, e1 := clock.Host(nil)
	got, e2 := results.Host(nil)
	became, e3 := status.Host(nil)
	_, e4 := c.look(nil)
	if err = errors.Join(e1, e2, e3, e4); err != nil {
		return err
	}
	for i := range events {
		e, v := &events[i], got[i*s.value:(i+1)*s.value]
		e.Call, e.Return, e.Status = times[1+i], times[1+n+i], table.Status(became[i])
		if e.Status == table.NoRoom {
			e.Return = times[0] // a later attempt might have ended it
		}
		e.Got = uint64(binary.LittleEndian.Uint32(v))
		if !bytes.Equal(v, spread(e.Got, s.value)) {
			return fmt.Errorf("operation %d read a torn value: %x", i, v)
		}
	}
	if err = c.reset(nil); err == nil { // what found no room is told by its status
		err = (&handle{c}).Check()
	}
	return errors.Join(err, tabletest.Linearizable(events, before), (&handle{c}).Close())
}

var stories = []story{
	{key: 4, value: 4, ticket: 8}, {key: 8, value: 8, ticket: 2}, {key: 20, value: 12, ticket: 1}, {key: 40, value: 20, ticket: 4}, {key: 12, value: 4, ticket: 16},
	{key: 4, value: 4, ticket: 8, host: true}, {key: 20, value: 100, ticket: 16, host: true},
}

func TestMixedUnderStress(t *testing.T) {
	for _, s := range stories {
		t.Run(s.String(), func(t *testing.T) {
			t.Parallel()
			testenv.Tried(t, testenv.Seeds(300), "histories")
			for seed := range uint64(testenv.Seeds(300)) {
				seed += testenv.FirstSeed()
				if err := s.tell(seed); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// Defects that are planted in a copy must be found.
func TestMixedFindsDefects(t *testing.T) {
	testenv.ByTurns(t)
	for _, c := range []struct {
		name     string
		s        story
		old, now string
	}{
		{"no bucket sends a key on", stories[0], "goes_on<C>(t, p.bucket(t), p);", ";"},
		{"a ticket is taken without the access bit", stories[0], "        if (!access.go(t, room)) return CROSSED;\n", ""},
		{"a key's first bucket is given back too soon", stories[0], "        Place<C> p = start;\n        if (!access.begin(t, p.bucket(t), waited)) return WAIT;", "        Place<C> p = start;\n        if (!access.begin(t, p.bucket(t), waited)) return WAIT;\n        Access::give(t, access.home);"},
		{"a slot that was given back ends a search", stories[0], "u32 never = from_first<C>(x.never(), p.first)", "u32 never = from_first<C>(x.available(), p.first)"},
		{"the first slot that is free is taken before the key is looked for", stories[0], "if (absent && (kind == FIND || kind == ERASE || room_slot != NONE", "if (room_slot != NONE) absent = true;\n            if (absent && (kind == FIND || kind == ERASE || room_slot != NONE"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			if n := strings.Count(stadiumCUH, c.old); n != 1 {
				t.Fatalf("stadium.cuh has %d times\n%s", n, c.old)
			}
			s := c.s
			s.kernels = strings.Replace(stadiumCUH, c.old, c.now, 1)
			for seed := range uint64(300) {
				if err := s.tell(seed); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatal("none of 300 seeds finds the defect")
		})
	}
}
