package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/join"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

func demoCommand() *cobra.Command {
	sf := 0.01
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Make data, join it, and look keys up, explained as it goes",
		Example: "  warpmap demo\n  warpmap demo --sf 0.1 --device cpu",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := (workload.TPCH{SF: sf}).Check(); err != nil {
				return fmt.Errorf("--sf: %w", err)
			}
			out := cmd.OutOrStdout()
			say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
			dir, remove, err := files.TemporaryFolder()
			if err != nil {
				return err
			}
			defer remove()
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()

			say("1. Data: orders and their lines, by TPC-H's rules, scale factor %g.", sf)
			made, err := demoData(cmd.Context(), dir, sf)
			if err != nil {
				return err
			}
			say("   %d orders, %d lines, written as Parquet.", made.orders, made.lines)

			say("\n2. A join: the orders go into a hash table, the lines look their orders up.")
			say("   warpmap join orders.parquet lineitem.parquet --on o_orderkey=l_orderkey --out joined.parquet")
			pairs, err := join.ParseOn("o_orderkey=l_orderkey")
			if err != nil {
				return err
			}
			s, err := join.Run(cmd.Context(), d, join.Options{
				Build: filepath.Join(dir, "orders.parquet"), Probe: filepath.Join(dir, "lineitem.parquet"),
				Out: filepath.Join(dir, "joined.parquet"), On: pairs, How: join.Inner, Table: warpmap.WarpCore,
			})
			if err != nil {
				return err
			}
			if s.OutRows != made.lines {
				return fmt.Errorf("the join has %d rows; every line has its order, so it should have %d", s.OutRows,
					made.lines)
			}
			say("   %d rows: one for each line, as it must be.", s.OutRows)

			say("\n3. A table of a million pairs, and a few look-ups in it.")
			const n = 1_000_000
			keys, values := make([]uint32, n), make([]uint32, n)
			kinds, err := workload.NewKeys("rand", 4, 1)
			if err != nil {
				return err
			}
			workload.Pairs(kinds, keys, values)
			m, err := warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{Capacity: n})
			if err != nil {
				return err
			}
			defer m.Close()
			t := time.Now()
			if err := m.Insert(keys, values); err != nil {
				return err
			}
			say("   %d pairs inserted in %v.", n, time.Since(t).Round(time.Microsecond))
			queries := []uint32{keys[0], keys[n/2], keys[n-1], uint32(kinds.At(n))}
			got, found := make([]uint32, len(queries)), make([]bool, len(queries))
			if err := m.Find(queries, got, found); err != nil {
				return err
			}
			for i, q := range queries {
				wantFound := i < 3
				if found[i] != wantFound || wantFound && got[i] != uint32(workload.Value(uint64(q))) {
					return fmt.Errorf("key %d: found %v, value %d: a wrong answer", q, found[i], got[i])
				}
				if found[i] {
					say("   key %10d has value %d", q, got[i])
				} else {
					say("   key %10d is not there", q)
				}
			}
			say("\nAll answers are right. Next: warpmap --help")
			return nil
		},
	}
	cmd.Flags().Float64Var(&sf, "sf", sf, "scale factor of the data")
	return cmd
}

type demoRows struct{ orders, lines int64 }

func demoData(ctx context.Context, dir string, sf float64) (made demoRows, err error) {
	t := workload.TPCH{SF: sf, Seed: 1}
	if err := t.Check(); err != nil {
		return made, err
	}
	for _, x := range []struct {
		name string
		rows array.RecordReader
		n    *int64
	}{{"orders", t.Orders(), &made.orders}, {"lineitem", t.Lineitem(), &made.lines}} {
		*x.n, err = writeFile(ctx, filepath.Join(dir, x.name+".parquet"), join.WriteOptions{}, x.rows, func(int64) {})
		x.rows.Release()
		if err != nil {
			return made, err
		}
	}
	return made, nil
}
