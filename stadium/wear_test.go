package stadium

import (
	"encoding/binary"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// missed is how many buckets look-ups of keys that are not in read on average.
func missed(t *testing.T, c *core) float64 {
	t.Helper()
	_, err := c.look(nil)
	must(t, err)
	board, err := c.board.Host(nil)
	must(t, err)
	m := &image{c.cfg, c.table(), board, nil}
	slots, reads := uint64(c.cfg.slots()), uint64(0)
	const asked = 1000
	for i := range uint32(asked) {
		key := binary.LittleEndian.AppendUint32(nil, kernel.Fmix32(1<<31+i))
		p := m.cfg.place(&m.t, key)
	search:
		for range min(max(c.counters.Seen.MaxProbes, probesUntold), m.t.buckets()) {
			reads++
			b := p.bucket()
			for j := range slots {
				if m.never(b*slots + (p.first+j)%slots) {
					break search
				}
			}
			if m.bit(m.t.Board, (b+1)*uint64(8*m.cfg.ticketBytes())-beyondBits+p.beyond) {
				break
			}
			p.advance()
		}
	}
	return float64(reads) / asked
}

// replaced makes a table at a load of 0.8, replaces all its keys round after round, and tells how many buckets a
// look-up in vain reads after the second round and after the last.
func replaced(t *testing.T, m *Map[uint32, uint32], each func()) (second, last float64) {
	t.Helper()
	const pairs, batch, rounds = 3000, 150, 24
	batchOf := func(first int) (keys []uint32) {
		for i := range uint32(batch) {
			keys = append(keys, kernel.Fmix32(uint32(first)+i))
		}
		return keys
	}
	values := make([]uint32, batch)
	for first := 0; first < pairs*(1+rounds); first += batch {
		if first >= pairs {
			if n, err := m.Delete(batchOf(first-pairs), nil); err != nil || n != batch {
				t.Fatalf("%d of %d keys are deleted: %v", n, batch, err)
			}
		}
		must(t, m.Insert(batchOf(first), values))
		if each != nil {
			each()
		}
		if first == 2*pairs {
			second = missed(t, m.core)
		}
	}
	must(t, m.Check())
	return second, missed(t, m.core)
}

// A table whose keys are replaced for long is laid anew from time to time, so look-ups in vain do not get longer. One
// that never is has ever longer ones.
func TestWear(t *testing.T) {
	d := open(t, "cpu")
	made := func() *Map[uint32, uint32] {
		m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: 3000, LoadFactor: 0.85, Seed: 5}})
		must(t, err)
		t.Cleanup(func() { m.Close() })
		return m
	}
	m := made()
	before := m.core.capacity()
	second, last := replaced(t, m, nil)
	if last > 1.5*second+1 {
		t.Errorf("a look-up in vain reads %.2f buckets after many rounds, and %.2f after two", last, second)
	}
	if now := m.core.capacity(); now != before {
		t.Errorf("%d slots became %d", before, now)
	}
	worn := made()
	never, ever := replaced(t, worn, func() { worn.core.worn = 0 })
	if ever < 2.5*never {
		t.Errorf("the board is never laid anew, and a look-up in vain reads %.2f buckets, and %.2f after two rounds", ever, never)
	}
	t.Logf("buckets that a look-up in vain reads: %.2f after two rounds, %.2f at the end; never laid anew, %.2f and %.2f", second, last,
		never, ever)
	// Grow lays it anew at once, Clear needs not.
	worn.core.worn = 1
	must(t, worn.Grow(0))
	if now := missed(t, worn.core); now > second {
		t.Errorf("behind Grow a look-up in vain reads %.2f buckets, and %.2f after two rounds", now, second)
	}
	must(t, worn.Check())
}

// Deletions of keys that are not in leave nothing behind, and count for nothing, beside inserts, too. Those of keys that
// are in count, also where keys come again.
func TestNoWear(t *testing.T) {
	const pairs = 3000
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: pairs, LoadFactor: 0.5, Seed: 5}})
	must(t, err)
	defer m.Close()
	keys, absent := make([]uint32, pairs), make([]uint32, pairs)
	for i := range keys {
		keys[i], absent[i] = uint32(i), 1<<20+uint32(i)
	}
	must(t, m.Insert(keys, keys))
	near := m.core.near.Addr()
	for range 3 * wear {
		n, err := m.Delete(absent, nil)
		if err != nil || n != 0 {
			t.Fatalf("%d, %v", n, err)
		}
		must(t, m.Insert(keys, keys))
	}
	if m.core.worn > 0 || m.core.near.Addr() != near {
		t.Errorf("%d deletions of keys that are not in count, and the slots are at %#x, and were at %#x", m.core.worn, m.core.near.Addr(), near)
	}
	for range 2 {
		if n, err := m.Delete(keys[:pairs/2], nil); err != nil || n != pairs/2 {
			t.Fatalf("%d, %v", n, err)
		}
		must(t, m.Insert(keys, keys))
	}
	if m.core.worn != pairs {
		t.Errorf("%d deletions count, of %d pairs", m.core.worn, pairs)
	}
	must(t, m.Check())
}

// To lay a table anew needs memory, and is left out where there is none.
func TestWearWithoutMemory(t *testing.T) {
	const pairs = 100_000
	d := open(t, "cpu", device.WithMemory(3<<20))
	m, err := New[uint32, uint32](d, Options{Options: table.Options{Capacity: pairs, LoadFactor: 0.85, Seed: 5, MaxBytes: 2 << 20}})
	must(t, err)
	defer m.Close()
	keys, values := make([]uint32, 5000), make([]uint32, 5000)
	for i := range keys {
		keys[i], values[i] = uint32(i), uint32(i)
	}
	must(t, m.Insert(keys, values))
	near := m.core.near.Addr()
	m.core.worn, m.core.foreign = 1<<40, true
	must(t, m.Insert(keys, values))
	if m.core.worn != 0 || m.core.near.Addr() != near || len(m.core.panes) > 0 {
		t.Errorf("worn %d, %d panes, and slots that were at %#x are at %#x", m.core.worn, len(m.core.panes), near, m.core.near.Addr())
	}
	must(t, m.Grow(0))
	must(t, m.Check())
}
