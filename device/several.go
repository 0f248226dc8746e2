package device

import (
	"errors"
	"fmt"
	"strings"
)

// OpenAll opens several devices, each with the same options. "all" (or "") is every GPU, in the driver's order.
// Otherwise list is one such as "0,1", "cuda:0,cuda:2" or "cpu:0,cpu:1,cpu:2", in which a bare number is a GPU's. CPU
// devices of different names stand for GPUs where there are none. If one device cannot be opened, none is left open.
//
// Errors: Open's; a device that is listed twice; ErrNoGPU or ErrNoDriver for "all" where there is no GPU.
func OpenAll(list string, opts ...Option) (devices []*Device, err error) {
	defer func() {
		if err != nil {
			for _, d := range devices {
				err = errors.Join(err, d.Close())
			}
			devices = nil
		}
	}()
	if list == "" || list == "all" {
		for i := 0; ; i++ {
			d, err := Open(fmt.Sprintf("cuda:%d", i), opts...)
			if i > 0 && errors.Is(err, ErrNoGPU) {
				return devices, nil
			}
			if err != nil {
				return devices, err
			}
			devices = append(devices, d)
		}
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		if name != "" && strings.Trim(name, "0123456789") == "" {
			name = "cuda:" + name
		}
		if name == "" {
			return devices, fmt.Errorf("devices %q: a name is missing between commas (want all, or a list such as 0,1)", list)
		}
		d, err := Open(name, opts...)
		if err != nil {
			return devices, err
		}
		devices = append(devices, d)
		if seen[d.infos.Name] {
			return devices, fmt.Errorf("devices %q: %s is listed twice", list, d.infos.Name)
		}
		seen[d.infos.Name] = true
	}
	return devices, nil
}

// PeerAccess lets kernels on d read and write memory of Make on another device, and reports whether they can. GPUs of
// one host mostly can if NVLink or one PCIe switch joins them. Without NVSwitch, a GPU has room for eight peers; a
// ninth cannot be reached. Access is one way: kernels on the other device need a call of their own. Memory of
// MakePooled and of a Range stays the device's own. If kernels cannot reach it, CopyFrom still copies. Asking again
// costs some microseconds, and access is never revoked. CPU devices can; a GPU and the CPU cannot.
func (d *Device) PeerAccess(other *Device) (can bool, err error) {
	if d.same(other) {
		return true, d.with(other, func() error { return nil })
	}
	err = d.with(other, func() (err error) { can, err = d.b.peer(other.b); return err })
	return can, err
}

// PeerAtomics reports whether atomic operations of kernels on d work on memory of another device that they can access
// (see PeerAccess): those of a kernel need system scope, as atomicAdd_system has. They do over NVLink, mostly not over
// PCIe, and on CPU devices.
func (d *Device) PeerAtomics(other *Device) (can bool, err error) {
	err = d.with(other, func() (err error) { can, err = d.b.peerAtomics(other.b); return err })
	return can, err
}

// with runs one call of d's back end that uses another device, too. Of any two devices, one is always locked first: a
// Close that waits for one of them cannot stand between two calls.
func (d *Device) with(other *Device, call func() error) error {
	if d == other {
		return d.do(call)
	}
	if other.number < d.number {
		return other.alive(func() error { return d.do(call) })
	}
	return d.do(func() error { return other.alive(call) })
}

// Current runs a call on a thread on which the device is CUDA's current one, for libraries that use CUDA themselves. On
// the CPU it just runs the call. The call may use the device, and Close waits for it. Every call on a GPU leaves it the
// current one of the thread that it ran on. So who has locked a thread to use CUDA there sets its own again.
func (d *Device) Current(call func() error) error {
	if err := d.alive(func() error { d.lent.Add(1); return nil }); err != nil {
		return err
	}
	defer d.lent.Done()
	return d.noted(d.b.current(call))
}
