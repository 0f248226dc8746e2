//go:build 386 || arm || mips || mipsle

package device

// Sizes are ints, and tables are larger than 32 bits can say. The build ends here, with a name that says so.
var _ = warpmap_needs_an_architecture_of_64_bits
