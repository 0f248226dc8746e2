package warpmap

import "github.com/warpmap/warpmap/table"

// Get looks up one key. It is for tests, tools and the like: it costs a launch and a copy there and back, as thousands
// of keys do. On a GPU that takes some ten microseconds, and the goroutine waits. To look up several keys, call Find
// with all of them. To look up the keys of many goroutines, use a Batcher.
func Get[K, V any](m table.Map[K, V], key K) (value V, found bool, err error) {
	values, flags := make([]V, 1), make([]bool, 1)
	err = m.Find([]K{key}, values, flags)
	return values[0], flags[0], err
}

// Put inserts one pair. It costs what Get does, or more.
func Put[K, V any](m table.Map[K, V], key K, value V) error { return m.Insert([]K{key}, []V{value}) }

// Has tells what Contains says of one key of a Set, a Map, a MultiMap or a Filter. Of a Filter it tells whether the key
// may be in. A Counter has no Contains: use its Find. Cost: see Get.
func Has[K any](t interface {
	Contains(keys []K, found []bool) error
}, key K) (bool, error) {
	found := make([]bool, 1)
	err := t.Contains([]K{key}, found)
	return found[0], err
}

// PutKey puts one key into a set, and tells whether it is new: see Get.
func PutKey[K any](s table.Set[K], key K) (added bool, err error) {
	n, err := s.Insert([]K{key}, nil)
	return n == 1, err
}

// Remove deletes one key from a Set, a Map or a MultiMap, and tells whether it was there: see Get.
func Remove[K any](t interface {
	Delete(keys []K, deleted []bool) (int, error)
}, key K) (deleted bool, err error) {
	n, err := t.Delete([]K{key}, nil)
	return n > 0, err
}
