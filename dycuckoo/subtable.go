package dycuckoo

import (
	"errors"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// A small subtable is one piece of memory. A large one has its buckets, and in layout Wide its values, in ranges of addresses that get as much
// memory again when it doubles: so these are not copied, and there is no second copy. Its filter, a sixty-fourth, is made anew.
//
//	mem                   buckets │ values │ filter
//
//	buckets (a Range)     buckets │ as many again │ … reserved
//	values (a Range)      values  │ as many again │ … reserved
//	mem                   filter

// subtable is the memory of one subtable.
type subtable struct {
	Subtable
	buckets, values *device.Range // nil if all is in mem
	mem             device.Slice[byte]
}

func (s *subtable) free(f *frame.Frame) error { return f.Free(s.mem, s.buckets, s.values) }

// bytes is the memory that it has.
func (s *subtable) bytes() int64 {
	n := s.mem.Bytes()
	for _, r := range []*device.Range{s.buckets, s.values} {
		if r != nil {
			n += r.Slice().Bytes()
		}
	}
	return n
}

// filter is the filter's memory.
func (s *subtable) filter() device.Slice[byte] {
	return s.mem.Slice(int(s.Filter-s.mem.Addr()), s.mem.Len())
}

// slots is the memory of the buckets, of so many bytes each.
func (s *subtable) slots(bucketBytes int) device.Slice[byte] {
	mem := s.mem
	if s.buckets != nil {
		mem = s.buckets.Slice()
	}
	return mem.Slice(0, int(s.Buckets)*bucketBytes)
}

func (c *core) slotsBytes(buckets int64) int64 { return buckets * int64(c.cfg.bucketBytes) }

func (c *core) valuesBytes(buckets int64) int64 {
	if c.cfg.packed() {
		return 0
	}
	return buckets * int64(c.cfg.slots()*c.cfg.valueBytes)
}

func filterBytes(buckets int64) int64 { return buckets * filterBits / 8 }

// subtableBytes is the memory that a subtable should have.
func (c *core) subtableBytes(buckets int64) int64 {
	return frame.Align(c.slotsBytes(buckets)) + frame.Align(c.valuesBytes(buckets)) + frame.Align(filterBytes(buckets))
}

// lay sets the addresses of a subtable of so many buckets.
func (c *core) lay(s *subtable, buckets int64) {
	s.Subtable = Subtable{Buckets: uint64(buckets)}
	at := s.mem.Addr()
	if s.buckets != nil {
		s.Slots, s.Filter = s.buckets.Slice().Addr(), at
		if s.values != nil {
			s.Values = s.values.Slice().Addr()
		}
		return
	}
	take := func(bytes int64) uint64 {
		was := at
		at += uint64(frame.Align(bytes))
		return was
	}
	s.Slots = take(c.slotsBytes(buckets))
	if !c.cfg.packed() {
		s.Values = take(c.valuesBytes(buckets))
	}
	s.Filter = take(filterBytes(buckets))
}

// wipe empties a subtable.
func (c *core) wipe(st *device.Stream, s *subtable) error {
	return errors.Join(s.slots(c.cfg.bucketBytes).Fill(st, c.blank()), s.filter().Fill(st, 0))
}

// ranged tells whether a subtable lies in ranges: not where those would take more memory than subtableBytes says.
func (c *core) ranged(buckets int64) bool {
	granule := int64(hostGranule)
	if c.frame.Device.Info().CUDA() {
		granule = gpuGranule
	}
	return c.slotsBytes(buckets) >= c.rangedFrom && c.slotsBytes(buckets)%granule == 0 && c.valuesBytes(buckets)%granule == 0
}

// makeSubtable allocates one; its content is undefined.
func (c *core) makeSubtable(buckets int64) (s subtable, err error) {
	if !c.ranged(buckets) {
		s.mem, err = frame.Make[byte](&c.frame, c.subtableBytes(buckets))
	} else if s.buckets, err = c.makeRange(c.slotsBytes(buckets)); err == nil {
		if !c.cfg.packed() {
			s.values, err = c.makeRange(c.valuesBytes(buckets))
		}
		if err == nil {
			s.mem, err = frame.Make[byte](&c.frame, frame.Align(filterBytes(buckets)))
		}
	}
	if err != nil {
		err = errors.Join(err, s.free(&c.frame))
		if errors.Is(err, errors.ErrUnsupported) {
			c.rangedFrom = math.MaxInt64
			return c.makeSubtable(buckets)
		}
		return subtable{}, err
	}
	c.lay(&s, buckets)
	return s, nil
}

// makeRange reserves addresses, and has memory from the first on. Fewer are reserved where so many are not to be had.
func (c *core) makeRange(bytes int64) (r *device.Range, err error) {
	for n := int64(reach); n > 0; n /= 4 {
		if r, err = device.Reserve(c.frame.Device, n*bytes); !device.IsOutOfMemory(err) {
			break
		}
	}
	if err == nil {
		if err = c.resize(r, bytes); err != nil {
			err = errors.Join(err, r.Free())
			r = nil
		}
	}
	return r, err
}

// resize resizes a range. Where memory is short, the table and the device give back first what they keep for later: see frame.Make.
func (c *core) resize(r *device.Range, bytes int64) error {
	err := r.Resize(bytes)
	if device.IsOutOfMemory(err) {
		c.frame.Spare()
		frame.ReleaseStaging(c.frame.Device)
		err = r.Resize(bytes)
	}
	return err
}

// doubled is a subtable of twice the buckets, for split to fill: in place, where it lies in ranges that reach so far. drop frees what is then of no
// use: of the old one, or with back of the new one, if it was not filled.
func (c *core) doubled(old *subtable) (to subtable, drop func(back bool) error, err error) {
	n := int64(old.Buckets)
	slots, values := c.slotsBytes(n), c.valuesBytes(n)
	if old.buckets == nil || 2*slots > old.buckets.Reserved() || old.values != nil && 2*values > old.values.Reserved() {
		was := *old
		to, err = c.makeSubtable(2 * n)
		return to, func(back bool) error {
			if back {
				return to.free(&c.frame)
			}
			return was.free(&c.frame)
		}, err
	}
	filter := old.mem
	shrink := func() error {
		err := old.buckets.Resize(slots)
		if old.values != nil {
			err = errors.Join(err, old.values.Resize(values))
		}
		return err
	}
	to = *old
	if err = c.resize(old.buckets, 2*slots); err == nil && old.values != nil {
		err = c.resize(old.values, 2*values)
	}
	if err == nil {
		to.mem, err = frame.Make[byte](&c.frame, frame.Align(filterBytes(2*n)))
	}
	if err != nil {
		return to, nil, errors.Join(err, shrink())
	}
	c.lay(&to, 2*n)
	return to, func(back bool) error {
		if back {
			return errors.Join(shrink(), c.frame.Free(to.mem))
		}
		return c.frame.Free(filter)
	}, nil
}
