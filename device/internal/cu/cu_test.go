package cu

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap/device/internal/cu/cufake"
)

// open returns a driver over a fake, with a context current on the test's thread.
func open(t *testing.T) (*Driver, *cufake.Fake) {
	t.Helper()
	f := cufake.New(t)
	d, err := Open(f.Path)
	if err != nil {
		t.Fatal(err)
	}
	check(t, d.Init())
	runtime.LockOSThread()
	t.Cleanup(runtime.UnlockOSThread)
	ctx, err := d.DevicePrimaryCtxRetain(0)
	check(t, err)
	check(t, d.CtxSetCurrent(ctx))
	return d, f
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func code(t *testing.T, err error, want Result) *Error {
	t.Helper()
	var e *Error
	if !errors.As(err, &e) || e.Code != want {
		t.Fatalf("error %v, want CUresult %d", err, want)
	}
	return e
}

func TestOpenMissing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "libcuda.so.1")
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("a missing driver: %v", err)
	}
	if err := os.WriteFile(path, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a file that is no library was opened")
	}
	if _, err := Open("libc.so.6"); err == nil || !strings.Contains(err.Error(), "no CUDA driver") {
		t.Errorf("a library that is no driver: %v", err)
	}
}

func TestOpenTwice(t *testing.T) {
	f := cufake.New(t)
	a, err := Open(f.Path)
	check(t, err)
	b, err := Open(f.Path)
	check(t, err)
	if a != b || a.Path() != f.Path {
		t.Errorf("opened twice: %p %p, path %s", a, b, a.Path())
	}
}

func TestDevices(t *testing.T) {
	d, _ := open(t)
	n, err := d.DeviceGetCount()
	check(t, err)
	v, err := d.DriverGetVersion()
	check(t, err)
	dev, err := d.DeviceGet(1)
	check(t, err)
	name, err := d.DeviceGetName(dev)
	check(t, err)
	id, err := d.DeviceGetUUID(dev)
	check(t, err)
	major, err := d.DeviceGetAttribute(AttributeMajor, dev)
	check(t, err)
	total, err := d.DeviceTotalMem(dev)
	check(t, err)
	if n != 2 || v != 12080 || dev != 1 || name != "Fake GPU 1" || id != [16]byte{2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2} || major != 9 || total != 1<<20 {
		t.Errorf("%d devices, version %d, device %d %q %v, major %d, %d bytes", n, v, dev, name, id, major, total)
	}
	_, err = d.DeviceGet(2)
	code(t, err, ErrorInvalidDevice)
}

func TestNoDevice(t *testing.T) {
	f := cufake.New(t)
	f.Set("devices", 0)
	d, err := Open(f.Path)
	check(t, err)
	e := code(t, d.Init(), ErrorNoDevice)
	if want := "cuInit: no CUDA-capable device is detected (CUDA_ERROR_NO_DEVICE)"; e.Error() != want {
		t.Errorf("%q, want %q", e, want)
	}
}

func TestMemory(t *testing.T) {
	d, f := open(t)
	stream, err := d.StreamCreate(StreamNonBlocking)
	check(t, err)
	urgent, err := d.StreamCreateWithPriority(StreamNonBlocking, -1)
	check(t, err)
	check(t, d.StreamDestroy(urgent))
	a, err := d.MemAlloc(64)
	check(t, err)
	b, err := d.MemAlloc(64)
	check(t, err)
	free, total, err := d.MemGetInfo()
	check(t, err)
	if total != 1<<20 || free != total-128 {
		t.Errorf("%d of %d bytes free", free, total)
	}
	in := [16]uint32{0: 1, 15: 15}
	var out [16]uint32
	check(t, d.MemcpyHtoDAsync(a, unsafe.Pointer(&in), 64, stream))
	check(t, d.MemcpyDtoDAsync(b, a, 64, stream))
	check(t, d.MemsetD8Async(b+4, 0x11, 4, stream))
	check(t, d.MemsetD32Async(b+8, 0x12345678, 2, stream))
	check(t, d.MemcpyDtoHAsync(unsafe.Pointer(&out), b, 64, stream))
	check(t, d.StreamSynchronize(stream))
	if want := [16]uint32{0: 1, 1: 0x11111111, 2: 0x12345678, 3: 0x12345678, 15: 15}; out != want {
		t.Errorf("%#x, want %#x", out, want)
	}
	_, err = d.MemAlloc(1 << 21)
	code(t, err, ErrorOutOfMemory)

	h, err := d.MemHostAlloc(256, HostPortable|HostDeviceMap)
	check(t, err)
	unsafe.Slice((*byte)(h), 256)[255] = 7
	if addr, err := d.MemHostGetDevicePointer(h); err != nil || addr != uint64(uintptr(h)) {
		t.Errorf("address %#x of %p: %v", addr, h, err)
	}
	check(t, d.MemFreeHost(h))
	check(t, d.MemFree(a))
	check(t, d.MemFree(b))
	check(t, d.StreamDestroy(stream))
	check(t, d.DevicePrimaryCtxRelease(0))
	f.NoLeaks()
}

