package frame

import "github.com/warpmap/warpmap/device"

// CountValues implements Count of a multimap: count writes a key's number of values, as u32, at the address of Flags.
func CountValues[K any](f *Frame, keys []K, counts []uint32, count func(st *device.Stream, b Rows) error) error {
	return countUp(f, In(keys), counts, count)
}

func countUp(f *Frame, keys Column, counts []uint32, count func(st *device.Stream, b Rows) error) error {
	if err := f.Family.CheckNamed("counts", keys.n, len(counts)); err != nil {
		return err
	}
	return f.Batch(keys.n, []Column{keys, Out(counts)}, func(st *device.Stream, _, n int, addr []uint64) error {
		return f.Reading(st, func(st *device.Stream) error { return count(st, Rows{Keys: addr[0], Flags: addr[1], N: int64(n)}) })
	})
}

// CountValuesOn implements Count on the device.
func CountValuesOn[K any](f *Frame, st *device.Stream, keys device.Slice[K], counts device.Slice[uint32], count func(st *device.Stream, b Rows) error) error {
	return countUpOn(f, st, keys, counts, count)
}

func countUpOn(f *Frame, st *device.Stream, keys, counts DeviceSlice, count func(st *device.Stream, b Rows) error) error {
	if err := f.CheckOn("counts", st, keys, counts); err != nil {
		return err
	}
	return f.Reading(st, func(st *device.Stream) error {
		if keys.Len() == 0 {
			return nil
		}
		return count(st, Rows{Keys: keys.Addr(), Flags: counts.Addr(), N: int64(keys.Len())})
	})
}

// DeletePairs implements Delete of a multimap, which counts pairs: look waits for the stream, and tells how many were
// erased so far.
func DeletePairs[K any](f *Frame, keys []K, deleted []bool, erase func(st *device.Stream, b Rows) error, look func(*device.Stream) (erased uint64, err error)) (int, error) {
	return removePairs(f, In(keys), deleted, erase, look)
}

func removePairs(f *Frame, keys Column, deleted []bool, erase func(st *device.Stream, b Rows) error, look func(*device.Stream) (erased uint64, err error)) (n int, err error) {
	_, err = remove(f, keys, deleted, func(st *device.Stream, b Rows) error {
		before, err := look(st)
		if err != nil {
			return err
		}
		if err := erase(st, b); err != nil {
			return err
		}
		after, err := look(st)
		n += int(after - before)
		return err
	})
	return n, err
}
