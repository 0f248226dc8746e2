package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/internal/files"
)

func classifyCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "classify",
		Short: "Tell of reads which genomes they come from",
		Long: `classify tells of reads which genomes they come from, by the features that they share, as MetaCache does.

A database is one file, made once of genomes and a taxonomy; it opens on any device.`,
		Example: `  warpmap classify build refs.db genomes/ --taxonomy taxonomy/
  warpmap classify query refs.db reads.fastq.gz --report report.txt --out verdicts.tsv
  warpmap classify serve refs.db
  warpmap classify info refs.db

` + exitCodes,
	}
	serve, info := classifyServeCommand(), classifyInfoCommand()
	onlyUses(uses{device: true}, serve)
	onlyUses(uses{json: true}, info)
	cmd.AddCommand(classifyBuildCommand(), classifyQueryCommand(), serve, info)
	return cmd
}

const buildLong = `build makes a database of genomes: FASTA files, plain or packed with gzip or zstd, patterns, folders,
or - for standard input.

DIR has a taxonomy in NCBI's format: nodes.dmp, names.dmp, merged.dmp. Of which taxon a sequence is tell, in this order:
taxid|N in its header; assembly_summary*.txt, by the file's name; *.accession2taxid, by the sequence's accession. These
lists, packed or not, are found in DIR and beside the genomes; those in DIR have the word. What none tells hangs on the
root, and a warning says what and how much; if that is all, it is an error. The files of a folder are all that have
sequences: the summary lists the first, and a warning names those that seem to have reads.

With --devices several devices sketch the genomes. What a GPU has no room for goes to the host's memory.

Features take 8 bytes or so for each of their locations until the database is written. With --memory, or where memory is
short, they go to temporary files, in the folder that TMPDIR names; the result is the same. The taxonomy, and text that
is being read, come on top.

With --add the genomes join those that DB has; then DIR, if given, is for lists alone: the taxonomy is DB's. A DB that
is there is replaced only with --force. The file appears, or is replaced, when it is whole.`

const buildExample = `  warpmap classify build refs.db genomes/ --taxonomy taxonomy/
  warpmap classify build refs.db 'more/*.fa.gz' --add --taxonomy taxonomy/
  warpmap classify build small.db genome.fa --taxonomy taxonomy/ --max-locations 100

` + exitCodes

// buildFlags are those of a build.
type buildFlags struct {
	o                       classify.Options
	taxonomy                string
	add, force, quiet, skip bool
	threads                 int
	memory                  int64
	over                    several
}

func classifyBuildCommand() *cobra.Command {
	var b buildFlags
	cmd := &cobra.Command{
		Use:     "build DB GENOMES… --taxonomy DIR",
		Short:   "Make a database of genomes, or add to one",
		Long:    buildLong,
		Example: buildExample,
		Args:    cobra.MinimumNArgs(2),
		RunE:    b.run,
	}
	b.flags(cmd)
	return cmd
}

// check tells of what would be in vain, or destroy what is there.
func (b *buildFlags) check(cmd *cobra.Command, args []string) error {
	if b.taxonomy == "" && !b.add {
		return fmt.Errorf("--taxonomy: want a folder with nodes.dmp")
	}
	for _, flag := range []string{"kmer", "sketch", "window", "stride", "max-locations"} {
		switch f := cmd.Flags().Lookup(flag); {
		case f.Changed && b.add:
			return fmt.Errorf("--%s with --add: the database keeps what it was made with; leave it out", flag)
		case f.Changed && f.Value.String() == "0":
			return fmt.Errorf("--%s 0: want 1 or more", flag)
		}
	}
	var read []string // of the taxonomy
	if entries, err := os.ReadDir(b.taxonomy); err == nil {
		for _, e := range entries {
			read = append(read, filepath.Join(b.taxonomy, e.Name()))
		}
	}
	if b.memory < 0 {
		return fmt.Errorf("--memory %d: want a size, such as 2GB", b.memory)
	}
	if err := checkRegular(read, args[1:], output{"DB", args[0]}); err != nil {
		return err
	}
	if i, err := os.Stat(args[0]); err == nil && i.Mode().IsRegular() && !b.add && !b.force {
		return &usageError{fmt.Errorf("%s is there: want --add to add to it, --force to replace it, or another name",
			args[0])}
	}
	return nil
}

