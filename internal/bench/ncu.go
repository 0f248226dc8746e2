package bench

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/warpmap/warpmap/internal/files"
)

// Counters are what Nsight Compute counted of one batch of look-ups.
type Counters struct {
	Kernels      string  // their names; of several, the longest was counted
	Occupancy    float64 // achieved, in percent
	Instructions float64 // executed, by warps
	CPI          float64 // cycles of a warp per executed instruction
	Milliseconds float64
}

// The counters' names for ncu. In its report they are called Achieved Occupancy, Executed Instructions, Warp Cycles Per
// Executed Instruction, Warp Cycles Per Issued Instruction (for GPUs without the former), and Duration.
const (
	ncuOccupancy    = "sm__warps_active.avg.pct_of_peak_sustained_active"
	ncuInstructions = "smsp__inst_executed.sum"
	ncuCPI          = "smsp__average_warps_active_per_inst_executed.ratio"
	ncuCPIIssued    = "smsp__average_warp_latency_per_inst_issued.ratio"
	ncuTime         = "gpu__time_duration.sum"
	// Over 32 times the instructions it is nvprof's warp_execution_efficiency: lanes that are predicated off count as active.
	ncuLanes = "smsp__thread_inst_executed.sum"
)

// FindNCU finds Nsight Compute's command line.
func FindNCU() (string, error) {
	if p, err := exec.LookPath("ncu"); err == nil {
		return p, nil
	}
	patterns := []string{"/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu"}
	for _, v := range []string{"CUDA_HOME", "CUDA_PATH"} {
		if home := os.Getenv(v); home != "" {
			patterns = slices.Insert(patterns, 0, filepath.Join(home, "bin", "ncu"))
		}
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(pattern)
		slices.Sort(found)
		slices.Reverse(found) // the newest, as far as names tell
		for _, p := range found {
			if _, err := exec.LookPath(p); err == nil {
				return p, nil
			}
		}
	}
	return "", errors.New("this figure needs ncu, NVIDIA's Nsight Compute, which is neither in $PATH nor in " + strings.Join(patterns, ", ") +
		": install the CUDA toolkit's package nsight-compute, or put its folder into $PATH")
}

// ProfileNCU runs a command under ncu and returns the counters of its batches of look-ups, in order.
func ProfileNCU(ncu string, command []string, batches int) (out []Counters, err error) {
	err = underNCU(ncu, command, "^find", []string{ncuOccupancy, ncuInstructions, ncuCPI, ncuCPIIssued, ncuTime}, func(text string) (err error) {
		out, err = parseNCU(text)
		return err
	})
	if err != nil {
		return nil, err
	}
	return perBatch(out, batches)
}

// Lanes are what Nsight Compute counted of several launches together.
type Lanes struct {
	Kernels      string  // their names, each once
	Instructions float64 // executed, by warps
	Active       float64 // lanes of an instruction, in percent: the warp execution efficiency
	Milliseconds float64
}

// ProfileLanes runs a command under ncu, and counts the lanes of those of its kernels whose names the regular expression matches.
func ProfileLanes(ncu string, command []string, kernels string) (l Lanes, err error) {
	err = underNCU(ncu, command, kernels, []string{ncuInstructions, ncuLanes, ncuTime}, func(text string) (err error) {
		l, err = lanesNCU(text)
		return err
	})
	return l, err
}

// lanesNCU adds up all launches of ncu's CSV.
func lanesNCU(text string) (l Lanes, err error) {
	launches, err := launchesNCU(text)
	if err != nil {
		return l, err
	}
	var lanes float64
	var names []string
	for _, x := range launches {
		r := reading{of: x}
		l.Instructions, lanes, l.Milliseconds = l.Instructions+r.read(ncuInstructions), lanes+r.read(ncuLanes), l.Milliseconds+r.time()
		if r.err() != nil {
			return l, r.err()
		}
		if !slices.Contains(names, x.kernel) {
			names = append(names, x.kernel)
		}
	}
	l.Kernels, l.Active = strings.Join(names, ", "), 100*lanes/(32*max(l.Instructions, 1))
	return l, nil
}

// underNCU runs a command under ncu, and hands what that wrote to parse.
func underNCU(ncu string, command []string, kernels string, metrics []string, parse func(text string) error) error {
	dir, remove, err := files.TemporaryFolder()
	if err != nil {
		return err
	}
	defer remove()
	log := filepath.Join(dir, "log")
	args := []string{"--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--kernel-name", "regex:" + kernels,
		"--metrics", strings.Join(metrics, ","), "--log-file", log}
	out, err := exec.Command(ncu, append(args, command...)...).CombinedOutput()
	text, _ := os.ReadFile(log)
	if err == nil {
		err = parse(string(text))
	}
	if err != nil {
		return fmt.Errorf("ncu: %w: %s", err, complaint(string(text)+"\n"+string(out)))
	}
	return nil
}

