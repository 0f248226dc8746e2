package device

var (
	HostMemoryOf = hostMemory
	HugePagesOf  = hugePages
)

// LimitModel bounds the memory of a launch that WithMemoryModel checks, after the first.
func LimitModel(bytes uint64) (was uint64) {
	theModel.Lock()
	defer theModel.Unlock()
	was, theModel.limit = theModel.limit, bytes
	return was
}
