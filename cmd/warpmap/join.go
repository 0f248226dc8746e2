package main

import (
	"cmp"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/join"
)

// joinLong says what a join does.
var joinLong = `join joins files on one or more columns of numbers, text, binary values, UUIDs, booleans, dates, times
or timestamps.

BUILD is read whole and its keys go into a hash table on the device; PROBE streams past it. Make the smaller file BUILD.
Where BUILD takes more than --memory (left out: half of the machine's) both go to temporary files, in the folder that
TMPDIR names, and are joined part by part, to the same rows in the same order. Nulls match nothing (with --nulls-equal,
nulls), and duplicates on both sides come out in every pairing.

The output has the probe's columns, then (inner, left) the build's without its keys, with _build behind a name that is
taken; rows in probe order, the matches of one row in build order. How:
  inner   every pair of matching rows
  left    these, and the probe rows without a match, with nulls for the build's columns
  semi    the probe rows that have a match, once each
  anti    the probe rows that have none
  right   every pair, then the build rows without a match, with nulls for the probe's columns; the build's keys come
          out too
  full    the rows of left, then those

With --device auto the CPU has keys that lie close together, which need no table there, and few keys, which are found
before a GPU is open; the line "device:" says so.

With --devices each of several GPUs has a copy of the table and a part of the look-ups; the rows and their order are the
same.

On the CPU keys get a table of the join's own, unless --table names a family. Before such a table a filter tells most
keys without a match, where most have none: --filter on has it from the first key on, on a GPU too, and off never.

Each side is a file, - for standard input, a pattern ('day=*/*.parquet', with ** for folders within folders), a folder,
with those below it, or several of these separated by commas or given with --build and --probe, one after the other.
Parts key=value of their folders' names are columns. All files of a side must have the same columns.

A PROBE that is a pipe, as standard input often is, is joined as it comes: an Arrow stream always, and CSV where the
output is CSV or a count, or --types gives its columns types. Rows come out before it ends, and none go to a file.
Columns of such CSV are text, and its keys have the types of BUILD's, unless --types says otherwise; a value that does
not fit is an error. Any other pipe goes to a temporary file first: BUILD, Parquet, whose footer comes last, JSON lines,
and one of several inputs.

Formats go by file name: ` + strings.Join(join.Suffixes(), ", ") + `, for text with .gz or .zst behind it; --format, or
one for each, says it where names do not. Compressed text is known by its content. CSV has commas
and double quotes, unless --delimiter and --quote say otherwise, and empty fields are NULL, as are the words of --null.
Its first line has the names of the columns; with --no-header it is a row, and the columns are 1, 2, 3 and so on.
The columns of text get types that hold all of their values; --types gives some of both sides another type, such as text
to keys that one side takes for integers. --out - is CSV on standard output. An
output file appears under its name when it is whole. A name with a slash behind it, or --rows-per-file, makes a folder,
which appears when all of its files are whole. An output that is one of the inputs, by whatever name, is refused, and so
is a folder in one that is read. Rows for /dev/null are made and go nowhere. From Parquet to Parquet, columns are read
where rows of them come out, and row groups that stay whole are copied as they stand; --count reads keys only. From CSV
to CSV values that are no keys stand as they stood. A summary goes to stderr; with --json it is JSON, on stdout unless
the rows go there.`

const joinExample = `  warpmap join orders.parquet lineitem.parquet --on o_orderkey=l_orderkey --out joined.parquet
  warpmap join customers.csv sales.csv --on id=customer --how left
  warpmap join customers.csv sales.csv --on id=customer --types id=text,customer=text --null NA,NULL
  warpmap join days.parquet events.arrow --on region,day --how anti --out missing.csv --device cpu
  warpmap join orders.parquet lineitem.parquet --on o_orderkey=l_orderkey --count
  warpmap join orders.parquet lineitem.parquet --on o_orderkey=l_orderkey --select l_partkey,o_orderdate --limit 100
  warpmap join vip.csv events.parquet --on user --how semi --filter on --out theirs.parquet
  warpmap join users.csv 'events/day=*/*.parquet' --on user --rows-per-file 1000000 --out joined/
  zcat events.csv.gz | warpmap join users.jsonl - --on user --probe-format csv --out-format jsonl

` + exitCodes

