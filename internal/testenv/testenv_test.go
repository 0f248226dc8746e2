package testenv

import (
	"errors"
	"fmt"
	"testing"

	"github.com/warpmap/warpmap/internal/quick"
)

// spy stands for a test, and notes how it ends.
type spy struct {
	testing.TB
	name, end string
}

func (s *spy) Helper()               {}
func (s *spy) Name() string          { return s.name }
func (s *spy) Fatalf(string, ...any) { s.end = "failed" }
func (s *spy) Skipf(string, ...any) {
	if s.end == "" {
		s.end = "skipped"
	}
}

func TestRequire(t *testing.T) {
	for _, c := range []struct {
		list string
		err  error
		want string
	}{
		{"", nil, ""},
		{"cuda", nil, ""},
		{"", errors.New("none"), "skipped"},
		{"nvrtc", errors.New("none"), "skipped"},
		{"cuda", errors.New("none"), "failed"},
		{"nvrtc, cuda", errors.New("none"), "failed"},
	} {
		t.Setenv("WARPMAP_REQUIRE", c.list)
		s := &spy{TB: t}
		Require(s, "cuda", c.err)
		if s.end != c.want {
			t.Errorf("WARPMAP_REQUIRE=%q, error %v: %q, want %q", c.list, c.err, s.end, c.want)
		}
	}
}

func TestUsersKernels(t *testing.T) {
	before := quick.Kernels
	t.Run("while it runs", func(t *testing.T) {
		UsersKernels(t)
		if quick.Kernels {
			t.Error("kernels are compiled sooner, and less well than users'")
		}
	})
	if quick.Kernels != before {
		t.Errorf("kernels compiled sooner: %t became %t", before, quick.Kernels)
	}
}

// In ten runs, of which each has another tenth, every part has one turn; short runs, and those without a tenth, have all.
func TestTurn(t *testing.T) {
	parts := make([]string, 200)
	for i := range parts {
		parts[i] = fmt.Sprintf("TestVariants/%d", i)
	}
	turns := func() (names []string) {
		for _, name := range parts {
			s := &spy{TB: t, name: name}
			if Turn(s); s.end == "" {
				names = append(names, name)
			}
		}
		return names
	}
	t.Setenv("WARPMAP_LONG", "1")
	seen := map[string]int{}
	for tenth := range 10 {
		t.Setenv("WARPMAP_TENTH", fmt.Sprint(tenth))
		names := turns()
		if len(names) == 0 || len(names) > len(parts)/4 {
			t.Errorf("tenth %d has %d of %d parts", tenth, len(names), len(parts))
		}
		for _, name := range names {
			seen[name]++
		}
	}
	for _, name := range parts {
		if seen[name] != 1 {
			t.Errorf("%s has %d turns in ten runs", name, seen[name])
		}
	}
	for _, c := range []struct{ long, tenth string }{{"1", ""}, {"", "3"}} {
		t.Setenv("WARPMAP_LONG", c.long)
		t.Setenv("WARPMAP_TENTH", c.tenth)
		if names := turns(); len(names) != len(parts) {
			t.Errorf("WARPMAP_LONG=%q, WARPMAP_TENTH=%q: %d of %d parts run", c.long, c.tenth, len(names), len(parts))
		}
	}
	for _, wrong := range []string{"10", "-1", "one"} {
		t.Setenv("WARPMAP_LONG", "1")
		t.Setenv("WARPMAP_TENTH", wrong)
		s := &spy{TB: t, name: "TestVariants"}
		if Turn(s); s.end != "failed" {
			t.Errorf("WARPMAP_TENTH=%s: %q, want a failure", wrong, s.end)
		}
	}
}
