package testenv

import (
	"errors"
	"testing"

	"github.com/warpmap/warpmap/internal/quick"
)

// spy stands for a test, and notes how it ends.
type spy struct {
	testing.TB
	end string
}

func (s *spy) Helper()               {}
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
