package device

import (
	"errors"
	"fmt"
	"syscall"
	"unsafe"

	"github.com/warpmap/warpmap/device/internal/cu"
	"github.com/warpmap/warpmap/internal/faults"
)

// met does to a call that is about to be made what a test has ordered. The caller is in do.
func (d *Device) met(site faults.Site, bytes int64) error {
	if !faults.Any() {
		return nil
	}
	if lost := d.lost.Load(); lost != nil { // since the call before, in the same do
		return *lost
	}
	switch faults.Ask(d, site, bytes) {
	case faults.Fails:
		return &faults.Error{Site: site, Err: d.refusal(site, bytes)}
	case faults.Breaks:
		return d.madeFault()
	case faults.Lately:
		lost := d.madeFault()
		d.lost.CompareAndSwap(nil, &lost)
	}
	return nil
}

// refusal is what the back end says of a call that it does not make, and after which it goes on.
func (d *Device) refusal(site faults.Site, bytes int64) error {
	switch {
	case site == faults.Alloc || site == faults.HostAlloc:
		return &OutOfMemoryError{d.infos.Name, bytes, 0}
	case d.infos.CUDA(): // the driver needs memory of its own for whatever it queues
		call := map[faults.Site]string{faults.Launch: "cuLaunchKernel", faults.CopyIn: "cuMemcpyHtoDAsync", faults.CopyOut: "cuMemcpyDtoHAsync",
			faults.CopyWithin: "cuMemcpyDtoDAsync", faults.PeerCopy: "cuMemcpyPeerAsync", faults.Stream: "cuStreamCreate",
			faults.Event: "cuEventRecord", faults.Sync: "cuStreamSynchronize", faults.Load: "cuModuleLoadData"}[site]
		return fmt.Errorf("%s: %w", d.infos.Name,
			&cu.Error{Call: call, Code: cu.ErrorOutOfMemory, Name: "CUDA_ERROR_OUT_OF_MEMORY", Text: "out of memory"})
	}
	return fmt.Errorf("%s: %v: %w", d.infos.Name, site, syscall.ENOMEM)
}

func (d *Device) madeFault() error {
	return &FaultError{Device: d.infos.Name, What: "an illegal memory access was encountered (CUDA_ERROR_ILLEGAL_ADDRESS)"}
}

// call makes a call of the back end that puts work on a stream or waits for it.
func (d *Device) call(site faults.Site, bytes int64, make func() error) error {
	err := d.met(site, bytes)
	if err == nil {
		err = make()
	}
	return asCall(err)
}

// asCall makes a CallError of an error of the back end that is of none of the kinds with a meaning of their own.
func asCall(err error) error {
	if err == nil || IsOutOfMemory(err) || errors.As(err, new(*FaultError)) || errors.As(err, new(*CallError)) ||
		errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return &CallError{Err: err}
}

func (d *Device) copyIn(st *handle, dst uint64, src unsafe.Pointer, bytes int64) error {
	return d.call(faults.CopyIn, bytes, func() error { return d.b.copyIn(st.h, dst, src, bytes) })
}

func (d *Device) copyOut(st *handle, dst unsafe.Pointer, src uint64, bytes int64) error {
	return d.call(faults.CopyOut, bytes, func() error { return d.b.copyOut(st.h, dst, src, bytes) })
}

func (d *Device) syncStream(st *handle) error {
	return d.call(faults.Sync, 0, func() error { return d.b.syncStream(st.h) })
}

func (d *Device) wait(st, ev *handle) error {
	return d.call(faults.Event, 0, func() error { return d.b.wait(st.h, ev.h) })
}

func (d *Device) newEvent() (uintptr, error) { return d.creating(faults.Event, backend.newEvent) }

// creating is a back end's call that makes a stream or an event.
func (d *Device) creating(site faults.Site, create func(backend) (uintptr, error)) (h uintptr, err error) {
	err = d.call(site, 0, func() (err error) { h, err = create(d.b); return err })
	return h, err
}
