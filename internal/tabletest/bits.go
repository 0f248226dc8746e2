package tabletest

import (
	"encoding/binary"
	"testing"
	"unsafe"
)

// The suite thinks of keys as bits, and of values as a number of 32 bits that every lane of 4 bytes repeats in a form of
// its own, so that a value of two moments shows. A value of 2 bytes is a number of 16 bits.

// KeysOf are the keys with the given bits. A key of more than 8 bytes has the low half of them in its first bytes and the high half in
// its last, so that keys differ in either end alone, too.
func KeysOf[K any](bits []uint64) []K {
	out, raw := elements[K](len(bits))
	for i, x := range bits {
		b := raw(i)
		if len(b) > 8 {
			binary.LittleEndian.PutUint32(b, uint32(x))
			binary.LittleEndian.PutUint32(b[len(b)-4:], uint32(x>>32))
			continue
		}
		var buf [8]byte
		binary.LittleEndian.PutUint64(buf[:], x)
		copy(b, buf[:])
	}
	return out
}

// BitsOf are the bits of keys.
func BitsOf[K any](keys []K) []uint64 {
	out := make([]uint64, len(keys))
	for i := range keys {
		b := unsafe.Slice((*byte)(unsafe.Pointer(&keys[i])), unsafe.Sizeof(keys[i]))
		if len(b) > 8 {
			out[i] = uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint32(b[len(b)-4:]))<<32
			continue
		}
		var buf [8]byte
		copy(buf[:], b)
		out[i] = binary.LittleEndian.Uint64(buf[:])
	}
	return out
}

// elements makes n elements, and the bytes of each.
func elements[T any](n int) ([]T, func(i int) []byte) {
	out := make([]T, n)
	return out, func(i int) []byte { return unsafe.Slice((*byte)(unsafe.Pointer(&out[i])), unsafe.Sizeof(out[i])) }
}

// lane is what the 4 bytes number i of value x hold.
func lane(x uint32, i int) uint32 { return (x + uint32(i)) * (1 + 0x9e3779b8*uint32(i&1)) }

// ValuesOf are the values that stand for the numbers.
func ValuesOf[V any](numbers []uint32) []V {
	out, raw := elements[V](len(numbers))
	for i, x := range numbers {
		b := raw(i)
		if len(b) == 2 {
			binary.LittleEndian.PutUint16(b, uint16(x))
			continue
		}
		for j := 0; j < len(b); j += 4 {
			binary.LittleEndian.PutUint32(b[j:], lane(x, j/4))
		}
	}
	return out
}

// NumbersOf reads values back. It fails the test where the lanes of a value disagree.
func NumbersOf[V any](t testing.TB, values []V) []uint32 {
	t.Helper()
	out := make([]uint32, len(values))
	for i := range values {
		b := unsafe.Slice((*byte)(unsafe.Pointer(&values[i])), unsafe.Sizeof(values[i]))
		if len(b) == 2 {
			out[i] = uint32(binary.LittleEndian.Uint16(b))
			continue
		}
		out[i] = binary.LittleEndian.Uint32(b)
		for j := 4; j < len(b); j += 4 {
			if binary.LittleEndian.Uint32(b[j:]) != lane(out[i], j/4) {
				t.Fatalf("value %d is torn: % x", i, b)
			}
		}
	}
	return out
}

// isZero tells whether a value has no bit set.
func isZero[V any](v V) bool {
	for _, b := range unsafe.Slice((*byte)(unsafe.Pointer(&v)), unsafe.Sizeof(v)) {
		if b != 0 {
			return false
		}
	}
	return true
}

// keyMask are the bits that a key has.
func keyMask[K any]() uint64 {
	var k K
	return ^uint64(0) >> (64 - 8*min(8, unsafe.Sizeof(k)))
}

// numberMask are the bits of a value's number.
func numberMask[V any]() uint32 {
	var v V
	return ^uint32(0) >> (32 - 8*min(4, unsafe.Sizeof(v)))
}
