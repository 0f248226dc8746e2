package warpcore

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/warpmap/warpmap/internal/bench"
)

// commands are what a user runs, from files to files.
type commands struct {
	*rates
	program string
}

// phase is a part of a command's time, as the command tells it.
type phase struct {
	name string
	took time.Duration
}

// querySummary is what classify query tells.
type querySummary struct {
	Reads    int     `json:"reads"`
	Loading  float64 `json:"loading_seconds"`
	Querying float64 `json:"querying_seconds"`
	Ranks    []struct {
		Reads     int     `json:"reads"`
		Precision float64 `json:"precision"`
	} `json:"ranks"`
}

// run runs a command, and reads what it tells.
func (c *commands) run(told any, args ...string) error {
	cmd := exec.Command(c.program, append(args, "--device", c.d.Info().Name, "--json")...)
	var says strings.Builder
	cmd.Stderr = &says
	out, err := cmd.Output()
	if err == nil {
		err = json.Unmarshal(out, told)
	}
	if err != nil {
		return fmt.Errorf("warpmap %s: %w: %s", strings.Join(args[:2], " "), err, says.String())
	}
	return nil
}

// timed adds rows for a command: the whole of the run in the middle, and its phases.
func timed(fig *bench.Fig, what, setting string, n int, of string, wrong int, run func() ([]phase, error)) error {
	type timedRun struct {
		took   time.Duration
		phases []phase
	}
	var runs []timedRun
	for i := range rateRuns + 1 {
		begin := time.Now()
		phases, err := run()
		if err != nil {
			return err
		}
		if i > 0 { // after one to warm up
			runs = append(runs, timedRun{time.Since(begin), phases})
		}
	}
	slices.SortFunc(runs, func(a, b timedRun) int { return int(a.took - b.took) })
	middle := runs[len(runs)/2]
	row(fig, what, setting, n, of, middle.took, wrong)
	rest := middle.took
	for _, p := range middle.phases {
		row(fig, what, "of that, "+p.name, n, of, p.took, 0)
		rest -= p.took
	}
	if len(middle.phases) > 0 {
		row(fig, what, "of that, all else: the process, the device", n, of, max(rest, 1), 0)
	}
	return nil
}

func since(seconds float64) time.Duration { return time.Duration(seconds * float64(time.Second)) }

// classify builds a database, and queries it.
func (c *commands) classify(fig *bench.Fig) error {
	db := filepath.Join(c.dir, "db")
	err := timed(fig, "warpmap classify build", "from FASTA to a file", len(c.letters), "letters", 0, func() ([]phase, error) {
		var s struct{ Seconds float64 }
		err := c.run(&s, slices.Concat([]string{"classify", "build", db}, c.refs, []string{"--taxonomy", c.taxonomy(), "--force"})...)
		return []phase{{"reading, sketching, writing", since(s.Seconds)}}, err
	})
	if err != nil {
		return err
	}
	query := slices.Concat([]string{"classify", "query", db}, c.sampled, []string{"--lowest", "species", "--out", filepath.Join(c.dir, "lines")})
	var s querySummary
	if err := c.run(&s, append(query, "--ground-truth")...); err != nil {
		return err
	}
	wrong := c.n
	if len(s.Ranks) > 0 {
		wrong = c.n - s.Reads + int(math.Round(float64(s.Ranks[0].Reads)*(1-s.Ranks[0].Precision)))
	}
	return timed(fig, "warpmap classify query", "from FASTA to a file of lines", c.n, "reads", wrong, func() ([]phase, error) {
		var s querySummary
		err := c.run(&s, query...)
		return []phase{{"opening the database", since(s.Loading)}, {"reading, classifying, writing", since(s.Querying)}}, err
	})
}

// count counts k-mers of reads.
func (c *commands) count(fig *bench.Fig) error {
	return c.eachFASTQ(func(setting string, names []string, n int) error {
		return timed(fig, "warpmap kmers count", "from FASTQ to a file, "+setting, n, "reads", 0, func() ([]phase, error) {
			out := filepath.Join(c.dir, "counts")
			defer os.Remove(out) // to take the place of a file takes as long as to write it
			var s struct{ Read struct{ Records int } }
			err := c.run(&s, slices.Concat([]string{"kmers", "count"}, names, []string{"-k", fmt.Sprint(ratesK), "-C", "--min", "2", "--out", out})...)
			if err == nil && s.Read.Records != n {
				err = fmt.Errorf("warpmap kmers count has read %d reads of %d", s.Read.Records, n)
			}
			return nil, err
		})
	})
}