func (b *buildFlags) run(cmd *cobra.Command, args []string) error {
	if err := b.check(cmd, args); err != nil {
		return err
	}
	undo, err := onThreads(b.threads)
	if err != nil {
		return err
	}
	defer undo()
	warnings := hush(cmd, b.quiet)
	if err := warnTwice(warnings, args[1:]); err != nil {
		return err
	}
	devices, closeAll, err := b.over.openOr(cmd, device.WithWorkers(b.threads))
	if err != nil {
		return err
	}
	defer closeAll()
	begin := time.Now()
	builder, err := b.builder(devices, args[0])
	if err != nil {
		return err
	}
	defer builder.Close()
	if b.memory > 0 {
		builder.MaxMemory = b.memory
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m) // of the taxonomy
	defer collectWithin(builder.MaxMemory + int64(m.HeapAlloc) + 128<<20)()
	bar := newSpinner(cmd)
	defer bar.clear()
	builder.Progress = func(letters int64) { bar.set("sketching", letters, -1, "letters") }
	counts, err := builder.Add(cmd.Context(), args[1:], genome.Options{SkipBroken: b.skip, Threads: b.threads})
	if err != nil {
		return err
	}
	bar.set("writing", 0, -1, "")
	s, err := builder.Save(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	bar.clear()
	tellUnknown(warnings, builder, counts.Records)
	warnReads(warnings, builder.Inputs(), builder.Options().Window)
	return classifyStats(cmd, cmd.ErrOrStderr(), builder.Options(), s, builder.Inputs(), time.Since(begin))
}

// warnReads prints a warning if some files seem to have reads: by their names, or because they have many sequences that
// are mostly shorter than three windows.
func warnReads(w io.Writer, inputs []classify.Input, window int) {
	const many = 1000
	var reads []classify.Input
	for _, in := range inputs {
		name, _ := files.CutPacking(in.Name)
		ext := filepath.Ext(name)
		if ext == ".fq" || ext == ".fastq" || in.Sequences >= many && in.Letters < 3*int64(window)*in.Sequences {
			reads = append(reads, in)
		}
	}
	if len(reads) > 0 {
		fmt.Fprintf(w, "warning: these files seem to have reads, and count as references: %s: if so, name the genomes "+
			"only\n", inputNames(reads))
	}
}

// inputNames lists the first files with their numbers of sequences, and the number of the others.
func inputNames(inputs []classify.Input) string {
	const most = 3
	var names []string
	for _, in := range inputs[:min(len(inputs), most)] {
		names = append(names, fmt.Sprintf("%s (%s)", in.Name, humanize.Comma(in.Sequences)))
	}
	if more := len(inputs) - most; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return strings.Join(names, ", ")
}

// tellUnknown tells of sequences of which nobody knows what they are of.
func tellUnknown(w io.Writer, b *classify.Builder, records int64) {
	if n, first := b.Unknown(); n > 0 {
		names := strings.Trim(fmt.Sprintf("%q", first), "[]")
		if names = strings.ReplaceAll(names, "\" \"", "\", \""); n > len(first) {
			names += " and others"
		}
		fmt.Fprintf(w,
			"%d of %d sequences hang on the root, for nothing tells a taxon of theirs that the taxonomy has: %s\n", n,
			records, names)
	}
}

func (b *buildFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	b.over.flags(cmd)
	f.StringVar(&b.taxonomy, "taxonomy", "", "folder with nodes.dmp, names.dmp, merged.dmp")
	f.BoolVar(&b.add, "add", false, "add to the database that is there")
	f.BoolVar(&b.force, "force", false, "replace the database that is there")
	f.IntVarP(&b.o.K, "kmer", "k", 16, "letters of a k-mer, 4 to 16")
	f.IntVarP(&b.o.Sketch, "sketch", "s", 16, "features of a window, 1 to 64")
	f.IntVarP(&b.o.Window, "window", "w", 127, "letters of a window")
	f.IntVar(&b.o.Stride, "stride", 0, "letters from one window to the next; left out, window - k + 1")
	f.IntVar(&b.o.MaxLocations, "max-locations", 254, "keep no more locations of a feature than the first so many")
	f.Var(&size{&b.memory}, "memory",
		"features take no more than about this of the host's memory, such as 2GB; left out, half of what is free")
	threadsFlag(cmd, &b.threads)
	skipBrokenFlag(cmd, &b.skip)
	quietFlag(cmd, &b.quiet)
	cmd.MarkFlagsMutuallyExclusive("add", "force")
}

// builder is an empty one, or with --add one that has what the database has. The database's options are then those of
// the file.
func (b *buildFlags) builder(devices []*device.Device, name string) (*classify.Builder, error) {
	if !b.add {
		return classify.NewBuilder(devices[0], b.taxonomy, b.o, devices[1:]...)
	}
	db, err := classify.Open(name)
	if err != nil {
		return nil, err
	}
	defer db.Close()
	return classify.Extend(devices[0], db, b.taxonomy, devices[1:]...)
}

func classifyInfoCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "info DB",
		Short:   "Check a database, and tell what is in it",
		Long:    "info reads a whole database, checks it, and tells how it was made and what is in it.",
		Example: "  warpmap classify info refs.db\n  warpmap classify info refs.db --json\n\n" + exitCodes,
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			db, err := classify.Open(args[0])
			if err != nil {
				return err
			}
			defer db.Close()
			if err := db.Check(); err != nil {
				return err
			}
			return classifyStats(cmd, cmd.OutOrStdout(), db.Options, db.Stats(), nil, 0)
		},
	}
}

