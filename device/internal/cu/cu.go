// Package cu is a thin binding of the CUDA driver, libcuda.so.1, without cgo and without a CUDA toolkit.
//
// Each method is the driver function of that name and returns what it returns; units are the driver's. Methods are
// safe to call from several goroutines. Those that need a context want it current on the calling thread: lock the
// thread and call CtxSetCurrent first. A call costs about 0.1 µs more than it does in C.
package cu

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"unsafe"

	"github.com/warpmap/warpmap/internal/dl"
)

// Library is the driver's name in the loader's path.
const Library = "libcuda.so.1"

// Result is a CUresult.
type Result int32

// These are the results that callers distinguish.
const (
	Success                Result = 0
	ErrorInvalidValue      Result = 1
	ErrorOutOfMemory       Result = 2
	ErrorStubLibrary       Result = 34
	ErrorNoDevice          Result = 100
	ErrorInvalidDevice     Result = 101
	ErrorInvalidContext    Result = 201
	ErrorECCUncorrectable  Result = 214
	ErrorPeerUnsupported   Result = 217
	ErrorNVLink            Result = 220
	ErrorContained         Result = 226
	ErrorNotFound          Result = 500
	ErrorNotReady          Result = 600
	ErrorIllegalAddress    Result = 700
	ErrorLaunchTimeout     Result = 702
	ErrorPeerEnabled       Result = 704
	ErrorContextDestroyed  Result = 709
	ErrorAssert            Result = 710
	ErrorTooManyPeers      Result = 711
	ErrorHardwareStack     Result = 714
	ErrorIllegalInstr      Result = 715
	ErrorMisalignedAddress Result = 716
	ErrorInvalidAddrSpace  Result = 717
	ErrorInvalidPC         Result = 718
	ErrorLaunchFailed      Result = 719
	ErrorTensorMemoryLeak  Result = 721
	ErrorMPSFailure        Result = 806
	ErrorMPSTerminated     Result = 810
	ErrorExternalDevice    Result = 911
	ErrorUnknown           Result = 999
)

// Sticky reports whether the result means that a kernel or the hardware broke the context or the process: every later
// call in it fails alike.
func (r Result) Sticky() bool {
	switch r {
	case ErrorECCUncorrectable, ErrorNVLink, ErrorContained, ErrorIllegalAddress, ErrorLaunchTimeout,
		ErrorContextDestroyed, ErrorAssert, ErrorHardwareStack, ErrorIllegalInstr, ErrorMisalignedAddress,
		ErrorInvalidAddrSpace, ErrorInvalidPC, ErrorLaunchFailed, ErrorTensorMemoryLeak, ErrorMPSTerminated,
		ErrorExternalDevice:
		return true
	}
	return false
}

// Unclear reports whether the result leaves open that the context is broken: a GPU that is off the bus gives it, and so
// do calls after which all is well.
func (r Result) Unclear() bool { return r == ErrorUnknown || r == ErrorMPSFailure }

