package warpmap_test

import (
	"strings"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// chosen makes a map and tells its family and why.
func chosen[K, V any](t *testing.T, d *device.Device, o table.Options) (table.Family, string) {
	t.Helper()
	m, err := warpmap.New[K, V](d, warpmap.Auto, o)
	if err != nil {
		t.Fatal(err)
	}
	s, err := m.Stats()
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err != nil {
		t.Fatal(err)
	}
	if s.Family != m.Family() {
		t.Errorf("Stats says %q, Family %q", s.Family, m.Family())
	}
	return s.Family, s.Why
}

func TestAuto(t *testing.T) {
	d, small := open(t, "cpu"), open(t, "cpu", device.WithMemory(8<<20))
	for _, c := range []struct {
		d    *device.Device
		o    table.Options
		want table.Family
		why  string
	}{
		{d, table.Options{}, warpmap.WarpCore, "nothing was said"},
		{d, table.Options{Work: table.Work{Inserts: 1, Finds: 1}}, warpmap.DyCuckoo, "least time"},
		{d, table.Options{Work: table.Work{Inserts: 1, Finds: 10, Once: true}}, warpmap.DyCuckoo, "least time"},
		{d, table.Options{Work: table.Work{Inserts: 1, Finds: 100, Once: true}}, warpmap.GPH, "least time"},
		{d, table.Options{Work: table.Work{Inserts: 1, Finds: 100}}, warpmap.DyCuckoo, "least time"},
		{d, table.Options{Work: table.Work{Inserts: 1, Finds: 1000}}, warpmap.GPH, "least time"},
		{d, table.Options{Work: table.Work{Finds: 1, Misses: 0.95}}, warpmap.Stadium, "95% of which miss"},
		{d, table.Options{Work: table.Work{Inserts: 1, Finds: 1, Deletes: 1}}, warpmap.WarpCore, "come and go"},
		{d, table.Options{MaxBytes: 1 << 20, Work: table.Work{Inserts: 1, Finds: 1, Deletes: 1}}, warpmap.DyCuckoo, "gives memory back"},
		{small, table.Options{Capacity: 2 << 20, Work: table.Work{Finds: 1}}, warpmap.Stadium, "free on the device"},
	} {
		got, why := chosen[uint32, uint32](t, c.d, c.o)
		if got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%+v: %s, because %s; want %s, because %q", c.o, got, why, c.want, c.why)
		}
	}
	if got, why := chosen[[16]byte, [2]uint64](t, d, table.Options{}); got != warpmap.Stadium || !strings.Contains(why, "16 bytes") {
		t.Errorf("keys of 16 bytes: %s, because %s", got, why)
	}
	for _, w := range []table.Work{{Finds: -1}, {Misses: 1.5}} {
		if m, err := warpmap.New[uint32, uint32](d, warpmap.Auto, table.Options{Work: w}); err == nil {
			t.Errorf("%+v: no error", w)
			m.Close()
		}
	}
	for values, want := range map[float64]string{0: "a slot for each pair", 3: "a slot for each pair", 50: "bucket list"} {
		m, err := warpmap.NewMultiMap[uint32, uint32](d, warpmap.Auto, table.Options{Capacity: 100, Work: table.Work{Values: values}})
		if err != nil {
			t.Fatal(err)
		}
		if s, err := m.Stats(); err != nil || !strings.Contains(s.Why, want) {
			t.Errorf("%v values a key: %s, %v", values, s.Why, err)
		}
		if err := m.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s, err := warpmap.NewSet[uint32](d, warpmap.Auto, table.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if st, err := s.Stats(); err != nil || st.Why == "" || st.Family != warpmap.WarpCore {
		t.Errorf("a set: %+v, %v", st, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}
