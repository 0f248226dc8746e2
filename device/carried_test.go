package device_test

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
)

// cargo notes what it finds when it is closed.
type cargo struct {
	closed int
	mem    device.Slice[byte]
	err    error
}

func (c *cargo) Close() {
	c.closed++
	if c.mem.Len() > 0 {
		c.err = c.mem.Write(nil, []byte{1}) // is still there
	}
}

func TestCarried(t *testing.T) {
	d := openCPU(t)
	made := 0
	load := func(d *device.Device) *cargo {
		made++
		return new(cargo)
	}
	c := device.Carried(d, load)
	if device.Carried(d, load) != c || made != 1 {
		t.Errorf("%d are made for one device", made)
	}
	if e := openCPU(t); device.Carried(e, load) == c {
		t.Error("two devices carry one value")
	}
	var err error
	c.mem, err = device.Make[byte](d, 1)
	must(t, err)
	must(t, d.Close())
	must(t, d.Close())
	if c.closed != 1 || c.err != nil {
		t.Errorf("closed %d times: %v", c.closed, c.err)
	}
	// A type that is first asked for after Close gets a value that is closed.
	type late struct{ *cargo }
	x := device.Carried(d, func(*device.Device) late { return late{new(cargo)} })
	if x.closed != 1 {
		t.Errorf("closed %d times after the device", x.closed)
	}
	if err := c.mem.Write(nil, []byte{1}); !errors.Is(err, device.ErrFreed) && !errors.Is(err, device.ErrClosed) {
		t.Error(err)
	}
}
