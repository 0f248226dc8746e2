package columnar

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// index is a table of package warpmap, whatever its types. Values are bytes, as many for each key as the table's values
// have; those of a set have none. Errors are the table's.
type index interface {
	find(k keys, values []byte, found []bool) error
	insert(k keys, values []byte) error
	insertNew(k keys, values []byte, added []bool) error
	update(k keys, values []byte, with table.Combine) error
	updates() error // why it does not update
	remove(k keys, gone []bool) error
	chunks(ctx context.Context, do func(k keys, values []byte) error) error
	stats() (table.Stats, error)
	table.Table
}

// newIndex makes the table for keys of so many bytes, or texts, and for values of a type; nil: there are none.
func newIndex(devices []*device.Device, width int, value arrow.DataType, o Options) (index, error) {
	switch {
	case width == 0:
		return newTexts(devices[0], o)
	case value == nil && width == 4:
		return newSet[uint32](devices, o)
	case value == nil:
		return newSet[uint64](devices, o)
	case width == 4:
		return mapOf[uint32](devices, value, o)
	}
	return mapOf[uint64](devices, value, o)
}

// mapOf chooses the type of values by their size: they are integers to the table, whatever their columns are. Each type
// has all tables compiled for it.
func mapOf[K uint32 | uint64](devices []*device.Device, value arrow.DataType, o Options) (index, error) {
	if value.(arrow.FixedWidthDataType).BitWidth() == 32 {
		return newMap[K, int32](devices, o)
	}
	return newMap[K, int64](devices, o)
}

// maps is a map with keys of 4 or 8 bytes.
type maps[K, V any] struct{ table.Map[K, V] }

func newMap[K, V any](devices []*device.Device, o Options) (index, error) {
	to := table.Options{Capacity: o.Capacity}
	if len(devices) == 1 {
		m, err := warpmap.New[K, V](devices[0], o.Family, to)
		if err != nil {
			return nil, err
		}
		return maps[K, V]{m}, nil
	}
	m, err := shard.NewMap(devices, shard.Options{Options: to},
		func(d *device.Device, to table.Options) (table.Map[K, V], error) {
			return warpmap.New[K, V](d, o.Family, to)
		})
	if err != nil {
		return nil, err
	}
	return maps[K, V]{m}, nil
}

func (m maps[K, V]) find(k keys, values []byte, found []bool) error {
	return m.Find(as[K](k.fixed), as[V](values), found)
}

func (m maps[K, V]) insert(k keys, values []byte) error {
	return m.Insert(as[K](k.fixed), as[V](values))
}

func (m maps[K, V]) insertNew(k keys, values []byte, added []bool) error {
	_, err := m.InsertNew(as[K](k.fixed), as[V](values), added)
	return err
}

func (m maps[K, V]) update(k keys, values []byte, with table.Combine) error {
	if err := m.updates(); err != nil {
		return err
	}
	return m.Map.(table.Updater[K, V]).Update(as[K](k.fixed), as[V](values), with)
}

func (m maps[K, V]) updates() error {
	if _, is := m.Map.(table.Updater[K, V]); !is {
		return fmt.Errorf("tables of %s do not update: want one of another family, such as %s", m.Family(),
			warpmap.WarpCore)
	}
	return nil
}

func (m maps[K, V]) remove(k keys, gone []bool) error {
	_, err := m.Delete(as[K](k.fixed), gone)
	return err
}

func (m maps[K, V]) chunks(ctx context.Context, do func(k keys, values []byte) error) error {
	return m.Chunks(ctx, func(k []K, v []V) error { return do(words(k), bytesOf(v)) })
}

func (m maps[K, V]) stats() (table.Stats, error) { return m.Stats() }

// words are keys of 4 or 8 bytes.
func words[K any](k []K) keys {
	b := bytesOf(k)
	return keys{n: len(k), width: len(b) / max(1, len(k)), fixed: b}
}

// sets is a set of keys of 4 or 8 bytes.
type sets[K any] struct{ table.Set[K] }

func newSet[K any](devices []*device.Device, o Options) (index, error) {
	to := table.Options{Capacity: o.Capacity}
	if len(devices) == 1 {
		s, err := warpmap.NewSet[K](devices[0], o.Family, to)
		if err != nil {
			return nil, err
		}
		return sets[K]{s}, nil
	}
	s, err := shard.NewSet(devices, shard.Options{Options: to},
		func(d *device.Device, to table.Options) (table.Set[K], error) {
			return warpmap.NewSet[K](d, o.Family, to)
		})
	if err != nil {
		return nil, err
	}
	return sets[K]{s}, nil
}

func (s sets[K]) find(k keys, _ []byte, found []bool) error { return s.Contains(as[K](k.fixed), found) }

func (s sets[K]) insert(k keys, _ []byte) error {
	_, err := s.Insert(as[K](k.fixed), nil)
	return err
}

func (s sets[K]) insertNew(k keys, _ []byte, added []bool) error {
	_, err := s.Insert(as[K](k.fixed), added)
	return err
}

func (s sets[K]) update(keys, []byte, table.Combine) error { return errNoValues }

func (s sets[K]) updates() error { return errNoValues }

func (s sets[K]) remove(k keys, gone []bool) error {
	_, err := s.Delete(as[K](k.fixed), gone)
	return err
}

func (s sets[K]) chunks(ctx context.Context, do func(k keys, values []byte) error) error {
	return s.Chunks(ctx, func(k []K) error { return do(words(k), nil) })
}

func (s sets[K]) stats() (table.Stats, error) { return s.Stats() }

var errNoValues = errors.New("the table has no value columns: there is nothing to update")

// texts is a map from keys of any bytes to numbers of rows.
type texts struct{ *warpmap.Strings[int64] }

func newTexts(d *device.Device, o Options) (index, error) {
	m, err := warpmap.NewStrings[int64](d, o.Family, text.Options{Options: table.Options{Capacity: o.Capacity}})
	if err != nil {
		return nil, err
	}
	return texts{m}, nil
}

func (m texts) find(k keys, values []byte, found []bool) error {
	return m.Find(k.text, as[int64](values), found)
}

func (m texts) insert(k keys, values []byte) error { return m.Insert(k.text, as[int64](values)) }

func (m texts) insertNew(k keys, values []byte, added []bool) error {
	_, err := m.InsertNew(k.text, as[int64](values), added)
	return err
}

func (m texts) update(keys, []byte, table.Combine) error {
	return m.updates()
}

func (m texts) updates() error { return errors.New("columnar: rows are not updated in their index") }

func (m texts) remove(k keys, gone []bool) error {
	_, err := m.Delete(k.text, gone)
	return err
}

func (m texts) chunks(ctx context.Context, do func(k keys, values []byte) error) error {
	return m.Chunks(ctx, func(k text.Keys, rows []int64) error {
		return do(keys{n: len(rows), text: k}, bytesOf(rows))
	})
}

func (m texts) Stats() (table.Stats, error) { return m.stats() }

func (m texts) stats() (table.Stats, error) {
	s, err := m.Strings.Stats()
	return s.Stats, err
}
