// Package bench measures tables and the machine they run on, in one run, and counts wrong answers on the device. A file
// is a figure or a study; results/ holds what was measured, where and when.
package bench

import (
	"os"
	"os/exec"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/warpmap/warpmap/device"
)

// Where says on what and when something was measured: the head of every kept result.
type Where struct {
	Device   string    `json:"device"`
	Model    string    `json:"model"`
	Arch     string    `json:"arch"`
	Driver   string    `json:"driver,omitempty"`
	Compiler string    `json:"compiler"`
	Commit   string    `json:"commit"`
	Date     time.Time `json:"date"`
}

// Here describes the device and this build.
func Here(d *device.Device) Where {
	i := d.Info()
	return Where{i.Name, i.Model, i.Arch, i.Driver, i.Compiler, commit(), time.Now().UTC().Truncate(time.Second)}
}

// commit is the version of the program: from the build, from WARPMAP_COMMIT, or from git.
func commit() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	if c := os.Getenv("WARPMAP_COMMIT"); c != "" {
		return c
	}
	if out, err := exec.Command("git", "rev-parse", "HEAD").Output(); err == nil {
		return strings.TrimSpace(string(out))
	}
	return "unknown"
}

// Runs is how often everything is measured, after one run to warm up; results are medians.
const Runs = 5

// timed measures what queue puts on the stream, in device time: the median of runs, after a warm-up. before, which may
// be nil, is done ahead of each and not measured.
func timed(d *device.Device, st *device.Stream, runs int, before, queue func() error) (time.Duration, error) {
	from, err := d.NewEvent()
	if err != nil {
		return 0, err
	}
	defer from.Close()
	to, err := d.NewEvent()
	if err != nil {
		return 0, err
	}
	defer to.Close()
	var times []time.Duration
	for run := range runs + 1 {
		if before != nil {
			if err := before(); err != nil {
				return 0, err
			}
		}
		if err := st.Sync(); err != nil {
			return 0, err
		}
		if err := from.Record(st); err != nil {
			return 0, err
		}
		if err := queue(); err != nil {
			return 0, err
		}
		if err := to.Record(st); err != nil {
			return 0, err
		}
		if err := to.Sync(); err != nil {
			return 0, err
		}
		t, err := to.Since(from)
		if err != nil {
			return 0, err
		}
		if run > 0 {
			times = append(times, t)
		}
	}
	slices.Sort(times)
	return times[len(times)/2], nil
}

// rate is billions a second.
func rate(n int, t time.Duration) float64 { return float64(n) / max(float64(t), 1) }
