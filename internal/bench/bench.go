// Package bench is the frame of a measurement: it runs tables and measures the machine they run on, in one run, counts wrong
// answers on the device, draws figures, and keeps results. The folders below it hold a paper's studies each, with the
// baselines that they need; results/ holds what was measured, where and when.
package bench

import (
	"cmp"
	"math"
	"os"
	"runtime/debug"
	"slices"
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
	return Where{i.Name, i.Model, i.Arch, i.Driver, i.Compiler, Commit(), time.Now().UTC().Truncate(time.Second)}
}

const module = "github.com/warpmap/warpmap"

// WithChanges ends a Commit of a build whose files were not those of the commit.
const WithChanges = " and changes"

// Commit is what this program was built from: the commit of this module that the build noted, or its version where the program is another module's or was
// installed as a release; else what WARPMAP_COMMIT says; else "unknown". The folder that the program runs in says nothing: it may be another's.
func Commit() string {
	info, _ := debug.ReadBuildInfo()
	return cmp.Or(built(info), os.Getenv("WARPMAP_COMMIT"), "unknown")
}

// built is the version of this module that a build has noted: the commit, and whether there were changes, or a release; empty for none.
func built(info *debug.BuildInfo) string {
	if info == nil {
		return ""
	}
	m := info.Main
	if m.Path == module {
		revision, changes := "", ""
		for _, s := range info.Settings {
			switch {
			case s.Key == "vcs.revision":
				revision = s.Value
			case s.Key == "vcs.modified" && s.Value == "true":
				changes = WithChanges
			}
		}
		if revision != "" {
			return revision + changes
		}
	}
	for _, d := range info.Deps { // the commit is another module's
		if d.Path == module {
			m = *d
		}
	}
	if m.Path != module || m.Version == "(devel)" || m.Replace != nil {
		return ""
	}
	return m.Version
}

// Runs is how often everything is measured, after one run to warm up; results are medians.
const Runs = 5

// Timed measures what queue puts on the stream, in device time: the median of runs, after a warm-up. before, which may
// be nil, is done ahead of each and not measured.
func Timed(d *device.Device, st *device.Stream, runs int, before, queue func() error) (time.Duration, error) {
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
	return spreads(d).add(times), nil
}

// Rate is billions a second.
func Rate(n int, t time.Duration) float64 { return float64(n) / max(float64(t), 1) }

// Clocked is the median of Runs by the wall clock, after a warm-up; the stream is done before and after.
func Clocked(st *device.Stream, f func() error) (time.Duration, error) {
	var times []time.Duration
	for run := range Runs + 1 {
		if err := st.Sync(); err != nil {
			return 0, err
		}
		start := time.Now()
		if err := f(); err != nil {
			return 0, err
		}
		if err := st.Sync(); err != nil {
			return 0, err
		}
		if run > 0 {
			times = append(times, time.Since(start))
		}
	}
	slices.Sort(times)
	return spreads(st.Device()).add(times), nil
}

// Runtimes are the times of Runs runs after one to warm up, by the wall clock, the shortest first. after, which may be nil, is done behind each and not
// measured.
func Runtimes(d *device.Device, do, after func() error) (times []time.Duration, err error) {
	for run := range Runs + 1 {
		start := time.Now()
		if err := do(); err != nil {
			return nil, err
		}
		if run > 0 {
			times = append(times, time.Since(start))
		}
		if after != nil {
			if err := after(); err != nil {
				return nil, err
			}
		}
	}
	slices.Sort(times)
	spreads(d).add(times)
	return times, nil
}

// Mean is a geometric mean.
type Mean struct {
	logs float64
	n    int
}

// Add takes one more factor.
func (m *Mean) Add(x float64) { m.logs, m.n = m.logs+math.Log(x), m.n+1 }

// Of is the mean; 1 of nothing.
func (m *Mean) Of() float64 { return math.Exp(m.logs / float64(max(1, m.n))) }

// Round keeps what is worth reading: three decimals, and six where the number is small.
func Round(x float64) float64 {
	if x < 0.1 {
		return math.Round(x*1e6) / 1e6
	}
	return math.Round(x*1e3) / 1e3
}
