package device

import (
	"fmt"
	"os"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// wrap asks the system whether the first page and the last are mapped.
func (b *cpuBackend) wrap(addr uint64, n int64) error {
	if n == 0 {
		return nil
	}
	page := uint64(os.Getpagesize())
	for _, at := range []uint64{addr, addr + uint64(n) - 1} {
		var resident byte
		if _, _, e := unix.Syscall(unix.SYS_MINCORE, uintptr(at&^(page-1)), uintptr(page), uintptr(unsafe.Pointer(&resident))); e != 0 {
			return fmt.Errorf("address %#x is no memory of this process: %w", at, e)
		}
	}
	return nil
}

// allocShared makes a file in memory, which has no name, and goes when the last process unmaps it.
func (b *cpuBackend) allocShared(n int64) (uint64, error) {
	if err := b.claim(n); err != nil {
		return 0, err
	}
	base, err := b.mapNew(n)
	if err != nil {
		b.unclaim(n)
	}
	return base, err
}

func (b *cpuBackend) mapNew(n int64) (uint64, error) {
	fd, err := unix.MemfdCreate(memoryName, unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("shared memory: %w", err)
	}
	if err = unix.Ftruncate(fd, n); err != nil {
		unix.Close(fd)
		return 0, fmt.Errorf("shared memory of %s: %w", Bytes(n), err)
	}
	base, err := b.mapShared(fd, n, fd)
	if err != nil {
		unix.Close(fd)
	}
	return base, err
}

// mapShared maps a file in memory, which is kept open as `kept`.
func (b *cpuBackend) mapShared(fd int, n int64, kept int) (uint64, error) {
	p, err := unix.MmapPtr(fd, 0, nil, uintptr(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return 0, fmt.Errorf("mapping %s of shared memory: %w", Bytes(n), err)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.shared[uint64(uintptr(p))] = sharedMemory{n, kept}
	return uint64(uintptr(p)), nil
}

// unmapShared takes a mapping off, if that is one. The caller holds the lock.
func (b *cpuBackend) unmapShared(base uint64) (is bool, err error) {
	m, is := b.shared[base]
	if !is {
		return false, nil
	}
	delete(b.shared, base)
	if m.fd >= 0 {
		b.used -= m.bytes
		unix.Close(m.fd)
	}
	return true, munmap(uintptr(base), m.bytes)
}

// sharedName finds the file that an allocation is: by the process that has it open, as which file, and what the system calls it.
type sharedName struct {
	pid, fd int
	inode   uint64
}

func (n sharedName) String() string { return fmt.Sprintf("%d %d %d", n.pid, n.fd, n.inode) }

func (b *cpuBackend) share(addr uint64) (base uint64, memory []byte, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for base, m := range b.shared {
		if m.fd < 0 || addr < base || addr-base >= uint64(m.bytes) {
			continue
		}
		var about unix.Stat_t
		err := unix.Fstat(m.fd, &about)
		return base, []byte(sharedName{os.Getpid(), m.fd, about.Ino}.String()), err
	}
	return 0, nil, fmt.Errorf("address %#x is of this process alone", addr)
}

func (b *cpuBackend) openShared(text []byte, n int64) (uint64, error) {
	var name sharedName
	if _, err := fmt.Sscanf(string(text), "%d %d %d", &name.pid, &name.fd, &name.inode); err != nil {
		return 0, fmt.Errorf("shared memory named %q: %w", text, err)
	}
	// The text may be forged, and name any file that a process of this user has open: so the file is not opened until it
	// is known to be one of mapNew.
	path := fmt.Sprintf("/proc/%d/fd/%d", name.pid, name.fd)
	link, err := os.Readlink(path)
	if err != nil {
		return 0, fmt.Errorf("shared memory of process %d: %w", name.pid, err)
	}
	memory, err := memoryDevice()
	if err != nil {
		return 0, err
	}
	var about unix.Stat_t
	if err := unix.Stat(path, &about); err != nil {
		return 0, fmt.Errorf("shared memory of process %d: %w", name.pid, err)
	}
	if link != "/memfd:"+memoryName+" (deleted)" || uint64(about.Dev) != memory {
		return 0, fmt.Errorf("file %d of process %d is no shared memory of warpmap", name.fd, name.pid)
	}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("shared memory of process %d: %w", name.pid, err)
	}
	defer unix.Close(fd)
	if err := unix.Fstat(fd, &about); err != nil {
		return 0, err
	}
	if uint64(about.Dev) != memory || about.Ino != name.inode || about.Size < n {
		return 0, fmt.Errorf("shared memory of process %d is gone, or smaller than %s", name.pid, Bytes(n))
	}
	return b.mapShared(fd, about.Size, -1)
}

// memoryName is the name of shared memory: /proc shows it, and nothing is found by it.
const memoryName = "warpmap shared memory"

// memoryDevice returns the number of the system's own file system in which files in memory lie, and no file with a path.
var memoryDevice = sync.OnceValues(func() (uint64, error) {
	fd, err := unix.MemfdCreate(memoryName, unix.MFD_CLOEXEC)
	if err != nil {
		return 0, fmt.Errorf("shared memory: %w", err)
	}
	defer unix.Close(fd)
	var about unix.Stat_t
	err = unix.Fstat(fd, &about)
	return uint64(about.Dev), err
})

func (b *cpuBackend) closeShared(base uint64) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	_, err := b.unmapShared(base)
	return err
}
