// Command trial tries the whole module for a long time: files of operations, faults, crashes, histories under stress and
// under the memory model, fuzzers, and tables that age. Run it in the module's root:
//
//	go run ./internal/trial -time 2h
//	go run ./internal/trial -time 10m -run 'operations|faults' -device cuda:0 -out found
//
// Each part has its share of the time, and goes on by turns. A turn is one process of a test binary, with seeds of its
// own and a deadline, so that what hangs or crashes is a finding, too. A finding leaves its log in the folder -out, with
// the command that runs the turn again, and files of operations that were reduced. A line tells of each turn, and a table
// at the end of each part. The command ends with 1 if there is a finding. Ctrl-C ends it early, with the table.
//
// The test binaries are built first. On a machine without Go they lie ready in a folder -tests, as
// FOLDER/PACKAGE/run.test beside the package's testdata (the module's root is the package "root"), and the fuzzers are
// left out. With -device cuda:0 tests that have one for each device run on that one; all others stay on the CPU.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := command(ctx, os.Args[1:], parts, os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "trial:", err)
		stop()
		os.Exit(1)
	}
}

// trial is one run of the command.
type trial struct {
	time     time.Duration
	device   string
	tests    string // a folder of binaries, which are not built then
	out      string
	seed     uint64
	deadline time.Duration
	most     int // turns
	parts    []*part
	binaries map[string]string // of each package

	sync.Mutex // of what follows, and of what parts count
	said       io.Writer
	end        time.Time
	turns      int
}

// mostFindings is how often a turn may fail until it is left out: the same again tells nothing new.
const mostFindings = 3

func command(ctx context.Context, args []string, parts func() []*part, out io.Writer) error {
	t := &trial{said: out, binaries: map[string]string{}}
	flags := flag.NewFlagSet("trial", flag.ContinueOnError)
	flags.DurationVar(&t.time, "time", time.Hour, "how long to go on, beside building the tests")
	flags.StringVar(&t.device, "device", "cpu", "the device of tests that have one for each: cpu, or cuda:0")
	flags.StringVar(&t.tests, "tests", "", "a folder of test binaries that lie ready, as PACKAGE/run.test")
	flags.StringVar(&t.out, "out", "trial-found", "a folder for findings")
	flags.Uint64Var(&t.seed, "seed", 0, "the first turn's seed; 0: by the clock")
	flags.DurationVar(&t.deadline, "deadline", 15*time.Minute, "how long a turn may take beside its share")
	flags.IntVar(&t.most, "turns", 0, "how many turns to run at most; 0: as many as there is time for")
	only := flags.String("run", "", "those parts alone whose names match, such as faults|crashes")
	beside := flags.Int("beside", 1, "how many turns run beside one another")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	for _, p := range parts() {
		if wanted.MatchString(p.name) && p.suits(t) {
			t.parts = append(t.parts, p)
		}
	}
	switch {
	case flags.NArg() > 0 || *beside < 1 || t.time <= 0 || t.deadline <= 0:
		return fmt.Errorf("%q: want flags alone, and numbers above 0", args)
	case t.device != "cpu" && t.device != "cuda:0":
		return fmt.Errorf("-device %q: want cpu or cuda:0, after which tests are named", t.device)
	case len(t.parts) == 0:
		return fmt.Errorf("no part's name matches %q", *only)
	}
	if t.seed == 0 {
		t.seed = uint64(time.Now().UnixMilli())
	}
	if t.out, err = filepath.Abs(t.out); err != nil {
		return err
	}
	if err := os.MkdirAll(t.out, 0o777); err != nil {
		return err
	}
	done, err := t.build(ctx)
	defer done()
	if err != nil {
		return err
	}
	t.end = time.Now().Add(t.time)
	ctx, cancel := context.WithDeadline(ctx, t.end)
	defer cancel()
	var all crash.WaitGroup
	errs := make([]error, *beside)
	for i := range *beside {
		all.Go(func() { errs[i] = t.work(ctx) })
	}
	all.Wait()
	return errors.Join(append(errs, t.report())...)
}

// work runs turns until the time is over, or none is left.
func (t *trial) work(ctx context.Context) error {
	for ctx.Err() == nil {
		r := t.next()
		if r == nil {
			return nil
		}
		if err := t.run(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

// next is the turn of the part that is furthest behind its share.
func (t *trial) next() *run {
	t.Lock()
	defer t.Unlock()
	if t.most > 0 && t.turns == t.most {
		return nil
	}
	var least *part
	for _, p := range t.parts {
		if len(p.turns) > 0 && (least == nil || p.behind() < least.behind()) {
			least = p
		}
	}
	if least == nil {
		return nil
	}
	turn := least.turns[least.at%len(least.turns)]
	least.at++
	least.under++
	t.turns++
	// Each turn counts its seeds from a number of its own, and no test has a million.
	return &run{part: least, turn: turn, n: t.turns, seed: t.seed + 1_000_000*uint64(t.turns-1)}
}

// columns are what tests try, by the words of testenv.Tried.
var columns = []string{"programs", "operations", "faults", "kills", "inputs", "commands", "histories", "slices",
	"reductions"}

// report prints the table, and tells whether all is well.
func (t *trial) report() error {
	w := tabwriter.NewWriter(t.said, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "part\tturns\ttests\t%s\tfindings\ttime\t\n", strings.Join(columns, "\t"))
	all := &part{name: "all", tried: map[string]int{}}
	for _, p := range t.parts {
		p.line(w)
		all.ran, all.tests, all.used = all.ran+p.ran, all.tests+p.tests, all.used+p.used
		all.findings = append(all.findings, p.findings...)
		for what, n := range p.tried {
			all.tried[what] += n
		}
	}
	all.line(w)
	w.Flush()
	for _, f := range all.findings {
		fmt.Fprintf(t.said, "found: %s\n", f)
	}
	if len(all.findings) > 0 {
		return fmt.Errorf("%d turns found something: the logs are in %s", len(all.findings), t.out)
	}
	if all.tests == 0 {
		return errors.New("no test was run")
	}
	return nil
}

func (p *part) line(w io.Writer) {
	fmt.Fprintf(w, "%s\t%d\t%d\t", p.name, p.ran, p.tests)
	for _, c := range columns {
		if n := p.tried[c]; n > 0 {
			fmt.Fprintf(w, "%d\t", n)
		} else {
			fmt.Fprint(w, "-\t")
		}
	}
	fmt.Fprintf(w, "%d\t%v\t\n", len(p.findings), p.used.Round(time.Second))
}
