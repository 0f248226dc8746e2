package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/kmers"
	"github.com/warpmap/warpmap/internal/files"
)

func kmersCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "kmers",
		Short: "Count the k-mers of FASTA and FASTQ files",
		Long: `kmers counts the k-mers of sequences: each run of k letters A, C, G, T (or U), of either case. K-mers
over other letters are left out.

count makes a file of counts, and the other commands print what is in one, in Jellyfish's columns.`,
		Example: `  warpmap kmers count genomes/*.fa.gz -k 21 --canonical --out genomes.wk
  warpmap kmers stats genomes.wk
  warpmap kmers histo genomes.wk
  warpmap kmers dump -c genomes.wk | sort -k2nr | head
  warpmap kmers query genomes.wk ACGTACGTACGTACGTACGTA

` + exitCodes,
	}
	dump, histo, stats, query := kmersDumpCommand(), kmersHistoCommand(), kmersStatsCommand(), kmersQueryCommand()
	onlyUses(uses{}, dump)
	onlyUses(uses{json: true}, histo, stats, query)
	cmd.AddCommand(kmersCountCommand(), dump, histo, stats, query)
	return cmd
}

func kmersCountCommand() *cobra.Command {
	var out string
	var quiet bool
	var over several
	o := kmers.Options{}
	cmd := &cobra.Command{
		Use:   "count READS… -k K",
		Short: "Count k-mers, into a file",
		Long: `count counts the k-mers of READS: files, patterns ('run*/*.fq.gz'), folders, or - for standard input, in
FASTA or FASTQ, plain or packed with gzip or zstd, which their content tells. The file of counts appears under its name
when it is whole, and takes about 5.5 bytes a k-mer. A summary goes to stderr; with --json, it is JSON on stdout.

K-mers take 8 to 20 bytes each, and those of more than 32 letters twice that. With --memory, or where memory is short,
they go to temporary files, in the folder that TMPDIR names, and are counted a part at a time; the result is the same.
Temporary files take about 1.5 bytes a k-mer, and then 12, or 20, for each that is kept.

A count stops at 4,294,967,295. A file that is named twice counts twice, and there is a warning. With --devices each of
several devices counts a part of the k-mers.`,
		Example: `  warpmap kmers count genome.fa -k 31 --out genome.wk
  warpmap kmers count reads_1.fq.gz reads_2.fq.gz -k 21 --canonical --min 2 --out reads.wk
  zcat *.fa.gz | warpmap kmers count - -k 16 --json
  warpmap kmers count runs/ -k 25 -C --memory 8GB --skip-broken

` + exitCodes,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if o.K < 1 || o.K > kmers.MaxK {
				return fmt.Errorf("--k %d: want 1 to %d", o.K, kmers.MaxK)
			}
			if o.MaxMemory < 0 {
				return fmt.Errorf("--memory %d: want a size, such as 2GB", o.MaxMemory)
			}
			undo, err := onThreads(o.Read.Threads)
			if err != nil {
				return err
			}
			defer undo()
			if err := checkRegular(nil, args, output{"--out", out}); err != nil {
				return err
			}
			warnings := hush(cmd, quiet)
			if err := warnTwice(warnings, args); err != nil {
				return err
			}
			devices, closeAll, err := over.openOr(cmd, device.WithWorkers(o.Read.Threads))
			if err != nil {
				return err
			}
			defer closeAll()
			o.Beside = devices[1:]
			if o.MaxMemory > 0 { // half of it is for what is on Go's heap, or more where it is little
				defer collectWithin(o.MaxMemory/2 + 64<<20)()
			}
			bar := newSpinner(cmd)
			if bar.on {
				o.Progress = func(at kmers.Progress) { kmersProgress(bar, at) }
			}
			s, err := kmers.Count(cmd.Context(), devices[0], args, o, out)
			bar.clear()
			if err != nil {
				return err
			}
			if s.Distinct == 0 {
				fmt.Fprintf(warnings, "warning: %s has no k-mers: in %d records with %d letters, no %d letters of A, "+
					"C, G, T and U in a row came %d times\n", out, s.Read.Records, s.Read.Letters, o.K, max(1, o.Min))
			}
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), s)
			}
			kmersSummary(cmd.ErrOrStderr(), out, s)
			return nil
		},
	}
	f := cmd.Flags()
	over.flags(cmd)
	f.IntVarP(&o.K, "k", "k", 0, fmt.Sprintf("letters of a k-mer, 1 to %d", kmers.MaxK))
	f.BoolVarP(&o.Canonical, "canonical", "C", false, "count a k-mer and its reverse complement as one, the smaller")
	f.Uint32Var(&o.Min, "min", 1, "leave out k-mers that come less often")
	f.StringVarP(&out, "out", "o", "counts.wk", "the file of counts; one that is there is replaced")
	f.Var(&size{&o.MaxMemory}, "memory",
		"k-mers take no more than about this, of all devices together, such as 2GB; left out, half of what is free")
	threadsFlag(cmd, &o.Read.Threads)
	skipBrokenFlag(cmd, &o.Read.SkipBroken)
	quietFlag(cmd, &quiet)
	cmd.MarkFlagRequired("k")
	return cmd
}

