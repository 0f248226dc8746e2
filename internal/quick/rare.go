package quick

// Rare are kernels of programs that few tests launch, in groups: Kernels has a program compiled without them, and a
// group when one of its kernels is first launched. Of a program that many tests compile, each with options of its own,
// a group should take the compiler more than what each of its runs costs, a tenth of a second, and most of these tests
// should do without.
var Rare = map[string][][]string{
	"cuckoo":   {regions},
	"dycuckoo": {regions, {"mixed"}},
	"slab":     {regions},
	"stadium":  {regions, {"insert_left", "insert_left_new"}},
	"update":   {{"update_sums", "combine_rows"}},
	"warpcore": {regions, longChains, {"insert_groups", "insert_long_groups", "rehash_groups"},
		{"insert_left", "insert_left_new", "refuse_absent"}},
	"warpcore-bucketlist": {regions, {"insert_groups", "find_slots_of_runs", "refuse_rows", "release_lists", "block_lists",
		"count_absent", "pack_long", "fill_long"}},
	"warpcore-multibucket": {regions, longChains},
	"warpcore_filter":      {regions},
}

// regions bring large batches in the order of regions of a table: see kernel/partition.cuh.
var regions = []string{"partition_count", "partition_scan", "partition_scatter",
	"partition_sum", "partition_within_count", "partition_within_scatter"}

// longChains go by keys with many values: see warpcore/long_kernels.cuh.
var longChains = []string{"count_long", "settle_long", "fill_long", "erase_long", "forget_long"}
