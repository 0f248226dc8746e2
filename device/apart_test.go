package device_test

import (
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/quick"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/internal/witness"
)

// compilations are those of a test.
type compilations struct {
	mu      sync.Mutex
	kernels []string
	meet    chan struct{} // not nil: each waits for another
	alone   bool          // one waited in vain
}

func watch(t *testing.T) *compilations {
	c := &compilations{}
	witness.Compiles = func(_, kernel string) func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.kernels = append(c.kernels, kernel)
		meet := c.meet
		return func() {
			if meet == nil {
				return
			}
			select {
			case meet <- struct{}{}:
			case <-meet:
			case <-time.After(10 * time.Second):
				c.mu.Lock()
				c.alone = true
				c.mu.Unlock()
			}
		}
	}
	t.Cleanup(func() { witness.Compiles = nil })
	return c
}

func (c *compilations) sorted() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Sorted(slices.Values(c.kernels))
}

func bindApart(t *testing.T, d *device.Device) (m *device.Module, add, crash device.Kernel[addParams]) {
	t.Helper()
	m, err := d.CompileApart(cpuProgram)
	must(t, err)
	must(t, errors.Join(device.Bind(m, "add", &add), device.Bind(m, "crash", &crash)))
	return m, add, crash
}

// A kernel is compiled when it is launched, and no other with it.
func TestCompileApart(t *testing.T) {
	testenv.UsersKernels(t)
	c := watch(t)
	d := openCPU(t, device.WithCache(""))
	m, add, _ := bindApart(t, d)
	if got := c.sorted(); got != nil {
		t.Errorf("compiled before a launch: %q", got)
	}
	s, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	for range 2 {
		must(t, add.Launch(d.Stream(), device.GridFor(3, 32), &addParams{Addr: s.Addr(), N: 3, Value: 4}))
	}
	if x, err := s.Host(nil); err != nil || !slices.Equal(x, []uint32{9, 10, 11}) {
		t.Errorf("%d, %v", x, err)
	}
	if got := c.sorted(); !slices.Equal(got, []string{"add"}) {
		t.Errorf("compiled %q", got)
	}
	if add.Threads() != 256 {
		t.Errorf("%d threads", add.Threads())
	}

	none, err := device.KernelOf[addParams](m, "nothing")
	must(t, err)
	if err := none.Launch(d.Stream(), device.GridFor(1, 32), &addParams{}); err == nil || !strings.Contains(err.Error(), "nothing") {
		t.Errorf("a kernel that is not there: %v", err)
	}
	other, err := device.KernelOf[device.HostLaunch](m, "add")
	must(t, err)
	if err := other.Launch(d.Stream(), device.GridFor(1, 32), &device.HostLaunch{}); err == nil || !strings.Contains(err.Error(), "bytes of parameters") {
		t.Errorf("other parameters: %v", err)
	}
	broken := *cpuProgram
	broken.Files = []device.File{{Name: "cpu.cu", Text: "#include \"warpmap.cuh\"\nWARPMAP_KERNEL(add, device_test::addParams) { wrong(p); }\n"}}
	m, err = d.CompileApart(&broken)
	must(t, err)
	k, err := device.KernelOf[addParams](m, "add")
	must(t, err)
	must(t, k.Ahead())
	var wrong *device.CompileError
	for range 2 {
		if err := k.Launch(d.Stream(), device.GridFor(1, 32), &addParams{}); !errors.As(err, &wrong) || !strings.Contains(wrong.Log, "wrong") {
			t.Errorf("a kernel that does not compile: %v", err)
		}
	}
}

// In short runs of tests a program is compiled as a whole, but for its rare kernels: these when one of a group is
// launched, and all of the group with it.
func TestRareKernels(t *testing.T) {
	was := quick.Kernels
	quick.Kernels = true
	quick.Rare[cpuProgram.Name] = [][]string{{"crash", "fill"}}
	t.Cleanup(func() { quick.Kernels = was; delete(quick.Rare, cpuProgram.Name) })
	c := watch(t)
	d := openCPU(t, device.WithCache(""))
	m, add, crash := bindApart(t, d)
	s, err := device.From(d, []uint32{1, 2, 3})
	must(t, err)
	p := addParams{Addr: s.Addr(), N: 3, Value: 4}
	must(t, add.Launch(d.Stream(), device.GridFor(3, 32), &p))
	if got := c.sorted(); len(got) != 1 {
		t.Errorf("%d compilations before a launch of a rare kernel", len(got))
	}
	for range 2 {
		must(t, crash.Compile())
		must(t, m.Ready())
	}
	if got := c.sorted(); len(got) != 2 {
		t.Errorf("%d compilations, want one without and one of the rare kernels", len(got))
	}
	must(t, add.Launch(d.Stream(), device.GridFor(3, 32), &p))
	if x, err := s.Host(nil); err != nil || !slices.Equal(x, []uint32{9, 10, 11}) {
		t.Errorf("%d, %v", x, err)
	}
}

// Kernels are compiled side by side in the background, each once.
func TestAheadSideBySide(t *testing.T) {
	if runtime.NumCPU() < 2 {
		t.Skip("one core compiles one kernel after the other")
	}
	testenv.UsersKernels(t)
	c := watch(t)
	c.meet = make(chan struct{})
	d := openCPU(t, device.WithCache(""))
	m, add, crash := bindApart(t, d)
	for range 2 {
		must(t, device.Ahead(add, crash))
	}
	must(t, m.Ready())
	must(t, add.Compile())
	if got := c.sorted(); !slices.Equal(got, []string{"add", "crash"}) || c.alone {
		t.Errorf("compiled %q, one after the other: %v", got, c.alone)
	}
}

// Without a compiler Ahead tells what the cache lacks.
func TestAheadWithoutCompiler(t *testing.T) {
	testenv.UsersKernels(t)
	cache := device.WithCache(t.TempDir())
	_, add, _ := bindApart(t, openCPU(t, cache))
	must(t, add.Compile())
	t.Setenv("PATH", "")
	t.Setenv("CXX", "")
	_, add, crash := bindApart(t, openCPU(t, cache))
	must(t, add.Ahead())
	for range 2 {
		if err := crash.Ahead(); !errors.Is(err, device.ErrNoCompiler) {
			t.Errorf("a kernel that is not in the cache: %v", err)
		}
	}
}