func kmersSummary(w io.Writer, out string, s kmers.Summary) {
	broken := ""
	if s.Read.Broken > 0 {
		broken = fmt.Sprintf(", and %d broken ones left out", s.Read.Broken)
	}
	stored := ""
	if s.Stored > 0 {
		stored = fmt.Sprintf(", in %d rounds, with %s of temporary files", s.Rounds, device.Bytes(s.Stored))
	}
	fmt.Fprintf(w, "%s: %d distinct k-mers, %d in all, of %d records with %d letters%s%s\n", out, s.Distinct, s.Total,
		s.Read.Records, s.Read.Letters, broken, stored)
}

// kmersProgress draws a bar of letters that are read, or of parts that are counted.
func kmersProgress(bar *spinner, at kmers.Progress) {
	what, unit := string(at.Step), "parts"
	if at.Total < 0 {
		unit = "letters"
	}
	if at.Round > 0 {
		what = fmt.Sprintf("%s (round %d)", what, at.Round)
	}
	bar.set(what, at.Done, at.Total, unit)
}

// until writes until a signal comes.
type until struct {
	ctx context.Context
	to  io.Writer
}

func (u until) Write(b []byte) (int, error) {
	if err := context.Cause(u.ctx); err != nil {
		return 0, err
	}
	return u.to.Write(b)
}

// output is a file to write, and what names it: a flag, or an argument.
type output struct{ flag, name string }

// checkOutputs tells, before any work is done, which files cannot be written, or would take the place of one another or
// of what is read: others, and inputs as genome.Expand has them.
func checkOutputs(others, inputs []string, outputs ...output) error {
	expanded, err := genome.Expand(inputs)
	if err != nil {
		return err
	}
	read := slices.Concat(others, expanded)
	paths := map[string]string{}
	for _, o := range outputs {
		if o.name == "-" {
			return &usageError{fmt.Errorf("%s -: want the name of a file; it is not written to standard output",
				o.flag)}
		}
		if err := files.CheckOutput(o.name, read...); err != nil {
			return &usageError{fmt.Errorf("%s: %w", o.flag, err)}
		}
		if i, err := os.Stat(o.name); err == nil && !i.Mode().IsRegular() {
			continue
		}
		path, err := files.Target(o.name)
		if err != nil {
			return err
		}
		if other, taken := paths[path]; taken {
			return &usageError{fmt.Errorf("%s %s: %s is to be written there: want two names", o.flag, o.name, other)}
		}
		paths[path] = o.flag
	}
	return nil
}

// warnTwice prints a warning if inputs, as genome.Expand has them, name a file more than once. It is read as often.
func warnTwice(w io.Writer, inputs []string) error {
	expanded, err := genome.Expand(inputs)
	if err != nil {
		return err
	}
	if again, earlier, n := files.Twice(expanded); n > 0 {
		fmt.Fprintf(w, "warning: input files that are named more than once count each time (%d of %d): %s is the same "+
			"file as %s\n", n, len(expanded), again, earlier)
	}
	return nil
}

