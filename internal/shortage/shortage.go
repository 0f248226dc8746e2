// Package shortage is how tests make memory short at one allocation of a device and not at another.
package shortage

import "sync"

// fails has, for a device that a test has named, what is asked before each of its allocations.
var fails sync.Map

// Set has fail asked before each allocation of device memory or pinned host memory on the device, with its bytes: where it returns true, that allocation finds no
// memory. nil: none fails any more. fail may be called by several goroutines.
func Set(device any, fail func(bytes int64) bool) {
	if fail == nil {
		fails.Delete(device)
		return
	}
	fails.Store(device, fail)
}

// Fails tells whether an allocation is to fail.
func Fails(device any, bytes int64) bool {
	fail, ok := fails.Load(device)
	return ok && fail.(func(int64) bool)(bytes)
}
