package testenv

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// complaints stands for a test, and keeps what it says.
type complaints struct {
	testing.TB
	said []string
}

func (c *complaints) Helper() {}
func (c *complaints) Errorf(text string, of ...any) {
	c.said = append(c.said, fmt.Sprintf(text, of...))
}

var kept []byte // so that what a test allocates is allocated

func TestBounded(t *testing.T) {
	spin := func() {
		for end := cpuTime() + 20*time.Millisecond; cpuTime() < end; {
		}
	}
	for name, c := range map[string]struct {
		do    func()
		most  uint64
		wants string
	}{
		"nothing": {func() {}, 1 << 20, ""},
		"memory":  {func() { kept = make([]byte, 2<<20) }, 1 << 20, "bytes of memory"},
		"time":    {spin, 1 << 30, "of CPU time"},
	} {
		s := &complaints{TB: t}
		longest := time.Hour
		if name == "time" {
			longest = 10 * time.Millisecond
		}
		bounded(s, c.most, longest, c.do)
		if said := fmt.Sprint(s.said); len(s.said) > 1 || (c.wants == "") != (len(s.said) == 0) ||
			!regexp.MustCompile(c.wants).MatchString(said) {
			t.Errorf("%s: it says %s, want %q", name, said, c.wants)
		}
	}
}

// Where go run ./internal/fuzz asks, each input leaves a line behind, with its name.
func TestBoundedTellsCoverage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "coverage")
	t.Setenv(coverageVariable, file)
	for _, name := range []string{"seed#0", "x"} {
		t.Run(name, func(t *testing.T) { Bounded(t, 0, func() {}) })
	}
	text, err := os.ReadFile(file)
	if want := `^(TestBoundedTellsCoverage/(seed#0|x)\t[01]\.\d{9}\n){2}$`; err != nil ||
		!regexp.MustCompile(want).Match(text) {
		t.Errorf("%q, %v: want %s", text, err, want)
	}
}
