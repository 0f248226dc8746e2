package nvrtc

import (
	"strings"
	"testing"
)

// A GPU gets no code for a Tegra, which runs on that Tegra only. A Tegra gets its own code, or an error.
func TestTargetIsNoTegra(t *testing.T) {
	l := &Library{Path: "x", Major: 12, Minor: 9,
		archs: []int{50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121}}
	old := &Library{Path: "x", Major: 12, Minor: 8, archs: []int{70, 72, 75, 80, 86, 87, 90, 100, 101, 110, 120}}
	for _, c := range []struct {
		library   *Library
		gpu, want string
	}{
		{old, "sm_103", "sm_100"}, {old, "sm_101", "sm_101"}, {l, "sm_103", "sm_103"}, {old, "sm_121", "sm_120"},
		{old, "sm_89", "sm_86"}, {old, "sm_87", "sm_87"}, {old, "sm_75", "sm_75"},
		{old, "sm_72", "sm_72"}, {old, "sm_110", "sm_110"}, {l, "sm_102", "sm_100"},
	} {
		if got, err := c.library.Target(c.gpu); err != nil || got != c.want {
			t.Errorf("%v for %s: code for %s, %v; want %s", c.library, c.gpu, got, err, c.want)
		}
	}
	desktop := &Library{Path: "x", Major: 13, Minor: 0, archs: []int{70, 75, 80, 86, 89, 90, 100, 103, 120, 121}}
	for _, tegra := range []string{"sm_72", "sm_87", "sm_88", "sm_101", "sm_110"} {
		got, err := desktop.Target(tegra)
		if err == nil || !strings.Contains(err.Error(), "cannot compile for "+tegra+", only for sm_70 sm_75") {
			t.Errorf("for the Tegra %s: code for %s, %v; want an error", tegra, got, err)
		}
	}
}
