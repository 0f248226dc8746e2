package join

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// A level that is a table has a copy of it on each device: the table of the largest build side that a join can have, of
// 2³² rows of 8+4 bytes, takes 64 GB, and a copy lets each device look keys up that no other has to see. Look-ups take
// turns at the devices.

const (
	pinnedKeys = 1 << 18 // keys of a buffer of pinned memory
	gpuSlots   = 8       // look-ups that a GPU has at a time
)

// mapLevel is a level that is a table.
type mapLevel[K, R uint32 | uint64] struct {
	copies []*mapCopy[K, R]
	slots  chan *mapSlot[K, R] // those that look nothing up
	keys   []K                 // of inserts
	added  []bool
}

// mapCopy is the table on one device.
type mapCopy[K, R uint32 | uint64] struct {
	m     table.Map[K, R]
	front front[K]
	slots []*mapSlot[K, R]
}

// mapSlot is what a look-up needs for itself. On a GPU its buffers are pinned: keys are packed where they are copied
// from. On the CPU a device has one slot, for a look-up has all its threads.
type mapSlot[K, R uint32 | uint64] struct {
	*mapCopy[K, R]
	keys   []K
	rows   []R
	found  []bool
	pinned int // keys that the buffers hold; 0 where they are plain memory, and grow

	free []func() error // the pinned buffers
}

// openMaps opens a table on each device.
func openMaps[K, R uint32 | uint64](by opener, n int,
	makeMap func(*device.Device, table.Family, table.Options) (table.Map[K, R], error),
	makeFilter func(*device.Device, table.FilterOptions) (table.Filter[K], error)) (_ *mapLevel[K, R], err error) {
	devices := by.devices
	if len(devices) == 0 {
		devices = []*device.Device{nil}
	}
	each := 1
	if by.pinned > 0 && by.filter == FilterOff { // a filter is asked by one at a time
		each = gpuSlots
	}
	l := &mapLevel[K, R]{slots: make(chan *mapSlot[K, R], each*len(devices))}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.close())
		}
	}()
	for _, d := range devices {
		m, err := makeMap(d, by.family, table.Options{Capacity: n})
		if err != nil {
			return nil, err
		}
		c := &mapCopy[K, R]{m: m, front: front[K]{use: by.filter, rows: n, make: makeFilter, device: d}}
		l.copies = append(l.copies, c)
		for range each {
			s := &mapSlot[K, R]{mapCopy: c}
			c.slots = append(c.slots, s)
			if err := s.pin(d, by.pinned); err != nil {
				return nil, err
			}
		}
	}
	for i := range each { // the devices in turn
		for _, c := range l.copies {
			l.slots <- c.slots[i]
		}
	}
	return l, nil
}

// pin makes the buffers of pinned memory.
func (s *mapSlot[K, R]) pin(d *device.Device, n int) (err error) {
	if n == 0 {
		return nil
	}
	if s.keys, err = pinned[K](d, n, &s.free); err == nil {
		if s.rows, err = pinned[R](d, n, &s.free); err == nil {
			s.found, err = pinned[bool](d, n, &s.free)
		}
	}
	s.pinned = n
	return err
}

func pinned[T any](d *device.Device, n int, free *[]func() error) ([]T, error) {
	h, err := device.MakeHost[T](d, n)
	if err == nil {
		*free = append(*free, h.Free)
	}
	return h.Slice(), err
}

func asKeys[K uint32 | uint64](buf []K, words []uint64) []K {
	if same, ok := any(words).([]K); ok {
		return same
	}
	buf = buf[:0]
	for _, w := range words {
		buf = append(buf, K(w))
	}
	return buf
}

