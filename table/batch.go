package table

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
)

// Family is a family's name, which begins the errors that its tables return for bad arguments.
type Family string

// CheckLens checks that a batch's Go slices have as many elements as it has keys. A length below 0 stands for a slice that is
// left out: see OptionalLen.
func (f Family) CheckLens(n int, lens ...int) error {
	for _, l := range lens {
		if l >= 0 && l != n {
			return fmt.Errorf("%s: %d keys beside a slice of %d elements", f, n, l)
		}
	}
	return nil
}

// OptionalLen is the length, for CheckLens, of a slice that may be nil.
func OptionalLen[T any](s []T) int {
	if s == nil {
		return -1
	}
	return len(s)
}

// DeviceSlice is every device.Slice.
type DeviceSlice interface {
	On(*device.Device) error
	Addr() uint64
	Len() int
}

// CheckOn checks the device arguments of a batch before anything is queued: the stream and the slices can be used on the
// device, and all slices are as long as the first, the keys.
func (f Family) CheckOn(d *device.Device, st *device.Stream, slices ...DeviceSlice) error {
	var lens []int
	err := st.On(d)
	for _, s := range slices {
		lens = append(lens, s.Len())
		if err == nil {
			err = s.On(d)
		}
	}
	if err != nil {
		err = fmt.Errorf("%s: %w", f, err)
	}
	if len(lens) > 0 {
		err = errors.Join(f.CheckLens(lens[0], lens[1:]...), err)
	}
	return err
}

// Optional is a slice, for CheckOn, that may be the zero Slice.
func Optional[T any](s device.Slice[T]) DeviceSlice {
	if s.Addr() == 0 {
		return omitted{s}
	}
	return s
}

type omitted struct{ DeviceSlice }

func (omitted) Len() int { return -1 }

// Missing gathers, chunk by chunk, the positions of a batch that an insert did not put in.
type Missing struct {
	Why error // what kept the table from growing

	refused, untried []int
	chunks           int
}

// Add says what became of a chunk, items first … first+n-1 of the batch. Counted from first: the refused found no place, and
// those from untried on were not tried, for want of memory.
func (m *Missing) Add(first, n int, refused []int, untried int, why error) {
	for _, i := range refused {
		m.refused = append(m.refused, first+i)
	}
	for i := untried; i < n; i++ {
		m.untried = append(m.untried, first+i)
	}
	if why != nil {
		m.Why = why
	}
	m.chunks++
}

// None tells that all that was added is in.
func (m *Missing) None() bool { return len(m.refused)+len(m.untried) == 0 }

// Positions are the positions so far, in no order.
func (m *Missing) Positions() []int { return append(m.refused, m.untried...) }

// StrikeOff is called when all chunks are added. keys are the batch's. A key that one chunk refused may have come in with a
// later one: so what was refused is struck off where contains finds its key now. What was not tried stays: its pair is not
// in, whoever put its key in. contains is nil where equal keys are pairs of their own.
func StrikeOff[K any](m *Missing, keys []K, contains func(keys []K, found []bool) error) error {
	if m.chunks <= 1 || len(m.refused) == 0 || contains == nil {
		return nil
	}
	asked, found := make([]K, len(m.refused)), make([]bool, len(m.refused))
	for i, p := range m.refused {
		asked[i] = keys[p]
	}
	err := contains(asked, found)
	out := m.refused[:0]
	for i, p := range m.refused {
		if !found[i] {
			out = append(out, p)
		}
	}
	m.refused = out
	return err
}

// CountAdded counts the flags of an insert that returned err. No kernel wrote those of positions that were not tried: they are
// cleared.
func CountAdded(added []bool, err error) int {
	if full := (*FullError)(nil); errors.As(err, &full) {
		for _, p := range full.Positions {
			added[p] = false
		}
	}
	return Count(added)
}

// Download gives n pairs, which export writes to device memory at two addresses, as Go slices. The stream is waited for. A set
// has no values: then noValues, and address 0.
func Download[K, V any](d *device.Device, st *device.Stream, n int, noValues bool, export func(keys, values uint64) error) (keys []K, values []V, err error) {
	k, err := device.Make[K](d, n)
	if err != nil {
		return nil, nil, err
	}
	defer k.Free()
	var v device.Slice[V]
	if !noValues {
		if v, err = device.Make[V](d, n); err != nil {
			return nil, nil, err
		}
		defer v.Free()
	}
	if err := export(k.Addr(), v.Addr()); err != nil {
		return nil, nil, err
	}
	if keys, err = k.Host(st); err != nil || noValues {
		return keys, nil, err
	}
	values, err = v.Host(st)
	return keys, values, err
}
