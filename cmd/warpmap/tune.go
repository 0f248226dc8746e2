package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	gphbench "github.com/warpmap/warpmap/internal/bench/gph"
	"github.com/warpmap/warpmap/workload"
)

func tuneCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "tune",
		Short:   "Find the options with which a table is fastest on this device",
		Example: "  warpmap tune gph --device cuda:0\n  warpmap tune gph --n 100000000 --load 0.533 --trials 300",
	}
	cmd.AddCommand(tuneGPHCommand())
	return cmd
}

// tuneResult is what tune prints as JSON.
type tuneResult struct {
	*gphbench.Tuning
	Profile string `json:"profile"` // the file
}

func tuneGPHCommand() *cobra.Command {
	var o gphbench.TuneOptions
	var out string
	cmd := &cobra.Command{
		Use:   "gph",
		Short: "Find M, R, |g|, |h| and the cells of gph tables for this device and a workload",
		Long: `Search for the options with which gph tables are fastest on this device, for one workload: slots of a
bucket (M), virtual buckets of a cell (R), bytes of a cell, keys a cell, lanes that work on an insert (|h|) and on a
look-up (|g|). Half of the trials are drawn at random, the others are steps from the best so far. The first are the
defaults. A table that refuses pairs, grows past the load factor or gives a wrong answer loses. At the end the best and
the defaults are measured again, in turns; only what beats the defaults there is taken.

It is kept in the profile of this model of device: gph-<model>.json in the folder warpmap of your configuration, or in
$WARPMAP_PROFILES, or in the file that --out names. From then on this command's gph tables with keys and values of these
widths, and load factors up to this one (of its class: to 0.6, to 0.8, to 1), take what they leave open from it, unless
WARPMAP_PROFILES is off; and so do those of every Go program that calls gph.UseProfiles(true). Where the defaults were
best, what the profile had for these tables is removed.`,
		Example: `  warpmap tune gph
  warpmap tune gph --device cuda:0 --n 100000000 --load 0.533 --hits 0.5 --trials 300
  warpmap tune gph --key-bytes 8 --value-bytes 8 --load 0.8 --objective mixed
  warpmap tune gph --device cpu --n 20000 --trials 8 --out profile.json --json`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := ofPairs(o.N, o.KeyBytes+o.ValueBytes); err != nil {
				return err
			}
			tidy, err := keptFile("--out", out)
			if err != nil {
				return err
			}
			defer tidy()
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			info := d.Info()
			file := out
			if file == "" { // before minutes of measuring
				if file, err = gph.ProfileFile(info.Model); err != nil {
					return fmt.Errorf("nowhere to keep what is found: %w; name a file with --out", err)
				}
			}
			or := func(x *int, gpu, cpu int) {
				switch {
				case *x != 0:
				case info.CUDA():
					*x = gpu
				default:
					*x = cpu
				}
			}
			or(&o.N, 50_000_000, 20_000)
			or(&o.Trials, 120, 12)
			or(&o.Queries, 2*o.N, 2*o.N)
			if terminal(cmd.ErrOrStderr()) {
				best := 0.0
				o.Step = func(done, all int, t *gphbench.Trial) {
					if t == nil {
						fmt.Fprintf(cmd.ErrOrStderr(), "final, round %d of %d\n", done, all)
						return
					}
					best = max(best, t.Score)
					fmt.Fprintf(cmd.ErrOrStderr(), "trial %d of %d: %s: %.3f G/s (best %.3f) %s\n", done, all,
						settingText(t.Setting), t.Score, best, t.Note)
				}
			}
			t, err := gphbench.TuneGPH(cmd.Context(), d, o)
			if err != nil {
				return err
			}
			if err := keepProfile(cmd, file, info.Model, t); err != nil {
				return err
			}
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), tuneResult{t, file})
			}
			printTuning(cmd, t, file)
			return nil
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.N, "n", 0, "pairs (default 50 million on a GPU, 20 thousand on the CPU)")
	f.IntVar(&o.Queries, "queries", 0, "look-ups (default twice the pairs)")
	f.Float64Var(&o.Load, "load", 0.8, "load factor")
	f.Float64Var(&o.Hits, "hits", 0.5, "share of the look-ups that hit")
	f.StringVar(&o.Keys, "keys", "rand", "keys: "+workload.Kinds)
	f.IntVar(&o.KeyBytes, "key-bytes", 4, "bytes of a key: 4 or 8")
	f.IntVar(&o.ValueBytes, "value-bytes", 4, "bytes of a value: 4 or 8")
	f.StringVar(&o.Objective, "objective", "find", "what must be fast: "+strings.Join(gphbench.Objectives, ", "))
	f.IntVar(&o.Trials, "trials", 0, "settings to measure (default 120 on a GPU, 12 on the CPU)")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the workload and of the search")
	f.StringVarP(&out, "out", "o", "", "keep the profile in this file, in place of where tables look for it")
	cmd.RegisterFlagCompletionFunc("objective", cobra.FixedCompletions(gphbench.Objectives,
		cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// keepProfile puts the result into the profile, beside what it has for other tables.
func keepProfile(cmd *cobra.Command, file, model string, t *gphbench.Tuning) error {
	p, err := gph.ReadProfile(file, model)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			fmt.Fprintln(cmd.ErrOrStderr(), "written anew:", err)
		}
		p = &gph.Profile{}
	}
	p.Drop(t.Options.KeyBytes, t.Options.ValueBytes, t.Options.Load)
	if t.Improved {
		p.Set(t.Tuned())
	}
	return p.Save(file, model)
}

