package device

var (
	HostMemoryOf = hostMemory
	HugePagesOf  = hugePages
)
