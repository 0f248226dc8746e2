package shard

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// leastShare: a batch of Go slices goes by way of several devices if each gets so many rows. Fewer are sooner there by
// one.
const leastShare = 1 << 14

// bring carries a batch of Go slices to the devices, of each an equal share, in chunks, and calls op for each chunk
// with its device and first row. Chunks of different devices come at the same time, but op holds the lock. short, which
// may be nil, is told, with the lock held, of rows that there is no memory to bring there, of which op has seen none,
// and why.
func (c *cluster) bring(b batch, op func(at, first int, s source) error, short func(from, to int, why error)) error {
	if err := c.locked(func() error { return nil }); err != nil {
		return err
	}
	shares := max(1, min(len(c.members), b.n/leastShare))
	err := together(shares, func(i int) error {
		from, to := b.n/shares*i+min(i, b.n%shares), b.n/shares*(i+1)+min(i+1, b.n%shares)
		begun := false
		chunk := func(st *device.Stream, first, n int, addr []uint64) error {
			begun = true
			return c.locked(func() error { return op(i, from+first, b.source(st, n, addr)) })
		}
		err := c.members[i].stage.Run(to-from, b.columns(from, to), chunk)
		if short != nil && !begun && device.IsOutOfMemory(err) {
			c.mu.Lock()
			defer c.mu.Unlock()
			short(from, to, err)
			return nil
		}
		return err
	})
	if errors.Is(err, table.ErrClosed) && err.Error() == table.ErrClosed.Error() { // closed since
		err = fmt.Errorf("%s: %w", family, table.ErrClosed)
	}
	return err
}

// from makes a device's rows the only ones of a job.
func (c *cluster) from(at int, s source) []source {
	all := make([]source, len(c.members))
	all[at] = s
	return all
}

// memberOf is the member that is the device.
func (c *cluster) memberOf(d *device.Device) (int, error) {
	if d == nil {
		return 0, fmt.Errorf("%s: a batch on no device", family)
	}
	var names []string
	for i, m := range c.members {
		if m.d == d || m.d.Info().Name == d.Info().Name {
			return i, nil
		}
		names = append(names, m.d.Info().Name)
	}
	return 0, fmt.Errorf("%s: a batch on device %s, which is none of the table's: %v", family, d.Info().Name, names)
}

// deviceOf is the number of the device that a part is on: that of its keys, or of its stream where there are none.
func (c *cluster) deviceOf(p part) (int, error) {
	switch {
	case p.on != nil:
		return c.memberOf(p.on)
	case p.st != nil:
		return c.memberOf(p.st.Device())
	}
	return 0, nil
}

// placed holds the parts of a batch as sources, at most one a device.
type placed struct {
	sources []source
	devices []int // of each part that is on a device
	before  []int // rows of the batch that come before each of these parts
}

// place finds the devices that a batch is on, and checks that all its slices are there.
func (c *cluster) place(b batch) (p placed, err error) {
	if len(c.members) == 0 {
		return p, c.lost
	}
	p.sources = make([]source, len(c.members))
	rows := 0
	for _, part := range b.parts {
		i, err := c.deviceOf(part)
		if err != nil {
			return p, err
		}
		if part.on == nil && part.st == nil && len(b.parts) > 1 { // an empty part on no device
			if err := family.CheckOn(c.members[i].d, nil, part.checks...); err != nil {
				return p, err
			}
			continue
		}
		if slices.Contains(p.devices, i) {
			return p, fmt.Errorf("%s: two parts of a batch are on %s (want one a device)", family,
				c.members[i].d.Info().Name)
		}
		if err := family.CheckOn(c.members[i].d, part.st, part.checks...); err != nil {
			return p, err
		}
		p.sources[i] = part.source
		p.devices, p.before = append(p.devices, i), append(p.before, rows)
		rows += part.n
	}
	return p, nil
}

func (c *cluster) ask(b batch, j job) error {
	switch {
	case b.wrong != nil:
		return b.wrong
	case !b.host:
		return c.locked(func() error {
			p, err := c.place(b)
			if err != nil {
				return err
			}
			own := j.of(p.sources)
			return c.exchange(&own)
		})
	}
	return c.bring(b, func(at, _ int, s source) error {
		own := j.of(c.from(at, s))
		return c.exchange(&own)
	}, nil)
}

func (c *cluster) mix(b batch, mix func(why *error) job) error {
	switch {
	case b.wrong != nil:
		return b.wrong
	case b.host:
		return c.mixHost(b, mix)
	}
	return c.locked(func() error {
		p, err := c.place(b)
		if err != nil {
			return err
		}
		return c.mixOn(p.devices[0], b.parts[0].source, mix)
	})
}

// withoutRoom returns the positions of a mixed batch that found no room.
func withoutRoom(status []byte) []int {
	return positionsOf(status, func(s byte) bool { return table.Status(s) == table.NoRoom })
}