// Error is a driver call that did not return Success.
type Error struct {
	Call string // the driver function
	Code Result
	Name string // "CUDA_ERROR_OUT_OF_MEMORY"
	Text string // "out of memory"
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (%s)", e.Call, e.Text, e.Name) }

// Attributes of a device, for DeviceGetAttribute.
const (
	AttributeMultiprocessors = 16
	AttributeL2Bytes         = 38
	AttributeMajor           = 75
	AttributeMinor           = 76
	AttributeSharedBytes     = 97 // of a block that asks for more than the usual 48 KiB
	AttributeVirtualMemory   = 102
	AttributeMemoryPools     = 115
)

// Attributes of a kernel, for FuncSetAttribute.
const (
	FuncDynamicSharedBytes = 8 // that a launch may ask for
	FuncSharedCarveout     = 9 // how much of a multiprocessor's memory shared memory should get, in percent
)

// Limits of a context, for CtxSetLimit.
const LimitMallocHeap = 2 // bytes that kernels can get by malloc, in all

// Flags of StreamCreate, MemHostAlloc and EventCreate.
const (
	StreamNonBlocking = 1
	HostPortable      = 1
	HostDeviceMap     = 2
	EventDefault      = 0

	EventDisableTiming = 2
)

// PoolInternalDependencies is the attribute of a memory pool that lets an allocation wait for a free of another stream.
const PoolInternalDependencies = 3

// poolReleaseThreshold is the attribute of MemPoolKeep, and the others are those of MemPoolUnused: what a pool has of
// the GPU's memory, and what of that is in use.
const poolReleaseThreshold, poolReserved, poolUsed = 4, 5, 7

type function int

const (
	fnInit function = iota
	fnDriverGetVersion
	fnGetErrorName
	fnGetErrorString
	fnDeviceGetCount
	fnDeviceGet
	fnDeviceGetName
	fnDeviceGetUUID
	fnDeviceGetWholeUUID
	fnDeviceGetPCIBusID
	fnDeviceCanAccessPeer
	fnDeviceGetP2PAttribute
	fnDeviceGetAttribute
	fnDeviceTotalMem
	fnPrimaryCtxRetain
	fnPrimaryCtxRelease
	fnCtxSetCurrent
	fnCtxSynchronize
	fnCtxSetLimit
	fnCtxEnablePeerAccess
	fnMemGetInfo
	fnMemAlloc
	fnMemFree
	fnMemPoolCreate
	fnMemPoolDestroy
	fnMemPoolSetAttribute
	fnMemPoolGetAttribute
	fnMemPoolTrimTo
	fnMemAllocFromPoolAsync
	fnMemFreeAsync
	fnMemAddressReserve
	fnMemAddressFree
	fnMemGetAllocationGranularity
	fnMemCreate
	fnMemRelease
	fnMemMap
	fnMemUnmap
	fnMemSetAccess
	fnMemHostAlloc
	fnMemFreeHost
	fnMemHostGetDevicePointer
	fnMemcpyHtoDAsync
	fnMemcpyDtoHAsync
	fnMemcpyDtoDAsync
	fnMemcpyPeerAsync
	fnMemsetD8Async
	fnMemsetD32Async
	fnStreamCreate
	fnStreamCreateWithPriority
	fnStreamDestroy
	fnStreamSynchronize
	fnStreamWaitEvent
	fnEventCreate
	fnEventDestroy
	fnEventRecord
	fnEventSynchronize
	fnEventQuery
	fnEventElapsedTime
	fnModuleLoadData
	fnModuleUnload
	fnModuleGetFunction
	fnModuleGetGlobal
	fnFuncSetAttribute
	fnLaunchKernel
	fnPointerGetAttribute
	fnMemGetAddressRange
	fnIpcGetMemHandle
	fnIpcOpenMemHandle
	fnIpcCloseMemHandle
	fnStreamGetCtx
	fnStreamIsCapturing
	fnThreadExchangeStreamCaptureMode
	functions
)

// The symbols of each function, the best first. Without _v2 most are the 32-bit interface of CUDA 3.
var symbols = [functions]string{
	fnInit:                            "cuInit",
	fnDriverGetVersion:                "cuDriverGetVersion",
	fnGetErrorName:                    "cuGetErrorName",
	fnGetErrorString:                  "cuGetErrorString",
	fnDeviceGetCount:                  "cuDeviceGetCount",
	fnDeviceGet:                       "cuDeviceGet",
	fnDeviceGetName:                   "cuDeviceGetName",
	fnDeviceGetUUID:                   "cuDeviceGetUuid_v2 cuDeviceGetUuid",
	fnDeviceGetWholeUUID:              "cuDeviceGetUuid cuDeviceGetUuid_v2",
	fnDeviceGetPCIBusID:               "cuDeviceGetPCIBusId",
	fnDeviceCanAccessPeer:             "cuDeviceCanAccessPeer",
	fnDeviceGetP2PAttribute:           "cuDeviceGetP2PAttribute",
	fnDeviceGetAttribute:              "cuDeviceGetAttribute",
	fnDeviceTotalMem:                  "cuDeviceTotalMem_v2",
	fnPrimaryCtxRetain:                "cuDevicePrimaryCtxRetain",
	fnPrimaryCtxRelease:               "cuDevicePrimaryCtxRelease_v2 cuDevicePrimaryCtxRelease",
	fnCtxSetCurrent:                   "cuCtxSetCurrent",
	fnCtxSynchronize:                  "cuCtxSynchronize",
	fnCtxSetLimit:                     "cuCtxSetLimit",
	fnCtxEnablePeerAccess:             "cuCtxEnablePeerAccess",
	fnMemGetInfo:                      "cuMemGetInfo_v2",
	fnMemAlloc:                        "cuMemAlloc_v2",
	fnMemFree:                         "cuMemFree_v2",
	fnMemPoolCreate:                   "cuMemPoolCreate",
	fnMemPoolDestroy:                  "cuMemPoolDestroy",
	fnMemPoolSetAttribute:             "cuMemPoolSetAttribute",
	fnMemPoolGetAttribute:             "cuMemPoolGetAttribute",
	fnMemPoolTrimTo:                   "cuMemPoolTrimTo",
	fnMemAllocFromPoolAsync:           "cuMemAllocFromPoolAsync",
	fnMemFreeAsync:                    "cuMemFreeAsync",
	fnMemAddressReserve:               "cuMemAddressReserve",
	fnMemAddressFree:                  "cuMemAddressFree",
	fnMemGetAllocationGranularity:     "cuMemGetAllocationGranularity",
	fnMemCreate:                       "cuMemCreate",
	fnMemRelease:                      "cuMemRelease",
	fnMemMap:                          "cuMemMap",
	fnMemUnmap:                        "cuMemUnmap",
	fnMemSetAccess:                    "cuMemSetAccess",
	fnMemHostAlloc:                    "cuMemHostAlloc",
	fnMemFreeHost:                     "cuMemFreeHost",
	fnMemHostGetDevicePointer:         "cuMemHostGetDevicePointer_v2",
	fnMemcpyHtoDAsync:                 "cuMemcpyHtoDAsync_v2",
	fnMemcpyDtoHAsync:                 "cuMemcpyDtoHAsync_v2",
	fnMemcpyDtoDAsync:                 "cuMemcpyDtoDAsync_v2",
	fnMemcpyPeerAsync:                 "cuMemcpyPeerAsync",
	fnMemsetD8Async:                   "cuMemsetD8Async",
	fnMemsetD32Async:                  "cuMemsetD32Async",
	fnStreamCreate:                    "cuStreamCreate",
	fnStreamCreateWithPriority:        "cuStreamCreateWithPriority",
	fnStreamDestroy:                   "cuStreamDestroy_v2",
	fnStreamSynchronize:               "cuStreamSynchronize",
	fnStreamWaitEvent:                 "cuStreamWaitEvent",
	fnEventCreate:                     "cuEventCreate",
	fnEventDestroy:                    "cuEventDestroy_v2",
	fnEventRecord:                     "cuEventRecord",
	fnEventSynchronize:                "cuEventSynchronize",
	fnEventQuery:                      "cuEventQuery",
	fnEventElapsedTime:                "cuEventElapsedTime_v2 cuEventElapsedTime",
	fnModuleLoadData:                  "cuModuleLoadData",
	fnModuleUnload:                    "cuModuleUnload",
	fnModuleGetFunction:               "cuModuleGetFunction",
	fnModuleGetGlobal:                 "cuModuleGetGlobal_v2",
	fnFuncSetAttribute:                "cuFuncSetAttribute",
	fnLaunchKernel:                    "cuLaunchKernel",
	fnPointerGetAttribute:             "cuPointerGetAttribute",
	fnMemGetAddressRange:              "cuMemGetAddressRange_v2",
	fnIpcGetMemHandle:                 "cuIpcGetMemHandle",
	fnIpcOpenMemHandle:                "cuIpcOpenMemHandle_v2 cuIpcOpenMemHandle",
	fnIpcCloseMemHandle:               "cuIpcCloseMemHandle",
	fnStreamGetCtx:                    "cuStreamGetCtx",
	fnStreamIsCapturing:               "cuStreamIsCapturing",
	fnThreadExchangeStreamCaptureMode: "cuThreadExchangeStreamCaptureMode",
}

// Driver is a loaded driver library. It is never unloaded.
type Driver struct {
	path string
	fn   [functions]uintptr
}

var (
	openMu sync.Mutex
	opened = map[string]*Driver{}
)

// Open loads the driver library at path, Library where path is empty, and finds its functions; each path is loaded
// once. It does not call cuInit. Errors: the loader's own; a function that the library lacks.
func Open(path string) (*Driver, error) {
	if path == "" {
		path = Library
	}
	openMu.Lock()
	defer openMu.Unlock()
	if d := opened[path]; d != nil {
		return d, nil
	}
	lib, err := dl.OpenGlobal(path)
	if err != nil {
		return nil, err
	}
	d := &Driver{path: path}
	for f, names := range symbols {
		for name := range strings.FieldsSeq(names) {
			if d.fn[f], err = dl.Sym(lib, name); err == nil {
				break
			}
		}
		if newer := function(f) >= fnMemPoolCreate && function(f) <= fnMemSetAccess; err != nil && !newer {
			return nil, fmt.Errorf("%s is no CUDA driver, or too old a one: %w", path, err)
		}
	}
	opened[path] = d
	return d, nil
}

// HasPools tells whether the driver has memory pools, which came with CUDA 11.2. Without, their methods must not be called.
func (d *Driver) HasPools() bool { return d.has(fnMemPoolCreate, fnMemFreeAsync) }

// HasRanges tells whether the driver has virtual memory management, which came with CUDA 10.2. Without, its methods must not be called.
func (d *Driver) HasRanges() bool { return d.has(fnMemAddressReserve, fnMemSetAccess) }

func (d *Driver) has(first, last function) bool {
	for f := first; f <= last; f++ {
		if d.fn[f] == 0 {
			return false
		}
	}
	return true
}

// Path is the library's path or name, as it was opened.
func (d *Driver) Path() string { return d.path }

// call calls a driver function. A Go pointer among the arguments must be converted to uintptr in the call itself:
// only then does the pragma keep what it points to on the heap, and alive.
//
//go:uintptrescapes
func call(d *Driver, f function, args ...uintptr) error {
	r := dl.Call(d.fn[f], args...)
	if code := Result(int32(r)); code != Success {
		return d.failure(f, code)
	}
	return nil
}

func (d *Driver) failure(f function, code Result) error {
	name, _, _ := strings.Cut(symbols[f], " ")
	e := &Error{Call: strings.TrimSuffix(name, "_v2"), Code: code, Name: fmt.Sprintf("CUresult %d", code), Text: "unknown error"}
	var p *byte
	if r := dl.Call(d.fn[fnGetErrorName], uintptr(code), uintptr(unsafe.Pointer(&p))); int32(r) == 0 && p != nil {
		e.Name = goString(p)
	}
	var q *byte
	if r := dl.Call(d.fn[fnGetErrorString], uintptr(code), uintptr(unsafe.Pointer(&q))); int32(r) == 0 && q != nil {
		e.Text = goString(q)
	}
	return e
}

func goString(p *byte) string {
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// Init readies the driver; calling it again costs nothing. Errors: ErrorNoDevice where there is no GPU.
func (d *Driver) Init() error { return call(d, fnInit, 0) }

// DriverGetVersion is the newest CUDA version that the driver supports: 12040 is 12.4.
func (d *Driver) DriverGetVersion() (version int, err error) {
	var v int32
	err = call(d, fnDriverGetVersion, uintptr(unsafe.Pointer(&v)))
	return int(v), err
}

// DeviceGetCount is the number of GPUs.
func (d *Driver) DeviceGetCount() (int, error) {
	var n int32
	err := call(d, fnDeviceGetCount, uintptr(unsafe.Pointer(&n)))
	return int(n), err
}

// DeviceGet is the handle of the GPU with that index.
func (d *Driver) DeviceGet(index int) (device int32, err error) {
	err = call(d, fnDeviceGet, uintptr(unsafe.Pointer(&device)), uintptr(index))
	return device, err
}

// DeviceGetName is the GPU's model.
func (d *Driver) DeviceGetName(device int32) (string, error) {
	var name [256]byte
	err := call(d, fnDeviceGetName, uintptr(unsafe.Pointer(&name)), uintptr(len(name)-1), uintptr(device))
	s, _, _ := strings.Cut(string(name[:]), "\x00")
	return s, err
}

// DeviceGetWholeUUID returns what DeviceGetUUID returns, but for a MIG instance the UUID of the GPU that it is a part of.
func (d *Driver) DeviceGetWholeUUID(device int32) (id [16]byte, err error) {
	err = call(d, fnDeviceGetWholeUUID, uintptr(unsafe.Pointer(&id)), uintptr(device))
	return id, err
}

// DeviceGetUUID returns an identifier that is the same in all processes, in whatever order they see the GPUs.
func (d *Driver) DeviceGetUUID(device int32) (id [16]byte, err error) {
	err = call(d, fnDeviceGetUUID, uintptr(unsafe.Pointer(&id)), uintptr(device))
	return id, err
}

// DeviceGetAttribute is one of the Attribute constants' value.
func (d *Driver) DeviceGetAttribute(attribute int, device int32) (int, error) {
	var v int32
	err := call(d, fnDeviceGetAttribute, uintptr(unsafe.Pointer(&v)), uintptr(attribute), uintptr(device))
	return int(v), err
}

// DeviceTotalMem is the GPU's memory in bytes.
func (d *Driver) DeviceTotalMem(device int32) (bytes uint64, err error) {
	err = call(d, fnDeviceTotalMem, uintptr(unsafe.Pointer(&bytes)), uintptr(device))
	return bytes, err
}

// DevicePrimaryCtxRetain counts one more user of the GPU's primary context, and makes it for the first: tenths of a
// second.
func (d *Driver) DevicePrimaryCtxRetain(device int32) (ctx uintptr, err error) {
	err = call(d, fnPrimaryCtxRetain, uintptr(unsafe.Pointer(&ctx)), uintptr(device))
	return ctx, err
}

// DevicePrimaryCtxRelease counts one user less, and destroys the context after the last.
func (d *Driver) DevicePrimaryCtxRelease(device int32) error {
	return call(d, fnPrimaryCtxRelease, uintptr(device))
}

// CtxSetCurrent makes the context, or none for 0, the calling thread's: 0.3 µs.
func (d *Driver) CtxSetCurrent(ctx uintptr) error { return call(d, fnCtxSetCurrent, ctx) }

// CtxSynchronize waits for all work in the current context.
func (d *Driver) CtxSynchronize() error { return call(d, fnCtxSynchronize) }

// CtxSetLimit sets a limit of the current context. Errors: ErrorInvalidValue for the heap once a kernel has used it.
func (d *Driver) CtxSetLimit(limit int32, value uint64) error {
	return call(d, fnCtxSetLimit, uintptr(limit), uintptr(value))
}

// MemGetInfo is the GPU's free and total memory in bytes.
func (d *Driver) MemGetInfo() (free, total uint64, err error) {
	err = call(d, fnMemGetInfo, uintptr(unsafe.Pointer(&free)), uintptr(unsafe.Pointer(&total)))
	return free, total, err
}

// MemAlloc allocates device memory, aligned to 256 bytes. Errors: ErrorOutOfMemory.
func (d *Driver) MemAlloc(bytes uint64) (addr uint64, err error) {
	err = call(d, fnMemAlloc, uintptr(unsafe.Pointer(&addr)), uintptr(bytes))
	return addr, err
}

// MemFree frees device memory.
func (d *Driver) MemFree(addr uint64) error { return call(d, fnMemFree, uintptr(addr)) }

// poolProps is a CUmemPoolProps: pinned memory of a GPU, which is not shared with other processes.
type poolProps struct {
	allocType, handleTypes, locationType, location int32
	security                                       uintptr
	maxSize                                        uint64
	usage                                          uint16
	reserved                                       [54]byte
}

// MemPoolCreate makes a pool of the GPU's memory, which keeps nothing that is free beyond the next wait: but see MemPoolKeep.
func (d *Driver) MemPoolCreate(device int32) (pool uintptr, err error) {
	props := poolProps{allocType: 1, locationType: 1, location: device}
	err = call(d, fnMemPoolCreate, uintptr(unsafe.Pointer(&pool)), uintptr(unsafe.Pointer(&props)))
	return pool, err
}

// MemPoolDestroy frees a pool once all its memory is free.
func (d *Driver) MemPoolDestroy(pool uintptr) error { return call(d, fnMemPoolDestroy, pool) }

// MemPoolSetAttribute sets an attribute that is an int.
func (d *Driver) MemPoolSetAttribute(pool uintptr, attribute, value int32) error {
	return call(d, fnMemPoolSetAttribute, pool, uintptr(attribute), uintptr(unsafe.Pointer(&value)))
}

// MemPoolKeep lets a pool keep up to so many bytes that are free.
func (d *Driver) MemPoolKeep(pool uintptr, bytes uint64) error {
	return call(d, fnMemPoolSetAttribute, pool, poolReleaseThreshold, uintptr(unsafe.Pointer(&bytes)))
}

// MemPoolUnused tells how many bytes a pool holds that are free. Drivers before CUDA 11.3 cannot tell.
func (d *Driver) MemPoolUnused(pool uintptr) (bytes uint64, err error) {
	var reserved, used uint64
	if err = call(d, fnMemPoolGetAttribute, pool, poolReserved, uintptr(unsafe.Pointer(&reserved))); err == nil {
		err = call(d, fnMemPoolGetAttribute, pool, poolUsed, uintptr(unsafe.Pointer(&used)))
	}
	return reserved - min(used, reserved), err
}

// MemPoolTrimTo gives free memory back to the GPU until the pool holds no more than so many bytes.
func (d *Driver) MemPoolTrimTo(pool uintptr, bytes uint64) error {
	return call(d, fnMemPoolTrimTo, pool, uintptr(bytes))
}

// MemAllocFromPoolAsync queues an allocation on the stream; other streams must wait for it. Errors: ErrorOutOfMemory.
func (d *Driver) MemAllocFromPoolAsync(bytes uint64, pool, stream uintptr) (addr uint64, err error) {
	err = call(d, fnMemAllocFromPoolAsync, uintptr(unsafe.Pointer(&addr)), uintptr(bytes), pool, stream)
	return addr, err
}

// MemFreeAsync queues freeing memory of a pool on the stream.
func (d *Driver) MemFreeAsync(addr uint64, stream uintptr) error {
	return call(d, fnMemFreeAsync, uintptr(addr), stream)
}

// memProp is CUmemAllocationProp: memory of a GPU, not to be shared with other processes.
type memProp struct {
	allocType, handleTypes int32
	locationType, location int32
	_                      uintptr
	_                      [8]byte
}

// memAccess is CUmemAccessDesc.
type memAccess struct{ locationType, location, flags int32 }

func memOf(device int32) *memProp { return &memProp{allocType: 1, locationType: 1, location: device} }

// MemGetAllocationGranularity is what sizes of MemCreate and MemMap are multiples of.
func (d *Driver) MemGetAllocationGranularity(device int32) (bytes uint64, err error) {
	err = call(d, fnMemGetAllocationGranularity, uintptr(unsafe.Pointer(&bytes)), uintptr(unsafe.Pointer(memOf(device))), 1)
	return bytes, err
}

// MemAddressReserve reserves a range of addresses. Errors: ErrorOutOfMemory.
func (d *Driver) MemAddressReserve(bytes uint64) (addr uint64, err error) {
	err = call(d, fnMemAddressReserve, uintptr(unsafe.Pointer(&addr)), uintptr(bytes), 0, 0, 0)
	return addr, err
}

// MemAddressFree gives back a range of addresses that has no memory any more.
func (d *Driver) MemAddressFree(addr, bytes uint64) error {
	return call(d, fnMemAddressFree, uintptr(addr), uintptr(bytes))
}

// MemCreate allocates memory that has no address yet. Errors: ErrorOutOfMemory.
func (d *Driver) MemCreate(device int32, bytes uint64) (memory uintptr, err error) {
	err = call(d, fnMemCreate, uintptr(unsafe.Pointer(&memory)), uintptr(bytes), uintptr(unsafe.Pointer(memOf(device))), 0)
	return memory, err
}

// MemRelease frees memory, once it has no address.
func (d *Driver) MemRelease(memory uintptr) error { return call(d, fnMemRelease, memory) }

// MemMap gives memory the addresses from addr on. It cannot be used before MemSetAccess.
func (d *Driver) MemMap(addr, bytes uint64, memory uintptr) error {
	return call(d, fnMemMap, uintptr(addr), uintptr(bytes), 0, memory, 0)
}

// MemUnmap takes the addresses of one MemMap from their memory.
func (d *Driver) MemUnmap(addr, bytes uint64) error {
	return call(d, fnMemUnmap, uintptr(addr), uintptr(bytes))
}

// MemSetAccess lets the GPU read and write what is mapped.
func (d *Driver) MemSetAccess(addr, bytes uint64, device int32) error {
	return call(d, fnMemSetAccess, uintptr(addr), uintptr(bytes), uintptr(unsafe.Pointer(&memAccess{1, device, 3})), 1)
}

// MemHostAlloc allocates pinned host memory. Errors: ErrorOutOfMemory.
func (d *Driver) MemHostAlloc(bytes uint64, flags uint32) (host unsafe.Pointer, err error) {
	err = call(d, fnMemHostAlloc, uintptr(unsafe.Pointer(&host)), uintptr(bytes), uintptr(flags))
	return host, err
}

// MemFreeHost frees pinned host memory.
func (d *Driver) MemFreeHost(host unsafe.Pointer) error { return call(d, fnMemFreeHost, uintptr(host)) }

// MemHostGetDevicePointer is the address by which kernels reach memory that was allocated with HostDeviceMap.
func (d *Driver) MemHostGetDevicePointer(host unsafe.Pointer) (addr uint64, err error) {
	err = call(d, fnMemHostGetDevicePointer, uintptr(unsafe.Pointer(&addr)), uintptr(host), 0)
	return addr, err
}

// MemcpyHtoDAsync queues a copy from host memory. Memory that is not pinned must stay alive and unchanged until the
// stream has passed the copy, like pinned memory.
func (d *Driver) MemcpyHtoDAsync(dst uint64, src unsafe.Pointer, bytes uint64, stream uintptr) error {
	return call(d, fnMemcpyHtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), stream)
}

// MemcpyDtoHAsync queues a copy to host memory, which must stay alive until the stream has passed it.
func (d *Driver) MemcpyDtoHAsync(dst unsafe.Pointer, src uint64, bytes uint64, stream uintptr) error {
	return call(d, fnMemcpyDtoHAsync, uintptr(dst), uintptr(src), uintptr(bytes), stream)
}

// MemcpyDtoDAsync queues a copy within the GPU.
func (d *Driver) MemcpyDtoDAsync(dst, src, bytes uint64, stream uintptr) error {
	return call(d, fnMemcpyDtoDAsync, uintptr(dst), uintptr(src), uintptr(bytes), stream)
}

// MemsetD8Async queues setting n bytes.
func (d *Driver) MemsetD8Async(dst uint64, value uint8, n uint64, stream uintptr) error {
	return call(d, fnMemsetD8Async, uintptr(dst), uintptr(value), uintptr(n), stream)
}

// MemsetD32Async queues setting n words of 4 bytes.
func (d *Driver) MemsetD32Async(dst uint64, value uint32, n uint64, stream uintptr) error {
	return call(d, fnMemsetD32Async, uintptr(dst), uintptr(value), uintptr(n), stream)
}

// StreamCreate makes a stream.
func (d *Driver) StreamCreate(flags uint32) (stream uintptr, err error) {
	err = call(d, fnStreamCreate, uintptr(unsafe.Pointer(&stream)), uintptr(flags))
	return stream, err
}

// StreamCreateWithPriority makes a stream whose kernels go before those of streams of higher numbers; others have 0. The driver takes what it has nearest to that.
func (d *Driver) StreamCreateWithPriority(flags uint32, priority int32) (stream uintptr, err error) {
	err = call(d, fnStreamCreateWithPriority, uintptr(unsafe.Pointer(&stream)), uintptr(flags), uintptr(priority))
	return stream, err
}

// StreamDestroy frees a stream once its work is done, and does not wait for it.
func (d *Driver) StreamDestroy(stream uintptr) error { return call(d, fnStreamDestroy, stream) }

// StreamSynchronize waits for the stream's work, and reports the faults of earlier kernels.
func (d *Driver) StreamSynchronize(stream uintptr) error { return call(d, fnStreamSynchronize, stream) }

// StreamWaitEvent holds back the stream's later work until the event has passed.
func (d *Driver) StreamWaitEvent(stream, event uintptr) error {
	return call(d, fnStreamWaitEvent, stream, event, 0)
}

// EventCreate makes an event.
func (d *Driver) EventCreate(flags uint32) (event uintptr, err error) {
	err = call(d, fnEventCreate, uintptr(unsafe.Pointer(&event)), uintptr(flags))
	return event, err
}

// EventDestroy frees an event.
func (d *Driver) EventDestroy(event uintptr) error { return call(d, fnEventDestroy, event) }

// EventRecord sets the event to the stream's present end.
func (d *Driver) EventRecord(event, stream uintptr) error {
	return call(d, fnEventRecord, event, stream)
}

// EventSynchronize waits until the event has passed.
func (d *Driver) EventSynchronize(event uintptr) error { return call(d, fnEventSynchronize, event) }

// EventQuery tells whether the event has passed.
func (d *Driver) EventQuery(event uintptr) (passed bool, err error) {
	err = call(d, fnEventQuery, event)
	if e := (*Error)(nil); errors.As(err, &e) && e.Code == ErrorNotReady {
		return false, nil
	}
	return err == nil, err
}

// EventElapsedTime is the time between two events in milliseconds. Errors: ErrorNotReady before both have passed.
func (d *Driver) EventElapsedTime(from, to uintptr) (ms float32, err error) {
	err = call(d, fnEventElapsedTime, uintptr(unsafe.Pointer(&ms)), from, to)
	return ms, err
}

// ModuleLoadData loads a cubin, which the driver copies.
func (d *Driver) ModuleLoadData(image []byte) (module uintptr, err error) {
	if len(image) == 0 {
		return 0, d.failure(fnModuleLoadData, ErrorInvalidValue)
	}
	err = call(d, fnModuleLoadData, uintptr(unsafe.Pointer(&module)), uintptr(unsafe.Pointer(&image[0])))
	return module, err
}

// ModuleUnload frees a module.
func (d *Driver) ModuleUnload(module uintptr) error { return call(d, fnModuleUnload, module) }

// ModuleGetFunction finds a kernel by its linker name. Errors: ErrorNotFound.
func (d *Driver) ModuleGetFunction(module uintptr, name string) (function uintptr, err error) {
	c := append([]byte(name), 0)
	err = call(d, fnModuleGetFunction, uintptr(unsafe.Pointer(&function)), module, uintptr(unsafe.Pointer(&c[0])))
	return function, err
}

// ModuleGetGlobal is the size in bytes of a variable. Errors: ErrorNotFound.
func (d *Driver) ModuleGetGlobal(module uintptr, name string) (bytes int64, err error) {
	c := append([]byte(name), 0)
	err = call(d, fnModuleGetGlobal, 0, uintptr(unsafe.Pointer(&bytes)), module, uintptr(unsafe.Pointer(&c[0])))
	return bytes, err
}

// FuncSetAttribute sets a CUfunction_attribute of a kernel.
func (d *Driver) FuncSetAttribute(function uintptr, attribute, value int32) error {
	return call(d, fnFuncSetAttribute, function, uintptr(attribute), uintptr(value))
}

// LaunchKernel queues a kernel of one dimension that takes one parameter, which the driver copies. Errors of the
// kernel itself show at a later call.
func (d *Driver) LaunchKernel(function uintptr, blocks, threads, shared uint32, stream uintptr, param unsafe.Pointer) error {
	params := [1]unsafe.Pointer{param}
	return call(d, fnLaunchKernel, function, uintptr(blocks), 1, 1, uintptr(threads), 1, 1, uintptr(shared), stream,
		uintptr(unsafe.Pointer(&params)), 0)
}
