// Package quick is how tests ask for kernels that are compiled sooner, or checked.
package quick

// Asked is called when a device opens or NVRTC is looked for. Package testenv has it read the variables of the environment
// that it has read before tests began: go test caches results by what tests read once they run.
var Asked = func() {}

// Kernels makes the CPU device compile kernels in half the time, for code that runs a fifth slower: tests compile hundreds of
// programs and run each for a moment. It is set before a device opens, if at all.
var Kernels bool

// Checks makes device.CompileFor stop behind NVRTC's front end, which finds what is wrong in the C++ of a kernel, its templates and
// assertions in a tenth of the time that machine code takes, and give no cubin.
var Checks bool

// Model makes every device of WithStress one of WithMemoryModel. It is set before a device opens, if at all.
var Model bool

// Bulk reports whether tables on the CPU device of that name take every batch as tables on a GPU take large batches: sorted
// by regions or by stretches of the table. It is set before a device opens, if at all.
var Bulk = func(device string) bool { return false }

// Shared, if not 0, is the number of bytes of shared memory that a block of the CPU device can have, as on a GPU that has
// little. It is set before a device opens, if at all.
var Shared int64

// Seeds is added to every seed of WithStress. It is set before a device opens, if at all.
var Seeds uint64
