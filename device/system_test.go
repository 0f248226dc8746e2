package device

import (
	"errors"
	"strings"
	"testing"
)

// setSystem has the package find itself on another system, until the test ends.
func setSystem(t *testing.T, system string) {
	was := errSystem
	errSystem = systemError(system)
	t.Cleanup(func() { errSystem = was })
}

// On systems that have no devices, what opens one says which have.
func TestSystemsWithoutDevices(t *testing.T) {
	for _, system := range systems {
		if err := systemError(system); err != nil {
			t.Error(err)
		}
	}
	for _, system := range []string{"darwin/arm64", "windows/amd64", "freebsd/amd64", "linux/riscv64"} {
		setSystem(t, system)
		said := func(what string, err error) {
			if !errors.Is(err, ErrNoDevices) || !strings.Contains(err.Error(), system) ||
				!strings.Contains(err.Error(), "Linux on amd64 and arm64") {
				t.Errorf("%s: %s: %v", system, what, err)
			}
		}
		for _, name := range []string{"", "auto", "cpu", "cpu:1", "cuda", "cuda:7"} {
			d, err := Open(name)
			if d != nil {
				d.Close()
			}
			said(name, err)
		}
		if _, err := Open("gpu"); err == nil || errors.Is(err, ErrNoDevices) {
			t.Errorf("%s: a name that is none: %v", system, err)
		}
		_, err := OpenAhead("sm_90", WithCache(t.TempDir()))
		said("OpenAhead", err)
		found, problems := List()
		if len(found) != 0 || len(problems) != 1 {
			t.Fatalf("%s: List: %v, %v", system, found, problems)
		}
		said("List", problems[0])
	}
}
