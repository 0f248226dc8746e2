package quick

// Rare are kernels of programs that few tests launch, in groups: Kernels has a program compiled without them, and a
// group when one of its kernels is first launched. Of a program that many tests compile, each with options of its own,
// a group should be a fifth of the code or more, and most of these tests should do without.
var Rare = map[string][][]string{
	"cuckoo":          {partition},
	"dycuckoo":        {partition, {"insert_new", "move_new", "refine_new", "refuse_absent", "mixed"}},
	"slab":            {partition},
	"stadium":         {partition},
	"warpcore":        {partition},
	"warpcore_filter": {partition},
}

// partition brings large batches in the order of regions: see kernel/partition.cuh.
var partition = []string{"partition_count", "partition_scan", "partition_scatter",
	"partition_sum", "partition_within_count", "partition_within_scatter"}
