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
func ProfileNCU(ncu string, command []string, batches int) ([]Counters, error) {
	dir, err := os.MkdirTemp("", "warpmap-ncu-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	log := filepath.Join(dir, "log")
	metrics := strings.Join([]string{ncuOccupancy, ncuInstructions, ncuCPI, ncuCPIIssued, ncuTime}, ",")
	args := []string{"--csv", "--page", "raw", "--print-units", "base", "--clock-control", "none", "--kernel-name", "regex:^find",
		"--metrics", metrics, "--log-file", log}
	out, err := exec.Command(ncu, append(args, command...)...).CombinedOutput()
	text, _ := os.ReadFile(log)
	if err != nil {
		return nil, fmt.Errorf("ncu: %w: %s", err, complaint(string(text)+"\n"+string(out)))
	}
	launches, err := parseNCU(string(text))
	if err != nil {
		return nil, fmt.Errorf("ncu: %w: %s", err, complaint(string(text)+"\n"+string(out)))
	}
	return perBatch(launches, batches)
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

// parseNCU reads ncu's CSV among its other lines: a row for each launch with a column for each counter, below a row of
// units; or, as some versions have it, a row for each counter of each launch.
func parseNCU(text string) ([]Counters, error) {
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
	name, unit, value := slices.Index(head, "Metric Name"), slices.Index(head, "Metric Unit"), slices.Index(head, "Metric Value")
	var out []Counters
	if name >= 0 && unit >= 0 && value >= 0 {
		for from := 1; from < len(rows); {
			to := from
			got := map[string]quantity{}
			for ; to < len(rows) && rows[to][id] == rows[from][id]; to++ {
				got[rows[to][name]] = quantity{rows[to][value], rows[to][unit]}
			}
			if out, err = counted(out, rows[from][kernel], got); err != nil {
				return nil, err
			}
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
		if out, err = counted(out, r[kernel], got); err != nil {
			return nil, err
		}
	}
	return out, nil
}

type quantity struct{ text, unit string }

// thousands are separated by commas in some of ncu's tables.
var thousands = regexp.MustCompile(`,(\d{3})`)

// scales turn ncu's units of time into milliseconds. Units of count and percent are their own.
var scales = map[string]float64{"nsecond": 1e-6, "ns": 1e-6, "usecond": 1e-3, "us": 1e-3, "msecond": 1, "ms": 1, "second": 1e3, "s": 1e3}

func counted(out []Counters, kernel string, got map[string]quantity) ([]Counters, error) {
	var missing []string
	read := func(names ...string) float64 {
		for _, n := range names {
			if x, err := strconv.ParseFloat(thousands.ReplaceAllString(got[n].text, "$1"), 64); err == nil {
				return x
			}
		}
		missing = append(missing, names[0])
		return 0
	}
	function, _, _ := strings.Cut(kernel, "(")
	c := Counters{function, read(ncuOccupancy), read(ncuInstructions), read(ncuCPI, ncuCPIIssued), read(ncuTime)}
	scale, ok := scales[got[ncuTime].unit]
	if !ok || len(missing) > 0 {
		return nil, fmt.Errorf("kernel %s: counters %q are missing, time in %q", kernel, missing, got[ncuTime].unit)
	}
	c.Milliseconds *= scale
	return append(out, c), nil
}
