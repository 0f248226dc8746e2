package frame

import "github.com/warpmap/warpmap/device"

// Marks counts what later operations wait for.
func (o *Order) Marks() (writes, reads int) {
	if o.write.ev != nil {
		writes = 1
	}
	return writes, len(o.reads)
}

// TuneStaging sets how the device's staging is cut; what is 0 stays.
func TuneStaging(d *device.Device, slot, slots, piece, copiers int) {
	ReleaseStaging(d)
	t := &stagingOf(d).tune
	*t = newStageTune()
	for to, x := range map[*int]int{&t.slot: slot, &t.slots: slots, &t.piece: piece, &t.copiers: copiers} {
		if x > 0 {
			*to = x
		}
	}
}

// TunePast sets whether large batches are copied past the caches, in and out.
func TunePast(d *device.Device, in, out bool) {
	t := &stagingOf(d).tune
	t.pastIn, t.pastOut = in, out
}

// TuneHuge sets from how many bytes on outputs are asked to lie on huge pages.
func TuneHuge(d *device.Device, bytes int) { stagingOf(d).tune.huge = bytes }

// StagingSlots counts the device's slots, and how many of them are idle.
func StagingSlots(d *device.Device) (made, idle int) {
	p := stagingOf(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.made, len(p.idle)
}

// StagingClosed tells that the device is about to close.
func StagingClosed(d *device.Device) bool {
	p := stagingOf(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// Waiting tells that a Close waits for batches.
func (s *Stage) Waiting() bool {
	if s.mu.TryRLock() {
		s.mu.RUnlock()
		return false
	}
	return true
}

// StagingHungry counts the batches that wait for their first slot.
func StagingHungry(d *device.Device) int {
	p := stagingOf(d)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.hungry
}

var (
	DistinctProgram = distinctProgram
	OuterProgram    = outerProgram
	CopyStaged      = copyStaged
)

// Users are the streams behind which the table's memory is freed.
func (f *Frame) Users() []*device.Stream { return f.users }
