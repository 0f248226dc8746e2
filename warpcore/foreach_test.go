package warpcore

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// Bodies of sets and counters see each key that is in once, those of the highest patterns too, and a set's no value.
func TestForEachOfSetsAndCounters(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"cpu", "cuda:0"} {
		groups := [][2]int{{1, 1}, {8, 8}}
		if name == "cpu" && !testenv.Long() {
			groups = [][2]int{{8, 1}}
		}
		for _, group := range groups {
			t.Run(fmt.Sprintf("%s/%d", name, group), func(t *testing.T) {
				d, err := device.Open(name)
				if name == "cpu" {
					must(t, err)
				}
				testenv.Require(t, "cuda", err)
				t.Cleanup(func() { must(t, d.Close()) })
				keys := make([]uint32, 500)
				for i := range keys {
					keys[i] = uint32(i) - 4
				}
				s, err := NewSet[uint32](d, Options{FindGroup: group[0]})
				must(t, err)
				t.Cleanup(func() { must(t, s.Close()) })
				_, err = s.Insert(keys, nil)
				must(t, err)
				c, err := NewCounter[uint32, uint64](d, CounterOptions{Options: Options{FindGroup: group[1]}})
				must(t, err)
				t.Cleanup(func() { must(t, c.Close()) })
				must(t, c.Add(append(keys, keys...)))
				asked, err := device.From(d, append(keys, 1<<20, 1<<21))
				must(t, err)
				seen, err := device.From(d, make([]uint32, len(keys)+2))
				must(t, err)
				args := Args{"seen": seen, "first": keys[0]}
				must(t, s.ForEach(nil, asked, `if (key == (u32)index + first) add(&seen[index], 1u);`, args))
				must(t, s.ForAll(nil, `add(&seen[key - first], 10u);`, args))
				must(t, c.ForEach(nil, asked, `if (key == (u32)index + first) add(&seen[index], 50u * (u32)value);`, args))
				must(t, c.ForAll(nil, `add(&seen[key - first], 500u * (u32)value);`, args))
				got, err := seen.Host(nil)
				must(t, err)
				for i, n := range got {
					if want := map[bool]uint32{true: 1111, false: 0}[i < len(keys)]; n != want {
						t.Fatalf("key %d of %d was seen %d times, want %d", i, len(keys), n, want)
					}
				}
				var compile *device.CompileError
				if err := s.ForAll(nil, `add(&seen[0], value);`, args); !errors.As(err, &compile) {
					t.Errorf("the value of a set's key: %v", err)
				}
				must(t, s.Close())
				if err := s.ForAll(nil, "", nil); !errors.Is(err, table.ErrClosed) {
					t.Errorf("a closed set: %v", err)
				}
			})
		}
	}
}
