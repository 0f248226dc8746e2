package join

import (
	"cmp"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
)

// A GPU takes about 1.2 s to open (H200), and on a CPU keys that lie close together need no table: sf 10 of TPC-H, 60 million keys among 15 million,
// is counted in 1.6 s with the GPU and took 0.8 s with 16 cores alone. Other keys take the CPU device's tables about 0.7 µs of a core each to enter
// and to find, so that the GPU has gained its 1.2 s after 1.7 million keys for each core.
const keysPerCore = 1_700_000

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
	if rows := build.Rows() + probe.Rows(); build.Rows() >= 0 && probe.Rows() >= 0 && rows < keysPerCore*int64(threads) && compiles() {
		return "cpu", fmt.Sprintf("%d keys are found before a GPU is open", rows)
	}
	return "auto", ""
}

// compiles tells whether the CPU device can have tables here.
func compiles() bool {
	d, err := device.Open("cpu")
	if err != nil {
		return false
	}
	defer d.Close()
	return d.Info().Compiler != ""
}

// asks tells that all that a join wants of a key is whether it is there, as long as none of the build side's comes twice.
func (o *Options) asks() bool { return o.How == Semi || o.How == Anti || o.Count && o.How == Inner }

// opening is a device that is being opened.
type opening struct {
	device *device.Device
	err    error
	done   chan struct{}
}

// start begins to open a device, and calls failed if it cannot be.
func (j *joiner) start(name, why string, failed func()) {
	o := &opening{done: make(chan struct{})}
	j.opening = o
	j.use(name == "cpu") // until it is open
	go func() {
		defer close(o.done)
		o.err = catch("opening the device broke off", func() (err error) {
			o.device, err = j.Open(name, why)
			return err
		})
		if o.err != nil {
			failed()
		}
	}()
}

// choose begins to open the device that Options name, or the one that suits, and calls failed if it cannot be.
func (j *joiner) choose(build, probe *Reader, failed func()) {
	if j.Open == nil || j.device != nil {
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
	if j.opening == nil || j.device != nil {
		return nil
	}
	<-j.opening.done
	if j.opening.err == nil {
		j.device = j.opening.device
		j.use(!j.device.Info().CUDA())
		j.sum.Device = describe(j.device)
	}
	return j.opening.err
}

// closeDevice closes a device that was opened here, and tells why it could not be opened.
func (j *joiner) closeDevice() error {
	if j.opening == nil {
		return nil
	}
	if err := j.ready(); err != nil {
		return err
	}
	return j.device.Close()
}

// use notes what kind of a device it is.
func (j *joiner) use(cpu bool) {
	j.near = j.Table == "" && j.Filter != FilterOn && cpu
	if j.filter = j.Filter; j.Filter == FilterAuto && (!cpu || j.family == warpmap.Stadium) {
		j.filter = FilterOff
	}
}

func describe(d *device.Device) string { return d.Info().Name + " (" + d.Info().Model + ")" }
