package text

import (
	"fmt"
	"runtime"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
)

// Keys are n keys of any bytes, in the form of Arrow's string and binary arrays: key i is
// Bytes[offsets[i]:offsets[i+1]]. The offsets are Offsets, or Offsets32 where Offsets is nil; there is one more of them
// than keys. The zero value has no keys. Keys may be empty, may hold NULs, and need not be UTF-8.
type Keys struct {
	Bytes     []byte
	Offsets   []int64
	Offsets32 []int32
}

// Of copies keys into the form of Keys.
func Of[S ~string | ~[]byte](keys ...S) Keys {
	offsets, n := make([]int64, len(keys)+1), int64(0)
	for i, k := range keys {
		n += int64(len(k))
		offsets[i+1] = n
	}
	out := Keys{Bytes: make([]byte, n), Offsets: offsets}
	fill := func(from, to int) {
		for i := from; i < to; i++ {
			copy(out.Bytes[offsets[i]:], keys[i])
		}
	}
	const least = 1 << 15 // of a goroutine: copying so many takes half a millisecond, for keys lie anywhere
	if len(keys) < 2*least {
		fill(0, len(keys))
		return out
	}
	var wg crash.WaitGroup
	each := max(least, (len(keys)-1)/runtime.GOMAXPROCS(0)+1)
	for from := 0; from < len(keys); from += each {
		wg.Go(func() { fill(from, min(from+each, len(keys))) })
	}
	wg.Wait()
	return out
}

// Arrow gives the offsets and the bytes of an Arrow array as keys, without a copy. array.String has offsets of 4 bytes
// and array.LargeString of 8, and so have the arrays of binary values. If an array is a slice of another, what its
// ValueBytes gives begins at its first offset; Arrow sees that by the length. A null is what its offsets say, mostly an
// empty key: leave such rows out before.
func Arrow[O int32 | int64](offsets []O, bytes []byte) Keys {
	if n := len(offsets); n > 0 && offsets[0] > 0 && int64(len(bytes)) < int64(offsets[n-1]) && int64(len(bytes)) == int64(offsets[n-1]-offsets[0]) {
		own := make([]int64, n)
		for i, o := range offsets {
			own[i] = int64(o - offsets[0])
		}
		return Keys{Bytes: bytes, Offsets: own}
	}
	switch offsets := any(offsets).(type) {
	case []int32:
		return Keys{Bytes: bytes, Offsets32: offsets}
	case []int64:
		return Keys{Bytes: bytes, Offsets: offsets}
	}
	return Keys{}
}

// Len is the number of keys.
func (k Keys) Len() int { return max(0, len(k.Offsets)+len(k.Offsets32)-1) }

// At gives key i, which shares the memory of k.
func (k Keys) At(i int) []byte {
	from, to := k.offset(i), k.offset(i+1)
	return k.Bytes[from:to:to]
}

// Strings copies the keys out.
func (k Keys) Strings() []string {
	out := make([]string, k.Len())
	for i := range out {
		out[i] = string(k.At(i))
	}
	return out
}

func (k Keys) offset(i int) int64 {
	if k.Offsets != nil {
		return k.Offsets[i]
	}
	return int64(k.Offsets32[i])
}

// Check says why k is no list of keys: it has both kinds of offsets, or offsets that do not ascend within Bytes. Cost: a
// pass over the offsets.
func (k Keys) Check() error {
	if k.Offsets != nil && k.Offsets32 != nil {
		return fmt.Errorf("strings: keys with both Offsets and Offsets32: set one of them")
	}
	if k.Offsets != nil {
		return checkOffsets(k.Offsets, len(k.Bytes))
	}
	return checkOffsets(k.Offsets32, len(k.Bytes))
}

func checkOffsets[O int32 | int64](offsets []O, bytes int) error {
	if len(offsets) == 0 {
		return nil
	}
	before := offsets[0]
	for i, o := range offsets {
		if o < before || o < 0 {
			return fmt.Errorf("strings: offset %d is %d, behind %d (want them to ascend from 0 on)", i, o, before)
		}
		before = o
	}
	if int64(before) > int64(bytes) {
		return fmt.Errorf("strings: the last offset is %d, and there are %d bytes of keys", before, bytes)
	}
	return nil
}

// pick is the keys at some positions.
func (k Keys) pick(positions []int) Keys {
	list := make([][]byte, len(positions))
	for i, p := range positions {
		list[i] = k.At(p)
	}
	return Of(list...)
}

// absentElsewhere keeps of refused positions, which ascend, those whose key stands at none that is not refused.
func (k Keys) absentElsewhere(refused []int) (out []int) {
	in := make(map[string]bool, len(refused))
	for _, p := range refused {
		in[string(k.At(p))] = false
	}
	for i, left := 0, refused; i < k.Len(); i++ {
		if len(left) > 0 && left[0] == i {
			left = left[1:]
		} else if _, asked := in[string(k.At(i))]; asked {
			in[string(k.At(i))] = true
		}
	}
	for _, p := range refused {
		if !in[string(k.At(p))] {
			out = append(out, p)
		}
	}
	return out
}

// KeysOn are keys in device memory: key i is Bytes[Offsets[i]:Offsets[i+1]].
type KeysOn struct {
	Bytes   device.Slice[byte]
	Offsets device.Slice[int64]
}

// Upload copies keys to the device, in memory that Free gives back.
func (k Keys) Upload(d *device.Device) (on KeysOn, err error) {
	if d == nil || d.Stream() == nil {
		return on, fmt.Errorf("strings: no device to bring keys to (see device.Open)")
	}
	if err := k.Check(); err != nil {
		return on, err
	}
	offsets := k.Offsets
	if offsets == nil {
		offsets = make([]int64, len(k.Offsets32))
		for i, o := range k.Offsets32 {
			offsets[i] = int64(o)
		}
	}
	if on.Bytes, err = frame.From(d, k.Bytes); err == nil {
		if on.Offsets, err = frame.From(d, offsets); err != nil {
			on.Bytes.Free()
		}
	}
	return on, err
}

// Free gives the memory back.
func (k KeysOn) Free() error {
	err := k.Bytes.Free()
	if e := k.Offsets.Free(); err == nil {
		err = e
	}
	return err
}

// Len is the number of keys.
func (k KeysOn) Len() int { return max(0, k.Offsets.Len()-1) }
