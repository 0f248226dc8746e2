package join

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
)

// A GPU takes 0.4 s to open, and 1.2 where the driver must start (H200); kernels that were never compiled take 5 more.
// On a CPU keys that lie close together need no table: sf 10 of TPC-H, 60 million keys among 15 million, is counted in
// 0.09 s by 16 cores alone, and in 0.4 with the GPU. Other keys take about 50 ns of a core each to pack, to enter and
// to find; by estimate a GPU leaves half of that to the host, and has gained 0.4 s after 16 million keys for each core.
const keysPerCore = 16_000_000

// suits tells which device a join should have where that is left to us, and why where it is not the first that works.
func (j *joiner) suits(build, probe *Reader, threads int) (name, why string) {
	if j.Table != "" || j.Filter == FilterOn {
		return "auto", ""
	}
	p, err := planKeys(build.Schema(), probe.Schema(), j.On, j.NullsEqual)
	if err == nil && build.pq != nil && probe.pq != nil && p.signed(build.pq, probe.pq) {
		most := uint64(nearest)
		if j.asks() {
			most = nearestBits
		}
		if _, _, ok := build.pq.near(p.keys[0].build, most); ok {
			return "cpu", "the keys lie close together, and need no table"
		}
	}
	if rows := build.likely() + probe.likely(); build.likely() >= 0 && probe.likely() >= 0 &&
		rows < keysPerCore*int64(threads) {
		return "cpu", fmt.Sprintf("%d keys are found before a GPU is open", rows)
	}
	return "auto", ""
}

// asks tells that all that a join wants of a key is whether it is there, as long as none of the build side's comes
// twice.
func (o *Options) asks() bool { return o.How == Semi || o.How == Anti || o.Count && o.How == Inner }

// opening is devices that are being opened.
type opening struct {
	devices []*device.Device
	err     error
	cpu     bool // it is a CPU, as far as is known before it is open
	alone   bool // there is none, and the cores do without
	done    chan struct{}
}

// start begins to open a device, and calls failed if it cannot be.
func (j *joiner) start(name, why string, failed func()) {
	o := &opening{cpu: name == "cpu", done: make(chan struct{})}
	j.opening = o
	j.use(name == "cpu") // until it is open
	alone := j.byBits && (name == "cpu" || name == "auto")
	go func() {
		defer close(o.done)
		o.err = catch("opening the device broke off", func() (err error) {
			if o.devices, err = j.Open(name, why); err == nil && len(o.devices) == 0 {
				err = fmt.Errorf("no device was opened for %s", name)
			}
			return err
		})
		// The join's own tables need no kernel: a machine without a compiler joins, as does a system without devices.
		o.alone = alone && (errors.Is(o.err, device.ErrNoCompiler) || errors.Is(o.err, device.ErrNoDevices))
		if o.err != nil && !o.alone {
			failed()
		}
	}()
}

// choose begins to open the device that Options name, or the one that suits, and calls failed if it cannot be. If an
// earlier run has begun that already, it has the same.
func (j *joiner) choose(build, probe *Reader, earlier *opening, failed func()) {
	if j.Open == nil || len(j.devices) > 0 {
		return
	}
	if earlier != nil {
		j.opening = earlier
		j.use(earlier.cpu)
		return
	}
	name, why := cmp.Or(j.Device, "auto"), ""
	if name == "auto" {
		name, why = j.suits(build, probe, j.Threads)
	}
	j.start(name, why, failed)
}

// ready waits for the device.
func (j *joiner) ready() error {
	if j.opening == nil || len(j.devices) > 0 {
		return nil
	}
	<-j.opening.done
	if j.opening.alone {
		j.missing, j.sum.Device = j.opening.err, "cpu"
		j.use(true)
		return nil
	}
	if j.opening.err == nil {
		j.have(j.opening.devices)
	}
	return j.opening.err
}

// close closes devices that were opened here, and tells why they could not be opened.
func (o *opening) close() error {
	if o == nil {
		return nil
	}
	<-o.done
	err := o.err
	if o.alone {
		err = nil
	}
	for _, d := range o.devices {
		err = errors.Join(err, d.Close())
	}
	return err
}

// have notes which devices they are.
func (j *joiner) have(devices []*device.Device) {
	j.devices, j.sum.Device = devices, describe(devices)
	j.use(!devices[0].Info().CUDA())
}

// use notes what kind of a device it is.
func (j *joiner) use(cpu bool) {
	j.byBits = j.Table == "" && j.Filter != FilterOn
	j.cores = j.byBits && cpu
	if j.filter = j.Filter; j.Filter == FilterAuto && (!cpu || j.family == warpmap.Stadium) {
		j.filter = FilterOff
	}
	if j.pinned = j.tuning.pinned; j.pinned == 0 && !cpu {
		j.pinned = pinnedKeys
	}
}

// describe names devices, and the model of the first.
func describe(devices []*device.Device) string {
	names := make([]string, len(devices))
	for i, d := range devices {
		names[i] = d.Info().Name
	}
	return strings.Join(names, ", ") + " (" + devices[0].Info().Model + ")"
}