func settingText(s gph.Setting) string {
	return fmt.Sprintf("M=%d R=%d |h|=%d |g|=%d, cells of %d bytes for %v keys", s.Bucket, s.VirtualBuckets,
		s.InsertGroup, s.FindGroup, s.CellBytes, s.KeysPerCell)
}

func printTuning(cmd *cobra.Command, t *gphbench.Tuning, file string) {
	rate := func(x float64) string { return fmt.Sprintf("%.4f", x) }
	w := newTable(cmd)
	w.SetTitle("%s", fmt.Sprintf("gph on %s: %d pairs (%d+%d bytes, %s), load factor %v, %d look-ups, %.0f%% hits, "+
		"for %s",
		t.Where.Model, t.Options.N, t.Options.KeyBytes, t.Options.ValueBytes, t.Options.Keys, t.Options.Load,
		t.Options.Queries, 100*t.Options.Hits, t.Options.Objective))
	w.AppendHeader(table.Row{"M", "R", "cell bytes", "keys a cell", "|h|", "|g|", "insert G/s", "find G/s", "score",
		"load", "table", "note"})
	trials := slices.Clone(t.Trials)
	slices.SortStableFunc(trials, func(a, b gphbench.Trial) int { return cmp.Compare(b.Score, a.Score) })
	for _, x := range trials {
		note := x.Note
		if x.Default {
			note = strings.TrimSpace("the defaults " + note)
		}
		w.AppendRow(table.Row{x.Bucket, x.VirtualBuckets, x.CellBytes, x.KeysPerCell, x.InsertGroup, x.FindGroup,
			rate(x.Insert), rate(x.Find), rate(x.Score),
			fmt.Sprintf("%.3f", x.LoadFactor), device.Bytes(x.Bytes), note})
	}
	render(w, cmd.OutOrStdout())
	to := cmd.OutOrStdout()
	fmt.Fprintln(to, "measured again, in turns:")
	for _, f := range t.Finals {
		name := ""
		if f.Default {
			name = " (the defaults)"
		}
		fmt.Fprintf(to, "  %s G/s  %s%s\n", rate(f.Median), settingText(f.Setting), name)
	}
	if t.Improved {
		fmt.Fprintf(to, "best: %s; kept in %s\n", settingText(t.Best), file)
	} else {
		fmt.Fprintf(to, "nothing is surely faster than the defaults: %s has nothing for these tables\n", file)
	}
}