// joinFlags are those of a join.
type joinFlags struct {
	o                                           join.Options
	on, columns, builds, probes                 []string
	text                                        textFlags
	format, buildFormat, probeFormat, outFormat string
	how, filter                                 string
	over                                        several
	quiet                                       bool
}

func joinCommand() *cobra.Command {
	var j joinFlags
	cmd := &cobra.Command{
		Use:     "join BUILD PROBE --on build_col=probe_col[,…]",
		Short:   "Join files on key columns",
		Long:    joinLong,
		Example: joinExample,
		Args: func(_ *cobra.Command, args []string) error {
			if more := len(j.builds) + len(j.probes); len(args) != 2 &&
				(len(args) != 0 || len(j.builds) == 0 || len(j.probes) == 0) {
				return fmt.Errorf("%d inputs, and %d of --build and --probe: want BUILD and PROBE, or both flags",
					len(args), more)
			}
			return nil
		},
		RunE: j.run,
	}
	j.flags(cmd)
	return cmd
}

// options are what the flags say.
func (j *joinFlags) options(cmd *cobra.Command, args []string) (err error) {
	if len(args) == 2 {
		j.builds, j.probes = append(args[:1:1], j.builds...), append(args[1:2:2], j.probes...)
	}
	j.o.Build, j.o.MoreBuild = j.builds[0], j.builds[1:]
	j.o.Probe, j.o.MoreProbe = j.probes[0], j.probes[1:]
	for _, f := range []struct {
		flag, text string
		to         *join.Format
	}{{"build-format", cmp.Or(j.buildFormat, j.format), &j.o.BuildFormat}, {"probe-format",
		cmp.Or(j.probeFormat, j.format), &j.o.ProbeFormat},
		{"out-format", j.outFormat, &j.o.OutFormat}} {
		if f.text == "" {
			continue
		}
		if *f.to, err = join.ParseFormat(f.text); err != nil {
			return fmt.Errorf("--%s: %w", f.flag, err)
		}
	}
	for _, s := range j.on {
		pairs, err := join.ParseOn(s)
		if err != nil {
			return fmt.Errorf("--on: %w", err)
		}
		j.o.On = append(j.o.On, pairs...)
	}
	if j.o.How, err = join.ParseHow(j.how); err != nil {
		return fmt.Errorf("--how: %w", err)
	}
	if j.o.Filter, err = join.ParseFilter(j.filter); err != nil {
		return fmt.Errorf("--filter: %w", err)
	}
	for _, s := range j.columns {
		names, err := join.ParseNames(s)
		if err != nil {
			return fmt.Errorf("--select: %w", err)
		}
		j.o.Select = append(j.o.Select, names...)
	}
	if j.o.Text, err = j.text.options(cmd); err != nil {
		return err
	}
	for _, f := range []struct {
		flag string
		is   int64
	}{{"limit", j.o.Limit}, {"memory", j.o.Memory}} {
		if f.is < 0 {
			return fmt.Errorf("--%s %d: want a number that is not negative", f.flag, f.is)
		}
	}
	if t := string(j.o.Table); t != "" && !slices.Contains(families(), t) {
		return fmt.Errorf("--table: a family %q: want one of %s", t, strings.Join(families(), ", "))
	}
	if j.o.Count && cmd.Flags().Changed("out") {
		return fmt.Errorf("--count and --out %s: a count is written nowhere but on standard output", j.o.Out)
	}
	for _, flag := range []string{"select", "out-format", "compression", "rows-per-file"} {
		if j.o.Count && cmd.Flags().Changed(flag) {
			return fmt.Errorf("--count and --%s: a count has no columns, and is text on standard output: leave one out",
				flag)
		}
	}
	return nil
}

