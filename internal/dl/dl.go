// Package dl loads libraries, finds their symbols and calls them. It is the one package that knows purego, and compiles
// everywhere: on systems where warpmap has no devices, a library that is asked for is an error.
package dl

// OpenLocal loads a library, whose symbols others do not see. The error says what the loader said.
func OpenLocal(path string) (handle uintptr, err error) { return open(path, false) }

// OpenGlobal loads a library, whose symbols those loaded later see.
func OpenGlobal(path string) (handle uintptr, err error) { return open(path, true) }

// Sym is the address of a library's symbol. The handle 0 stands for the whole process.
func Sym(handle uintptr, name string) (uintptr, error) { return sym(handle, name) }

// Call calls the C function at an address. A Go pointer among the arguments must be converted to uintptr in the call
// itself: only then does the pragma keep what it points to on the heap, and alive.
//
//go:uintptrescapes
func Call(function uintptr, args ...uintptr) (result uintptr) { return call(function, args) }
