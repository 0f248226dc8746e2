package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/bench"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/stadium"
	tables "github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

func benchCommand() *cobra.Command {
	var o bench.TableOptions
	var kind, family, keep string
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure a table beside the machine's limits",
		Long: `Measure inserts into an empty table and look-ups in it, for each load factor: billions a second of device time (medians
of five runs after a warm-up), the share of what the machine can do at most, measured in the same run over as much
memory, and the number of wrong answers among all look-ups, counted on the device.

Load is the load factor that is asked for; filled, the share of the slots that hold a pair in the end: some tables come in few sizes.

The limit of find is random look-ups of 64 bytes (a 4-byte key read, 64 bytes at random, a 4-byte value written); that of
insert, random compare-and-swaps of the pair's size. With --build, a table that can be made from all its pairs at once
is, in place of inserting them.

--kind measures other kinds of tables: sets, into which keys go and which are asked for keys, and multimaps, which are asked
for all values of a key. A look-up is one key then, too, and the limits are the same.`,
		Example: `  warpmap bench --table warpcore --n 100000000 --queries 200000000 --load 0.533,0.8,0.9 --hits 0.5 --keys rand
  warpmap bench --table warpcore --n 10000000 --keys zipf:0.99 --key-bytes 8 --value-bytes 8 --json
  warpmap bench --table warpcore --n 10000000 --keys tao --load 0.66
  warpmap bench --table dycuckoo --n 10000000 --key-bytes 16 --value-bytes 8 --load 0.85
  warpmap bench --table stadium --n 10000000 --key-bytes 8 --value-bytes 8 --load 0.8 --device-bytes 100MB
  warpmap bench --table slab --kind set --n 10000000
  warpmap bench --table warpcore --kind multimap --each 8 --n 80000000 --queries 10000000 --hits 1
  warpmap bench limits --bytes 1500000000
  warpmap bench fig gph/9 --n 10000000 --out plots`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			if o.Queries == 0 {
				o.Queries = 2 * o.N
			}
			if terminal(cmd.ErrOrStderr()) {
				o.Step = func(done, all int) { fmt.Fprintf(cmd.ErrOrStderr(), "setting %d of %d\n", done+1, all) }
			}
			rows, err := benchTable(d, tables.Family(family), kind, o)
			if err != nil {
				return err
			}
			out := benchResult{bench.Here(d), family, kind, o, rows}
			if kind == tables.KindMap.String() {
				out.Kind = "" // as in results that are older than the others
			}
			if keep != "" {
				if err := bench.Keep(keep, out); err != nil {
					return err
				}
			}
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), out)
			}
			t := newTable(cmd)
			what := fmt.Sprintf("pairs (%d+%d bytes, %s)", o.KeyBytes, o.ValueBytes, o.Keys)
			if kind == tables.KindSet.String() {
				what = fmt.Sprintf("keys (%d bytes, %s)", o.KeyBytes, o.Keys)
			}
			t.SetTitle("%s", fmt.Sprintf("%s %s on %s: %d %s, %d look-ups, %.0f%% hits", family, kind, out.Where.Model, o.N, what, o.Queries, 100*o.Hits))
			fill := "insert G/s"
			if o.Build {
				fill = "build G/s"
			}
			t.AppendHeader(table.Row{"load", "filled", fill, "of limit", "find G/s", "of limit", "table", "probes", "wrong"})
			for _, r := range rows {
				t.AppendRow(table.Row{r.Load, fmt.Sprintf("%.3f", r.Filled), fmt.Sprintf("%.3f", r.Insert+r.Build), share(r.InsertShare), fmt.Sprintf("%.3f", r.Find), share(r.FindShare), tableBytes(r), fmt.Sprintf("%.2f", r.MeanProbes), r.Wrong})
			}
			t.Render()
			return nil
		},
	}
	f := cmd.Flags()
	f.StringVar(&family, "table", string(warpmap.WarpCore), "family of tables: "+strings.Join(families(), ", "))
	f.StringVar(&kind, "kind", tables.KindMap.String(), "kind of table: "+kindList())
	f.IntVar(&o.Each, "each", 0, "pairs with one key, of a multimap (default 1)")
	f.IntVar(&o.N, "n", 10_000_000, "pairs to insert")
	f.IntVar(&o.Queries, "queries", 0, "look-ups (default twice the pairs)")
	f.Float64SliceVar(&o.Loads, "load", []float64{0.533, 0.8, 0.9}, "load factors")
	f.Float64Var(&o.Hits, "hits", 0.5, "share of the look-ups that hit")
	f.StringVar(&o.Keys, "keys", "rand", "keys: "+workload.Kinds)
	f.IntVar(&o.KeyBytes, "key-bytes", 4, "bytes of a key: 4 or 8, and of dycuckoo's and stadium's also 16 or 32")
	f.IntVar(&o.ValueBytes, "value-bytes", 4, "bytes of a value: 4, 8, 16, 32 or 64, as far as the table has them")
	f.Var(&size{&o.DeviceBytes}, "device-bytes", "of stadium: how much of the slots may be in device memory, the others in host memory: such as 4GB; -1: none")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the workload")
	f.IntVar(&o.Batch, "batch", 0, "pairs of an insert (default all at once)")
	f.BoolVar(&o.Build, "build", false, "make the map from all pairs at once, where its family can")
	cmd.PersistentFlags().StringVar(&keep, "keep", "", "also write the result as JSON to this file")
	cmd.RegisterFlagCompletionFunc("table", cobra.FixedCompletions(families(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp))
	cmd.AddCommand(limitsCommand(&keep), figCommand(&keep), findOnceCommand(), insertOnceCommand())
	return cmd
}