func (j *joinFlags) run(cmd *cobra.Command, args []string) error {
	if err := j.options(cmd, args); err != nil {
		return err
	}
	if err := join.CheckOutput(j.o); err != nil {
		return &usageError{err}
	}
	undo, err := onThreads(j.o.Threads)
	if err != nil {
		return err
	}
	defer undo()
	if j.o.Memory > 0 {
		defer collectWithin(j.o.Memory + j.o.Memory/3 + 100<<20)()
	}
	errs := hush(cmd, j.quiet)
	bar := newProgress(cmd.ErrOrStderr())
	if err := j.devices(cmd, bar); err != nil {
		return err
	}
	j.o.Progress = bar.show
	s, err := join.Run(cmd.Context(), nil, j.o)
	bar.clear()
	switch {
	case err != nil:
		return err
	case jsonFlag(cmd) && j.o.Out == "-" && !j.o.Count:
		return printJSON(errs, s)
	case jsonFlag(cmd):
		return printJSON(cmd.OutOrStdout(), s)
	case j.o.Count:
		fmt.Fprintln(cmd.OutOrStdout(), s.OutRows)
		return nil
	}
	joinSummary(cmd.ErrOrStderr(), s)
	return nil
}

// devices says how the join gets its devices.
func (j *joinFlags) devices(cmd *cobra.Command, bar *progress) (err error) {
	if j.o.Device, err = cmd.Flags().GetString("device"); err != nil {
		return err
	}
	j.o.Open = func(name, why string) ([]*device.Device, error) {
		d, err := openNamed(cmd, name, device.WithWorkers(j.o.Threads))
		if err != nil {
			return nil, err
		}
		if j.o.Device == "auto" && !(jsonFlag(cmd) && j.o.Out == "-" && !j.o.Count) { // stderr is for JSON alone then
			bar.say(chosen(d, why))
		}
		return []*device.Device{d}, nil
	}
	switch j.over.list {
	case "":
	case joined:
		return fmt.Errorf("--devices %s: a join has the devices of one process; want all, or a list such as 0,1",
			joined)
	default:
		j.o.Device, j.o.Open = j.over.list, func(string, string) ([]*device.Device, error) {
			devices, _, err := j.over.open(cmd, device.WithWorkers(j.o.Threads))
			return devices, err
		}
	}
	return nil
}

// collectWithin makes the garbage collector work as hard as it must for this process to take no more than so many
// bytes, or fewer where GOMEMLIMIT says so, until what it gives is called. A join of a build side larger than memory
// leaves as much garbage behind as it reads.
func collectWithin(bytes int64) (undo func()) {
	before := debug.SetMemoryLimit(-1)
	debug.SetMemoryLimit(min(before, bytes))
	return func() { debug.SetMemoryLimit(before) }
}

