package frame

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
)

// Numbers of the slab allocator; the kernels have them by SlabDefines.
const (
	SlabBytes = 128
	// NoSlab is the name of no slab: all ones, so that a slab is cleared by filling it with 0xff.
	NoSlab = 1<<32 - 1
	// SlabStep is the number of slabs of which every super block has a multiple, so that whole bytes of a bitmap are
	// there or not.
	SlabStep = 8
	// MaxSupers bounds the super blocks, of 2 GiB each: more than the memory of any GPU, and few enough that their addresses
	// travel with a kernel's parameters.
	MaxSupers = 96
	// MaxSlabs is how many slabs have names.
	MaxSlabs = MaxSupers << slabSuperShift
	// SearchedSlabs is the most slabs for which an allocation finds each one that is free.
	SearchedSlabs = slabMaxBlocks * slabsPerBlock

	// slabsPerBlock is the number of slabs of a memory block (the paper's N_U): a bitmap of 32 words says which are taken.
	slabsPerBlock = 1024
	// slabSuperShift is where the number of the super block begins in a slab's name, above 14 bits of memory block and 10 of
	// unit.
	slabSuperShift = 24
	slabsPerSuper  = 1 << slabSuperShift
	// slabMaxChanges bounds the changes of the resident block in one allocation, and slabMaxBlocks the blocks that are
	// searched through when those have found nothing.
	slabMaxChanges = 16
	slabMaxBlocks  = 32
)

// SlabDefines are the constants that kernel/slaballoc.cuh needs among a program's Defines; SlabMemory is to be among its Layouts.
func SlabDefines() []device.Define {
	return []device.Define{
		{Name: "SLAB_BYTES", Value: SlabBytes},
		{Name: "SLAB_UNITS", Value: slabsPerBlock},
		{Name: "SLAB_SUPER_SHIFT", Value: slabSuperShift},
		{Name: "SLAB_MAX_CHANGES", Value: slabMaxChanges},
		{Name: "SLAB_MAX_BLOCKS", Value: slabMaxBlocks},
	}
}

// SlabMemory is the memory of Slabs as kernels take it, by value.
type SlabMemory struct {
	Supers [MaxSupers]uint64 // address of the first unit of each super block; its bitmaps lie before
	Starts [MaxSupers]uint32 // number of its first memory block among all
	Count  uint32            // super blocks
	Blocks uint32            // memory blocks
	Dry    uint64            // address of a u32: 1 after an allocation has found nothing
}

// Slabs is the host's part of SlabAlloc (SlabHash paper, §V; kernel/slaballoc.cuh). It owns the memory, and grows by
// super blocks, which stay where they lie. In the light variant it is one super block, and does not grow. A slab is
// SlabBytes; a free one is all ones. The methods queue on a stream, and must not run beside kernels that allocate; the
// owner sees to that, and to closing.
type Slabs struct {
	d      *device.Device
	light  bool
	a      SlabMemory
	supers []super
	dry    device.Slice[uint32]
}

type super struct {
	mem   device.Slice[byte]
	units int64
}

// firstSlab is where the units of a super block begin, behind its bitmaps.
func firstSlab(units int64) int64 {
	return Align((units + slabsPerBlock - 1) / slabsPerBlock * (slabsPerBlock / 8))
}

// SlabsMemory is the memory that a super block of so many slabs takes.
func SlabsMemory(units int64) int64 {
	if units == 0 {
		return 0
	}
	return firstSlab(units) + Align(units*SlabBytes)
}

// SlabsIn is how many units fit a super block of so many bytes.
func SlabsIn(bytes int64) int64 {
	units := max(0, bytes/SlabBytes) / SlabStep * SlabStep
	for units > 0 && SlabsMemory(units) > bytes {
		units -= SlabStep * max(1, (SlabsMemory(units)-bytes)/(SlabBytes*SlabStep))
	}
	return max(0, units)
}

// NewSlabs makes Slabs that have no slabs yet.
func NewSlabs(d *device.Device, light bool) (*Slabs, error) {
	p := &Slabs{d: d, light: light}
	var err error
	if p.dry, err = device.MakePooled[uint32](d, 1); err == nil {
		err = p.dry.Write(nil, []uint32{0})
	}
	if err != nil {
		return nil, errors.Join(err, p.dry.FreeAfter())
	}
	p.a.Dry = p.dry.Addr()
	return p, nil
}

// ErrSupers says that there is no further super block.
var ErrSupers = errors.New("table: all super blocks of slabs are in use")

// Add makes so many slabs more, rounded up, in one super block or more. After an error some of them may be there.
func (p *Slabs) Add(st *device.Stream, units int64) error {
	units = (units + SlabStep - 1) / SlabStep * SlabStep
	most := int64(slabsPerSuper)
	if p.light {
		most = NoSlab / SlabStep * SlabStep
	}
	for units > 0 {
		if len(p.supers) == MaxSupers || p.light && (len(p.supers) > 0 || units > most) {
			return ErrSupers
		}
		n := min(units, most)
		mem, err := device.MakePooled[byte](p.d, int(SlabsMemory(n)))
		if err != nil {
			return err
		}
		s := super{mem, n}
		if err := errors.Join(s.reset(st), p.dry.Fill(st, 0)); err != nil {
			return errors.Join(err, mem.FreeAfter(st))
		}
		p.supers = append(p.supers, s)
		p.a.Supers[p.a.Count] = mem.Addr() + uint64(firstSlab(n))
		p.a.Starts[p.a.Count] = p.a.Blocks
		p.a.Blocks += uint32((n + slabsPerBlock - 1) / slabsPerBlock)
		p.a.Count++
		units -= n
	}
	return nil
}