type benchResult struct {
	Where   bench.Where        `json:"where"`
	Table   string             `json:"table"`
	Kind    string             `json:"kind,omitempty"` // not of maps
	Options bench.TableOptions `json:"options"`
	Rows    []bench.Row        `json:"rows"`
}

// families are the names that --table takes: every family has maps.
func families() []string { return familiesOf(tables.KindMap) }

func familiesOf(kind tables.Kind) (names []string) {
	for _, f := range warpmap.Families(kind) {
		names = append(names, string(f))
	}
	return names
}

// kinds are those that bench measures.
var kinds = []tables.Kind{tables.KindMap, tables.KindSet, tables.KindMultiMap}

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.String())
	}
	return names
}

// kindList says which families have which kind.
func kindList() string {
	var list []string
	for _, k := range kinds {
		list = append(list, fmt.Sprintf("%v (%s)", k, strings.Join(familiesOf(k), ", ")))
	}
	return strings.Join(list, ", ")
}

func benchTable(d *device.Device, family tables.Family, kind string, o bench.TableOptions) ([]bench.Row, error) {
	at := slices.Index(kindNames(), kind)
	switch {
	case at < 0:
		return nil, fmt.Errorf("no kind of table %q: want %s", kind, kindList())
	case o.Build && kinds[at] != tables.KindMap:
		return nil, errors.New("--build makes maps: leave --kind out")
	case o.DeviceBytes != 0 && (family != warpmap.Stadium || kinds[at] != tables.KindMap):
		return nil, fmt.Errorf("--device-bytes is for maps of %s: no other table lies in host memory", warpmap.Stadium)
	case o.Each > 1 && kinds[at] != tables.KindMultiMap:
		return nil, fmt.Errorf("--each %d: only a multimap has several pairs with one key; add --kind %v", o.Each, tables.KindMultiMap)
	}
	if kinds[at] == tables.KindMultiMap && max(o.KeyBytes, o.ValueBytes) > 8 {
		return nil, fmt.Errorf("multimaps of %d+%d bytes: want 4 or 8 each, whose answers can be counted", o.KeyBytes, o.ValueBytes)
	}
	switch o.KeyBytes {
	case 4:
		return benchKeyed[uint32](d, family, kinds[at], o)
	case 8:
		return benchKeyed[uint64](d, family, kinds[at], o)
	case 16:
		return benchKeyed[[2]uint64](d, family, kinds[at], o)
	case 32:
		return benchKeyed[[4]uint64](d, family, kinds[at], o)
	}
	return nil, fmt.Errorf("keys of %d bytes: want 4, 8, 16 or 32", o.KeyBytes)
}

