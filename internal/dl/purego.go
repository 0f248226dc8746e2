//go:build linux && (amd64 || arm64)

package dl

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// The loader keeps its last error for each thread. purego asks for it in a second call, by which time the goroutine may
// run on another thread, which knows of no error: so both calls are made on one.
func open(path string, global bool) (uintptr, error) {
	mode := purego.RTLD_NOW | purego.RTLD_LOCAL
	if global {
		mode = purego.RTLD_NOW | purego.RTLD_GLOBAL
	}
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(path, mode)
}

func sym(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}

func call(function uintptr, args []uintptr) uintptr {
	result, _, _ := purego.SyscallN(function, args...)
	return result
}
