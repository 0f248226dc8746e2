package warpmap_test

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/sketch"
	"github.com/warpmap/warpmap/table"
)

// Methods of every kind and family, of a map over devices, a cache and the sketches, refuse in a line slices of another
// device, slices of different lengths, a context that is nil, and numbers below 0 or too large; empty batches are none
// of this. TestMisuse has what is zero, freed or closed.
func TestArguments(t *testing.T) {
	d := openCPU(t)
	other, err := device.Open("cpu:1")
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	type subject interface{ Close() error }
	kinds := map[string]func() (subject, error){
		"map over devices": func() (subject, error) {
			return shard.NewMap([]*device.Device{d}, shard.Options{}, func(d *device.Device, o table.Options) (table.Map[uint64, uint64], error) {
				return warpmap.New[uint64, uint64](d, warpmap.Slab, o)
			})
		},
		"cache": func() (subject, error) {
			return cache.New[uint64, uint64](d, cache.Options{Capacity: 24, Lives: true, Policy: cache.Scored})
		},
		"hyperloglog": func() (subject, error) { return sketch.NewHyperLogLog[uint64](d, sketch.HyperLogLogOptions{}) },
		"count-min":   func() (subject, error) { return sketch.NewCountMin[uint64](d, sketch.CountMinOptions{}) },
		"top":         func() (subject, error) { return sketch.NewTop[uint64](d, sketch.TopOptions{Counters: 9}) },
	}
	for kind := table.KindMap; kind <= table.KindFilter; kind++ {
		for _, family := range warpmap.Families(kind) {
			kinds[fmt.Sprint(kind, " of ", family)] = func() (subject, error) {
				switch kind {
				case table.KindMap:
					return warpmap.New[uint64, uint64](d, family, table.Options{})
				case table.KindSet:
					return warpmap.NewSet[uint64](d, family, table.Options{})
				case table.KindCounter:
					return warpmap.NewCounter[uint64, uint64](d, family, table.CounterOptions{})
				case table.KindFilter:
					return warpmap.NewFilter[uint64](d, family, table.FilterOptions{Capacity: 100})
				}
				return warpmap.NewMultiMapOf[uint64, uint64](d, kind, family, table.MultiMapOptions{})
			}
		}
	}
	one, none := func(int) int { return 1 }, func(int) int { return 0 }
	for what, made := range kinds {
		x, err := made()
		if err != nil {
			t.Fatal(err)
		}
		wrong := arguments{d: other, lens: one, right: "device"}
		wrong.try(t, what, x)
		wrong = arguments{d: d, lens: func(i int) int { return 1 + i }, least: 2, right: "elements"}
		wrong.try(t, what, x)
		arguments{d: d, lens: none}.try(t, what, x)
		arguments{d: d, lens: none, noContext: true, right: "nil context"}.try(t, what, x)
		for _, n := range []int{-5, 1 << 62} {
			arguments{d: d, lens: one, number: n, right: fmt.Sprint(n)}.try(t, what, x)
		}
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

// arguments are what try calls all methods with that take such.
type arguments struct {
	d         *device.Device
	lens      func(i int) int // of slice number i
	least     int             // slices that a method has
	noContext bool
	number    int
	right     string // is in each error; "" for none
}

// slicesOf make device slices of the types that methods take.
var slicesOf = map[reflect.Type]func(d *device.Device, n int) (any, error){
	reflect.TypeFor[device.Slice[uint64]]():       deviceSlice[uint64],
	reflect.TypeFor[device.Slice[uint32]]():       deviceSlice[uint32],
	reflect.TypeFor[device.Slice[bool]]():         deviceSlice[bool],
	reflect.TypeFor[device.Slice[table.Op]]():     deviceSlice[table.Op],
	reflect.TypeFor[device.Slice[table.Status]](): deviceSlice[table.Status],
}

func deviceSlice[T any](d *device.Device, n int) (any, error) { return device.From(d, make([]T, n)) }

func (a arguments) try(t *testing.T, what string, x any) {
	t.Helper()
	v := reflect.ValueOf(x)
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		switch {
		case m.Name == "Close", m.Name == "Tell", m.Name == "Merge", strings.HasPrefix(m.Name, "FindAllIn"), strings.HasPrefix(m.Name, "Save"),
			strings.HasSuffix(m.Name, "Text"), m.Name == "Top" && a.number > 0 && what != "top":
			continue // what is asked of them here is right, or wrong for another reason
		}
		var in []reflect.Value
		slices, onDevice, contexts, numbers := 0, 0, 0, 0
		for j := 1; j < m.Type.NumIn(); j++ {
			of := m.Type.In(j)
			switch make := slicesOf[of]; {
			case make != nil:
				s, err := make(a.d, a.lens(slices))
				if err != nil {
					t.Fatal(err)
				}
				defer s.(interface{ Free() error }).Free()
				in = append(in, reflect.ValueOf(s))
				slices, onDevice = slices+1, onDevice+1
			case of.Kind() == reflect.Slice && of.Elem().Kind() != reflect.Struct:
				in = append(in, reflect.MakeSlice(of, a.lens(slices), a.lens(slices)))
				slices++
			case a.noContext && of == reflect.TypeFor[context.Context]():
				in = append(in, reflect.Zero(of))
				contexts++
			case a.number != 0 && of.Kind() == reflect.Int:
				in = append(in, reflect.ValueOf(a.number))
				numbers++
			default:
				in = append(in, argument(t, of, v, false))
			}
		}
		if slices < a.least || a.noContext && contexts == 0 || a.number != 0 && numbers == 0 || a.right == "device" && onDevice == 0 {
			continue
		}
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s: %s with %+v panics: %v", what, m.Name, a, p)
				}
			}()
			out := v.Method(i).Call(in)
			if len(out) == 0 || out[len(out)-1].Type() != reflect.TypeFor[error]() {
				return
			}
			err, _ := out[len(out)-1].Interface().(error)
			if (err != nil) != (a.right != "") || err != nil && (!strings.Contains(err.Error(), a.right) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("%s: %s: %v, want %q", what, m.Name, err, a.right)
			}
		}()
	}
}
