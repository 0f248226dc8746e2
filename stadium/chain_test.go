package stadium

import (
	"testing"
)

// A chain visits each bucket of its region once, then each of the next, and its first buckets are in one neighbourhood.
func TestChains(t *testing.T) {
	for _, c := range []config{{4, 4, 8, 0}, {16, 64, 8, 0}, {32, 16, 16, 0}, {4, 4, 1, 0}, {256, 4096, 8, 0}} {
		near := uint64(c.neighbourhood())
		if near&(near-1) != 0 || near <= nearBuckets || c.stretches() && int(near) > 1<<c.cut(stretchBytes, regionShift) {
			t.Fatalf("%v: neighbourhoods of %d", c, near)
		}
		for shift := range uint64(regionShift + 1) {
			table := &Table{Regions: 3, Shift: shift, Seed: shift + 1}
			for n := range uint64(8) {
				key := make([]byte, c.keyBytes)
				key[0] = byte(n)
				p := c.place(table, key)
				begin := p.bucket()
				seen := make([]bool, table.buckets())
				for i := uint64(0); i < table.buckets(); i++ {
					b := p.bucket()
					switch {
					case seen[b]:
						t.Fatalf("%v, regions of 2^%d: bucket %d comes again after %d others", c, shift, b, i)
					case b>>shift != (begin>>shift+i>>shift)%table.Regions:
						t.Fatalf("%v, regions of 2^%d: bucket %d comes after %d others of the first region", c, shift, b, i)
					case i < min(nearBuckets, uint64(1)<<shift) && b/min(near, 1<<shift) != begin/min(near, 1<<shift):
						t.Fatalf("%v, regions of 2^%d: bucket %d is not near %d", c, shift, b, begin)
					}
					seen[b] = true
					p.advance()
				}
			}
		}
	}
}