func TestKernelsAndEvents(t *testing.T) {
	d, f := open(t)
	_, err := d.ModuleLoadData([]byte("junk\x00"))
	if e := code(t, err, 200); e.Name != "CUresult 200" || e.Text != "unknown error" {
		t.Errorf("an error without a name: %v", e)
	}
	_, err = d.ModuleLoadData(nil)
	code(t, err, ErrorInvalidValue)
	m, err := d.ModuleLoadData([]byte("\x7fELF add crash\x00"))
	check(t, err)
	_, err = d.ModuleGetFunction(m, "subtract")
	code(t, err, ErrorNotFound)
	k, err := d.ModuleGetFunction(m, "add")
	check(t, err)
	check(t, d.FuncSetAttribute(k, FuncDynamicSharedBytes, 1024))
	stream, err := d.StreamCreate(StreamNonBlocking)
	check(t, err)
	from, err := d.EventCreate(EventDefault)
	check(t, err)
	to, err := d.EventCreate(EventDefault)
	check(t, err)
	addr, err := d.MemAlloc(256)
	check(t, err)
	check(t, d.MemsetD32Async(addr, 5, 64, stream))
	check(t, d.EventRecord(from, stream))
	check(t, d.LaunchKernel(k, 2, 32, 0, stream, unsafe.Pointer(&struct {
		addr, n uint64
		value   uint32
	}{addr, 64, 3})))
	check(t, d.EventRecord(to, stream))
	check(t, d.EventSynchronize(to))
	check(t, d.StreamWaitEvent(stream, to))
	if ms, err := d.EventElapsedTime(from, to); err != nil || ms < 0 || ms > 1000 {
		t.Errorf("%v ms, %v", ms, err)
	}
	var out [64]uint32
	check(t, d.MemcpyDtoHAsync(unsafe.Pointer(&out), addr, 256, stream))
	for i, x := range out {
		if x != 8 {
			t.Fatalf("word %d is %d, want 8", i, x)
		}
	}

	k, err = d.ModuleGetFunction(m, "crash")
	check(t, err)
	check(t, d.LaunchKernel(k, 1, 32, 0, stream, unsafe.Pointer(&out)))
	e := code(t, d.CtxSynchronize(), ErrorIllegalAddress)
	if !e.Code.Sticky() || e.Text != "an illegal memory access was encountered" || f.Get("launches") != 2 {
		t.Errorf("%v; %d launches", e, f.Get("launches"))
	}
	code(t, d.ModuleUnload(m), ErrorIllegalAddress)
}

func TestSticky(t *testing.T) {
	for r, want := range map[Result]bool{
		Success: false, ErrorInvalidValue: false, ErrorOutOfMemory: false, ErrorNotReady: false, ErrorNotFound: false,
		ErrorECCUncorrectable: true, ErrorIllegalAddress: true, 701: false, ErrorLaunchTimeout: true, ErrorAssert: true,
		ErrorHardwareStack: true, ErrorIllegalInstr: true, ErrorMisalignedAddress: true, ErrorInvalidPC: true, ErrorLaunchFailed: true,
		ErrorMPSTerminated: true, ErrorExternalDevice: true, ErrorUnknown: false,
	} {
		if r.Sticky() != want {
			t.Errorf("CUresult %d: sticky %v", r, !want)
		}
	}
}

// The results that calls write through pointers must land right while stacks grow and move, and the collector runs.
func TestMovingStacks(t *testing.T) {
	f := cufake.New(t)
	d, err := Open(f.Path)
	check(t, err)
	var deep func(n int) bool
	deep = func(n int) bool {
		var pad [128]byte
		pad[n%128] = 1
		version, err := d.DriverGetVersion()
		major, err2 := d.DeviceGetAttribute(AttributeMajor, 0)
		name, err3 := d.DeviceGetName(int32(n % 2))
		ok := err == nil && err2 == nil && err3 == nil && version == 12080 && major == 9 && name == "Fake GPU "+string(rune('0'+n%2))
		return ok && pad[n%128] == 1 && (n == 0 || deep(n-1))
	}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				done := make(chan bool)
				go func() { done <- deep(200) }()
				if !<-done {
					t.Error("a call's result was lost")
				}
				runtime.GC()
			}
		})
	}
	wg.Wait()
}