// checkRegular is checkOutputs of a file that is written here and there.
func checkRegular(others, inputs []string, o output) error {
	if err := checkOutputs(others, inputs, o); err != nil {
		return err
	}
	if err := files.CheckRegular(o.name); err != nil {
		return &usageError{fmt.Errorf("%s %w", o.flag, err)}
	}
	return nil
}

// ofCounts is a command that opens a file of counts, its first argument, and prints what is in it to a buffer of
// standard output.
func ofCounts(cmd *cobra.Command, print func(ctx context.Context, f *kmers.File, w *bufio.Writer,
	args []string) error) *cobra.Command {
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if parquet := cmd.Flags().Lookup("parquet"); parquet != nil && parquet.Changed {
			if err := checkOutputs(args[:1], nil, output{"--parquet", parquet.Value.String()}); err != nil {
				return err
			}
		} else if err := files.NotRead("-", args[:1]); err != nil {
			return &usageError{err}
		}
		f, err := kmers.Open(args[0])
		if err != nil {
			return err
		}
		defer f.Close()
		w := bufio.NewWriterSize(until{cmd.Context(), cmd.OutOrStdout()}, 1<<18)
		if err := print(cmd.Context(), f, w, args[1:]); err != nil {
			return err
		}
		return w.Flush()
	}
	return cmd
}

func kmersDumpCommand() *cobra.Command {
	var columns bool
	var parquet string
	var lower, upper uint32
	cmd := ofCounts(&cobra.Command{
		Use:   "dump COUNTS",
		Short: "Print all k-mers with their counts",
		Long: `dump prints the k-mers of a file of counts as FASTA, with the count for a name, or in columns, or makes a
Parquet file with the columns kmer and count. They come in an order of hashes, which is the same for the same k-mers.`,
		Example: `  warpmap kmers dump counts.wk > counts.fa
  warpmap kmers dump counts.wk --parquet counts.parquet
  warpmap kmers dump -c --lower 10 counts.wk`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, f *kmers.File, w *bufio.Writer, _ []string) error {
		if lower > upper {
			return fmt.Errorf("--lower %d and --upper %d: no count is in between", lower, upper)
		}
		if parquet != "" {
			return files.WriteFile(parquet, func(to *os.File) error {
				w := bufio.NewWriterSize(until{ctx, to}, 1<<18)
				if err := f.WriteParquet(w, lower, upper); err != nil {
					return err
				}
				return w.Flush()
			})
		}
		var line []byte
		return f.Each(func(kmer kmers.Kmer, count uint32) error {
			if count < lower || count > upper {
				return nil
			}
			if columns {
				line = append(kmers.Append(line[:0], kmer, f.K), ' ')
				line = strconv.AppendUint(line, uint64(count), 10)
			} else {
				line = append(strconv.AppendUint(append(line[:0], '>'), uint64(count), 10), '\n')
				line = kmers.Append(line, kmer, f.K)
			}
			_, err := w.Write(append(line, '\n'))
			return err
		})
	})
	cmd.Flags().BoolVarP(&columns, "columns", "c", false, "in columns: the k-mer, a space, its count")
	cmd.Flags().StringVar(&parquet, "parquet", "", "make this Parquet file, and print nothing")
	cmd.MarkFlagsMutuallyExclusive("columns", "parquet")
	cmd.Flags().Uint32VarP(&lower, "lower", "L", 0, "leave out k-mers that came less often")
	cmd.Flags().Uint32VarP(&upper, "upper", "U", ^uint32(0), "leave out k-mers that came more often")
	return cmd
}

// histoRow tells how many k-mers have a count.
type histoRow struct {
	Count int    `json:"count"`
	Kmers uint64 `json:"kmers"`
}

