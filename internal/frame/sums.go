package frame

import (
	"errors"

	"github.com/warpmap/warpmap/device"
)

// Sums are the keys of a batch and the sum of the values of each. A key may come several times. The columns may have
// more memory than N rows take.
type Sums struct {
	N            int
	Keys, Values device.Slice[byte]
}

// MakeSums returns memory for n sums.
func MakeSums(d *device.Device, n, keyBytes, valueBytes int) (s Sums, err error) {
	s.Keys, err = device.MakePooled[byte](d, n*keyBytes)
	if err == nil {
		s.Values, err = device.MakePooled[byte](d, n*valueBytes)
	}
	if err != nil {
		err = errors.Join(err, s.Free())
		s = Sums{}
	}
	return s, err
}

// Free frees the memory after the work that is on the streams now.
func (s Sums) Free(streams ...*device.Stream) error {
	return errors.Join(s.Keys.FreeAfter(streams...), s.Values.FreeAfter(streams...))
}

// Shrink returns the sums in memory of their size, if that of most sums is much larger. If there is no memory to copy
// them, they stay as they are.
func (s Sums) Shrink(st *device.Stream, most, keyBytes, valueBytes int) (Sums, error) {
	if s.N > most/2 {
		return s, nil
	}
	small, err := MakeSums(s.Keys.Device(), s.N, keyBytes, valueBytes)
	if device.IsOutOfMemory(err) {
		return s, nil
	}
	if err == nil {
		small.N = s.N
		err = InTurn(
			func() error { return small.Keys.CopyFrom(st, s.Keys.Slice(0, small.Keys.Len())) },
			func() error { return small.Values.CopyFrom(st, s.Values.Slice(0, small.Values.Len())) },
		)
	}
	if err != nil {
		return Sums{}, errors.Join(err, small.Free(st), s.Free(st))
	}
	return small, s.Free(st)
}