func (j *joinFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringArrayVar(&j.on, "on", nil,
		`key columns, build_col=probe_col, separated by commas; a name alone is both; \ before , = \ in a name`)
	j.over.flags(cmd)
	f.StringVar(&j.how, "how", "inner", "rows to keep: "+strings.Join(join.Hows(), ", "))
	f.StringVarP(&j.o.Out, "out", "o", "-",
		"output file or folder; - is standard output, as CSV unless --out-format says else")
	f.StringArrayVar(&j.builds, "build", nil, "one more input of the build side")
	f.StringArrayVar(&j.probes, "probe", nil, "one more input of the probe side")
	f.StringVar(&j.format, "format", "", "format of both sides' inputs: "+strings.Join(join.Formats(), ", ")+
		"; left out, by names and first bytes")
	f.StringVar(&j.buildFormat, "build-format", "", "format of the build side's inputs")
	f.StringVar(&j.probeFormat, "probe-format", "", "format of the probe side's inputs")
	f.StringVar(&j.outFormat, "out-format", "", "format of the output")
	j.text.flags(f)
	f.Int64Var(&j.o.RowsPerFile, "rows-per-file", 0, "make a folder of files of so many rows")
	f.StringVar((*string)(&j.o.Table), "table", "", "family of tables: "+strings.Join(families(), ", ")+"; left out, "+
		string(join.DefaultTable)+", and on the CPU a table of the join's own")
	f.StringVar(&j.filter, "filter", "auto", "tell most keys without a match by a filter: "+
		strings.Join(join.Filters(), ", ")+"; auto: on the CPU before a --table, where most have none")
	f.BoolVar(&j.o.NullsEqual, "nulls-equal", false, "let a null in a key column match a null")
	f.StringArrayVar(&j.columns, "select", nil,
		`columns of the output, by their names there, separated by commas; \ before , \ in a name`)
	f.BoolVar(&j.o.Count, "count", false, "print how many rows come out, and write none")
	f.Int64Var(&j.o.Limit, "limit", 0, "write no more rows than this; 0 for all")
	threadsFlag(cmd, &j.o.Threads)
	f.Var(&size{&j.o.Memory}, "memory", "columns take no more than about this at a time, such as 2GB; a build side "+
		"that takes more is joined by parts")
	quietFlag(cmd, &j.quiet)
	f.StringVar(&j.o.Compression, "compression", "", "of the output: "+strings.Join(join.Compressions(), ", ")+
		" in Parquet, gzip, zstd, none for text, zstd, lz4, none in Arrow; left out, snappy in Parquet, where row "+
		"groups that stay whole keep theirs, and as the name says for text")
	cmd.MarkFlagRequired("on")
	cmd.RegisterFlagCompletionFunc("compression",
		cobra.FixedCompletions(join.Compressions(), cobra.ShellCompDirectiveNoFileComp))
	for _, name := range []string{"format", "build-format", "probe-format", "out-format"} {
		cmd.RegisterFlagCompletionFunc(name, cobra.FixedCompletions(join.Formats(), cobra.ShellCompDirectiveNoFileComp))
	}
	cmd.RegisterFlagCompletionFunc("filter", cobra.FixedCompletions(join.Filters(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("how", cobra.FixedCompletions(join.Hows(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("table", cobra.FixedCompletions(families(), cobra.ShellCompDirectiveNoFileComp))
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
	switch {
	case s.Near:
		t.SetCaption("no table: the keys lie close together")
	case s.Table == "":
		t.SetCaption("a table of the join's own")
	default:
		t.SetCaption("%s table", s.Table)
	}
	render(t, w)
}

func seconds(s float64) string { return fmt.Sprintf("%.3f", s) }

// progress draws a bar for each stage, on a terminal only.
type progress struct {
	to    io.Writer
	w     io.Writer // nil where no one is watching
	said  atomic.Pointer[string]
	stage string
	bar   *progressbar.ProgressBar
}

func newProgress(w io.Writer) *progress {
	p := &progress{to: w}
	if terminal(w) {
		p.w = w
	}
	return p
}

// say prints a line beside the bar, from any goroutine: where there is a bar, when it moves.
func (p *progress) say(line string) {
	if p.w == nil {
		fmt.Fprintln(p.to, line)
		return
	}
	p.said.Store(&line)
}

func (p *progress) show(at join.Progress) {
	if p.w == nil {
		return
	}
	if at.Stage != p.stage || p.said.Load() != nil {
		p.clear()
		p.stage = at.Stage
		p.bar = progressbar.NewOptions64(at.Total, progressbar.OptionSetWriter(p.w),
			progressbar.OptionSetDescription(fmt.Sprintf("%-5s", at.Stage)),
			progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionSetItsString("rows"),
			progressbar.OptionThrottle(100e6),
			progressbar.OptionClearOnFinish(), progressbar.OptionSetPredictTime(true))
	}
	p.bar.Set64(at.Done)
}

func (p *progress) clear() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar = nil
	}
	if line := p.said.Swap(nil); line != nil {
		fmt.Fprintln(p.to, *line)
	}
}