// classifyStats prints what is in a database, and the files that a build has read.
func classifyStats(cmd *cobra.Command, w io.Writer, o classify.Options, s classify.Stats, inputs []classify.Input,
	took time.Duration) error {
	if jsonFlag(cmd) {
		return printJSON(cmd.OutOrStdout(), struct {
			classify.Options
			classify.Stats
			Inputs  []classify.Input `json:"inputs,omitempty"`
			Seconds float64          `json:"seconds,omitempty"`
		}{o, s, inputs, took.Seconds()})
	}
	var text bytes.Buffer // go-pretty does not tell what cannot be written
	t := table.NewWriter()
	t.SetOutputMirror(&text)
	t.SetStyle(table.StyleLight)
	t.AppendRow(table.Row{"sketches", fmt.Sprintf("%d of %d-mers in windows of %d letters, one every %d", o.Sketch, o.K,
		o.Window, o.Stride)})
	if inputs != nil {
		t.AppendRow(table.Row{"files", fmt.Sprintf("%d: %s", len(inputs), inputNames(inputs))})
	}
	t.AppendRow(table.Row{"sequences", humanize.Comma(int64(s.Targets))})
	t.AppendRow(table.Row{"letters", humanize.Comma(s.Letters)})
	t.AppendRow(table.Row{"windows", humanize.Comma(s.Windows)})
	t.AppendRow(table.Row{"taxa", humanize.Comma(int64(s.Taxa))})
	t.AppendRow(table.Row{"features", humanize.Comma(int64(s.Features))})
	t.AppendRow(table.Row{"locations", humanize.Comma(s.Locations)})
	t.AppendRow(table.Row{"a feature", fmt.Sprintf("%.5f, deviation %.5f, most %d of %d", s.Mean, s.Deviation, s.Most,
		o.MaxLocations)})
	if took > 0 {
		t.AppendRow(table.Row{"seconds", seconds(took.Seconds())})
	}
	render(t, w)
	_, err := w.Write(text.Bytes())
	return err
}

// verdictFlags say how reads are told from one another.
type verdictFlags struct {
	lowest, highest string
	o               classify.QueryOptions
}

