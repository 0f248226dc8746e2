package table

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// The estimate of distinct keys is near their number, few or many, once or often, of all widths.
func TestDistinct(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			for width := 4; width <= 32; width *= 2 {
				for _, n := range []int{1, 100, 5000, 20000, 300000} {
					for _, each := range []int{1, 3} {
						if err := estimated(d, width, n, each); err != nil {
							t.Errorf("%d keys of %d bytes, %d times: %v", n, width, each, err)
						}
					}
				}
			}
		})
	}
}

func estimated(d *device.Device, width, n, each int) (err error) {
	rng := rand.New(rand.NewPCG(uint64(width), uint64(n)))
	keys := make([]byte, 0, n*each*width)
	for i := range n {
		key := make([]byte, width)
		for j := range key {
			key[j] = byte(i >> (8 * (j % 4)))
		}
		if width > 4 { // which differ in one byte of any place too
			key[rng.IntN(width)] ^= 0x55
		}
		for range each {
			keys = append(keys, key...)
		}
	}
	in, err := device.From(d, keys)
	if err != nil {
		return err
	}
	defer in.Free()
	f := &Frame{}
	if err := f.Open("distinct", d, func() error { return nil }, func() error { return nil }); err != nil {
		return err
	}
	defer f.Close()
	return f.Writing(nil, func(st *device.Stream) error {
		got, err := f.Distinct(st, in.Addr(), width, int64(n*each))
		// Five standard errors: seeds differ, and there are forty estimates.
		if slack := float64(n)*0.082 + 1; err == nil && (float64(got) < float64(n)-slack || float64(got) > float64(n)+slack) {
			err = fmt.Errorf("the estimate is %d", got)
		}
		return err
	})
}
