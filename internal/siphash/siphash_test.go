package siphash

import "testing"

// The first texts of the reference's vectors, 00 01 02 … under the key 00 01 … 0f, but of SipHash-1-3: rust's core has
// them in its tests.
func TestVectors(t *testing.T) {
	for n, want := range []uint64{0xabac0158050fc4dc, 0xc9f49bf37d57ca93, 0x82cb9b024dc7d44d, 0x8bf80ab8e7ddf7fb,
		0xcf75576088d38328, 0xdef9d52f49533b67, 0xc50d2b50c59f22a7, 0xd3927d989bb11140, 0x369095118d299a8e} {
		text := make([]byte, n)
		for i := range text {
			text[i] = byte(i)
		}
		s := New(0x0706050403020100, 0x0f0e0d0c0b0a0908)
		if got := s.Of(text); got != want {
			t.Errorf("%d bytes: %#x, want %#x", n, got, want)
		}
	}
}