func (v *verdictFlags) add(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&v.lowest, "lowest", "sequence", "lowest rank of candidates")
	f.StringVar(&v.highest, "highest", "domain", "highest rank of verdicts")
	f.IntVar(&v.o.HitMin, "hit-min", 0, "hits that a verdict needs; 0 for a third of a sketch")
	f.Float64Var(&v.o.HitDiff, "hit-diff", 1, "how close the next candidate must come to count, as a share")
	f.IntVar(&v.o.Insert, "insert", 0, "letters from the begin of a read to the end of its mate; 0 for those of both")
}

func (v *verdictFlags) options() (_ classify.QueryOptions, err error) {
	if v.o.Lowest, err = classify.ParseRank(v.lowest); err != nil {
		return v.o, fmt.Errorf("--lowest: %w", err)
	}
	if v.o.Highest, err = classify.ParseRank(v.highest); err != nil {
		return v.o, fmt.Errorf("--highest: %w", err)
	}
	o := v.o
	if o.HitDiff == 0 { // in options, that is 1
		o.HitDiff = 1e-9
	}
	return o, nil
}

// classifyFlags are those of a query.
type classifyFlags struct {
	verdictFlags
	several
	format                        string
	out, report, abundances       string
	paired, truth, quiet, skipped bool
	threads                       int
}

func classifyQueryCommand() *cobra.Command {
	var q classifyFlags
	cmd := &cobra.Command{
		Use:   "query DB READS…",
		Short: "Tell of reads which taxa they come from",
		Long: `query classifies reads: FASTA or FASTQ files, plain or packed with gzip or zstd, patterns, folders, or -
for standard input. With --paired files of mates come in turns: first, second, first, second.

A read's candidates are the two references, or taxa of the rank --lowest, that share most features with it in so many
windows as it may span. With fewer than --hit-min hits it is unclassified. If the next candidate has more than (hits of
the best - hit-min) · hit-diff, the verdict is the lowest common ancestor of both; above --highest, none.

With --devices each of several devices has a part of the references, and looks at all reads: so a database may be larger
than the memory of one. The verdicts are the same.

With --memory the database, where it is on the CPU, and batches of reads take no more of the host's memory than about
this. The taxonomy and the names of references come on top.

Lines are Kraken's: C or U, name, taxon, length, taxon:hits of the candidates; with --format metacache: name, |, taxon.
A summary goes to stderr; with --json it is JSON, on stdout unless the lines go there.`,
		Example: `  warpmap classify query refs.db reads.fastq.gz --report report.txt --out verdicts.tsv
  warpmap classify query refs.db 1.fq.gz 2.fq.gz --paired --lowest species --abundances species.tsv --out /dev/null
  zcat reads.fa.gz | warpmap classify query refs.db - --format metacache
  warpmap classify query refs.db simulated.fa --ground-truth --out /dev/null

` + exitCodes,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error { return q.run(cmd, args[0], args[1:]) },
	}
	f := cmd.Flags()
	q.add(cmd)
	q.several.flags(cmd)
	f.BoolVar(&q.paired, "paired", false, "files of mates come in turns")
	f.StringVarP(&q.out, "out", "o", "-", "file for the lines; - is standard output")
	f.StringVar(&q.format, "format", "kraken", "lines of kraken or metacache")
	f.StringVar(&q.report, "report", "", "file for a report in Kraken's format")
	f.StringVar(&q.abundances, "abundances", "", "file for the reads of each taxon, by rank")
	f.BoolVar(&q.truth, "ground-truth", false, "headers have taxid|N: tell precision and sensitivity by rank")
	f.Var(&size{&q.o.Memory}, "memory",
		"batches, and on the CPU the database, take no more of the host's memory than about this, such as 2GB")
	threadsFlag(cmd, &q.threads)
	skipBrokenFlag(cmd, &q.skipped)
	quietFlag(cmd, &q.quiet)
	return cmd
}

