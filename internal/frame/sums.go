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
