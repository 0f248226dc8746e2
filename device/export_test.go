package device

var HostMemoryOf = hostMemory
