package kernel

import "math/bits"

// These are the hash functions that a table can be made with. Identity and Constant are degenerate on purpose, and
// exist for tests: they put every small key, or every key, on one probe sequence.
const (
	HashMurmur   = 0 // seeded fmix64
	HashMueller  = 1
	HashIdentity = 2
	HashConstant = 3
)

// Fmix32 computes MurmurHash3's 32-bit finalizer.
func Fmix32(h uint32) uint32 {
	h ^= h >> 16
	h *= 0x85ebca6b
	h ^= h >> 13
	h *= 0xc2b2ae35
	return h ^ h>>16
}

// Fmix64 computes MurmurHash3's 64-bit finalizer.
func Fmix64(h uint64) uint64 {
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

// Mueller32 computes Mueller's 32-bit mixer.
func Mueller32(h uint32) uint32 {
	h = (h>>16 ^ h) * 0x45d9f3b
	h = (h>>16 ^ h) * 0x45d9f3b
	return h>>16 ^ h
}

// Seeded64 computes a member of a family of 64-bit functions, which seed selects.
func Seeded64(key, seed uint64) uint64 {
	return Fmix64(key + 0x9e3779b97f4a7c15*(seed+1))
}

// Hash64 computes hash64<kind> of hash.cuh.
func Hash64(kind int, key, seed uint64) uint64 {
	switch kind {
	case HashMurmur:
		return Seeded64(key, seed)
	case HashMueller:
		lo := Mueller32(uint32(key) + uint32(seed))
		hi := Mueller32(uint32(key>>32) ^ lo ^ uint32(seed>>32))
		return uint64(hi)<<32 | uint64(lo^Mueller32(hi+0x9e3779b9))
	case HashIdentity:
		return key
	}
	return 0
}

// Reduce maps a hash to 0 … n-1 by its high bits.
func Reduce(hash, n uint64) uint64 {
	hi, _ := bits.Mul64(hash, n)
	return hi
}
