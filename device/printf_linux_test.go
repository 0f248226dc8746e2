package device_test

import (
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/warpmap/warpmap/device"
)

// The output of printf in a kernel of the CPU device is there when the launch returns, also if standard output is a pipe.
func TestPrintfOnCPU(t *testing.T) {
	d := openCPU(t)
	m, err := d.Compile(&device.Program{Name: "printf", Layouts: []any{addParams{}}, Files: []device.File{{Name: "printf.cu", Text: `
#include "warpmap.cuh"
#include "layout.h"
WARPMAP_KERNEL(say, device_test::addParams) {
    if (thread_index() == 0) printf("block %d says %u\n", (int)block_index(), p.value);
}`}}})
	must(t, err)
	say, err := device.KernelOf[addParams](m, "say")
	must(t, err)
	r, w, err := os.Pipe()
	must(t, err)
	defer r.Close()
	out, err := unix.Dup(1)
	must(t, err)
	must(t, unix.Dup3(int(w.Fd()), 1, 0))
	err = say.Launch(nil, device.Grid{Blocks: 5, Threads: 64}, &addParams{Value: 7})
	must(t, unix.Dup3(out, 1, 0))
	must(t, unix.Close(out))
	must(t, err)
	must(t, w.Close())
	must(t, r.SetReadDeadline(time.Now().Add(10*time.Second)))
	text, err := io.ReadAll(r)
	must(t, err)
	for _, want := range []string{"block 0 says 7\n", "block 4 says 7\n"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("standard output has %q, want %q", text, want)
		}
	}
}
