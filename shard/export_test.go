package shard

// OwnerOf is the number of the device that owns a key, or the rank.
func (h handle) OwnerOf(key uint64) int { return h.x.ownerOf(key) }
