package gph

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// ForEach sees the pairs of the keys that are there, and ForAll every pair, once; reserved patterns and wide values are as
// users know them, and a table that gave up a poor hash function is still understood.
func TestForEachAndForAll(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d := open(t, name)
			m, err := New[uint32, [2]uint64](d, Options{Options: table.Options{Hash: kernel.HashConstant}})
			must(t, err)
			n := uint32(6)
			for range 2 {
				keys, values := make([]uint32, n), make([][2]uint64, n)
				for i := range keys {
					keys[i] = uint32(i) - 4
					values[i] = [2]uint64{uint64(i), uint64(keys[i])}
				}
				must(t, m.Insert(keys, values))
				asked, err := device.From(d, append(keys, 1<<20, 1<<21))
				must(t, err)
				seen, err := device.From(d, make([]uint32, n+2))
				must(t, err)
				all, err := device.From(d, make([]uint32, n+2))
				must(t, err)
				must(t, m.ForEach(nil, asked, `if (value.lo == index && value.hi == key) add(&seen[index], by);`, Args{"seen": seen, "by": uint32(3)}))
				must(t, m.ForAll(nil, `if (value.hi == key) add(&all[value.lo], 1u);`, Args{"all": all}))
				a, err := seen.Host(nil)
				must(t, err)
				b, err := all.Host(nil)
				must(t, err)
				for i := range n {
					if a[i] != 3 || b[i] != 1 {
						t.Fatalf("pair %d of %d was seen %d times by threes, and %d times", i, n, a[i], b[i])
					}
				}
				if a[n] != 0 || a[n+1] != 0 {
					t.Errorf("absent keys were seen: %d", a[n:])
				}
				n = 1000 // the poor hash function cannot place so many
			}
			if m.core.cfg.hash != kernel.HashMurmur {
				t.Error("a poor hash function placed 1000 keys")
			}
		})
	}
}

func TestForEachRefuses(t *testing.T) {
	d := open(t, "cpu")
	m, err := New[uint32, uint32](d, Options{})
	must(t, err)
	many := Args{}
	for i := range frame.MaxArgs + 1 {
		many[fmt.Sprint("a", i)] = i
	}
	for _, c := range []struct {
		body string
		args Args
		want string
	}{
		{"", Args{"key": 1}, `cannot be named "key"`},
		{"", Args{"a b": 1}, `cannot be named "a b"`},
		{"", Args{"a": nil}, "argument a: nil"},
		{"", Args{"a": "text"}, "argument a: a string"},
		{"", Args{"a": true}, "argument a: a bool"},
		{"", many, "17 arguments (at most 16)"},
		{"no such thing;", nil, "callback:1"},
	} {
		if err := m.ForAll(nil, c.body, c.args); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q with %v: %v, want %q", c.body, c.args, err, c.want)
		}
	}
	must(t, m.Close())
	if err := m.ForAll(nil, "", nil); !errors.Is(err, table.ErrClosed) {
		t.Error(err)
	}
	if err := m.Use(nil, func(Table) error { t.Error("called"); return nil }); !errors.Is(err, table.ErrClosed) {
		t.Error(err)
	}
}
