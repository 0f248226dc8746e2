package frame

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// FindValuesIn does what FindValuesInto does, with room of the caller's for some number of values. If there are more,
// *RoomError tells how many.
func FindValuesIn[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], offsets device.Slice[uint64], values device.Slice[V], find findAll) (int, error) {
	if err := f.CheckOn("", st); err != nil {
		return 0, err
	}
	if err := values.On(f.Device); err != nil {
		return 0, fmt.Errorf("%s: %w", f.Family, err)
	}
	n, err := FindValuesInto(f, st, keys, offsets, func(n int) (device.Slice[V], error) {
		if n > values.Len() {
			return values, &table.RoomError{Values: n, Room: values.Len()}
		}
		return values.Slice(0, n), nil
	}, find)
	if err != nil {
		return 0, err
	}
	return n, nil
}

// FindPages implements FindAll of a multimap page by page. Each page has whole keys in a row, and no more than `most`
// values. page gets the values of keys first, first+1, … at offsets, of which there is one more than keys. It may use
// the table; the slices are good until it returns. If a key has more than `most` values, they come in several pages of
// this key alone.
func FindPages[K, V any](f *Frame, st *device.Stream, keys device.Slice[K], most int, page func(first int, offsets device.Slice[uint64], values device.Slice[V]) error,
	find findAll) (err error) {
	if most < 1 {
		return fmt.Errorf("%s: pages of %d values", f.Family, most)
	}
	if err := f.CheckOn("", st, keys); err != nil {
		return err
	}
	if err := f.Usable(); err != nil || keys.Len() == 0 {
		return err
	}
	// As many keys as would fill a page with one value each, and half as many again: fewer where they have more.
	run := keys.Len()
	if most < run {
		run = min(run, most+most/2)
	}
	offsets, err := device.Make[uint64](f.Device, run+1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, offsets.Free()) }()
	values, err := device.Make[V](f.Device, most)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, values.Free()) }()
	longest := run
	for first := 0; first < keys.Len(); {
		run = min(run, keys.Len()-first)
		at := offsets.Slice(0, run+1)
		n, err := FindValuesIn(f, st, keys.Slice(first, first+run), at, values, find)
		if full := (*table.RoomError)(nil); errors.As(err, &full) {
			if run > 1 {
				run = max(1, min(run/2, int(float64(run)*float64(most)/float64(full.Values)*0.9)))
				continue
			}
			if err := findLong(f, st, keys.Slice(first, first+1), first, most, page, find); err != nil {
				return err
			}
			first++
			continue
		}
		if err != nil {
			return err
		}
		if err := page(first, at, values.Slice(0, n)); err != nil {
			return err
		}
		first += run
		if n < most/2 {
			run = min(2*run, longest)
		}
	}
	return nil
}

// findLong gives page the values of one key, number first, no more than `most` at once. They are found once, so that none of them changes with the table.
func findLong[K, V any](f *Frame, st *device.Stream, key device.Slice[K], first, most int,
	page func(first int, offsets device.Slice[uint64], values device.Slice[V]) error, find findAll) (err error) {
	offsets, all, err := FindValuesOn[K, V](f, st, key, find)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, offsets.Free(), all.Free()) }()
	for from := 0; from == 0 || from < all.Len(); from += most {
		to := min(from+most, all.Len())
		if err := errors.Join(offsets.Write(st, []uint64{0, uint64(to - from)}), st.SyncOf(f.Device)); err != nil {
			return err
		}
		if err := page(first, offsets, all.Slice(from, to)); err != nil {
			return err
		}
	}
	return nil
}