func (q *classifyFlags) run(cmd *cobra.Command, name string, inputs []string) (err error) {
	o, err := q.options()
	if err != nil {
		return err
	}
	format, err := classify.ParseFormat(q.format)
	if err != nil {
		return fmt.Errorf("--format: %w", err)
	}
	if err := q.check(cmd, name, inputs); err != nil {
		return err
	}
	inputs, mates, err := q.mates(inputs)
	if err != nil {
		return err
	}
	if o.Memory < 0 {
		return fmt.Errorf("--memory %d: want a size, such as 2GB", o.Memory)
	}
	undo, err := onThreads(q.threads)
	if err != nil {
		return err
	}
	defer undo()
	errs := hush(cmd, q.quiet || q.onlyJSON(cmd))
	devices, closeAll, err := q.several.openOr(cmd, device.WithWorkers(q.threads))
	if err != nil {
		return err
	}
	defer closeAll()
	begin := time.Now()
	db, err := classify.Open(name)
	if err != nil {
		return err
	}
	defer db.Close()
	c, err := classify.NewClassifier(devices[0], db, o, devices[1:]...)
	if err != nil {
		return err
	}
	defer c.Close()
	if o.Memory > 0 {
		var m runtime.MemStats
		runtime.ReadMemStats(&m) // of the taxonomy and the names of references
		defer collectWithin(o.Memory + int64(m.HeapAlloc) + 64<<20)()
	}
	bar := newSpinner(cmd)
	defer bar.clear()
	s := classifySummary{Loading: time.Since(begin).Seconds()}
	begin = time.Now()
	tally := c.NewTally(q.truth)
	reads := int64(0)
	var texts sync.Pool // of *[]byte: new memory for each batch would be brought in page by page
	lines := func(to io.Writer) error {
		counts, err := c.Run(cmd.Context(), inputs, mates, genome.Options{SkipBroken: q.skipped, Threads: q.threads},
			func(r *classify.Result) error {
				text, _ := texts.Get().(*[]byte)
				if text == nil {
					text = new([]byte)
				}
				r.Text = c.AppendLines((*text)[:0], r, format)
				tally.Add(r)
				return nil
			}, func(r *classify.Result) error {
				reads += int64(len(r.Verdicts))
				bar.set("classifying", reads, -1, "reads")
				_, err := to.Write(r.Text)
				texts.Put(&r.Text)
				return err
			})
		s.Broken = counts.Broken
		return err
	}
	if q.out == "-" {
		err = lines(cmd.OutOrStdout())
	} else {
		err = files.WriteFile(q.out, func(f *os.File) error { return lines(f) })
	}
	if err != nil {
		return err
	}
	bar.clear()
	s.Querying = time.Since(begin).Seconds()
	if err := q.reports(tally); err != nil {
		return err
	}
	return q.summarize(cmd, errs, &s, tally)
}

// summarize prints the summary of all reads, and a warning if mates have different names. errs is standard error, also
// with --quiet.
func (q *classifyFlags) summarize(cmd *cobra.Command, errs io.Writer, s *classifySummary, tally *classify.Tally) error {
	if tally.Strangers > 0 && !q.onlyJSON(cmd) {
		fmt.Fprintf(errs, "warning: %d of %d pairs have mates with different names: want files in turns, first and "+
			"second, with mates in the same order\n", tally.Strangers, tally.Reads)
	}
	s.Reads, s.Letters, s.Strangers = tally.Reads, tally.Letters, tally.Strangers
	s.Classified, s.Ranks = tally.Classified(), tally.Summary()
	s.Rate = float64(s.Reads) / s.Querying * 60
	switch {
	case q.onlyJSON(cmd):
		return printJSON(errs, s)
	case jsonFlag(cmd):
		return printJSON(cmd.OutOrStdout(), s)
	}
	s.print(cmd.ErrOrStderr(), q.truth)
	return nil
}

// onlyJSON reports whether stderr is for JSON only, because the lines go to stdout.
func (q *classifyFlags) onlyJSON(cmd *cobra.Command) bool { return jsonFlag(cmd) && q.out == "-" }

// check checks the outputs, and warns of inputs that are named twice.
func (q *classifyFlags) check(cmd *cobra.Command, name string, inputs []string) error {
	if err := q.checkOutputs(name, inputs); err != nil || q.onlyJSON(cmd) {
		return err
	}
	return warnTwice(cmd.ErrOrStderr(), inputs)
}

