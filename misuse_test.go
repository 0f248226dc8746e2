package warpmap_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/cuckoo"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/sketch"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
	"github.com/warpmap/warpmap/warpcore"
)

// The zero value of a table, a cache, a filter or a sketch, and one that is closed, have each of their methods return: with an
// error that is a line, where the method has one. That of a zero value names the function that makes such a thing. Slices that were
// freed, and a device that is nil, are errors, too.
func TestMisuse(t *testing.T) {
	d := openCPU(t)
	limits := table.FilterOptions{Capacity: 100}
	const ofSlab = "New, NewSet or NewMultiMap"
	const ofWarpCore = "New, NewSet, NewCounter, NewMultiMap or NewMultiBucket"
	for _, kind := range []struct {
		zero any
		by   string
		make func(d *device.Device) (any, error)
	}{
		{new(cache.Cache[uint64, uint64]), "New", func(d *device.Device) (any, error) {
			return cache.New[uint64, uint64](d, cache.Options{Capacity: 24, Lives: true})
		}},
		{new(cache.Tiered[uint64, uint64]), "NewTiered", nil},
		{new(cuckoo.Filter[uint64]), "New", func(d *device.Device) (any, error) {
			return cuckoo.New[uint64](d, cuckoo.Options{FilterOptions: limits})
		}},
		{new(warpcore.Filter[uint64]), "NewFilter", func(d *device.Device) (any, error) {
			return warpcore.NewFilter[uint64](d, warpcore.FilterOptions{FilterOptions: limits})
		}},
		{new(sketch.HyperLogLog[uint64]), "NewHyperLogLog", func(d *device.Device) (any, error) {
			return sketch.NewHyperLogLog[uint64](d, sketch.HyperLogLogOptions{})
		}},
		{new(sketch.CountMin[uint64]), "NewCountMin", func(d *device.Device) (any, error) {
			return sketch.NewCountMin[uint64](d, sketch.CountMinOptions{})
		}},
		{new(sketch.Top[uint64]), "NewTop", func(d *device.Device) (any, error) {
			return sketch.NewTop[uint64](d, sketch.TopOptions{Counters: 9})
		}},
		{new(sketch.TextTop), "NewTextTop", nil},
		{new(dycuckoo.Map[uint64, uint64]), "New", func(d *device.Device) (any, error) {
			return dycuckoo.New[uint64, uint64](d, dycuckoo.Options{})
		}},
		{new(gph.Map[uint64, uint64]), "New", func(d *device.Device) (any, error) {
			return gph.New[uint64, uint64](d, gph.Options{})
		}},
		{new(stadium.Map[uint64, uint64]), "New", func(d *device.Device) (any, error) {
			return stadium.New[uint64, uint64](d, stadium.Options{})
		}},
		{new(slab.Map[uint64, uint64]), ofSlab, func(d *device.Device) (any, error) {
			return slab.New[uint64, uint64](d, slab.Options{})
		}},
		{new(slab.Set[uint64]), ofSlab, func(d *device.Device) (any, error) {
			return slab.NewSet[uint64](d, slab.Options{})
		}},
		{new(slab.MultiMap[uint64, uint64]), ofSlab, func(d *device.Device) (any, error) {
			return slab.NewMultiMap[uint64, uint64](d, slab.Options{})
		}},
		{new(warpcore.Map[uint64, uint64]), ofWarpCore, func(d *device.Device) (any, error) {
			return warpcore.New[uint64, uint64](d, warpcore.Options{})
		}},
		{new(warpcore.Set[uint64]), ofWarpCore, func(d *device.Device) (any, error) {
			return warpcore.NewSet[uint64](d, warpcore.Options{})
		}},
		{new(warpcore.Counter[uint64, uint64]), ofWarpCore, func(d *device.Device) (any, error) {
			return warpcore.NewCounter[uint64, uint64](d, warpcore.CounterOptions{})
		}},
		{new(warpcore.MultiMap[uint64, uint64]), ofWarpCore, func(d *device.Device) (any, error) {
			return warpcore.NewMultiMap[uint64, uint64](d, warpcore.Options{})
		}},
		{new(warpcore.MultiBucket[uint64, uint64]), ofWarpCore, func(d *device.Device) (any, error) {
			return warpcore.NewMultiBucket[uint64, uint64](d, warpcore.MultiBucketOptions{})
		}},
		{new(warpcore.BucketList[uint64, uint64]), "NewBucketList", func(d *device.Device) (any, error) {
			return warpcore.NewBucketList[uint64, uint64](d, warpcore.ListOptions{})
		}},
	} {
		callAll(t, "zero", kind.zero, false, func(method string, err error) bool {
			return method == "Close" && err == nil || method != "Close" && err != nil &&
				strings.HasSuffix(err.Error(), " that "+kind.by+" has not made")
		})
		if kind.make == nil {
			continue
		}
		for _, none := range []*device.Device{nil, new(device.Device)} {
			if _, err := kind.make(none); err == nil || !strings.Contains(err.Error(), "no device") {
				t.Errorf("%T on the device %v: %v", kind.zero, none, err)
			}
		}
		made, err := kind.make(d)
		if err != nil {
			t.Fatal(err)
		}
		callAll(t, "freed slices for", made, true, func(method string, err error) bool {
			return errors.Is(err, device.ErrFreed)
		})
		if err := made.(interface{ Close() error }).Close(); err != nil {
			t.Fatal(err)
		}
		callAll(t, "closed", made, false, func(method string, err error) bool {
			return method == "Close" && err == nil || method != "Close" && errors.Is(err, table.ErrClosed) ||
				strings.HasSuffix(method, "Text") || // a sketch of numbers has none
				strings.HasPrefix(method, "FindAllIn") // it has no offsets
		})
	}
}

