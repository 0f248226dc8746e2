package device

import (
	"encoding/json"
	"errors"
	"fmt"
	"unsafe"
)

// ErrCapturing says that CUDA is recording a stream into a graph, and that the call cannot be part of one.
var ErrCapturing = errors.New("the stream is being captured into a CUDA graph")

// Wrap makes a slice of n elements of memory that others made, at an address that kernels of d can use. On a GPU that
// is a CUdeviceptr, such as of cuDF, of a PyTorch tensor, of a buffer of an ArrowDeviceArray, or of C by way of cgo. On
// the CPU device it is any memory of this process. Nothing is copied. The memory stays its owner's: Free and FreeAfter
// wait for what uses it, and then only forget it. It must live until then. Go memory must be kept alive, and must not
// be on a stack.
//
// Wrap does not wait for work that others have put on a stream of theirs: use that stream (see StreamOf), or let the
// work end before.
//
// Errors: a negative length; an address at which kernels cannot read elements of T (see Slice.On); a first or last byte
// that is no memory of this device, such as of another GPU. The bytes between are taken on trust. Cost: some
// microseconds.
func Wrap[T any](d *Device, addr uint64, n int) (Slice[T], error) {
	var zero T
	a, err := newAllocation(d, "Wrap", n, unsafe.Sizeof(zero))
	if err != nil {
		return Slice[T]{}, err
	}
	a.addr, a.others, a.release = addr, true, func() error { return nil }
	s := Slice[T]{a, addr, n}
	err = s.On(d)
	if err == nil {
		err = d.do(func() error { return d.b.wrap(addr, a.bytes) })
	}
	if err != nil {
		return Slice[T]{}, fmt.Errorf("device.Wrap: %w", err)
	}
	return s, nil
}

// Handle is CUDA's own name for a stream, a CUstream, for libraries that put work on it. On the CPU it is a number. It
// is good until the stream is closed.
func (st *Stream) Handle() uintptr {
	if st.x.d == nil {
		panic(errUnmade.Error())
	}
	st.x.outside.Store(true)
	st.x.d.b.lend()
	return st.x.h
}

// StreamOf makes a Stream of a stream that others made. On a GPU, handle is a CUstream of its primary context, which is
// that of the CUDA runtime, and so of PyTorch and cuDF; 0 is the legacy default stream. On the CPU device it is a
// Handle. What is queued on the Stream comes behind what its owner has put there. Close and the device's Close forget
// it: they neither wait for its work, nor destroy it. It must live until then.
//
// Errors: a stream of another GPU or context; the default stream of a thread, because goroutines change threads.
func StreamOf(d *Device, handle uintptr) (*Stream, error) {
	s := &Stream{}
	s.x.outside.Store(true)
	err := s.x.open(d, "stream", func() (uintptr, error) { return handle, d.b.adopt(handle) }, func(backend, uintptr) error { return nil })
	if err != nil {
		return nil, fmt.Errorf("device.StreamOf: %w", err)
	}
	return s, nil
}

// Capturing tells whether CUDA is recording what is put on the stream into a graph, because the stream's owner has told
// the driver to. Only a stream of StreamOf can be captured, or one whose Handle was asked for, or one that waits for an
// event of such a stream.
//
// A graph may capture copies, fills and launches, and with these a table's FindOn and ContainsOn. What has to look at
// results, and so all that changes a table, is ErrCapturing. A table's look-up waits, on the host, for changes that
// were queued before. Later changes know nothing of the graph: whoever launches it sees to it that the table does not
// change meanwhile. The graph has the addresses of the table's memory. So it must be captured anew when the table has
// grown, was rebuilt or loaded, or is closed.
//
// While any stream of a GPU is captured, Free and Close wait in vain: CUDA then lets nobody wait for all of a GPU's
// work, and ends the capture of whoever tries. FreeAfter, Sync and tables' batches on other streams do no harm.
func (st *Stream) Capturing() (bool, error) {
	if !st.x.outside.Load() {
		return false, nil
	}
	var captured bool
	err := st.x.d.use(func() (err error) { captured, err = st.x.d.b.capturing(st.x.h); return err }, &st.x)
	return captured, err
}