// insertNew enters words into all copies, with the same rows: of equal words the first device says which it is.
func (l *mapLevel[K, R]) insertNew(words []uint64, rows []R) (int, error) {
	keys := asKeys(slices.Grow(l.keys[:0], len(words)), words)
	if l.keys = keys; len(l.copies) == 1 {
		return l.copies[0].m.InsertNew(keys, rows, nil)
	}
	l.added = slices.Grow(l.added[:0], len(keys))[:len(keys)]
	clear(l.added)
	n, err := l.copies[0].m.InsertNew(keys, rows, l.added)
	if err != nil {
		return n, err
	}
	newKeys, newRows := make([]K, 0, n), make([]R, 0, n)
	for i, added := range l.added {
		if added {
			newKeys, newRows = append(newKeys, keys[i]), append(newRows, rows[i])
		}
	}
	var work crash.Group
	for _, c := range l.copies[1:] {
		work.Go(func() error {
			_, err := c.m.InsertNew(newKeys, newRows, nil)
			return err
		})
	}
	return n, work.Wait()
}

// find comes after all inserts.
func (l *mapLevel[K, R]) find(words []uint64, rows []R, found []bool) error {
	s := <-l.slots
	defer func() { l.slots <- s }()
	for len(words) > 0 {
		n := len(words)
		if s.pinned > 0 {
			n = min(n, s.pinned)
		}
		if err := s.find(words[:n], rows[:n], found[:n]); err != nil {
			return err
		}
		words, rows, found = words[n:], rows[n:], found[n:]
	}
	return nil
}

// find looks words up. Those that stand one behind the other several times are looked up once.
func (s *mapSlot[K, R]) find(words []uint64, rows []R, found []bool) error {
	keys := s.heads(words)
	r, f := rows[:len(keys)], found[:len(keys)]
	if s.pinned > 0 {
		r, f = s.rows[:len(keys)], s.found[:len(keys)]
	}
	if err := s.findEach(keys, r, f); err != nil {
		return err
	}
	if len(keys) == len(words) {
		copy(rows, r)
		copy(found, f)
		return nil
	}
	at := len(keys) // from the last on, so that none is written over before it was read
	for i := len(words) - 1; i >= 0; i-- {
		if i == len(words)-1 || words[i] != words[i+1] {
			at--
		}
		rows[i], found[i] = r[at], f[at]
	}
	return nil
}

// heads are the words that differ from those before them, where they are fewer, else all; in pinned memory, where there
// is some.
func (s *mapSlot[K, R]) heads(words []uint64) []K {
	runs := 0
	for i, w := range words {
		if i == 0 || w != words[i-1] {
			runs++
		}
	}
	if few := runs <= len(words)*3/4; few || s.pinned > 0 {
		s.keys = s.keys[:0]
		for i, w := range words {
			if !few || i == 0 || w != words[i-1] {
				s.keys = append(s.keys, K(w))
			}
		}
		return s.keys
	}
	if same, ok := any(words).([]K); ok {
		return same
	}
	s.keys = asKeys(s.keys, words)
	return s.keys
}

func (s *mapSlot[K, R]) findEach(keys []K, rows []R, found []bool) error {
	if s.front.use == FilterOff {
		return s.m.Find(keys, rows, found)
	}
	ask, err := s.front.ready(func() ([]K, error) { keys, _, err := s.m.All(); return keys, err })
	if err != nil {
		return err
	}
	if ask {
		err = s.findBehind(keys, rows, found)
	} else {
		err = s.m.Find(keys, rows, found)
	}
	s.front.note(len(keys), frame.Count(found))
	return err
}

// findBehind is find of the keys that the filter lets through.
func (s *mapSlot[K, R]) findBehind(keys []K, rows []R, found []bool) error {
	pass, at, err := s.front.pass(keys, found)
	if err != nil {
		return err
	}
	some, in := make([]R, len(pass)), make([]bool, len(pass))
	if err := s.m.Find(pass, some, in); err != nil {
		return err
	}
	clear(rows)
	clear(found)
	for j, i := range at {
		rows[i], found[i] = some[j], in[j]
	}
	return nil
}

func (l *mapLevel[K, R]) filtered() (n int64) {
	for _, c := range l.copies {
		n += c.front.kept
	}
	return n
}

// close comes when nothing is looked up any more.
func (l *mapLevel[K, R]) close() (err error) {
	for _, c := range l.copies {
		for _, s := range c.slots {
			for _, free := range s.free {
				err = errors.Join(err, free())
			}
		}
		err = errors.Join(err, c.front.close(), c.m.Close())
	}
	return err
}
