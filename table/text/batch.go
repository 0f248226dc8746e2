package text

import (
	"errors"
	"fmt"
	"runtime"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// column is a Go slice as bytes, beside the keys of a batch; without a size it is left out.
type column struct {
	bytes []byte
	size  int
	out   bool
}

func columnOf[T any](s []T) column {
	var zero T
	size := int(unsafe.Sizeof(zero))
	if s == nil {
		return column{}
	}
	return column{unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*size), size, false}
}

func outOf[T any](s []T) column {
	c := columnOf(s)
	c.out = true
	return c
}

// valuesOf sees n values in bytes, or copies them where they are not aligned.
func valuesOf[V any](b []byte, n int) []V {
	out := make([]V, n)
	copy(unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(out))), len(b)), b)
	return out
}

// addr is where a slice's memory lies; 0 for none.
func addr[T any](s []T) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(s)))) }

func (c *core) checkKeys(keys Keys, names string, lens ...int) error {
	if err := c.f.Locked(func() error { return nil }); err != nil {
		return err
	}
	if err := keys.Check(); err != nil {
		return err
	}
	return family.CheckNamed(names, keys.Len(), lens...)
}

// rowCount is a slice of the device, for CheckOn, of which there is one more than keys.
type rowCount struct {
	frame.DeviceSlice
	n int
}

func (r rowCount) Len() int { return r.n }

func (c *core) checkOn(st *device.Stream, keys KeysOn, names string, columns ...frame.DeviceSlice) error {
	if err := family.CheckNamedOn(names, c.f.Device, st, append([]frame.DeviceSlice{rowCount{keys.Offsets, keys.Len()}}, columns...)...); err != nil {
		return err
	}
	return family.CheckOn(c.f.Device, st, keys.Bytes)
}

func (c *core) rowsOn(keys KeysOn, values, flags uint64) rows {
	return rows{bytes: keys.Bytes.Addr(), offsets: keys.Offsets.Addr(), wide: 1, limit: uint64(keys.Bytes.Len()), n: int64(keys.Len()), values: values, flags: flags}
}

// sound refuses offsets on the device that are none: it waits for the stream.
func (c *core) sound(st *device.Stream, r rows) error {
	p := c.params(r)
	if err := errors.Join(frame.InTurn(
		func() error { return c.begin(st) },
		func() error { return c.launch(st, c.k.check, r.n, &p) },
	), c.counts.Look(st)); err != nil {
		return err
	}
	if bad := c.counts.Seen.Bad; bad > 0 {
		return fmt.Errorf("%s: %d of %d keys have offsets that do not ascend, or lead beyond the %d bytes of keys", family, bad, r.n, r.limit)
	}
	return nil
}

// A batch of Go's memory goes to a GPU in pieces of so many bytes of keys, at most, unless one key has more.
const (
	pieceBytes = 64 << 20
	pieceRows  = 1 << 22
	leastPiece = 1 << 9 // of keys and their offsets; smaller ones are not tried
)

// batch calls op with each piece of a batch on the device, from row first on. The CPU device sees Go's memory, and takes it whole. Where there is no memory for
// a piece of a few rows, short is called, or is nil: then that is the error. What op has no memory for is op's to tell: it is not tried again.
func (c *core) batch(keys Keys, values, flags column, op func(st *device.Stream, first int, r rows) error, short func(first, n int, err error) error) error {
	n := keys.Len()
	if n == 0 {
		return nil
	}
	var held runtime.Pinner // and so none of it is on a stack, which moves
	defer held.Unpin()
	r := rows{bytes: addr(keys.Bytes), limit: uint64(len(keys.Bytes)), n: int64(n), values: addr(values.bytes), flags: addr(flags.bytes)}
	for _, b := range [][]byte{keys.Bytes, values.bytes, flags.bytes} {
		if len(b) > 0 {
			held.Pin(unsafe.SliceData(b))
		}
	}
	if keys.Offsets != nil {
		held.Pin(unsafe.SliceData(keys.Offsets))
		r.offsets, r.wide = addr(keys.Offsets), 1
	} else {
		held.Pin(unsafe.SliceData(keys.Offsets32))
		r.offsets = addr(keys.Offsets32)
	}
	aligned := values.size == 0 || r.values%uint64(values.size) == 0 // values of 16 bytes that Go aligns to 8
	if !c.f.Device.Info().CUDA() && aligned {
		err := op(c.f.Device.Stream(), 0, r)
		runtime.KeepAlive(keys)
		return err
	}
	most := int64(pieceBytes)
	for first := 0; first < n; {
		rows := min(n-first, pieceRows)
		for rows > 1 && keys.offset(first+rows)-keys.offset(first) > most {
			rows = (rows + 1) / 2
		}
		begun, err := c.piece(keys, first, rows, values, flags, op)
		if device.IsOutOfMemory(err) && !begun {
			if held := keys.offset(first+rows) - keys.offset(first) + 8*int64(rows); rows > 1 && held > leastPiece {
				most = min(most, held) / 4
				continue
			}
			if short != nil {
				err = short(first, rows, err)
			}
		}
		if err != nil {
			return err
		}
		first += rows
	}
	return nil
}

// piece copies rows to the device, calls op, and copies back what it wrote, be it before an error of op's. begun tells whether op was called.
func (c *core) piece(keys Keys, first, n int, values, flags column, op func(st *device.Stream, first int, r rows) error) (begun bool, err error) {
	from, to := keys.offset(first), keys.offset(first+n)
	offsets := columnOf(keys.Offsets)
	if offsets.size == 0 {
		offsets = columnOf(keys.Offsets32)
	}
	columns := []column{{keys.Bytes[from:to], 1, false}, {offsets.bytes[first*offsets.size : (first+n+1)*offsets.size], offsets.size, false}, values, flags}
	total := int64(0)
	var at [4]int
	for i := range columns {
		if col := &columns[i]; i >= 2 && col.size > 0 {
			col.bytes = col.bytes[first*col.size : (first+n)*col.size]
		}
		at[i] = int(total)
		total = frame.Align(total + int64(len(columns[i].bytes)))
	}
	st := c.f.Device.Stream()
	mem, err := device.MakePooled[byte](c.f.Device, int(total+256))
	if device.IsOutOfMemory(err) && frame.ReleaseStaging(c.f.Device) > 0 { // the lock, and with it the table's scratch memory, is op's
		mem, err = device.MakePooled[byte](c.f.Device, int(total+256))
	}
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, mem.FreeAfter(st)) }()
	part := func(i int) device.Slice[byte] { return mem.Slice(at[i], at[i]+len(columns[i].bytes)) }
	for i, col := range columns {
		if !col.out {
			if err := part(i).Write(st, col.bytes); err != nil {
				return false, err
			}
		}
	}
	r := rows{bytes: part(0).Addr() - uint64(from), offsets: part(1).Addr(), wide: uint64(offsets.size/4 - 1), limit: uint64(to), n: int64(n)}
	if values.size > 0 {
		r.values = part(2).Addr()
	}
	if flags.size > 0 {
		r.flags = part(3).Addr()
	}
	err = op(st, first, r)
	for i, col := range columns {
		if col.out && len(col.bytes) > 0 {
			err = errors.Join(err, part(i).Read(st, col.bytes))
		}
	}
	return true, err
}