// The zero values of a device and of what it makes, of a table over devices, of a map of strings and of a slab's
// allocator have their methods return, or panic with words, that name what makes such a thing. Some have nothing to do.
func TestMisuseOfZeroDevices(t *testing.T) {
	const ofDevice = "Open, NewStream, NewEvent, Compile or Reserve"
	const ofShard = "NewMap, NewSet, NewCounter or NewMultiMap"
	for _, kind := range []struct {
		zero         any
		by, harmless string
	}{
		{new(device.Device), ofDevice, "Compile CompileApart Ready"}, // of no program
		{new(device.Stream), ofDevice, "Capturing"},
		{new(device.Event), ofDevice, ""},
		{new(device.Module), ofDevice, "Ready"},
		{new(device.Range), ofDevice, "Free FreeAfter"},
		{new(shard.Map[uint64, uint64]), ofShard, "Tell"},
		{new(shard.Set[uint64]), ofShard, "Tell"},
		{new(shard.Counter[uint64, uint64]), ofShard, "Tell"},
		{new(shard.MultiMap[uint64, uint64]), ofShard, "Tell"},
		{new(shard.Member), "Join", ""},
		{new(text.Map[uint64]), "New", ""},
		{new(slab.Allocator), "NewAllocator", ""},
	} {
		callAll(t, "zero", kind.zero, false, func(method string, err error) bool {
			return err != nil && strings.HasSuffix(err.Error(), " that "+kind.by+" has not made") || method == "Close" ||
				strings.Contains(kind.harmless, method)
		})
	}
	d, none := openCPU(t), new(device.Device)
	keys, err := device.From(d, []uint32{1})
	if err != nil {
		t.Fatal(err)
	}
	defer keys.Free()
	m, err := warpcore.New[uint32, uint32](d, warpcore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	newOver := func(d *device.Device) (*shard.Map[uint32, uint32], error) {
		return shard.NewMap([]*device.Device{d}, shard.Options{}, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			return warpmap.New[uint32, uint32](d, warpmap.WarpCore, o)
		})
	}
	over, err := newOver(d)
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	_, overZero := newOver(none)
	_, overNil := newOver(nil)
	_, auto := warpmap.New[uint32, uint32](none, warpmap.Auto, warpmap.Options{})
	_, strs := warpmap.NewStrings[uint32](none, warpmap.Auto, warpmap.StringsOptions{})
	_, made := device.Make[uint32](none, 1)
	_, peer := d.PeerAccess(none)
	event, err := d.NewEvent()
	if err != nil {
		t.Fatal(err)
	}
	_, since := event.Since(nil)
	for what, err := range map[string]error{
		"FindOn": m.FindOn(new(device.Stream), keys, keys, device.Slice[bool]{}), "On": keys.On(none), "On nil": keys.On(nil),
		"InsertOn of shards": over.InsertOn(new(device.Stream), device.Slice[uint32]{}, device.Slice[uint32]{}),
		"NewMap":             overZero, "NewMap on nil": overNil, "New": auto, "NewStrings": strs, "Make": made, "PeerAccess": peer,
		"Read": keys.Read(new(device.Stream), make([]uint32, 1)), "Wait": d.Stream().Wait(nil), "Wait of zero": d.Stream().Wait(new(device.Event)),
		"Record": event.Record(new(device.Stream)), "Since": since,
	} {
		if err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// callAll calls all methods of x with arguments that are empty; or those that take device slices, with such as were
// freed. Each error must be a line that right accepts, which is told the method, as must be the text of a panic.
func callAll(t *testing.T, state string, x any, freed bool, right func(method string, err error) bool) {
	t.Helper()
	v := reflect.ValueOf(x)
	for i := range v.NumMethod() {
		m := v.Type().Method(i)
		if freed && !strings.HasSuffix(m.Name, "On") {
			continue
		}
		in := []reflect.Value{}
		for j := 1; j < m.Type.NumIn(); j++ {
			in = append(in, argument(t, m.Type.In(j), v, freed))
		}
		func() {
			defer func() {
				p := recover()
				if text, ok := p.(string); p != nil && (!ok || !right(m.Name, errors.New(text))) {
					t.Errorf("%s %T: %s panics: %v", state, x, m.Name, p)
				}
			}()
			call := v.Method(i).Call
			if m.Type.IsVariadic() {
				call = v.Method(i).CallSlice
			}
			out := call(in)
			if len(out) == 0 || out[len(out)-1].Type() != reflect.TypeFor[error]() {
				return
			}
			err, _ := out[len(out)-1].Interface().(error)
			if err != nil && strings.Contains(err.Error(), "\n") || !right(m.Name, err) {
				t.Errorf("%s %T: %s: %v", state, x, m.Name, err)
			}
		}()
	}
}

// argument is one of that type for a method of v.
func argument(t *testing.T, of reflect.Type, v reflect.Value, freed bool) reflect.Value {
	switch {
	case of == reflect.TypeFor[context.Context]():
		return reflect.ValueOf(t.Context())
	case of == reflect.TypeFor[table.Combine]():
		return reflect.ValueOf(table.Add)
	case of == v.Type():
		return v
	case of.Kind() == reflect.Int:
		return reflect.ValueOf(2)
	case of.Kind() == reflect.Func:
		return reflect.MakeFunc(of, func([]reflect.Value) (out []reflect.Value) {
			for i := range of.NumOut() {
				out = append(out, reflect.Zero(of.Out(i)))
			}
			return out
		})
	case !freed:
	case of == reflect.TypeFor[device.Slice[uint64]]():
		return reflect.ValueOf(freedSlice[uint64](t))
	case of == reflect.TypeFor[device.Slice[uint32]]():
		return reflect.ValueOf(freedSlice[uint32](t))
	case of == reflect.TypeFor[device.Slice[bool]]():
		return reflect.ValueOf(freedSlice[bool](t))
	case of == reflect.TypeFor[device.Slice[table.Op]]():
		return reflect.ValueOf(freedSlice[table.Op](t))
	case of == reflect.TypeFor[device.Slice[table.Status]]():
		return reflect.ValueOf(freedSlice[table.Status](t))
	}
	return reflect.Zero(of)
}

func freedSlice[T any](t *testing.T) device.Slice[T] {
	s, err := device.Make[T](openCPU(t), 1)
	if err := errors.Join(err, s.Free()); err != nil {
		t.Fatal(err)
	}
	return s
}
