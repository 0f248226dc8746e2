package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/join"
)

// columnFlags say which column of which inputs is looked at.
type columnFlags struct {
	o      join.ColumnOptions
	text   textFlags
	format string
	quiet  bool
}

func (c *columnFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVarP(&c.o.Column, "column", "c", "", "the column's name")
	f.StringVar(&c.format, "format", "", "format of the inputs: "+strings.Join(join.Formats(), ", ")+
		"; left out, by names and first bytes")
	c.text.flags(f)
	f.Var(&size{&c.o.Memory}, "memory", "the distinct values take no more than about this, such as 2GB; left out, "+
		"half of the machine's")
	threadsFlag(cmd, &c.o.Threads)
	quietFlag(cmd, &c.quiet)
	cmd.MarkFlagRequired("column")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(join.Formats(), cobra.ShellCompDirectiveNoFileComp))
}

// options are what the flags say.
func (c *columnFlags) options(cmd *cobra.Command, args []string) (err error) {
	c.o.Inputs = args
	if c.format != "" {
		if c.o.Format, err = join.ParseFormat(c.format); err != nil {
			return fmt.Errorf("--format: %w", err)
		}
	}
	if c.o.Memory < 0 {
		return fmt.Errorf("--memory %d: want a number that is not negative", c.o.Memory)
	}
	c.o.Text, err = c.text.options(cmd)
	return err
}

// someFiles wants an input at least.
func someFiles(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("no input: want FILE, and others if there are")
	}
	return nil
}

func distinctCommand() *cobra.Command {
	var c columnFlags
	approx := false
	cmd := &cobra.Command{
		Use:   "distinct FILE… --column NAME",
		Short: "Count the distinct values of a column",
		Long: `distinct counts the distinct values of a column, as SQL's count(distinct) does: nulls count for none.

It is exact, on the cores of the CPU, and takes memory for the distinct values alone; where they take more than
--memory, it ends with an error. With --approx it estimates how many there are, on --device, from 16 KiB whatever
there is: two estimates of three are within 0.8%, and 19 of 20 within 1.6%.

FILE is a file, - for standard input, a pattern ('day=*/*.parquet', with ** for folders within folders), a folder, with
those below it, or several of these; all must have the same columns. Parts key=value of their folders' names are
columns. Formats go by file name: ` + strings.Join(join.Suffixes(), ", ") + `, for text with .gz or .zst behind it.
Of Parquet, CSV and JSON lines the column alone is read. Texts are told apart by their bytes, and need not be UTF-8. The
number goes to standard output; --json says more.`,
		Example: `  warpmap distinct lineitem.parquet --column l_partkey
  warpmap distinct 'events/day=*/*.parquet' -c user --approx --json
  zcat events.csv.gz | warpmap distinct - -c user --format csv --types user=text

` + exitCodes,
		Args: someFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.options(cmd, args); err != nil {
				return err
			}
			s, err := c.distinct(cmd, approx)
			if err != nil {
				return err
			}
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), s)
			}
			_, err = fmt.Fprintln(cmd.OutOrStdout(), s.Distinct)
			return err
		},
	}
	c.flags(cmd)
	cmd.Flags().BoolVar(&approx, "approx", false, "estimate, from little memory")
	return cmd
}

func (c *columnFlags) distinct(cmd *cobra.Command, approx bool) (s join.DistinctSummary, err error) {
	undo, err := onThreads(c.o.Threads)
	if err != nil {
		return s, err
	}
	defer undo()
	hush(cmd, c.quiet)
	if err := coresAlone(cmd, approx); err != nil {
		return s, err
	}
	var d *device.Device
	if approx {
		if d, err = openDevice(cmd, device.WithWorkers(c.o.Threads)); err != nil {
			return s, err
		}
		defer d.Close()
	}
	bar := newProgress(cmd.ErrOrStderr())
	c.o.Progress = bar.show
	defer bar.clear()
	return join.Distinct(cmd.Context(), d, c.o)
}
