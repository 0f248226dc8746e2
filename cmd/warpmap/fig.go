package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/bench"
)

func figCommand(keep *string) *cobra.Command {
	var o bench.FigOptions
	var out string
	cmd := &cobra.Command{
		Use:   "fig FIGURE",
		Short: "Measure a figure of a paper, and plot it",
		Long: `Measure a figure of a paper over all kinds of tables, and print it as a table; or, with --out, write it to that folder as
CSV, with its plots as SVG and PNG. What a table could not do is an empty cell, with the reason beside it.

  gph/2          the model of look-ups: does time grow as instructions · cycles / occupancy? Needs a GPU, and ncu
  gph/9          look-ups by the table's size, on four data sets
  gph/10         look-ups by the share of hits, on four data sets
  gph/12         a hash join by the size of the larger side: building and probing
  gph/13         look-ups by lanes and slots, with and without what gph's consist of
  gph/14         inserts by the table's size, on four data sets
  gph/15a        the load factor that a table reaches, by slots and virtual buckets
  gph/15b        inserts by the bytes of a pair
  gph/15c        inserts by skew
  gph/overwrite  inserts of keys that are there
  gph/theorem    relocations and refused inserts by load, beside section 6.2
  host           what a Go program sees, by the wall clock
  slab/4         build and look-ups by memory utilization, beside cuckoo hashing, as slab/5 and slab/6
  slab/5         build and look-ups by the number of pairs
  slab/6         batch after batch, inserted or rebuilt from scratch
  slab/7a        mixed batches by memory utilization
  slab/7b        mixed batches by the number of buckets, beside lists without locks
  slab/alloc     the allocator on its own, beside malloc
  slab/churn     mixed batches, one after the other: does a table last?
  warpcore/5     inserts and look-ups by density and lanes per key
  warpcore/7     keys with several values`,
		Example: `  warpmap bench fig gph/9 --n 1000000 --out plots
  warpmap bench fig gph/theorem --device cpu --out plots
  warpmap bench fig gph/12 --keep results/gph-12.json --out plots
  warpmap bench fig warpcore/7 --n 10000000`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: bench.Figures(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out != "" { // before minutes of measuring
				if err := os.MkdirAll(out, 0o755); err != nil {
					return err
				}
			}
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			o.Self = []string{exe, "bench", "find-once", "--device", d.Info().Name}
			if terminal(cmd.ErrOrStderr()) {
				o.Step = func(what string) { fmt.Fprintln(cmd.ErrOrStderr(), what) }
			}
			fig, err := bench.Figure(d, args[0], o)
			if err != nil {
				return err
			}
			if *keep != "" {
				if err := writeResult(*keep, fig); err != nil {
					return err
				}
			}
			var written []string
			if out != "" {
				if written, err = writeFigure(fig, out); err != nil {
					return err
				}
			}
			switch {
			case jsonFlag(cmd):
				return printJSON(cmd.OutOrStdout(), fig)
			case out != "":
				fmt.Fprintln(cmd.OutOrStdout(), strings.Join(written, "\n"))
			default:
				printFigure(cmd, fig)
			}
			return nil
		},
	}
	cmd.Flags().IntVar(&o.N, "n", 0, "pairs (0: as the paper has, or what suits the CPU); gph figures scale all sizes with it")
	cmd.Flags().IntVar(&o.Batches, "batches", 0, "batches of slab/churn (0: 1000, or 50 on the CPU)")
	cmd.Flags().StringVar(&out, "out", "", "write CSV, SVG and PNG to this folder, and print their names")
	return cmd
}

func printFigure(cmd *cobra.Command, fig *bench.Fig) {
	t := newTable(cmd)
	t.SetTitle("%s, %s", fig.Title, fig.Where.Model)
	row := table.Row{}
	for _, c := range fig.Columns {
		row = append(row, c)
	}
	t.AppendHeader(row)
	for _, r := range fig.Rows {
		row := table.Row{}
		for _, x := range r {
			if x == nil {
				x = ""
			}
			row = append(row, x)
		}
		t.AppendRow(row)
	}
	t.Render()
	for _, note := range fig.Notes {
		fmt.Fprintln(cmd.OutOrStdout(), note)
	}
}

// writeFigure renders everything, then writes it.
func writeFigure(fig *bench.Fig, dir string) (names []string, err error) {
	files, err := fig.Files()
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		name := filepath.Join(dir, f.Name)
		if err := keepFile(name, f.Data); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// findOnceCommand is what fig gph/2 runs under a profiler.
func findOnceCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "find-once JSON",
		Short:  "One batch of look-ups for each setting, for a profiler to watch",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var b bench.Batches
			if err := json.Unmarshal([]byte(args[0]), &b); err != nil {
				return fmt.Errorf("%q: %w", args[0], err)
			}
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			return bench.FindOnce(d, b)
		},
	}
}
