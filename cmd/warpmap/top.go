package main

import (
	"encoding/csv"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/join"
)

func topCommand() *cobra.Command {
	var c columnFlags
	var o join.TopOptions
	cmd := &cobra.Command{
		Use:   "top FILE… --column NAME",
		Short: "Tell the values of a column that come most often",
		Long: `top tells the values of a column that come most often, and how often, the most frequent first. Those that
come equally often are in their own order. Nulls count for none.

It is exact, on the cores of the CPU, and takes memory for each distinct value; where they take more than --memory, it
ends with an error. With --approx it keeps the counts of two million values at most, or of as many as --memory has room
for. A value then came as often as it says at least, and more often by "error" at most, which --json tells: it is less
than a millionth of the rows, if two million have room, and 0 where no more than half of these distinct values came. No
value that came more often than that is lost. Standard error tells the error of counts that are not exact. Where there
is a GPU, it counts values that are no texts.

FILE is as in "warpmap distinct". The output is CSV on standard output: the column, and count. Bytes of texts that are
not UTF-8 are written as they are; with --json, which must be UTF-8, U+FFFD stands for them.`,
		Example: `  warpmap top lineitem.parquet --column l_partkey -k 100
  warpmap top 'events/day=*/*.parquet' -c user --approx --json

` + exitCodes,
		Args: someFiles,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := c.options(cmd, args); err != nil {
				return err
			}
			if o.N < 1 {
				return fmt.Errorf("--most %d: want 1 or more", o.N)
			}
			undo, err := onThreads(c.o.Threads)
			if err != nil {
				return err
			}
			defer undo()
			hush(cmd, c.quiet)
			if err := coresAlone(cmd, o.Approx); err != nil {
				return err
			}
			if o.Approx {
				if o.Device, err = gpuIfAny(cmd); err != nil {
					return err
				}
				if o.Device != nil {
					defer o.Device.Close()
				}
			}
			bar := newProgress(cmd.ErrOrStderr())
			defer bar.clear()
			o.ColumnOptions = c.o
			o.Progress = bar.show
			s, err := join.Top(cmd.Context(), o)
			if err != nil {
				return err
			}
			bar.clear()
			if s.Error > 0 {
				fmt.Fprintf(cmd.ErrOrStderr(), "counts are too low by %d of %d rows at most\n", s.Error, s.Rows)
			}
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), s)
			}
			w := csv.NewWriter(cmd.OutOrStdout())
			w.Write([]string{c.o.Column, "count"})
			for _, v := range s.Values {
				n := strconv.FormatInt(v.Count, 10)
				if v.Value != "" {
					w.Write([]string{v.Value, n})
					continue
				}
				w.Flush()
				fmt.Fprintf(cmd.OutOrStdout(), "\"\",%s\n", n) // nothing between the commas would be null
			}
			w.Flush()
			return w.Error()
		},
	}
	c.flags(cmd)
	cmd.Flags().IntVarP(&o.N, "most", "k", 10, "how many values")
	cmd.Flags().BoolVar(&o.Approx, "approx", false, "keep the most frequent values alone, from bounded memory")
	return cmd
}

// coresAlone says that a device is named which exact counts would not use.
func coresAlone(cmd *cobra.Command, approx bool) error {
	name, err := cmd.Flags().GetString("device")
	if err == nil && !approx && name != "auto" && !strings.HasPrefix(name, "cpu") {
		err = fmt.Errorf("--device %s without --approx: exact counts are made by the cores of the CPU", name)
	}
	return err
}

// gpuIfAny opens the GPU that --device names, or none where that leaves us the CPU, whose cores count without a device.
func gpuIfAny(cmd *cobra.Command) (*device.Device, error) {
	name, err := cmd.Flags().GetString("device")
	if err != nil || strings.HasPrefix(name, "cpu") {
		return nil, err
	}
	d, err := openNamed(cmd, name)
	if name == "auto" && errors.As(err, new(*deviceError)) {
		return nil, nil // no GPU, nor the compiler that a device of the CPU needs: its cores count without
	}
	if err != nil {
		return nil, err
	}
	if !d.Info().CUDA() {
		return nil, d.Close()
	}
	if name == "auto" {
		fmt.Fprintln(cmd.ErrOrStderr(), chosen(d, ""))
	}
	return d, nil
}
