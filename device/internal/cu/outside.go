package cu

import (
	"runtime"
	"unsafe"
)

// Attributes of an address, for PointerGetAttribute. Each is an int32 here.
const (
	PointerMemoryType  = 2 // MemoryDevice or another
	PointerIsManaged   = 8
	PointerOrdinal     = 9  // of the GPU
	PointerIPC         = 10 // whether IpcGetMemHandle takes its allocation
	MemoryTypeOfDevice = 2
)

// CaptureRelaxed lets a thread make calls that a capture of another thread forbids it else.
const CaptureRelaxed = 2

// LegacyStream and PerThreadStream are handles of the default streams; 0 is the legacy one, too.
const (
	LegacyStream    = 1
	PerThreadStream = 2
)

// PointerGetAttribute is one of the Pointer constants' value. Errors: ErrorInvalidValue for an address that CUDA does not know.
func (d *Driver) PointerGetAttribute(attribute int, addr uint64) (int, error) {
	var v int32
	err := call(d, fnPointerGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(attribute), uintptr(addr))
	return int(v), err
}

// MemGetAddressRange is the allocation that an address lies in.
func (d *Driver) MemGetAddressRange(addr uint64) (base, bytes uint64, err error) {
	err = call(d, fnMemGetAddressRange, uintptr(unsafe.Pointer(&base)), uintptr(unsafe.Pointer(&bytes)), uintptr(addr))
	return base, bytes, err
}

// IpcHandle is a CUipcMemHandle: what another process needs to open an allocation.
type IpcHandle [8]uint64

// IpcGetMemHandle is the handle of memory that MemAlloc gave, by its first address.
func (d *Driver) IpcGetMemHandle(addr uint64) (h IpcHandle, err error) {
	err = call(d, fnIpcGetMemHandle, uintptr(unsafe.Pointer(&h)), uintptr(addr))
	return h, err
}

// IpcOpenMemHandle maps memory of another process. Errors: ErrorInvalidContext in the process that it is of.
func (d *Driver) IpcOpenMemHandle(h IpcHandle) (addr uint64, err error) {
	const lazyPeerAccess = 1
	if runtime.GOARCH == "arm64" { // a large struct is passed by the address of a copy
		err = call(d, fnIpcOpenMemHandle, uintptr(unsafe.Pointer(&addr)), uintptr(unsafe.Pointer(&h)), lazyPeerAccess)
		return addr, err
	}
	// On amd64 it lies on the stack, before what finds no register: so the registers are filled, of which the call reads two.
	err = call(d, fnIpcOpenMemHandle, uintptr(unsafe.Pointer(&addr)), lazyPeerAccess, 0, 0, 0, 0,
		uintptr(h[0]), uintptr(h[1]), uintptr(h[2]), uintptr(h[3]), uintptr(h[4]), uintptr(h[5]), uintptr(h[6]), uintptr(h[7]))
	return addr, err
}

// IpcCloseMemHandle unmaps what IpcOpenMemHandle mapped.
func (d *Driver) IpcCloseMemHandle(addr uint64) error {
	return call(d, fnIpcCloseMemHandle, uintptr(addr))
}

// StreamGetCtx is the context that a stream is of.
func (d *Driver) StreamGetCtx(stream uintptr) (ctx uintptr, err error) {
	err = call(d, fnStreamGetCtx, stream, uintptr(unsafe.Pointer(&ctx)))
	return ctx, err
}

// StreamIsCapturing tells whether what is put on the stream goes into a graph instead.
func (d *Driver) StreamIsCapturing(stream uintptr) (bool, error) {
	var status int32
	err := call(d, fnStreamIsCapturing, stream, uintptr(unsafe.Pointer(&status)))
	return status != 0, err
}

// ThreadExchangeStreamCaptureMode sets what the thread may do beside captures, and returns what it was allowed before.
func (d *Driver) ThreadExchangeStreamCaptureMode(mode int32) (before int32, err error) {
	err = call(d, fnThreadExchangeStreamCaptureMode, uintptr(unsafe.Pointer(&mode)))
	return mode, err
}
