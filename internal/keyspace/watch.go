package keyspace

import (
	"bytes"
	"slices"
)

// Watch tells whether a key was changed since Watch of its space made it.
type Watch struct {
	hash    uint64
	key     []byte
	touched bool // guarded by the key's shard
}

// Watch watches a key, until Unwatch. The caller has locked its shard. Cost: the key is copied, and each change of a
// key in its shard looks it up among those that are watched there.
func (s *Shard) Watch(hash uint64, key []byte, now int64) *Watch {
	s.there(hash, key, now) // what has expired already does not change by that
	w := &Watch{hash: hash, key: bytes.Clone(key)}
	if s.watches == nil {
		s.watches = map[string][]*Watch{}
	}
	s.watches[string(key)] = append(s.watches[string(key)], w)
	return w
}

// Touched tells whether the key was changed, or has expired. The caller has locked its shard.
func (s *Shard) Touched(w *Watch, now int64) bool {
	s.there(w.hash, w.key, now)
	return w.touched
}

// Unwatch ends a watch. The caller has locked its shard.
func (s *Shard) Unwatch(w *Watch) {
	all := s.watches[string(w.key)]
	if i := slices.Index(all, w); i >= 0 {
		all = slices.Delete(all, i, i+1)
	}
	if s.watches[string(w.key)] = all; len(all) == 0 {
		delete(s.watches, string(w.key))
	}
	if len(s.watches) == 0 {
		s.watches = nil
	}
}

// Hash is that of the key.
func (w *Watch) Hash() uint64 { return w.hash }

func (s *Shard) touch(key []byte) {
	for _, w := range s.watches[string(key)] {
		w.touched = true
	}
}

// touchAll says that all keys go.
func (s *Shard) touchAll() {
	for _, all := range s.watches {
		for _, w := range all {
			w.touched = w.touched || s.find(w.hash, w.key) >= 0
		}
	}
}