// positionsOf returns the positions for which is reports true, in a slice that has room for no more.
func positionsOf[T any](all []T, is func(x T) bool) []int {
	n := 0
	for _, x := range all {
		if is(x) {
			n++
		}
	}
	positions := make([]int, 0, n)
	for i, x := range all {
		if is(x) {
			positions = append(positions, i)
		}
	}
	return positions
}

// mixHost runs a mixed batch of Go slices.
func (c *cluster) mixHost(b batch, mix func(why *error) job) error {
	if b.flags == nil {
		b.flags = make([]byte, b.n)
	}
	var lost refusals
	var undone [][2]int // rows that there was no memory for
	skip := func(from, to int, why error) {
		lost.add(nil, 0, why)
		undone = append(undone, [2]int{from, to})
	}
	err := c.bring(b, func(at, first int, s source) error {
		var why error
		j := mix(&why).of(c.from(at, s))
		err := c.exchange(&j)
		if device.IsOutOfMemory(err) {
			skip(first, first+s.n, err)
			return nil
		}
		if why != nil {
			lost.add(nil, 0, why)
		}
		return err
	}, skip)
	if err != nil || lost.why == nil {
		return err
	}
	for _, rows := range undone {
		for i := rows[0]; i < rows[1]; i++ {
			b.flags[i] = byte(table.NoRoom)
		}
		if b.out != nil {
			clear(b.out[rows[0]*c.valueBytes : rows[1]*c.valueBytes])
		}
	}
	lost.positions = withoutRoom(b.flags)
	return c.locked(func() error { return c.fullError(&lost) })
}

// mixOn runs a mixed batch that is on a device. The caller holds the lock.
func (c *cluster) mixOn(at int, s source, mix func(why *error) job) (err error) {
	if s.n == 0 {
		return nil
	}
	if s.flags == 0 { // the outcomes tell what found no room
		if s.slices.flags, err = device.MakePooled[byte](c.members[at].d, s.n); err != nil {
			return err
		}
		s.flags = s.slices.flags.Addr()
		defer func() { err = errors.Join(err, s.slices.flags.FreeAfter(c.members[at].following(s.st))) }()
	}
	var why error
	j := mix(&why).of(c.from(at, s))
	if err := c.exchange(&j); err != nil || why == nil {
		return err
	}
	outcomes, err := s.slices.flags.Host(s.st)
	if err != nil {
		return err
	}
	return c.fullError(&refusals{positions: withoutRoom(outcomes), why: why})
}

func (c *cluster) top(t topping) (keys, counts []byte, err error) {
	k, n := make([][]byte, len(c.members)), make([][]byte, len(c.members))
	if err := c.export(func(i int) (err error) { k[i], n[i], err = t.own(i); return err }); err != nil {
		return nil, nil, err
	}
	keys, counts = slices.Concat(k...), slices.Concat(n...)
	if c.independent() { // a key may be on several devices
		keys, counts = t.sum(keys, counts)
	}
	return keys, counts, nil
}

// batchOf is a batch of keys as bytes, of which flags tell whether they are in.
func (c *cluster) batchOf(keys, flags []byte) batch {
	return batch{host: true, n: len(keys) / c.keyBytes, keys: keys, flags: flags,
		typed: func(from, to int) []frame.Column {
			in := frame.In(elements[[8]byte](keys, c.keyBytes, from, to))
			if c.keyBytes == 4 {
				in = frame.In(elements[[4]byte](keys, 4, from, to))
			}
			return []frame.Column{in, frame.In[byte](nil), frame.Out[byte](nil)}
		}}
}

// elements are bytes as elements of that width, from one on to another; none for nil, and where they have another
// width.
func elements[T any](b []byte, width, from, to int) []T {
	size := int(unsafe.Sizeof(*new(T)))
	if size != width {
		return nil
	}
	return within(unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/size), from, to)
}

// refusals are the positions of a batch that are not in, and why. They are used with the lock held.
type refusals struct {
	positions []int
	why       error
}

func (r *refusals) add(positions []int, first int, why error) {
	r.positions = slices.Grow(r.positions, len(positions))
	for _, p := range positions {
		r.positions = append(r.positions, first+p)
	}
	r.why = why
}

// fullError is the FullError of the positions, or nil. The caller holds the lock.
func (c *cluster) fullError(r *refusals) error {
	if len(r.positions) == 0 {
		return nil
	}
	n, err := c.held()
	if err != nil {
		return err
	}
	slots := make([]int, len(c.members))
	err = c.together(func(i int) error {
		if m := c.members[i]; m.capacity > 0 { // it was full, so it has not grown since
			slots[i] = m.capacity
			return nil
		}
		s, err := c.members[i].table.Stats()
		if slots[i] = s.Capacity; device.IsOutOfMemory(err) { // what is not in is to be told all the same
			slots[i], err = c.members[i].table.Len()
		}
		return err
	})
	if err != nil {
		return err
	}
	capacity := 0
	for _, s := range slots {
		capacity += s
	}
	return frame.Full(r.positions, capacity, n, r.why)
}