// waiting is use for a call that waits for the stream, which no graph captures.
func (d *Device) waiting(call func() error, of ...*handle) error {
	return d.use(func() error {
		for _, h := range of {
			if !h.outside.Load() {
				continue
			}
			if captured, err := d.b.capturing(h.h); err != nil {
				return err
			} else if captured {
				return fmt.Errorf("%s: %w: what waits for it cannot be part of one", d.infos.Name, ErrCapturing)
			}
		}
		return call()
	}, of...)
}

// MakeShared does what Make does, for memory that Export can hand to other processes. On a GPU it takes whole pieces of
// 2 MiB, because others see all of a piece. On the CPU device it is shared memory without a file's name.
func MakeShared[T any](d *Device, n int) (Slice[T], error) { return makeSlice[T](d, n, shared) }

// exported is what Export writes.
type exported struct {
	Device string `json:"device"` // a GPU's UUID; "cpu"
	Memory []byte `json:"memory"` // the back end's name of the allocation
	Offset int64  `json:"offset"` // in it
	Bytes  int64  `json:"bytes"`
}

// where tells devices apart in all processes of a host.
func (d *Device) where() string {
	if d.infos.CUDA() {
		return d.infos.UUID
	}
	return "cpu"
}

// Export gives a few hundred bytes with which another process of this host and user can Import the memory of s. They
// are JSON. s is of MakeShared; on a GPU also of Make, or memory of others that cudaMalloc gave. The memory must live
// until the other process has freed its import. What is queued on the memory should be done (see Stream.Sync) before
// the other process is told.
//
// Errors: memory that cannot be shared, such as of MakePooled, of a Range, of cudaMallocAsync, or of the host;
// ErrFreed.
func Export[T any](s Slice[T]) ([]byte, error) {
	if s.a == nil {
		return nil, errors.New("device.Export: an empty slice")
	}
	d := s.a.d
	if err := s.On(d); err != nil {
		return nil, fmt.Errorf("device.Export: %w", err)
	}
	x := exported{Device: d.where(), Bytes: s.Bytes()}
	err := d.do(func() error {
		base, memory, err := d.b.share(s.addr)
		x.Memory, x.Offset = memory, int64(s.addr-base)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("device.Export: %w (MakeShared gives memory that can be exported)", err)
	}
	return json.Marshal(x)
}

// Import gives the memory that another process exported, as elements of T, on the same GPU, or on the CPU device. Each
// process sees what the other writes; they must agree on who may write when. Free waits for what uses the memory here,
// gives the mapping back, and leaves the memory to its maker. The memory counts for no bound of WithMemory.
//
// Errors: text that is not Export's; memory of another device, or that is gone; on a GPU, memory of this very process;
// a size that is no whole number of elements.
func Import[T any](d *Device, export []byte) (Slice[T], error) {
	s, err := importSlice[T](d, export)
	if err != nil {
		return Slice[T]{}, fmt.Errorf("device.Import: %w", err)
	}
	return s, nil
}

func importSlice[T any](d *Device, export []byte) (s Slice[T], err error) {
	var x exported
	if err := json.Unmarshal(export, &x); err != nil {
		return s, fmt.Errorf("not what Export gives: %w", err)
	}
	if x.Device != d.where() {
		return s, fmt.Errorf("memory of device %s given to %s, which is %s", x.Device, d.infos.Name, d.where())
	}
	size := int64(unsafe.Sizeof(*new(T)))
	if x.Offset < 0 || x.Bytes < 0 || x.Offset > 1<<62-x.Bytes || size == 0 || x.Bytes%size != 0 {
		return s, fmt.Errorf("%d bytes at %d, wanted as elements of %d bytes: not a size", x.Bytes, x.Offset, size)
	}
	a, err := newAllocation(d, "Import", int(x.Bytes), 1)
	if err != nil {
		return s, err
	}
	a.others = true
	err = d.do(func() error {
		base, err := d.b.openShared(x.Memory, x.Offset+x.Bytes)
		if err != nil {
			return err
		}
		a.addr, a.release = base+uint64(x.Offset), func() error { return d.b.closeShared(base) }
		if err := d.b.wrap(a.addr, a.bytes); err != nil {
			return errors.Join(err, a.release())
		}
		d.liveMu.Lock()
		defer d.liveMu.Unlock()
		d.live[a] = struct{}{}
		return nil
	})
	if err != nil {
		return s, err
	}
	s = Slice[T]{a, a.addr, int(x.Bytes / size)}
	if err := s.On(d); err != nil {
		return Slice[T]{}, errors.Join(err, s.Free())
	}
	return s, nil
}
