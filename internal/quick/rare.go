package quick

// Rare are kernels of programs that few tests launch, in groups: Kernels has a program compiled without them, and a
// group when one of its kernels is first launched. Of a program that many tests compile, each with options of its own,
// a group should take the compiler more than what each of its runs costs, a tenth of a second, and most of these tests
// should do without.
var Rare = map[string][][]string{
	"cuckoo": {regions, withinRegions},
	"dycuckoo": {regions, withinRegions, {"mixed"}, {"refine"}, {"insert_new", "refine_new"}, {"refuse_absent"},
		{"halve", "unhalve", "merge_filters", "close_buckets", "refresh_filters"}},
	"gph":       {{"fill_new", "refine_new"}},
	"gph_build": {withinRegions},
	"slab":      {regions, withinRegions, {"insert_left", "insert_left_new"}},
	"stadium":   {regions, withinRegions, {"insert_left", "insert_left_new"}, {"insert_listed", "insert_listed_new"}, {"refuse_absent"}},
	"update":    {{"update_sums", "combine_rows"}, {"export_counts", "number_of_counts", "histogram_of_counts"}},
	"warpcore": {regions, withinRegions, longChains, {"rehash_groups"}, {"insert_groups", "insert_long_groups"},
		{"insert_left", "insert_left_new", "refuse_absent"}, {"insert_left_multi"}, {"count_all_aside", "fill_aside", "fill_rest"}},
	"warpcore-bucketlist": {regions, withinRegions, {"insert_groups", "find_slots_of_runs", "refuse_rows", "release_lists", "block_lists",
		"count_absent", "pack_long", "fill_long"}, {"partition_group"}},
	"warpcore-multibucket": {regions, withinRegions, longChains, {"insert_groups"}},
	"warpcore_filter":      {regions, withinRegions},
}

// regions bring large batches in the order of regions of a table: see kernel/partition.cuh.
var regions = []string{"partition_count", "partition_scan", "partition_scatter", "partition_sum", "partition_within_scatter"}

// withinRegions are of batches that are larger still.
var withinRegions = []string{"partition_within_count"}

// longChains go by keys with many values: see warpcore/long_kernels.cuh.
var longChains = []string{"count_long", "settle_long", "fill_long", "erase_long", "forget_long"}
