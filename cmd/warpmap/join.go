package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/join"
)

func joinCommand() *cobra.Command {
	var on []string
	var how, filter string
	o := join.Options{}
	cmd := &cobra.Command{
		Use:   "join BUILD PROBE --on build_col=probe_col[,…]",
		Short: "Join two files on key columns",
		Long: `join joins two files on one or more columns of integers, dates, times or timestamps, of up to 16 bytes together.

BUILD is read whole and its keys go into a hash table on the device; PROBE streams past it, so it may be larger than
memory. Make the smaller file BUILD. Nulls match nothing, and duplicates on both sides come out in every pairing.

The output has the probe's columns, then (inner, left) the build's without its keys, with _build behind a name that is
taken; rows in probe order, the matches of one row in build order. How:
  inner   every pair of matching rows
  left    these, and the probe rows without a match, with nulls for the build's columns
  semi    the probe rows that have a match, once each
  anti    the probe rows that have none

On the CPU a filter tells most keys without a match, where most have none, before they are looked up: --filter on has it from the first
key on, on a GPU too, and off never.

Formats go by file name: ` + strings.Join(join.Suffixes(), ", ") + `, or - for CSV on standard output. An output
file appears under its name when it is whole. A summary goes to stderr; with --json it is JSON, on stdout unless the rows
go there.`,
		Example: `  warpmap join orders.parquet lineitem.parquet --on o_orderkey=l_orderkey --out joined.parquet
  warpmap join customers.csv sales.csv --on id=customer --how left
  warpmap join days.parquet events.arrow --on region,day --how anti --out missing.csv --device cpu
  warpmap join vip.csv events.parquet --on user --how semi --filter on --out theirs.parquet`,
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) (err error) {
			o.Build, o.Probe = args[0], args[1]
			for _, s := range on {
				pairs, err := join.ParseOn(s)
				if err != nil {
					return fmt.Errorf("--on: %w", err)
				}
				o.On = append(o.On, pairs...)
			}
			if o.How, err = join.ParseHow(how); err != nil {
				return fmt.Errorf("--how: %w", err)
			}
			if o.Filter, err = join.ParseFilter(filter); err != nil {
				return fmt.Errorf("--filter: %w", err)
			}
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			bar := newProgress(cmd.ErrOrStderr())
			o.Progress = bar.show
			s, err := join.Run(cmd.Context(), d, o)
			bar.clear()
			if err != nil {
				return err
			}
			if jsonFlag(cmd) {
				if o.Out == "-" {
					return printJSON(cmd.ErrOrStderr(), s)
				}
				return printJSON(cmd.OutOrStdout(), s)
			}
			joinSummary(cmd.ErrOrStderr(), s)
			return nil
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&on, "on", nil, `key columns, build_col=probe_col, separated by commas; a name alone is both; \ before , = \ in a name`)
	f.StringVar(&how, "how", "inner", "rows to keep: "+strings.Join(join.Hows(), ", "))
	f.StringVarP(&o.Out, "out", "o", "-", "output file; - is CSV on standard output")
	f.StringVar((*string)(&o.Table), "table", string(join.DefaultTable), "family of tables: "+strings.Join(families(), ", "))
	f.StringVar(&filter, "filter", "auto", "tell most keys without a match by a filter: "+strings.Join(join.Filters(), ", ")+"; auto: on the CPU, where most have none")
	cmd.MarkFlagRequired("on")
	cmd.RegisterFlagCompletionFunc("filter", cobra.FixedCompletions(join.Filters(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("how", cobra.FixedCompletions(join.Hows(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("table", cobra.FixedCompletions(families(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

func joinSummary(w io.Writer, s join.Summary) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	t.AppendHeader(table.Row{"", "rows", "", "seconds"})
	t.AppendRow(table.Row{"build", s.BuildRows, "reading", seconds(s.Reading)})
	t.AppendRow(table.Row{"probe", s.ProbeRows, "building", seconds(s.Building)})
	t.AppendRow(table.Row{"out (" + s.How + ")", s.OutRows, "probing", seconds(s.Probing)})
	t.AppendRow(table.Row{"", "", "writing", seconds(s.Writing)})
	t.AppendRow(table.Row{"", "", "total", seconds(s.Total)})
	t.SetCaption("%s table on %s", s.Table, s.Device)
	t.Render()
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

// progress draws a bar for each stage, on a terminal only.
type progress struct {
	w     io.Writer
	stage string
	bar   *progressbar.ProgressBar
}

func newProgress(w io.Writer) *progress {
	if !terminal(w) {
		w = nil
	}
	return &progress{w: w}
}

func (p *progress) show(at join.Progress) {
	if p.w == nil {
		return
	}
	if at.Stage != p.stage {
		p.clear()
		p.stage = at.Stage
		p.bar = progressbar.NewOptions64(at.Total, progressbar.OptionSetWriter(p.w), progressbar.OptionSetDescription(fmt.Sprintf("%-5s", at.Stage)),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("rows"), progressbar.OptionThrottle(100e6),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	}
	p.bar.Set64(at.Done)
}

func (p *progress) clear() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
}
