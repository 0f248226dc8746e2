package join

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Filter says whether a filter (warpcore.Filter) stands before the table of keys. A filter recognizes most probe keys
// that are not in the table by a few bits each, and only the other keys are looked up.
type Filter int

const (
	// FilterAuto uses a filter on the CPU device before a table of a family (Options.Table), where a look-up costs
	// several times what the filter costs. The join's own table has no use for one. The filter is made once half as
	// many keys as the build side has were looked up in vain. It is asked while fewer than a third of a block's keys
	// are in the table. On a GPU there is no filter, because look-ups take no time beside the reading of files; nor is
	// there one with stadium's tables, which have a filter of their own.
	FilterAuto Filter = iota
	FilterOn          // use a filter from the first look-up on
	FilterOff         // use no filter
)

var filters = []string{"auto", "on", "off"}

// Filters lists the names that ParseFilter takes.
func Filters() []string { return slices.Clone(filters) }

// ParseFilter reads "auto", "on" or "off".
func ParseFilter(s string) (Filter, error) {
	if i := slices.Index(filters, s); i >= 0 {
		return Filter(i), nil
	}
	return 0, fmt.Errorf("a filter %q: want one of %s", s, strings.Join(filters, ", "))
}

func (f Filter) String() string {
	if f < 0 || int(f) >= len(filters) {
		return fmt.Sprintf("Filter(%d)", int(f))
	}
	return filters[f]
}

// rareShare: a filter is worth its while where fewer keys than one in so many are in the table.
const rareShare = 3

// front is a filter before a table.
type front[K uint32 | uint64] struct {
	use    Filter
	rows   int // of the build side
	make   func(d *device.Device, o table.FilterOptions) (table.Filter[K], error)
	device *device.Device

	filter table.Filter[K]
	missed int   // keys that were looked up in vain while there was none
	rare   bool  // few of the last keys were in
	kept   int64 // keys that were not looked up
	keys   []K   // those that may be in
	at     []int // their positions
}

// ready makes the filter of the table's keys, all, when it is time, and tells whether to ask it.
func (f *front[K]) ready(all func() ([]K, error)) (bool, error) {
	if f.use == FilterOff || f.use == FilterAuto && !f.rare {
		return false, nil
	}
	if f.filter == nil && (f.use == FilterOn || f.missed >= f.rows/2) {
		filter, err := f.build(all)
		if device.IsOutOfMemory(err) && f.use == FilterAuto {
			f.use = FilterOff
			return false, nil
		} else if err != nil {
			return false, full(err)
		}
		f.filter = filter
	}
	return f.filter != nil, nil
}

func (f *front[K]) build(all func() ([]K, error)) (table.Filter[K], error) {
	keys, err := all()
	if err != nil {
		return nil, err
	}
	filter, err := f.make(f.device, table.FilterOptions{Capacity: max(1, len(keys))})
	if err != nil {
		return nil, err
	}
	if err := filter.Insert(keys); err != nil {
		return nil, errors.Join(err, filter.Close())
	}
	return filter, nil
}

// pass gives those keys that may be in the table, and their positions; found is for the filter to write to.
func (f *front[K]) pass(keys []K, found []bool) ([]K, []int, error) {
	if err := f.filter.Contains(keys, found); err != nil {
		return nil, nil, err
	}
	f.keys, f.at = f.keys[:0], f.at[:0]
	for i, may := range found {
		if may {
			f.keys, f.at = append(f.keys, keys[i]), append(f.at, i)
		}
	}
	f.kept += int64(len(keys) - len(f.keys))
	return f.keys, f.at, nil
}

// note says how many of the keys that were looked up are in.
func (f *front[K]) note(keys, in int) {
	f.rare = in*rareShare < keys
	if f.filter == nil {
		f.missed += keys - in
	}
}

func (f *front[K]) close() error {
	if f.filter == nil {
		return nil
	}
	return f.filter.Close()
}
