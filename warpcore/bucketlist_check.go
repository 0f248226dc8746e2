package warpcore

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
)

// Check downloads the table and tests its invariants. It is slow: use it in tests, or if you suspect a fault.
func (h *listHandle) Check() error {
	l := h.made()
	return l.frame().Inspect(l.look, func() device.Slice[byte] { return l.keys.mem }, func(mem []byte) error {
		if err := errors.Join(l.frame().Budget(l.bytes()), l.keys.checkImage(mem, l.keys.counters.Seen)); err != nil {
			return err
		}
		pool, err := l.pool.Host(nil)
		if err != nil {
			return err
		}
		return l.checkLists(&image{l.keys.cfg, l.keys.t, l.keys.mem.Addr(), mem}, pool)
	})
}

// stretch is the places of a bucket.
type stretch struct{ from, to, key uint64 }

// checkLists walks every key's buckets.
func (l *lists) checkLists(m *image, pool []byte) error {
	k := &l.counters.Seen
	var taken []stretch
	var values uint64
	for _, side := range []bool{false, true} {
		for slot := range m.region(side).Windows * uint64(m.cfg.window) {
			at := m.region(side).Slots - m.base + slot*uint64(m.cfg.slotBytes())
			left := uint32(kernel.Pattern(m.mem[at+uint64(m.cfg.keyBytes):], 4))
			last := bucket(kernel.Pattern(m.mem[at+uint64(m.cfg.valueOffset()):], 8))
			key := m.key(side, slot)
			if m.cfg.mark(key) != none {
				if left != ^uint32(0) || last != ^bucket(0) {
					return fmt.Errorf("warpcore: check: free slot %d (side %t) has a list, which a new key would get", slot, side)
				}
				continue
			}
			buckets, err := l.walk(pool, m.cfg.real(key, side).lo, uint64(^left), last)
			if err != nil {
				return err
			}
			taken, values = append(taken, buckets...), values+uint64(^left)
		}
	}
	slices.SortFunc(taken, func(a, b stretch) int { return int(int64(a.from) - int64(b.from)) })
	places, end := uint64(0), stretch{}
	for _, b := range taken {
		if b.from < end.to {
			return fmt.Errorf("warpcore: check: the buckets at places %d (of key %#x) and %d (of key %#x) overlap", end.from, end.key, b.from, b.key)
		}
		places, end = places+b.to-b.from, b
	}
	if used := uint64(l.used()); end.to > used || places+k.Garbage != used {
		return fmt.Errorf("warpcore: check: lists have %d places up to %d, and lists that were removed had %d; of %d that were given out", places, end.to, k.Garbage, used)
	}
	if values != k.Added-k.Removed {
		return fmt.Errorf("warpcore: check: lists have %d values, the counters say %d", values, k.Added-k.Removed)
	}
	if k.Failed != 0 {
		return fmt.Errorf("warpcore: check: %d failed positions were not told", k.Failed)
	}
	return nil
}

// walk gives the buckets of a list of so many values, from the last to the first.
func (l *lists) walk(pool []byte, key, count uint64, last bucket) (out []stretch, err error) {
	wrong := func(format string, args ...any) ([]stretch, error) {
		return nil, fmt.Errorf("warpcore: check: key %#x, with %d values: %s", key, count, fmt.Sprintf(format, args...))
	}
	if s := last.state(); s == listBlocked {
		return wrong("its list is blocked, though nothing is being inserted")
	}
	if !last.some() {
		if count > 0 || last.state() == listReady {
			return wrong("it has no bucket (state %d)", last.state())
		}
		return nil, nil
	}
	header := uint64(l.cfg.header())
	end := ^uint64(0) // of the values in the bucket
	for b := last; ; {
		x := stretch{b.place(), b.place() + b.size(), key}
		if b.more() {
			x.to += header
		}
		if b.size() == 0 || x.to > uint64(l.room()) || int(x.to)*l.cfg.valueBytes > len(pool) {
			return wrong("a bucket of %d values at place %d, of %d", b.size(), b.place(), l.room())
		}
		start, previous := uint64(0), bucket(0)
		if b.more() {
			at := x.from * uint64(l.cfg.valueBytes)
			previous, start = bucket(kernel.Pattern(pool[at:], 8)), kernel.Pattern(pool[at+8:], 4)
		}
		switch {
		case b == last && (count < start || count > start+b.size()):
			return wrong("its last bucket is for values %d to %d", start, start+b.size())
		case b != last && start+b.size() != end:
			return wrong("a bucket for values %d to %d stands before one that begins at %d", start, start+b.size(), end)
		case b.more() && (start == 0 || previous.state() != listReady || !previous.some()):
			return wrong("the bucket at place %d links to %#x, after %d values", b.place(), uint64(previous), start)
		case len(out) > int(count)+1:
			return wrong("its buckets go round in a circle")
		}
		out = append(out, x)
		if !b.more() {
			return out, nil
		}
		b, end = previous, start
	}
}
