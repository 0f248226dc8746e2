package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/bench"
	cachebench "github.com/warpmap/warpmap/internal/bench/cache"
	cuckoobench "github.com/warpmap/warpmap/internal/bench/cuckoo"
	"github.com/warpmap/warpmap/internal/bench/dycuckoo"
	gphbench "github.com/warpmap/warpmap/internal/bench/gph"
	"github.com/warpmap/warpmap/internal/bench/host"
	"github.com/warpmap/warpmap/internal/bench/library"
	shardbench "github.com/warpmap/warpmap/internal/bench/shard"
	"github.com/warpmap/warpmap/internal/bench/slabhash"
	stadiumbench "github.com/warpmap/warpmap/internal/bench/stadium"
	"github.com/warpmap/warpmap/internal/bench/warpcore"
)

// studies is the only list of figures.
var studies = slices.Concat(cachebench.Studies, cuckoobench.Studies, dycuckoo.Studies, gphbench.Studies, host.Studies,
	library.Studies, shardbench.Studies, slabhash.Studies, stadiumbench.Studies, warpcore.Studies)

func figureNames() (names []string) {
	for _, s := range studies {
		names = append(names, s.Name)
	}
	return names
}

func figureList() string {
	var b strings.Builder
	for _, s := range studies {
		fmt.Fprintf(&b, "  %-16s  %s\n", s.Name, s.About)
	}
	return strings.TrimRight(b.String(), "\n")
}

// measure measures a figure of the list.
func measure(d *device.Device, name string, o bench.FigOptions) (*bench.Fig, error) {
	fig, err := studies[slices.Index(figureNames(), name)].Measure(d, o)
	if err == nil && gph.Profiled(d.Info()) {
		fig.Notes = append(fig.Notes, "tables of gph take options from this device's profile, where the figure "+
			"leaves them open (WARPMAP_PROFILES=off: none)")
	}
	return fig, err
}

// figureTakes returns an error of a flag that the figure has no use for.
func figureTakes(cmd *cobra.Command, name string) error {
	for _, flag := range []string{"batches", "operations", "devices"} {
		takes := func(s bench.Study) bool { return slices.Contains(s.Takes, flag) }
		if cmd.Flags().Changed(flag) && !takes(studies[slices.Index(figureNames(), name)]) {
			var names []string
			for _, s := range studies {
				if takes(s) {
					names = append(names, s.Name)
				}
			}
			return fmt.Errorf("--%s with figure %s: only %s take it", flag, name, strings.Join(names, ", "))
		}
	}
	return nil
}

func figCommand(keep *string) *cobra.Command {
	var o bench.FigOptions
	var out string
	var over several
	cmd := &cobra.Command{
		Use:   "fig FIGURE",
		Short: "Measure a figure of a paper, and plot it",
		Long: `Measure a figure of a paper over all kinds of tables, and print it as a table; or, with --out, write it
to that folder as CSV, with its plots as SVG and PNG. What a table could not do is an empty cell, with the reason beside
it. With --keep it says what it does, and figures over several devices are kept after each point.

` + figureList(),
		Example: `  warpmap bench fig gph/9 --n 1000000 --out plots
  warpmap bench fig gph/theorem --device cpu --out plots
  warpmap bench fig gph/12 --keep results/gph-12.json --out plots
  warpmap bench fig shard/6 --devices all --out plots
  warpmap bench fig warpcore/7 --n 10000000
  warpmap bench fig genome/rates --keep results/genome-rates.json
  warpmap bench fig warpcore/density --n 10000000 --out plots
  warpmap bench fig dycuckoo/12 --device cpu --n 100000 --batches 20 --out plots
  warpmap bench fig stadium/17 --n 16777216 --out plots`,
		Args:      cobra.MatchAll(cobra.ExactArgs(1), cobra.OnlyValidArgs),
		ValidArgs: figureNames(),
		RunE: func(cmd *cobra.Command, args []string) error {
			if out != "" { // before minutes of measuring
				tidy, err := folder(out, 0o755)
				if err != nil {
					return err
				}
				defer tidy()
			}
			if err := figureTakes(cmd, args[0]); err != nil {
				return err
			}
			tidy, err := keptFile("--keep", *keep)
			if err != nil {
				return err
			}
			defer tidy()
			devices, closeAll, err := over.openOr(cmd)
			if err != nil {
				return err
			}
			defer closeAll()
			d := devices[0]
			if over.list != "" {
				o.Devices = devices
			}
			exe, err := os.Executable()
			if err != nil {
				return err
			}
			o.Self = []string{exe, "bench", "--device", d.Info().Name}
			if terminal(cmd.ErrOrStderr()) || *keep != "" {
				start := time.Now()
				o.Step = func(what string) {
					fmt.Fprintf(cmd.ErrOrStderr(), "%6.1f s  %s\n", time.Since(start).Seconds(), what)
				}
			}
			if *keep != "" { // points of a run that is cut off are kept
				o.Point = func(fig *bench.Fig) error { return bench.Keep(*keep, fig) }
			}
			fig, err := measure(d, args[0], o)
			if err != nil {
				return err
			}
			if *keep != "" {
				if err := bench.Keep(*keep, fig); err != nil {
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
	over.flags(cmd)
	cmd.Flags().IntVar(&o.N, "n", 0, "pairs (0: as the paper has, or what suits the CPU); gph, dycuckoo and stadium "+
		"figures scale all sizes with it")
	cmd.Flags().IntVar(&o.Batches, "batches", 0,
		"batches of slab/churn (0: 1000, or 50 on the CPU), slices of library/aging (0: 1000), or batches of RAND in "+
			"dycuckoo figures (0: 100, or 8 on the CPU)")
	cmd.Flags().IntVar(&o.Operations, "operations", 0,
		"operations of library/churn (0: 1000000000, or 200 a pair on the CPU)")
	cmd.Flags().StringVarP(&out, "out", "o", "", "write CSV, SVG and PNG to this folder, and print their names")
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
	render(t, cmd.OutOrStdout())
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
		if err := bench.Write(name, f.Data); err != nil {
			return names, err
		}
		names = append(names, name)
	}
	return names, nil
}

// findOnceCommand is what fig gph/2 runs under a profiler.
func findOnceCommand() *cobra.Command {
	return onceCommand("find-once", "One batch of look-ups for each setting, for a profiler to watch",
		gphbench.FindOnce)
}

// insertOnceCommand is what fig stadium/1 runs under a profiler.
func insertOnceCommand() *cobra.Command {
	return onceCommand("insert-once", "One batch of inserts, for a profiler to watch", stadiumbench.InsertOnce)
}

// onceCommand does what its argument says as JSON.
func onceCommand[T any](name, short string, do func(d *device.Device, what T) error) *cobra.Command {
	return &cobra.Command{
		Use:    name + " JSON",
		Short:  short,
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			var what T
			if err := json.Unmarshal([]byte(args[0]), &what); err != nil {
				return fmt.Errorf("%q: %w", args[0], err)
			}
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			return do(d, what)
		},
	}
}