func kmersHistoCommand() *cobra.Command {
	var high int
	cmd := &cobra.Command{
		Use:   "histo COUNTS",
		Short: "Print how many k-mers came how often",
		Long: `histo prints a line for each count that k-mers have: the count, a space, and how many k-mers have it. The
last line is of all that have more than --high.`,
		Example: "  warpmap kmers histo counts.wk\n  warpmap kmers histo --json counts.wk",
		Args:    cobra.ExactArgs(1),
	}
	return withFlags(ofCounts(cmd, func(_ context.Context, f *kmers.File, w *bufio.Writer, _ []string) error {
		if high < 1 || high > 1<<30 {
			return fmt.Errorf("--high %d: want 1 to 2³⁰", high)
		}
		n, err := f.Histogram(int(min(uint64(high), f.Stats.MaxCount)) + 2)
		if err != nil {
			return err
		}
		rows := []histoRow{}
		for count, kmers := range n {
			if kmers > 0 {
				rows = append(rows, histoRow{count, kmers})
			}
		}
		if jsonFlag(cmd) {
			return printJSON(w, rows)
		}
		for _, r := range rows {
			fmt.Fprintln(w, r.Count, r.Kmers)
		}
		return nil
	}), func(cmd *cobra.Command) {
		cmd.Flags().IntVar(&high, "high", 10000, "the highest count with a line of its own")
	})
}

// withFlags gives a command flags.
func withFlags(cmd *cobra.Command, add func(cmd *cobra.Command)) *cobra.Command {
	add(cmd)
	return cmd
}

func kmersStatsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "stats COUNTS",
		Short: "Print how many k-mers there are",
		Long: "stats prints how many k-mers came once, how many there are, the sum of their counts, and the " +
			"largest count.",
		Example: "  warpmap kmers stats counts.wk\n  warpmap kmers stats --json counts.wk",
		Args:    cobra.ExactArgs(1),
	}
	return ofCounts(cmd, func(_ context.Context, f *kmers.File, w *bufio.Writer, _ []string) error {
		if jsonFlag(cmd) {
			return printJSON(w, f.Stats)
		}
		_, err := fmt.Fprintf(w, "Unique:    %d\nDistinct:  %d\nTotal:     %d\nMax_count: %d\n", f.Stats.Unique,
			f.Stats.Distinct, f.Stats.Total, f.Stats.MaxCount)
		return err
	})
}

// queryRow is a k-mer and its count.
type queryRow struct {
	Kmer  string `json:"kmer"`
	Count uint32 `json:"count"`
}

func kmersQueryCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "query COUNTS KMERS…",
		Short: "Print how often k-mers came",
		Long: `query prints each k-mer and its count, 0 where it did not come or is left out. Where k-mers were counted
with --canonical, the smaller of it and its reverse complement is printed. - is k-mers on standard input, a line each.`,
		Example: "  warpmap kmers query counts.wk ACGTACGTACGTACGTACGTA\n  warpmap kmers query counts.wk - < kmers.txt",
		Args:    cobra.MinimumNArgs(2),
	}
	return ofCounts(cmd, func(_ context.Context, f *kmers.File, w *bufio.Writer, args []string) error {
		var packed []kmers.Kmer
		take := func(letters string) error {
			x, err := kmers.Pack(letters)
			if err == nil && len(letters) != f.K {
				err = fmt.Errorf("a k-mer %q of %d letters: the file has those of %d", letters, len(letters), f.K)
			}
			if err == nil && f.Canonical {
				x = kmers.Canonical(x, f.K)
			}
			packed = append(packed, x)
			return err
		}
		for _, a := range args {
			if a != "-" {
				if err := take(a); err != nil {
					return &usageError{err}
				}
				continue
			}
			lines, n := bufio.NewScanner(os.Stdin), int64(1)
			for ; lines.Scan(); n++ {
				if text := strings.TrimSpace(lines.Text()); text != "" {
					if err := take(text); err != nil {
						return &genome.InputError{Input: "standard input", Line: n, Err: err}
					}
				}
			}
			if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
				return &genome.InputError{Input: "standard input", Line: n,
					Err: fmt.Errorf("a line of more than 64 KiB: want k-mers of %d letters, a line each", f.K)}
			} else if err != nil {
				return err
			}
		}
		counts, err := f.Find(packed)
		if err != nil {
			return err
		}
		rows := []queryRow{}
		for i, n := range counts {
			rows = append(rows, queryRow{string(kmers.Append(nil, packed[i], f.K)), n})
		}
		if jsonFlag(cmd) {
			return printJSON(w, rows)
		}
		for _, r := range rows {
			fmt.Fprintln(w, r.Kmer, r.Count)
		}
		return nil
	})
}
