package frame

import (
	"errors"
	"fmt"
	"math"
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
					if n == 300000 && width != 8 && name == "cpu" && !testenv.Long() {
						continue // what is counted are bits of the key's hash, whatever its width
					}
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
	crowded := n - n/4 // one row in four, at the end, has one key
	for i := range n {
		i = min(i, crowded)
		key := make([]byte, width)
		for j := range key {
			key[j] = byte(i >> (8 * (j % 4)))
		}
		if width > 4 && i < crowded { // which differ in one byte of any place too
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
		got, crowd, err := f.Distinct(st, in.Addr(), width, int64(n*each))
		// Five and a half standard errors: seeds differ, and there are forty estimates. One run in a million is off by more.
		want := float64(min(n, crowded+1))
		if slack := want*0.09 + 1; err == nil && math.Abs(float64(got)-want) > slack {
			err = fmt.Errorf("the estimate is %d", got)
		}
		// A quarter of the rows have a quarter of the rows at their side, the others few.
		if want := float64(n*each) / 16; err == nil && n*each >= 1<<18 && (float64(crowd) < want/2 || float64(crowd) > want*2) {
			err = errors.Join(err, fmt.Errorf("%d rows have the key of a row, want about %.0f", crowd, want))
		}
		return err
	})
}

// Of keys that come eight times, one in eight rows has so many as chance gives, if they are not neighbours; and whole ones, if they are.
func TestDistinctOf(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			const n, share = 1 << 19, 8
			for what, x := range map[string]struct {
				key        func(i int) uint32
				want, most float64 // most: that the estimate may be off
			}{
				// Which of eight chunks are drawn decides how many are of other keys: by 0.25 it is off once in twenty
				// thousand runs, by 0.35 once in a hundred million.
				"in turns":      {func(i int) uint32 { return uint32(i % (n / 8)) }, n / 8 * (1 - math.Pow(7./8, 8)), 0.35},
				"as neighbours": {func(i int) uint32 { return uint32(i / 8) }, n / 8 / share, 0.1},
				"once":          {func(i int) uint32 { return uint32(i) }, n / share, 0.1},
			} {
				keys := make([]uint32, n)
				for i := range keys {
					keys[i] = x.key(i)
				}
				in, err := device.From(d, keys)
				if err != nil {
					t.Fatal(err)
				}
				defer in.Free()
				f := &Frame{}
				if err := f.Open("distinct", d, func() error { return nil }, func() error { return nil }); err != nil {
					t.Fatal(err)
				}
				defer f.Close()
				err = f.Writing(nil, func(st *device.Stream) error {
					distinct, _, read, err := f.DistinctOf(st, in.Addr(), 4, n, share)
					if math.Abs(float64(distinct)-x.want) > x.most*x.want || read != n/share {
						t.Errorf("%s: %d keys among %d rows, want %.0f", what, distinct, read, x.want)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
