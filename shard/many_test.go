package shard

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// A key with more values on all devices together than 32 bits count has no offsets: that is an error, and no number is
// cut off.
func TestOffsetsOfTooManyValues(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	m, err := NewMultiMap([]*device.Device{d}, Options{},
		func(d *device.Device, o table.Options) (table.MultiMap[uint32, uint32], error) {
			return warpcore.NewMultiMap[uint32, uint32](d, warpcore.Options{Options: o})
		})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for n, too := range map[int]bool{0: false, 1: true, 2: true} { // keys with too many, in chunks of their own
		counts := make([]uint32, 4*listChunk)
		counts[3] = 1<<32 - 2
		for i := range n {
			counts[i*2*listChunk] = 1<<32 - 1
		}
		in, err := device.From(d, counts)
		if err != nil {
			t.Fatal(err)
		}
		offsets, err := device.Make[uint64](d, len(counts)+1)
		if err != nil {
			t.Fatal(err)
		}
		total, err := m.x.(*cluster).members[0].offsets(d.Stream(), in, offsets)
		switch {
		case too && (err == nil || !strings.Contains(err.Error(), "2³²-1 values")):
			t.Errorf("%d keys with too many: %d values, %v", n, total, err)
		case !too && (err != nil || total != 1<<32-2):
			t.Errorf("%d values, %v, want %d", total, err, uint32(1<<32-2))
		}
		in.Free()
		offsets.Free()
	}
}
