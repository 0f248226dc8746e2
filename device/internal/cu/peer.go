package cu

import (
	"strings"
	"unsafe"
)

// DeviceGetPCIBusID is the GPU's place: domain:bus:device.function.
func (d *Driver) DeviceGetPCIBusID(device int32) (string, error) {
	var id [32]byte
	err := call(d, fnDeviceGetPCIBusID, uintptr(unsafe.Pointer(&id)), uintptr(len(id)-1), uintptr(device))
	s, _, _ := strings.Cut(string(id[:]), "\x00")
	return s, err
}

// DeviceCanAccessPeer tells whether kernels on one GPU can use the memory of another.
func (d *Driver) DeviceCanAccessPeer(device, peer int32) (bool, error) {
	var can int32
	err := call(d, fnDeviceCanAccessPeer, uintptr(unsafe.Pointer(&can)), uintptr(device), uintptr(peer))
	return can != 0, err
}

// p2pNativeAtomics is CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED.
const p2pNativeAtomics = 3

// DeviceHasPeerAtomics reports whether atomic operations of kernels on one GPU work on memory of another.
func (d *Driver) DeviceHasPeerAtomics(device, peer int32) (bool, error) {
	var can int32
	err := call(d, fnDeviceGetP2PAttribute, uintptr(unsafe.Pointer(&can)), p2pNativeAtomics, uintptr(device), uintptr(peer))
	return can != 0, err
}

// CtxEnablePeerAccess lets the current context use memory of MemAlloc of another context. Errors: ErrorPeerEnabled the
// second time; ErrorTooManyPeers if the GPU has no room for one more; ErrorPeerUnsupported.
func (d *Driver) CtxEnablePeerAccess(peer uintptr) error {
	return call(d, fnCtxEnablePeerAccess, peer, 0)
}

// MemcpyPeerAsync queues a copy from one context's memory to another's; the stream is of either.
func (d *Driver) MemcpyPeerAsync(dst uint64, to uintptr, src uint64, from uintptr, bytes uint64, stream uintptr) error {
	return call(d, fnMemcpyPeerAsync, uintptr(dst), to, uintptr(src), from, uintptr(bytes), stream)
}
