package quick

// Rare are kernels of programs that few tests launch, in groups: Kernels has a program compiled without them, and a
// group when one of its kernels is first launched. Of a program that many tests compile, each with options of its own,
// a group should be a fifth of the code or more, and most of these tests should do without.
var Rare = map[string][][]string{
	"cuckoo":               {regions},
	"dycuckoo":             {regions},
	"slab":                 {regions},
	"stadium":              {regions},
	"warpcore":             {regions, longChains, {"insert_groups", "insert_long_groups", "rehash_groups"}},
	"warpcore-multibucket": {regions, longChains},
	"warpcore_filter":      {regions},
}

// regions bring large batches in the order of regions of a table: see kernel/partition.cuh.
var regions = []string{"partition_count", "partition_scan", "partition_scatter",
	"partition_sum", "partition_within_count", "partition_within_scatter"}

// longChains go by keys with many values: see warpcore/long_kernels.cuh.
var longChains = []string{"count_long", "settle_long", "fill_long", "erase_long", "forget_long"}
