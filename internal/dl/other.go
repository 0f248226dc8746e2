//go:build !linux || !(amd64 || arm64)

package dl

import (
	"fmt"
	"runtime"
)

func open(path string, _ bool) (uintptr, error) {
	return 0, fmt.Errorf("%s: warpmap loads libraries on linux/amd64 and linux/arm64, not on %s/%s", path,
		runtime.GOOS, runtime.GOARCH)
}

func sym(uintptr, string) (uintptr, error) { return open("", false) }

// call has nothing that it could be given.
func call(uintptr, []uintptr) uintptr { panic("dl: a call into a library that cannot be loaded here") }

// KeepSignals calls f.
func KeepSignals(f func()) { f() }
