// Package classify tells of reads which genomes they come from, as MetaCache does (WarpCore's paper, §V-C): references
// and reads are cut into windows, each window is sketched by the smallest hashes of its k-mers (features), and a hash
// table tells where in the references each feature stands. References whose windows share the most features with a read
// are its candidates; the lowest common ancestor of those that are about as good is the verdict.
//
// A Builder sketches references on a device and puts (feature, location) into a warpcore.MultiBucket; on the CPU device
// it sorts them, which takes a tenth of the time there. Save writes a database, one file: the same from both. Open
// reads it onto any device: there a warpcore.Map has for each feature its only location, or where its list of them
// begins. A Classifier takes blocks of reads: the kernels of classify.cu sketch them, look up the features, sort the
// locations of each read, and decide.
//
// Several devices build a database together, each of some blocks of text, and their tables are merged on the host. Of a
// database to be queried each has the locations of some targets, in a row, as in the paper's independent mode: a
// target's hits are all on one device, so the best two candidates of all are among the best two of each, and only these
// are put together.
//
// A location is target<<32 | window: the number of a reference's sequence, in the order of adding, and that of a window
// in it. An entry is what the map says of a feature: one location and bit 62, or bit 63, 15 bits of their number, and
// 48 of where they begin; 0 stands for none.
package classify
