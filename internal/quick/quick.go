// Package quick is how tests ask for kernels that are compiled sooner, or checked.
package quick

// Kernels makes the CPU device compile kernels in half the time, for code that runs a fifth slower: tests compile hundreds of
// programs and run each for a moment. It is set before a device opens, if at all.
var Kernels bool

// Model makes every device of WithStress one of WithMemoryModel. It is set before a device opens, if at all.
var Model bool

// Seeds is added to every seed of WithStress. It is set before a device opens, if at all.
var Seeds uint64
