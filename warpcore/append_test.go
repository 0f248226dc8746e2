package warpcore

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// A kernel that appends finds the pool's last places: a bucket that does not fit takes none from others, and a list
// gets a smaller one before it is full.
func TestAppendUsesTheWholePool(t *testing.T) {
	test := func(t *testing.T, d *device.Device) {
		for _, keys := range []uint64{1, 3, 40} {
			m, err := NewBucketList[uint32, uint32](d, ListOptions{Options: table.Options{Capacity: 200, Seed: 5}, InitialBucket: 4, Growth: 3})
			must(t, err)
			mod, err := d.Compile(appending(m.lists))
			must(t, err)
			put, err := device.KernelOf[appendParams](mod, "append_pairs")
			must(t, err)
			group := m.lists.keys.opts.InsertGroup
			const each, threads = 64, 64
			outcome, err := device.Make[uint32](d, each*threads/group)
			must(t, err)
			must(t, m.Use(nil, 0, func(l Lists) error {
				return put.Launch(nil, device.Grid{Blocks: 1, Threads: threads}, &appendParams{Lists: l, Outcome: outcome.Addr(), Each: each, Keys: keys})
			}))
			became, err := outcome.Host(nil)
			must(t, errors.Join(err, outcome.Free(), m.Check()))
			added, refused := 0, 0
			for _, o := range became {
				switch table.Status(o) {
				case table.Added:
					added++
				case table.NoRoom:
					refused++
				default:
					t.Fatalf("outcome %d", o)
				}
			}
			s, err := m.Pool()
			must(t, err)
			n, err := m.Len()
			must(t, err)
			// A list that has a bucket needs a header and a place.
			if left := (s.Bytes - s.Buckets) / 4; n != added || refused == 0 || left > int64(m.lists.cfg.header()) {
				t.Errorf("%d keys: %d pairs are in of %d that went in; %d were refused, and %d places of %d are left", keys, n, added, refused, left, s.Bytes/4)
			}
			must(t, m.Close())
		}
	}
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) { test(t, openFor(t, name)) })
	}
}
