package stadium

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// A table that is not to lie in one piece of device memory lies in panes, some in device memory and the others in pinned host memory. A pane has
// whole regions, as many as make mostPane bytes or a little less: reads at random across the bus are 15 times slower over more.
type pane struct {
	near  device.Slice[byte] // in device memory, or
	host  device.Host[byte]  // in host memory
	fresh bool               // nothing was put here since the table was emptied
}

const (
	// deviceShare: a pane takes one in so many bytes of the device's memory at most, for there are windows of the same size.
	deviceShare = 16
	// keptShare of the device's memory is left to batches, if Options do not say how much the table may have.
	keptShare = 8
	// hostShare: of the free host memory so many quarters may become panes, if Options do not say how much.
	hostShare = 3
)

func (p *pane) inHost() bool { return p.host.Len() > 0 }

func (p *pane) len() int64 { return int64(p.near.Len() + p.host.Len()) }

// address is the pane as kernels take it.
func (p *pane) address() uint64 {
	if p.inHost() {
		return p.host.Mapped().Addr() | inHost
	}
	return p.near.Addr()
}

// room is what a table's slots may take, and what its panes have.
type room struct {
	window           int64 // most bytes of a pane
	device, host     int64 // most bytes in panes there; negative: as many as there are
	inDevice, inHost int64
}

// roomFor reads the options.
func (c *core) roomFor() (room, error) {
	_, total, err := c.frame.Device.Memory()
	if err != nil {
		return room{}, err
	}
	r := room{window: min(mostPane, max(leastPane, total/deviceShare)), device: c.opts.DeviceBytes, host: c.opts.HostBytes}
	if r.device > 0 {
		r.window = min(r.window, max(leastPane, r.device/4))
	}
	if c.opts.pane > 0 {
		r.window = c.opts.pane
	}
	for _, n := range []*int64{&r.device, &r.host} { // of Options: 0 is no bound, and less than 0 none at all
		switch {
		case *n == 0:
			*n = -1
		case *n < 0:
			*n = 0
		}
	}
	return r, nil
}

// paneShiftFor is the binary logarithm of the buckets of a pane.
func (c *core) paneShiftFor(s shape) int {
	shift := s.shift
	for bucket := int64(c.cfg.slots() * c.cfg.slotBytes()); bucket<<(shift+1) <= c.room.window && 1<<shift < s.buckets(); {
		shift++
	}
	for panesOf(s, shift) > maxPanes {
		shift++
	}
	return shift
}

// paneBytes is the size of a table's pane: the last may have fewer buckets.
func (c *core) paneBytes(s shape, shift int, i int64) int64 {
	return min(int64(1)<<shift, s.buckets()-i<<shift) * int64(c.cfg.slots()*c.cfg.slotBytes())
}

func panesOf(s shape, shift int) int64 { return (s.buckets() + 1<<shift - 1) >> shift }

// newPane allocates a pane: in device memory, if the table may have more of it and there is, else in host memory.
func (c *core) newPane(bytes int64) (p pane, err error) {
	r := &c.room
	p.fresh = true
	if c.deviceHas(bytes) {
		p.near, err = device.MakePooled[byte](c.frame.Device, int(bytes))
		if err == nil {
			r.inDevice += bytes
		}
		if !device.IsOutOfMemory(err) {
			return p, err
		}
	}
	if left := c.hostLeft(); bytes > left {
		return p, hostIsFull(bytes, left)
	}
	if p.host, err = device.MakeMapped[byte](c.frame.Device, int(bytes)); err == nil {
		r.inHost += bytes
	}
	return p, err
}

// deviceHas tells whether so many bytes more of slots may be in device memory.
func (c *core) deviceHas(bytes int64) bool { return bytes <= c.deviceLeft() }

// deviceLeft is how many bytes more of slots may be in device memory; hostLeft, in the host's.
func (c *core) deviceLeft() int64 {
	r := &c.room
	if r.device >= 0 {
		return max(0, r.device-r.inDevice)
	}
	free, total, err := c.frame.Device.Memory()
	if err != nil {
		return 0
	}
	if r.host == 0 { // what there is
		return free
	}
	return max(0, free-total/keptShare-int64(len(c.far.windows))*r.window)
}

func (c *core) hostLeft() int64 {
	r := &c.room
	if r.host >= 0 {
		return max(0, r.host-r.inHost)
	}
	free, _ := device.HostMemory()
	return max(0, (free+r.inHost)/4*hostShare-r.inHost)
}

func hostIsFull(asked, free int64) error {
	return &device.OutOfMemoryError{Device: "host memory for stadium (see Options.HostBytes)", Asked: asked, Free: free}
}

// hasRoom tells at once, before memory is pinned for nothing, whether so many bytes of panes are too much.
func (c *core) hasRoom(bytes int64) error {
	if left := c.deviceLeft() + c.hostLeft(); bytes > left {
		return hostIsFull(bytes, left)
	}
	return nil
}

// freePanes gives panes back that no queued work uses any more, if they are in host memory.
func (c *core) freePanes(panes ...pane) (err error) {
	for _, p := range panes {
		if p.inHost() {
			c.room.inHost -= p.len()
			err = errors.Join(err, p.host.Free())
		} else {
			c.room.inDevice -= p.len()
			err = errors.Join(err, c.frame.Free(p.near))
		}
	}
	return err
}

// hosts is how many panes are in host memory.
func (m *memory) hosts() (n int) {
	for i := range m.panes {
		if m.panes[i].inHost() {
			n++
		}
	}
	return n
}

// held is the memory that the table has.
func (m *memory) held() int64 {
	n := int64(m.board.Len() + m.near.Len())
	for i := range m.panes {
		n += m.panes[i].len()
	}
	return n
}

func (m *memory) hostBytes() (n int64) {
	for i := range m.panes {
		n += int64(m.panes[i].host.Len())
	}
	return n
}

// stale: something may have been put into all panes.
func (m *memory) stale() {
	for i := range m.panes {
		m.panes[i].fresh = false
	}
}

// addressesOf are the panes as kernels take them.
func addressesOf(panes []pane) []uint64 {
	out := make([]uint64, len(panes))
	for i := range panes {
		out[i] = panes[i].address()
	}
	return out
}

// makePanes gives an empty table its panes.
func (c *core) makePanes(st *device.Stream, m *memory) (err error) {
	if err = c.far.load(c); err != nil {
		return err
	}
	m.paneShift = c.paneShiftFor(m.shape)
	if err = c.hasRoom(c.slotsBytes(m.shape)); err != nil {
		return err
	}
	for i := range panesOf(m.shape, m.paneShift) {
		p, err := c.newPane(c.paneBytes(m.shape, m.paneShift, i))
		if err != nil {
			return err
		}
		m.panes = append(m.panes, p)
	}
	return c.tellPanes(st, m)
}

// tellPanes writes the panes' addresses for kernels.
func (c *core) tellPanes(st *device.Stream, m *memory) (err error) {
	if m.addresses.Len() < len(m.panes) {
		if err = c.frame.Free(m.addresses); err == nil {
			m.addresses, err = frame.Make[uint64](&c.frame, int64(len(m.panes)))
		}
		if err != nil {
			return err
		}
	}
	return m.addresses.Write(st, addressesOf(m.panes))
}
