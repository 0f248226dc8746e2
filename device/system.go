package device

import (
	"fmt"
	"runtime"
	"slices"
)

// systems are those that have devices, as Go calls them.
var systems = []string{"linux/amd64", "linux/arm64"}

// errSystem is why there are no devices, where there are none.
var errSystem = systemError(runtime.GOOS + "/" + runtime.GOARCH)

func systemError(system string) error {
	if slices.Contains(systems, system) {
		return nil
	}
	return fmt.Errorf("%w: this is %s, and GPUs and the CPU device work on Linux on amd64 and arm64", ErrNoDevices, system)
}
