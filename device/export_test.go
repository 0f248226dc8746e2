package device

var HostMemory = hostMemory