func benchKeyed[K workload.Wide](d *device.Device, family tables.Family, kind tables.Kind, o bench.TableOptions) ([]bench.Row, error) {
	switch o.ValueBytes {
	case 4:
		return benchTyped[K, uint32](d, family, kind, o)
	case 8:
		return benchTyped[K, uint64](d, family, kind, o)
	case 16:
		return benchTyped[K, [2]uint64](d, family, kind, o)
	case 32:
		return benchTyped[K, [4]uint64](d, family, kind, o)
	case 64:
		return benchTyped[K, [8]uint64](d, family, kind, o)
	}
	return nil, fmt.Errorf("values of %d bytes: want 4, 8, 16, 32 or 64", o.ValueBytes)
}

func benchTyped[K, V workload.Wide](d *device.Device, family tables.Family, kind tables.Kind, o bench.TableOptions) ([]bench.Row, error) {
	return bench.Table(d, o, func(w *bench.Work[K, V], load float64) (s bench.Subject, err error) {
		options := tables.Options{Capacity: o.N, LoadFactor: load}
		switch kind {
		case tables.KindSet:
			t, err := warpmap.NewSet[K](d, family, options)
			if err != nil {
				return s, err
			}
			return w.Set(t), nil
		case tables.KindMultiMap:
			t, err := warpmap.NewMultiMap[K, V](d, family, options)
			if err != nil {
				return s, err
			}
			return w.MultiMap(t), nil
		}
		m, err := newMap[K, V](d, family, options, o.DeviceBytes)
		if err != nil {
			return s, err
		}
		if !o.Build {
			return w.Map(m), nil
		}
		if s, err = w.Built(m); err != nil {
			m.Close()
		}
		return s, err
	})
}

// newMap is warpmap.New, for stadium with so many bytes of slots in device memory.
func newMap[K, V any](d *device.Device, family tables.Family, o tables.Options, deviceBytes int64) (tables.Map[K, V], error) {
	if deviceBytes == 0 {
		return warpmap.New[K, V](d, family, o)
	}
	return stadium.New[K, V](d, stadium.Options{Options: o, DeviceBytes: deviceBytes})
}

func limitsCommand(keep *string) *cobra.Command {
	var size int64
	var n int
	cmd := &cobra.Command{
		Use:     "limits",
		Short:   "Measure the machine's limits alone",
		Example: "  warpmap bench limits --bytes 1500000000 --n 100000000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			if size < 1<<10 || n < 1 {
				return fmt.Errorf("limits over %d bytes with %d accesses: want at least 1024 bytes and one access", size, n)
			}
			l, err := bench.MeasureLimits(d, size, n)
			if err != nil {
				return err
			}
			out := struct {
				Where  bench.Where  `json:"where"`
				Limits bench.Limits `json:"limits"`
			}{bench.Here(d), l}
			if *keep != "" {
				if err := bench.Keep(*keep, out); err != nil {
					return err
				}
			}
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), out)
			}
			t := newTable(cmd)
			t.SetTitle("%s", fmt.Sprintf("%s, random access over %s", out.Where.Model, device.Bytes(size)))
			t.AppendHeader(table.Row{"access", "G/s"})
			for _, x := range []struct {
				what string
				g    float64
			}{
				{"look-up of 32 bytes", l.Lookup32}, {"look-up of 64 bytes", l.Lookup64}, {"look-up of 128 bytes", l.Lookup128},
				{"64-bit compare-and-swap", l.Swap64}, {"128-bit compare-and-swap", l.Swap128}, {"read 32 bytes, then compare-and-swap", l.ReadSwap},
			} {
				t.AppendRow(table.Row{x.what, fmt.Sprintf("%.3f", x.g)})
			}
			t.AppendFooter(table.Row{"copy, read + write", fmt.Sprintf("%.0f GB/s", l.CopyGB)})
			t.Render()
			return nil
		},
	}
	cmd.Flags().Int64Var(&size, "bytes", 1<<30, "memory that is accessed")
	cmd.Flags().IntVar(&n, "n", 1<<24, "accesses")
	return cmd
}

func share(x float64) string { return fmt.Sprintf("%.0f%%", 100*x) }

// tableBytes is a table's memory, and how much of it is in host memory.
func tableBytes(r bench.Row) string {
	if r.HostBytes == 0 {
		return device.Bytes(r.Bytes)
	}
	return fmt.Sprintf("%s, %s in host memory", device.Bytes(r.Bytes), device.Bytes(r.HostBytes))
}
