package device

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device/internal/cu"
)

// wrap asks the driver about the first byte and the last.
func (g *gpu) wrap(addr uint64, bytes int64) error {
	if bytes == 0 {
		return nil
	}
	return g.in(func() error { return firstErr(g.ownMemory(addr), g.ownMemory(addr+uint64(bytes)-1)) })
}

// ownMemory says why an address is no memory of this GPU. Managed memory moves to whoever uses it.
func (g *gpu) ownMemory(addr uint64) error {
	kind, err := g.drv.PointerGetAttribute(cu.PointerMemoryType, addr)
	if e := (*cu.Error)(nil); errors.As(err, &e) && e.Code == cu.ErrorInvalidValue {
		return fmt.Errorf("address %#x is no memory that CUDA knows", addr)
	} else if err != nil {
		return err
	}
	managed, err := g.drv.PointerGetAttribute(cu.PointerIsManaged, addr)
	if err != nil || managed != 0 {
		return err
	}
	if kind != cu.MemoryTypeOfDevice {
		return fmt.Errorf("address %#x is not a GPU's memory: want that of cuMemAlloc, cuMemAllocAsync or cuMemAllocManaged", addr)
	}
	ordinal, err := g.drv.PointerGetAttribute(cu.PointerOrdinal, addr)
	if err == nil && ordinal != int(g.dev) {
		err = fmt.Errorf("address %#x is memory of cuda:%d, not of %s", addr, ordinal, g.about.Name)
	}
	return err
}

// sharedPiece is how much of a GPU's memory another process sees at least.
const sharedPiece = 2 << 20

func (g *gpu) allocShared(bytes int64) (uint64, error) {
	return g.alloc((bytes + sharedPiece - 1) / sharedPiece * sharedPiece)
}

func (g *gpu) share(addr uint64) (base uint64, memory []byte, err error) {
	err = g.in(func() error {
		capable, err := g.drv.PointerGetAttribute(cu.PointerIPC, addr)
		if err != nil {
			return err
		}
		if capable == 0 {
			return fmt.Errorf("memory of a pool, of a range of addresses or of the host, which CUDA does not share")
		}
		if base, _, err = g.drv.MemGetAddressRange(addr); err != nil {
			return err
		}
		h, err := g.drv.IpcGetMemHandle(base)
		for _, word := range h {
			memory = binary.LittleEndian.AppendUint64(memory, word)
		}
		return err
	})
	return base, memory, err
}

func (g *gpu) openShared(memory []byte, bytes int64) (base uint64, err error) {
	var h cu.IpcHandle
	if len(memory) != 8*len(h) {
		return 0, fmt.Errorf("a memory handle of %d bytes (want %d)", len(memory), 8*len(h))
	}
	for i := range h {
		h[i] = binary.LittleEndian.Uint64(memory[8*i:])
	}
	err = g.in(func() (err error) { base, err = g.drv.IpcOpenMemHandle(h); return err })
	if e := (*cu.Error)(nil); errors.As(err, &e) && e.Code == cu.ErrorInvalidContext {
		err = fmt.Errorf("%w: a process cannot import its own memory", err)
	}
	return base, err
}

func (g *gpu) closeShared(base uint64) error {
	return g.in(func() error { return g.drv.IpcCloseMemHandle(base) })
}

// lend is called before others may capture a stream. From then on calls are such as captures of other threads allow: see in.
func (g *gpu) lend() { g.lent.Store(true) }

func (g *gpu) adopt(stream uintptr) error {
	if stream == cu.PerThreadStream {
		return errors.New("the default stream of a thread: goroutines change threads, so name a stream")
	}
	g.lend()
	return g.in(func() error {
		ctx, err := g.drv.StreamGetCtx(stream)
		if err == nil && ctx != g.ctx {
			err = fmt.Errorf("stream %#x is of another GPU or context, not of the primary one of %s", stream, g.about.Name)
		}
		return err
	})
}

func (g *gpu) capturing(stream uintptr) (captured bool, err error) {
	err = g.in(func() (err error) { captured, err = g.drv.StreamIsCapturing(stream); return err })
	return captured, err
}

// relaxed runs calls that must not end a capture that others have under way: without, CUDA forbids allocations and waits of all threads meanwhile.
func (g *gpu) relaxed(calls func() error) error {
	before, err := g.drv.ThreadExchangeStreamCaptureMode(cu.CaptureRelaxed)
	if err != nil {
		return err
	}
	err = calls()
	_, e := g.drv.ThreadExchangeStreamCaptureMode(before)
	return firstErr(err, e)
}
