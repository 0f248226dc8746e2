package shard

// OwnerOf is the number of the device that owns a key.
func (c *cluster) OwnerOf(key uint64) int { return ownerOf(key, c.keyBytes, c.seed, len(c.members)) }

// OwnerOf is the rank that owns a key.
func (j *joint) OwnerOf(key uint64) int { return ownerOf(key, j.keyBytes, j.seed, j.size) }
