package shard

// OwnerOf is the number of the device that owns a key.
func (c *cluster) OwnerOf(key uint64) int { return ownerOf(key, c.keyBytes, c.seed, len(c.members)) }
