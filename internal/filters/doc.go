// Package filters is Bloom and cuckoo filters as values: bytes in host memory, which package serve/redis keeps under
// keys. A filter may be of a few hundred bytes, so none opens a device. But the words of its links are those of filters
// of packages warpcore and cuckoo for keys of 8 bytes, whose key is the item's hash.
//
//	value │ head: what it is, its seed, how it grows │ link │ link │ link, the newest │
//	link  │ capacity │ items │ deleted │ blocks, hashes; or windows, buckets │ words … │
//
// A filter grows by links. A Bloom filter's has the capacity of the one before times the expansion, and half of its rate
// of false positives, so that the rates of all add up to what was asked for. A cuckoo filter's has the expansion times
// the windows of the one before, of as many buckets: see DeleteCuckoo for why. Its rate is that of a table of tags of 16
// bits, 0.046% at the most; so the rate of a chain is that times its links.
//
// Changes are written by a Writer, a few bytes each: so callers can log them.
//
// # Invariants (Check walks them)
//
//   - Links are whole, and nothing is behind the last. Only the last takes items.
//   - A Bloom filter's last link has no more items than its capacity.
//   - A cuckoo filter's links have as many tags as items.
package filters
