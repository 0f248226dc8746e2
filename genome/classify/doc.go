// Package classify tells which genomes reads come from, as MetaCache does (WarpCore's paper, §V-C). References and
// reads are cut into windows. Each window is sketched by the smallest hashes of its k-mers (features), and a hash table
// tells where in the references each feature stands. The references whose windows share the most features with a read
// are its candidates. The verdict is the lowest common ancestor of the candidates that are about as good as the best.
//
// A Builder sketches references on a device and puts (feature, location) into a warpcore.MultiBucket. On the CPU device
// it sorts the pairs instead, which takes a tenth of the time there. Save writes a database as one file, the same from
// both. Open opens the file, and NewClassifier brings the database to any device. There a warpcore.Map holds, for each
// feature, its only location, or the place where its list of locations begins. A Classifier takes blocks of reads: the
// kernels of classify.cu sketch the reads, look up the features, sort the locations of each read, and decide.
//
// A file has its features in chunks, and a directory that tells where each chunk begins and what its sum is. A CPU
// device has a small table for each chunk instead of the map, and one kernel, of reads.cu, does all for some reads at a
// time. A chunk is read, and its table made, when a feature of some read may be in it: the kernel tells which it wants,
// and is launched again when they are there. So a database opens and answers its first read in a time that does not
// grow with it.
//
// Several devices build a database together: each takes some blocks of text, and their tables are merged on the host.
// For queries, each device has the locations of some targets in a row, as in the paper's independent mode. All hits of
// a target are then on one device. So the best two candidates of all are among the best two of each device, and only
// these are put together.
//
// A location is target<<32 | window: the number of a reference's sequence, in the order of adding, and the number of a
// window in it. An entry is what the map holds for a feature. It is either one location and bit 62; or bit 63, 15 bits
// for the number of locations, and 48 bits for where they begin. 0 stands for none.
package classify
