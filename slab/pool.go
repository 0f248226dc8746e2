package slab

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// pool is SlabAlloc's memory (paper, §V): it grows by super blocks, that lie where they lie. In the light variant it is one
// super block, and does not grow.
type pool struct {
	d      *device.Device
	light  bool
	a      Alloc
	supers []super
	dry    device.Slice[uint32]
}

type super struct {
	mem   device.Slice[byte]
	units int64
}

// firstUnit is where the units of a super block begin, behind its bitmaps.
func firstUnit(units int64) int64 {
	return table.Align((units + unitsPerBlock - 1) / unitsPerBlock * (unitsPerBlock / 8))
}

// superBytes is the memory of a super block.
func superBytes(units int64) int64 {
	if units == 0 {
		return 0
	}
	return firstUnit(units) + table.Align(units*slabBytes)
}

// unitsIn is how many units fit a super block of so many bytes.
func unitsIn(bytes int64) int64 {
	units := max(0, bytes/slabBytes) / unitStep * unitStep
	for units > 0 && superBytes(units) > bytes {
		units -= unitStep * max(1, (superBytes(units)-bytes)/(slabBytes*unitStep))
	}
	return max(0, units)
}

func newPool(d *device.Device, light bool) (*pool, error) {
	p := &pool{d: d, light: light}
	var err error
	if p.dry, err = device.From(d, []uint32{0}); err != nil {
		return nil, err
	}
	p.a.Dry = p.dry.Addr()
	return p, nil
}

// errSupers is why a pool has no further super block.
var errSupers = errors.New("slab: all super blocks are in use")

// add makes so many units more, rounded up, in one super block or more; on an error some of them may be there.
func (p *pool) add(st *device.Stream, units int64) error {
	units = (units + unitStep - 1) / unitStep * unitStep
	most := int64(unitsPerSuper)
	if p.light {
		most = none / unitStep * unitStep
	}
	for units > 0 {
		if len(p.supers) == maxSupers || p.light && (len(p.supers) > 0 || units > most) {
			return errSupers
		}
		n := min(units, most)
		mem, err := device.Make[byte](p.d, int(superBytes(n)))
		if err != nil {
			return err
		}
		s := super{mem, n}
		if err := errors.Join(s.reset(st), p.dry.Fill(st, 0)); err != nil {
			mem.Free()
			return err
		}
		p.supers = append(p.supers, s)
		p.a.Supers[p.a.Count] = mem.Addr() + uint64(firstUnit(n))
		p.a.Starts[p.a.Count] = p.a.Blocks
		p.a.Blocks += uint32((n + unitsPerBlock - 1) / unitsPerBlock)
		p.a.Count++
		units -= n
	}
	return nil
}

// reset clears a super block: no unit is taken, but for those of the last block that are not there.
func (s super) reset(st *device.Stream) error {
	first := int(firstUnit(s.units))
	err := errors.Join(s.mem.Slice(0, first).Fill(st, 0), s.mem.Slice(first, s.mem.Len()).Fill(st, 0xff))
	if there := int(s.units % unitsPerBlock / 8); there > 0 {
		blocks := int((s.units + unitsPerBlock - 1) / unitsPerBlock)
		last := first - blocks*(unitsPerBlock/8) // the last block's bitmap comes first
		err = errors.Join(err, s.mem.Slice(last+there, last+unitsPerBlock/8).Fill(st, 0xff))
	}
	return err
}

// reset takes all units back.
func (p *pool) reset(st *device.Stream) error {
	err := p.dry.Fill(st, 0)
	for _, s := range p.supers {
		err = errors.Join(err, s.reset(st))
	}
	return err
}

func (p *pool) units() (n int64) {
	for _, s := range p.supers {
		n += s.units
	}
	return n
}

func (p *pool) bytes() (n int64) {
	for _, s := range p.supers {
		n += superBytes(s.units)
	}
	return n
}

func (p *pool) free() error {
	err := p.dry.Free()
	for _, s := range p.supers {
		err = errors.Join(err, s.mem.Free())
	}
	p.supers = nil
	return err
}

// poolImage is a downloaded pool.
type poolImage struct {
	light  bool
	supers [][]byte
	units  []int64
}

func (p *pool) download(st *device.Stream) (*poolImage, error) {
	m := &poolImage{light: p.light}
	for _, s := range p.supers {
		mem, err := s.mem.Host(st)
		if err != nil {
			return nil, err
		}
		m.supers, m.units = append(m.supers, mem), append(m.units, s.units)
	}
	return m, nil
}

// split takes a name apart.
func (m *poolImage) split(name uint32) (super int, unit int64) {
	if m.light {
		return 0, int64(name)
	}
	return int(name >> superShift), int64(name & (unitsPerSuper - 1))
}

// slab gives the bytes of a slab, and whether there is one of that name.
func (m *poolImage) slab(name uint32) ([]byte, bool) {
	s, u := m.split(name)
	if s >= len(m.supers) || u >= m.units[s] {
		return nil, false
	}
	at := firstUnit(m.units[s]) + u*slabBytes
	return m.supers[s][at : at+slabBytes], true
}

// bit tells whether a unit is taken.
func (m *poolImage) bit(s int, unit int64) bool {
	at := firstUnit(m.units[s]) - (unit/unitsPerBlock+1)*(unitsPerBlock/8) + unit%unitsPerBlock/8
	return m.supers[s][at]>>(unit%8)&1 == 1
}

// check compares the bitmaps with what is in use: every slab that is in use is taken, and no other; those that are not
// are clear, all ones, where a slab of the pattern needs it; and units that are not there are taken for good.
func (m *poolImage) check(used map[uint32]bool, clear func(slab []byte) bool) error {
	for s := range m.supers {
		blocks := (m.units[s] + unitsPerBlock - 1) / unitsPerBlock
		for u := range blocks * unitsPerBlock {
			name := uint32(s)<<superShift | uint32(u)
			if m.light {
				name = uint32(u)
			}
			taken := m.bit(s, u)
			switch {
			case u >= m.units[s]:
				if !taken {
					return fmt.Errorf("slab: check: slab %#x, which is not there, can be allocated", name)
				}
			case used[name] && !taken:
				return fmt.Errorf("slab: check: slab %#x is in use, and free in its bitmap", name)
			case !used[name] && taken:
				return fmt.Errorf("slab: check: slab %#x is taken in its bitmap, and not in use: it has leaked", name)
			case !taken:
				if mem, _ := m.slab(name); !clear(mem) {
					return fmt.Errorf("slab: check: slab %#x is free, and not cleared", name)
				}
			}
		}
	}
	return nil
}
