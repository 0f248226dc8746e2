// Command fuzz runs the module's fuzzers in turn, each for the same share of the time, and tells at the end what came of
// it. Run it in the module's root:
//
//	go run ./internal/fuzz -time 1h
//	go run ./internal/fuzz -time 10m -run 'join/'
//	go run ./internal/fuzz -time 0 -keep
//
// An input that fails is a file in the fuzzer's folder of testdata/fuzz, where go test runs it from then on. Give it a
// name that says what is wrong with it, mend the defect, and commit both. The command ends with 1 if there is one.
//
// With -keep, inputs of Go's cache that reach code which no seed reaches go into testdata/fuzz, too, and files there
// that reach nothing more are removed. So a corpus stays small, and covers what fuzzing has found; keep.go says how.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"text/tabwriter"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	err := command(ctx, os.Args[1:], os.Stdout)
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "fuzz:", err)
		stop()
		os.Exit(1)
	}
}

// errFound is the end of a run that found something.
var errFound = errors.New("inputs fail: they are in testdata/fuzz")

func command(ctx context.Context, args []string, out io.Writer) error {
	flags := flag.NewFlagSet("fuzz", flag.ContinueOnError)
	all := flags.Duration("time", time.Hour, "how long to run all fuzzers together, beside building them")
	only := flags.String("run", "", "run those alone whose names match, such as join/FuzzCSV or ^genome")
	keep := flags.Bool("keep", false, "keep inputs that reach more code in testdata, and remove those that do not")
	parallel := flags.Int("parallel", runtime.NumCPU(), "how many processes work for a fuzzer")
	if err := flags.Parse(args); err != nil {
		return err
	}
	wanted, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	fuzzers, err := find(ctx, ".", wanted)
	if err != nil {
		return err
	}
	if len(fuzzers) == 0 {
		return fmt.Errorf("no fuzzer's name matches %q", *only)
	}
	built, err := os.MkdirTemp("", "fuzz-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(built)
	u := &runner{built, *parallel, out}
	results := make([]result, len(fuzzers))
	share := *all / time.Duration(len(fuzzers))
	for i, f := range fuzzers {
		results[i].fuzzer = f
		if share > 0 && ctx.Err() == nil {
			u.run(ctx, &results[i], share)
		}
	}
	if *keep {
		for i := range results {
			if ctx.Err() == nil {
				results[i].keep(ctx, out)
			}
		}
	}
	return report(results, out)
}

// report prints the table, and tells whether all is well.
func report(results []result, out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "executions\tnew inputs\tcorpus\tfindings\t  fuzzer\t")
	var err error
	inputs := int64(0)
	for _, r := range results {
		inputs += r.execs
		found := "-"
		if r.found != nil {
			found = cmp.Or(r.found.input, "failed")
			err = errFound
		}
		fmt.Fprintf(w, "%d\t%d\t%d\t%s\t  %s\t\n", r.execs, r.interesting, len(r.corpus()), found, r.fuzzer)
	}
	w.Flush()
	fmt.Fprintf(out, "tried %d inputs\n", inputs)
	for _, r := range results {
		if r.found != nil {
			fmt.Fprintf(out, "\n%s: %s\n%s", r.fuzzer, cmp.Or(r.found.input, "no input is known"), r.found.text)
		}
		if r.wrong != nil {
			fmt.Fprintf(out, "\n%s: %v\n", r.fuzzer, r.wrong)
			err = cmp.Or(err, r.wrong)
		}
	}
	return err
}