// reset clears a super block: no unit is taken, but for those of the last block that are not there.
func (s super) reset(st *device.Stream) error {
	first := int(firstSlab(s.units))
	err := errors.Join(s.mem.Slice(0, first).Fill(st, 0), s.mem.Slice(first, s.mem.Len()).Fill(st, 0xff))
	if there := int(s.units % slabsPerBlock / 8); there > 0 {
		blocks := int((s.units + slabsPerBlock - 1) / slabsPerBlock)
		last := first - blocks*(slabsPerBlock/8) // the last block's bitmap comes first
		err = errors.Join(err, s.mem.Slice(last+there, last+slabsPerBlock/8).Fill(st, 0xff))
	}
	return err
}

// Reset takes all slabs back, and clears them.
func (p *Slabs) Reset(st *device.Stream) error {
	err := p.dry.Fill(st, 0)
	for _, s := range p.supers {
		err = errors.Join(err, s.reset(st))
	}
	return err
}

// Memory is what kernels take. It is good until Add or FreeAfter.
func (p *Slabs) Memory() SlabMemory { return p.a }

// Light tells whether all slabs are in one super block.
func (p *Slabs) Light() bool { return p.light }

// Supers counts the super blocks.
func (p *Slabs) Supers() int { return len(p.supers) }

// NoLongerDry makes allocations search again, after slabs were given back by release_for_later.
func (p *Slabs) NoLongerDry(st *device.Stream) error { return p.dry.Fill(st, 0) }

// Units counts the slabs, taken or not.
func (p *Slabs) Units() (n int64) {
	for _, s := range p.supers {
		n += s.units
	}
	return n
}

// Bytes is the memory of all super blocks.
func (p *Slabs) Bytes() (n int64) {
	for _, s := range p.supers {
		n += SlabsMemory(s.units)
	}
	return n
}

// FreeAfter gives the memory back behind the work on the streams that use it; the Slabs are of no use any more.
func (p *Slabs) FreeAfter(streams ...*device.Stream) error {
	err := p.dry.FreeAfter(streams...)
	for _, s := range p.supers {
		err = errors.Join(err, s.mem.FreeAfter(streams...))
	}
	p.supers = nil
	return err
}

// SlabsImage is all slabs, downloaded.
type SlabsImage struct {
	light  bool
	supers [][]byte
	units  []int64
}

// Download copies all slabs to the host. It waits for the stream.
func (p *Slabs) Download(st *device.Stream) (*SlabsImage, error) {
	m := &SlabsImage{light: p.light}
	for _, s := range p.supers {
		mem, err := Host(st, s.mem)
		if err != nil {
			return nil, err
		}
		m.supers, m.units = append(m.supers, mem), append(m.units, s.units)
	}
	return m, nil
}

// split takes a name apart.
func (m *SlabsImage) split(name uint32) (super int, unit int64) {
	if m.light {
		return 0, int64(name)
	}
	return int(name >> slabSuperShift), int64(name & (slabsPerSuper - 1))
}

// Slab gives the bytes of a slab, and whether there is one of that name.
func (m *SlabsImage) Slab(name uint32) ([]byte, bool) {
	s, u := m.split(name)
	if s >= len(m.supers) || u >= m.units[s] {
		return nil, false
	}
	at := firstSlab(m.units[s]) + u*SlabBytes
	return m.supers[s][at : at+SlabBytes], true
}

// bit tells whether a unit is taken.
func (m *SlabsImage) bit(s int, unit int64) bool {
	at := firstSlab(m.units[s]) - (unit/slabsPerBlock+1)*(slabsPerBlock/8) + unit%slabsPerBlock/8
	return m.supers[s][at]>>(unit%8)&1 == 1
}

// Check compares the bitmaps with what is in use. Every slab that is in use is taken, and no other is. Slabs that are
// not in use are clear, all ones, where a slab of the pattern needs it. Units that are not there are taken for good.
func (m *SlabsImage) Check(used map[uint32]bool, clear func(slab []byte) bool) error {
	for s := range m.supers {
		blocks := (m.units[s] + slabsPerBlock - 1) / slabsPerBlock
		for u := range blocks * slabsPerBlock {
			name := uint32(s)<<slabSuperShift | uint32(u)
			if m.light {
				name = uint32(u)
			}
			taken := m.bit(s, u)
			switch {
			case u >= m.units[s]:
				if !taken {
					return fmt.Errorf("slab %#x, which is not there, can be allocated", name)
				}
			case used[name] && !taken:
				return fmt.Errorf("slab %#x is in use, and free in its bitmap", name)
			case !used[name] && taken:
				return fmt.Errorf("slab %#x is taken in its bitmap, and not in use: it has leaked", name)
			case !taken:
				if mem, _ := m.Slab(name); !clear(mem) {
					return fmt.Errorf("slab %#x is free, and not cleared", name)
				}
			}
		}
	}
	return nil
}
