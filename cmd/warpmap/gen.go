package main

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/join"
	"github.com/warpmap/warpmap/workload"
)

func genCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "gen", Short: "Make data to join",
		Example: "  warpmap gen tpch --sf 0.1 --out t"}
	cmd.AddCommand(genTPCH())
	return cmd
}

func genTPCH() *cobra.Command {
	var t workload.TPCH
	var out, format, compression string
	cmd := &cobra.Command{
		Use:   "tpch --sf SCALE --out DIR",
		Short: "Make TPC-H's orders and lineitem",
		Long: `tpch makes the tables orders and lineitem by TPC-H's rules for their columns: sparse order keys, one to
seven lines an order, prices and dates that agree. Scale factor 1 is 1,500,000 orders and about 6,000,000 lines. Rows
are made on all cores; the same seed makes the same files on any machine. With --comments both tables have their column
of random text, too.`,
		Example: "  warpmap gen tpch --sf 0.1 --out t\n  warpmap gen tpch --sf 10 --comments --seed 7 --out big",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := t.Check(); err != nil {
				return fmt.Errorf("--sf: %w", err)
			}
			as, err := join.ParseFormat(format)
			if err != nil {
				return fmt.Errorf("--format: %w", err)
			}
			tidy, err := folder(out, 0o777)
			if err != nil {
				return err
			}
			defer tidy()
			type file struct {
				File    string  `json:"file"`
				Rows    int64   `json:"rows"`
				Seconds float64 `json:"seconds"`
			}
			var written []file
			bar := newProgress(cmd.ErrOrStderr())
			defer bar.clear()
			for _, g := range []struct {
				name  string
				rows  array.RecordReader
				total int64
			}{{"orders", t.Orders(), t.NumOrders()}, {"lineitem", t.Lineitem(), -1}} {
				start := time.Now()
				path := filepath.Join(out, g.name+"."+format)
				n, err := writeFile(cmd.Context(), path, join.WriteOptions{Format: as, Compression: compression},
					g.rows, func(done int64) {
						bar.show(join.Progress{Stage: g.name, Done: done, Total: g.total})
					})
				g.rows.Release()
				bar.clear()
				if err != nil {
					return err
				}
				written = append(written, file{path, n, time.Since(start).Seconds()})
				if !jsonFlag(cmd) {
					fmt.Fprintf(cmd.ErrOrStderr(), "%s: %d rows, %s s\n", path, n, seconds(time.Since(start).Seconds()))
				}
			}
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), written)
			}
			return nil
		},
	}
	f := cmd.Flags()
	f.Float64Var(&t.SF, "sf", 0.1, "scale factor")
	f.StringVarP(&out, "out", "o", "", "directory to write to; made where it is missing")
	f.Uint64Var(&t.Seed, "seed", 1, "seed of the random numbers")
	f.BoolVar(&t.Comments, "comments", false, "write o_comment and l_comment, too")
	f.StringVar(&format, "format", "parquet", "file format: "+strings.Join(join.Formats(), ", "))
	f.StringVar(&compression, "compression", "",
		"of the files, as join has it; left out, snappy in Parquet, none in the others")
	cmd.MarkFlagRequired("out")
	cmd.RegisterFlagCompletionFunc("format", cobra.FixedCompletions(join.Formats(), cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// writeFile writes rows to a file that appears when it is whole.
func writeFile(ctx context.Context, path string, o join.WriteOptions, rows array.RecordReader,
	progress func(done int64)) (n int64, err error) {
	w, err := join.CreateAs(path, rows.Schema(), o)
	if err != nil {
		return 0, err
	}
	defer w.Abort()
	for rows.Next() {
		if err := ctx.Err(); err != nil {
			return n, err
		}
		if err := w.Write(rows.RecordBatch()); err != nil {
			return n, err
		}
		n += rows.RecordBatch().NumRows()
		progress(n)
	}
	if err := rows.Err(); err != nil {
		return n, err
	}
	return n, w.Close()
}
