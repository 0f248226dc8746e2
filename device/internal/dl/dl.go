// Package dl loads libraries and finds their symbols, with errors that say what the loader said.
//
// The loader keeps its last error for each thread. purego asks for it in a second call, by which time the goroutine may
// run on another thread, which knows of no error: so both calls are made on one.
package dl

import (
	"runtime"

	"github.com/ebitengine/purego"
)

// OpenLocal loads a library, whose symbols others do not see.
func OpenLocal(path string) (handle uintptr, err error) {
	return open(path, purego.RTLD_NOW|purego.RTLD_LOCAL)
}

// OpenGlobal loads a library, whose symbols those loaded later see.
func OpenGlobal(path string) (handle uintptr, err error) {
	return open(path, purego.RTLD_NOW|purego.RTLD_GLOBAL)
}

func open(path string, mode int) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlopen(path, mode)
}

// Sym is the address of a library's symbol.
func Sym(handle uintptr, name string) (uintptr, error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	return purego.Dlsym(handle, name)
}