// checkOutputs returns an error for outputs that cannot be written, or that would replace a file that is read.
func (q *classifyFlags) checkOutputs(name string, inputs []string) error {
	outputs := []output{}
	for _, o := range []output{{"--out", q.out}, {"--report", q.report}, {"--abundances", q.abundances}} {
		if o != (output{"--out", "-"}) && (o.name != "" || o.flag == "--out") {
			outputs = append(outputs, o)
		}
	}
	if err := checkOutputs([]string{name}, inputs, outputs...); err != nil {
		return err
	}
	if q.out == "-" {
		read, err := genome.Expand(inputs)
		if err != nil {
			return err
		}
		if err := files.NotRead("-", append(read, name)); err != nil {
			return &usageError{err}
		}
	}
	return nil
}

// mates are the files of either side, where they come in turns.
func (q *classifyFlags) mates(inputs []string) (first, mates []string, err error) {
	if !q.paired {
		return inputs, nil, nil
	}
	if q.skipped {
		return nil, nil, fmt.Errorf("--skip-broken with --paired: nothing would tell which mates behind a broken " +
			"record belong together; mend the files")
	}
	if inputs, err = genome.Expand(inputs); err != nil {
		return nil, nil, err
	}
	if len(inputs)%2 != 0 {
		return nil, nil, fmt.Errorf("--paired: %d files: want an even number, mates in turns", len(inputs))
	}
	for i, input := range inputs {
		if i%2 == 0 {
			first = append(first, input)
		} else {
			mates = append(mates, input)
		}
	}
	return first, mates, nil
}

// reports writes what is told of all reads together.
func (q *classifyFlags) reports(tally *classify.Tally) error {
	if q.report != "" {
		if err := files.WriteFile(q.report, func(f *os.File) error { return tally.Report(f) }); err != nil {
			return err
		}
	}
	if q.abundances != "" {
		if err := files.WriteFile(q.abundances, func(f *os.File) error { return tally.Abundances(f) }); err != nil {
			return err
		}
	}
	return nil
}

// classifySummary is what a query tells at its end.
type classifySummary struct {
	Reads      int64                  `json:"reads"` // or pairs
	Letters    int64                  `json:"letters"`
	Broken     int64                  `json:"broken,omitempty"`
	Strangers  int64                  `json:"strangers,omitempty"` // pairs whose mates have different names
	Classified int64                  `json:"classified"`
	Rate       float64                `json:"reads_per_minute"`
	Loading    float64                `json:"loading_seconds"`
	Querying   float64                `json:"querying_seconds"`
	Ranks      []classify.RankSummary `json:"ranks"`
}

func (s *classifySummary) print(w io.Writer, truth bool) {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	t.SetStyle(table.StyleLight)
	share := func(x float64) string { return fmt.Sprintf("%.2f%%", 100*x) }
	head := table.Row{"at or below", "reads", ""}
	if truth {
		head = append(head, "precision", "sensitivity")
	}
	t.AppendHeader(head)
	for _, r := range s.Ranks {
		row := table.Row{r.Rank, r.Reads, share(r.Share)}
		if truth {
			row = append(row, share(r.Precision), share(r.Sensitivity))
		}
		t.AppendRow(row)
	}
	unclassified := 0.0
	if s.Reads > 0 {
		unclassified = float64(s.Reads-s.Classified) / float64(s.Reads)
	}
	t.AppendRow(table.Row{"unclassified", s.Reads - s.Classified, share(unclassified)})
	broken := ""
	if s.Broken > 0 {
		broken = fmt.Sprintf(", %s broken records left out", humanize.Comma(s.Broken))
	}
	t.SetCaption("%s reads, %s letters%s; loading %.3f s, querying %.3f s: %s reads a minute", humanize.Comma(s.Reads),
		humanize.Comma(s.Letters), broken, s.Loading,
		s.Querying, humanize.Comma(int64(s.Rate)))
	render(t, w)
}
