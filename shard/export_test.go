package shard

// OwnerOf is the number of the device that owns a key.
func (h handle) OwnerOf(key uint64) int {
	return ownerOf(key, h.cluster.keyBytes, h.cluster.seed, len(h.cluster.members))
}

// OwnerOf is the rank that owns a key.
func (j *joint) OwnerOf(key uint64) int { return ownerOf(key, j.keyBytes, j.seed, j.size) }