// perBatch shares launches out to batches, which have the same number of them each.
func perBatch(launches []Counters, batches int) (out []Counters, err error) {
	each := len(launches) / max(batches, 1)
	if each == 0 || each*batches != len(launches) {
		return nil, fmt.Errorf("ncu counted %d launches of look-ups for %d batches", len(launches), batches)
	}
	for batch := range slices.Chunk(launches, each) {
		c := slices.MaxFunc(batch, func(a, b Counters) int { return int(a.Milliseconds*1e6 - b.Milliseconds*1e6) })
		var names []string
		for _, l := range batch {
			names = append(names, l.Kernels)
		}
		c.Kernels = strings.Join(names, ", ")
		out = append(out, c)
	}
	return out, nil
}

// complaint is what ncu, or the program under it, says of an error: the lines marked so, or else the last ones.
func complaint(text string) string {
	var marked, last []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || strings.HasPrefix(line, "==PROF=="):
			continue
		case strings.HasPrefix(line, "==ERROR==") || strings.HasPrefix(line, "==WARNING==") || strings.HasPrefix(line, "warpmap:"):
			marked = append(marked, line)
		}
		last = append(last, line)
	}
	if len(marked) > 0 {
		return strings.Join(marked, " ")
	}
	return strings.Join(last[max(0, len(last)-3):], " ")
}

// parseNCU reads the launches' counters from ncu's CSV.
func parseNCU(text string) (out []Counters, err error) {
	launches, err := launchesNCU(text)
	for _, x := range launches {
		r := reading{of: x}
		out = append(out, Counters{x.kernel, r.read(ncuOccupancy), r.read(ncuInstructions), r.read(ncuCPI, ncuCPIIssued), r.time()})
		if r.err() != nil {
			return nil, r.err()
		}
	}
	return out, err
}

type quantity struct{ text, unit string }

// launch is what ncu says of one.
type launch struct {
	kernel string
	got    map[string]quantity
}

// launchesNCU reads ncu's CSV among its other lines: a row for each launch with a column for each counter, below a row of
// units; or, as some versions have it, a row for each counter of each launch.
func launchesNCU(text string) (out []launch, err error) {
	start := strings.Index(text, `"ID",`)
	if start < 0 {
		return nil, errors.New("no launch was counted")
	}
	var table bytes.Buffer
	for line := range strings.Lines(text[start:]) {
		if strings.HasPrefix(line, `"`) {
			table.WriteString(line)
		}
	}
	rows, err := csv.NewReader(&table).ReadAll()
	if err != nil {
		return nil, err
	}
	head := rows[0]
	id, kernel := slices.Index(head, "ID"), slices.Index(head, "Kernel Name")
	if kernel < 0 {
		return nil, fmt.Errorf("its table has no column %q: %q", "Kernel Name", head)
	}
	add := func(name string, got map[string]quantity) {
		function, _, _ := strings.Cut(name, "(")
		out = append(out, launch{function, got})
	}
	name, unit, value := slices.Index(head, "Metric Name"), slices.Index(head, "Metric Unit"), slices.Index(head, "Metric Value")
	if name >= 0 && unit >= 0 && value >= 0 {
		for from := 1; from < len(rows); {
			to := from
			got := map[string]quantity{}
			for ; to < len(rows) && rows[to][id] == rows[from][id]; to++ {
				got[rows[to][name]] = quantity{rows[to][value], rows[to][unit]}
			}
			add(rows[from][kernel], got)
			from = to
		}
		return out, nil
	}
	units := make([]string, len(head))
	for _, r := range rows[1:] {
		if r[id] == "" {
			units = r
			continue
		}
		got := map[string]quantity{}
		for i, c := range head {
			got[c] = quantity{r[i], units[i]}
		}
		add(r[kernel], got)
	}
	return out, nil
}

// thousands are separated by commas in some of ncu's tables.
var thousands = regexp.MustCompile(`,(\d{3})`)

// scales turn ncu's units of time into milliseconds. Units of count and percent are their own.
var scales = map[string]float64{"nsecond": 1e-6, "ns": 1e-6, "usecond": 1e-3, "us": 1e-3, "msecond": 1, "ms": 1, "second": 1e3, "s": 1e3}

// reading takes counters from a launch, and remembers which are missing.
type reading struct {
	of      launch
	missing []string
}

// read is the first of the counters that there is.
func (r *reading) read(names ...string) float64 {
	for _, n := range names {
		if x, err := strconv.ParseFloat(thousands.ReplaceAllString(r.of.got[n].text, "$1"), 64); err == nil {
			return x
		}
	}
	r.missing = append(r.missing, names[0])
	return 0
}

// time is the launch's, in milliseconds.
func (r *reading) time() float64 {
	scale, ok := scales[r.of.got[ncuTime].unit]
	if !ok {
		r.missing = append(r.missing, ncuTime)
	}
	return scale * r.read(ncuTime)
}

func (r *reading) err() error {
	if len(r.missing) == 0 {
		return nil
	}
	return fmt.Errorf("kernel %s: counters %q are missing, time in %q", r.of.kernel, r.missing, r.of.got[ncuTime].unit)
}
