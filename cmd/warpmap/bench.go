package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/shard"
	tables "github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

const benchLong = `Measure inserts into an empty table and look-ups in it, for each load factor: billions a second of
device time (medians of five runs after a warm-up), the share of what the machine can do at most, measured in the same
run over as much memory, and the number of wrong answers among all look-ups, counted on the device.

Load is the load factor that is asked for; filled, the share of the slots that hold a pair in the end: some tables come
in few sizes.

The limit of find is random look-ups of 64 bytes (a 4-byte key read, 64 bytes at random, a 4-byte value written); that
of insert, random compare-and-swaps of the pair's size. On the CPU device each worker asks for the memory of 32 of them
ahead. With --build, a table that can be made from all its pairs at
once is, in place of inserting them. With --update, values are added up (table.Updater) as the pairs come into an empty
map, and a look-up gives the sum of a key's values. With --chosen, pairs and look-ups have a bool each, true for that
share of them, and those alone are done (table.Chooser); rates are of all rows.

--distinct draws the keys from so many, each as likely, or with --keys zipf:S by Zipf's law: with 1, all are the same. A
look-up may give any value that came with its key.

--kind measures other kinds of tables, a look-up being one key of each, beside the same limits:

  set       inserts without and with telling which keys were new, look-ups, and deletions of all keys
  multimap, inserts, look-ups of all values of a key, and their count: of each key that is there, once, unless
  bucketlist  --queries or --hits is given. --each has as many pairs with each key; --values-per-key draws the keys of
            the pairs from so many that each has as many on average. A bucketlist is also built from all pairs at once
  counter   additions of keys drawn from --distinct (default a tenth of them); look-ups of counts of --value-bytes
  filter    inserts, look-ups of keys that are in, none of which may be missed, and of as many others: the share of
            these that is told to be in is false positives, beside the filter's own estimate, and the ideal rate of a
            Bloom filter of its size that is not blocked. Its limit is random look-ups of 32 bytes
  cache     a full cache of --policy and a quarter of the pairs: inserts that each send a pair out, also told which
            (told), and over what is there (overwrite); look-ups of what is in, also quiet ones, and of absent keys

--devices measures one table over several devices, with n rows and n look-ups on each. Rates are those of all devices
together, by the wall clock. --kind is map, set, counter or multimap. Keys have 4 or 8 bytes, and values as many. Keys
of a counter or multimap, and those of --update, are drawn from --distinct (default a tenth of all rows). With --mode
independent each device has a table of its own. --devices joined measures a table over the processes of a job, each
with one GPU, through NCCL: see warpmap launch.`

const benchExample = `  warpmap bench --table warpcore --n 100000000 --queries 200000000 --load 0.533,0.8,0.9
  warpmap bench --table warpcore --n 10000000 --keys zipf:0.99 --key-bytes 8 --value-bytes 8 --json
  warpmap bench --table warpcore --n 10000000 --keys tao --load 0.66
  warpmap bench --table dycuckoo --n 10000000 --key-bytes 16 --value-bytes 8 --load 0.85
  warpmap bench --table stadium --n 10000000 --key-bytes 8 --value-bytes 8 --load 0.8 --device-bytes 100MB
  warpmap bench --table slab --kind set --n 10000000
  warpmap bench --table warpcore --kind multimap --values-per-key 8 --n 80000000 --load 0.8
  warpmap bench --table warpcore --kind bucketlist --values-per-key 64 --n 100000000 --load 0.8
  warpmap bench --table warpcore --update --distinct 10000000 --n 100000000 --keys zipf:1 --load 0.8
  warpmap bench --table warpcore --chosen 0.5 --n 100000000 --load 0.8
  warpmap bench --table warpcore --kind counter --distinct 10000000 --n 100000000 --keys zipf:1 --load 0.8
  warpmap bench --table warpcore --kind filter --n 100000000 --bytes 100MB
  warpmap bench --kind cache --n 100000000 --policy lfu --key-bytes 8 --value-bytes 64
  warpmap bench --devices all --n 250000000 --load 0.8
  warpmap bench --devices all --n 250000000 --load 0.8 --kind counter --distinct 50000000
  warpmap bench limits --bytes 1500000000
  warpmap bench fig gph/9 --n 10000000 --out plots`

// benchFlags are those of bench.
type benchFlags struct {
	o                  bench.TableOptions
	kind, family, keep string
	perKey             int
	over               several
}

func benchCommand() *cobra.Command {
	var b benchFlags
	cmd := &cobra.Command{
		Use:     "bench",
		Short:   "Measure a table beside the machine's limits",
		Long:    benchLong,
		Example: benchExample,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return b.run(cmd) },
	}
	b.flags(cmd)
	return cmd
}

func (b *benchFlags) run(cmd *cobra.Command) error {
	if err := ofPairs(b.o.N, b.o.KeyBytes+b.o.ValueBytes); err != nil {
		return err
	}
	k, err := b.check(cmd)
	if err != nil {
		return err
	}
	tidy, err := keptFile("--keep", b.keep)
	if err != nil {
		return err
	}
	defer tidy()
	if b.over.list != "" {
		return b.over.bench(cmd, b)
	}
	for _, flag := range []string{"regions", "piece"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s without --devices: it is for tables over several devices", flag)
		}
	}
	if cmd.Flags().Changed("mode") {
		return errors.New("--mode without --devices: want several devices")
	}
	d, err := openDevice(cmd)
	if err != nil {
		return err
	}
	defer d.Close()
	if k != warpmap.KindCache {
		b.o.Policy = ""
	}
	if err := settle(cmd, k, b.perKey, &b.o); err != nil {
		return err
	}
	if terminal(cmd.ErrOrStderr()) {
		b.o.Step = func(done, all int) { fmt.Fprintf(cmd.ErrOrStderr(), "setting %d of %d\n", done+1, all) }
	}
	rows, err := benchTable(d, tables.Family(b.family), k, b.o)
	if err != nil {
		return err
	}
	out := benchResult{bench.Here(d), b.family, b.kind, b.o, rows}
	if k == tables.KindMap {
		out.Kind = "" // as in results that are older than the others
	}
	if b.keep != "" {
		if err := bench.Keep(b.keep, out); err != nil {
			return err
		}
	}
	if jsonFlag(cmd) {
		return printJSON(cmd.OutOrStdout(), out)
	}
	out.print(cmd, k)
	return nil
}

// check returns the kind of table, or an error of flags that no table of that kind takes.
func (b *benchFlags) check(cmd *cobra.Command) (k tables.Kind, err error) {
	if k, err = kindOf(b.kind); err != nil {
		return k, fmt.Errorf("--kind: %w", err)
	}
	given := cmd.Flags().Changed
	if k == warpmap.KindCache && !given("table") {
		b.family = string(warpmap.Caches)
	}
	if all := familiesOf(k); !slices.Contains(all, b.family) {
		return k, fmt.Errorf("--table: no %v %q (want one of: %s)", k, b.family, strings.Join(all, ", "))
	}
	for _, load := range b.o.Loads {
		if !(load >= 0.001 && load <= 1) {
			return k, fmt.Errorf("--load %v: want 0.001 to 1", load)
		}
	}
	switch rate := b.o.FalsePositives; {
	case given("false-positives") && k == tables.KindFilter && !(rate > 0 && rate < 1):
		return k, fmt.Errorf("--false-positives %v: want over 0, below 1", rate)
	case b.o.FilterBytes < 0:
		return k, fmt.Errorf("--bytes %d: want a size, such as 100MB", b.o.FilterBytes)
	case b.over.regions < -1:
		return k, fmt.Errorf("--regions %d: want -1 or more", b.over.regions)
	case b.over.piece < 0:
		return k, fmt.Errorf("--piece %d: want 0 or more", b.over.piece)
	}
	return k, nil
}

func (b *benchFlags) flags(cmd *cobra.Command) {
	b.over.flags(cmd)
	cmd.Flags().Lookup("devices").Usage += "; joined: this process is a member of a job"
	f := cmd.Flags()
	f.StringVar(&b.over.mode, "mode", shard.Distributed.String(),
		"over several devices: distributed (each key has one device) or independent")
	f.IntVar(&b.over.piece, "piece", 0,
		"over several devices: rows of each that are under way at once (0: the default)")
	f.IntVar(&b.over.regions, "regions", 0, "over several devices: by how many regions of each table inserts are "+
		"split at once (0: as the tables want; -1: none)")
	f.StringVar(&b.family, "table", string(warpmap.WarpCore), "family of tables: "+strings.Join(families(), ", "))
	f.StringVar(&b.kind, "kind", tables.KindMap.String(), "kind of table: "+kindList())
	f.IntVar(&b.o.Each, "each", 0, "pairs with one key, of a multimap (default 1)")
	f.IntVar(&b.perKey, "values-per-key", 0, "of a multimap: values that a key has on average, of keys that are drawn")
	f.IntVar(&b.o.Distinct, "distinct", 0,
		"how many keys there are to draw from (default: all keys are different; of --update and counters: a tenth)")
	f.Float64Var(&b.o.FalsePositives, "false-positives", 0,
		"of a filter: share of the absent keys that may be told to be in (default 0.01)")
	f.StringVar(&b.o.Policy, "policy", policyNames()[0], "of a cache: "+strings.Join(policyNames(), ", "))
	f.BoolVar(&b.o.HostValues, "host-values", false,
		"of a cache: its values lie in host memory; they have 16 bytes or more")
	f.Var(&size{&b.o.FilterBytes}, "bytes", "of a filter: its memory, in place of --false-positives, such as 100MB")
	f.IntVar(&b.o.N, "n", 10_000_000, "pairs to insert")
	f.IntVar(&b.o.Queries, "queries", 0, "look-ups (default twice the pairs; of a multimap, each key once)")
	f.Float64SliceVar(&b.o.Loads, "load", []float64{0.533, 0.8, 0.9}, "load factors")
	f.Float64Var(&b.o.Hits, "hits", 0.5, "share of the look-ups that hit")
	f.StringVar(&b.o.Keys, "keys", "rand", "keys: "+workload.Kinds)
	f.IntVar(&b.o.KeyBytes, "key-bytes", 4, "bytes of a key: 4 or 8, and of dycuckoo's and stadium's also 16 or 32")
	f.IntVar(&b.o.ValueBytes, "value-bytes", 4,
		"bytes of a value: 4, 8, 16, 32 or 64, as far as the table has them; of a count: 4 or 8")
	f.Var(&size{&b.o.DeviceBytes}, "device-bytes",
		"of stadium: how much of the slots may be in device memory, the others in host memory: such as 4GB; -1: none")
	f.Uint64Var(&b.o.Seed, "seed", 1, "seed of the workload")
	f.IntVar(&b.o.Batch, "batch", 0, "pairs of an insert (default all at once)")
	f.BoolVar(&b.o.Build, "build", false, "make the map from all pairs at once, where its family can")
	f.BoolVar(&b.o.Update, "update", false, "add up the values of each key, where the map's family can")
	f.Float64Var(&b.o.Chosen, "chosen", 0,
		"share of the rows of a map's batches that are done, where its family can (default all)")
	cmd.PersistentFlags().StringVar(&b.keep, "keep", "", "also write the result as JSON to this file")
	cmd.MarkFlagsMutuallyExclusive("each", "values-per-key", "distinct")
	cmd.MarkFlagsMutuallyExclusive("false-positives", "bytes")
	cmd.MarkFlagsMutuallyExclusive("build", "update", "chosen")
	cmd.RegisterFlagCompletionFunc("table", cobra.FixedCompletions(families(), cobra.ShellCompDirectiveNoFileComp))
	cmd.RegisterFlagCompletionFunc("kind", cobra.FixedCompletions(kindNames(), cobra.ShellCompDirectiveNoFileComp))
	draw := drawCommand()
	onlyUses(uses{}, draw)
	cmd.AddCommand(limitsCommand(&b.keep), figCommand(&b.keep), draw, findOnceCommand(),
		insertOnceCommand())
}

// print prints a line for each setting.
func (out benchResult) print(cmd *cobra.Command, k tables.Kind) {
	t := newTable(cmd)
	what := fmt.Sprintf("%s %s", out.Table, k)
	if out.Table == k.String() { // there is one family
		what = out.Table
	}
	t.SetTitle("%s", fmt.Sprintf("%s on %s: %s", what, out.Where.Model, about(k, out.Options)))
	var head table.Row
	for _, c := range columns(k, out.Options) {
		head = append(head, c.name)
	}
	t.AppendHeader(head)
	for _, r := range out.Rows {
		var line table.Row
		for _, c := range columns(k, out.Options) {
			line = append(line, c.of(r))
		}
		t.AppendRow(line)
	}
	render(t, cmd.OutOrStdout())
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

func limitsCommand(keep *string) *cobra.Command {
	over := int64(1 << 30)
	var n int
	cmd := &cobra.Command{
		Use:     "limits",
		Short:   "Measure the machine's limits alone",
		Example: "  warpmap bench limits --bytes 1500000000 --n 100000000",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			const most = 1 << 32
			switch {
			case over < 1<<10:
				return fmt.Errorf("--bytes %d: want 1024 or more", over)
			case n < 1 || n > most:
				return fmt.Errorf("--n %d: want 1 or more, to %d", n, most)
			}
			tidy, err := keptFile("--keep", *keep)
			if err != nil {
				return err
			}
			defer tidy()
			d, err := openDevice(cmd)
			if err != nil {
				return err
			}
			defer d.Close()
			if there := d.Info().Memory; there > 0 && over > there {
				return fmt.Errorf("--bytes %d: there is %s of memory: want less", over, device.Bytes(there))
			}
			l, err := bench.MeasureLimits(d, over, n)
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
			t.SetTitle("%s", fmt.Sprintf("%s, random access over %s", out.Where.Model, device.Bytes(over)))
			t.AppendHeader(table.Row{"access", "G/s"})
			for _, x := range []struct {
				what string
				g    float64
			}{
				{"look-up of 32 bytes", l.Lookup32}, {"look-up of 64 bytes", l.Lookup64}, {"look-up of 128 bytes",
					l.Lookup128},
				{"64-bit compare-and-swap", l.Swap64}, {"128-bit compare-and-swap", l.Swap128},
				{"read 32 bytes, then compare-and-swap", l.ReadSwap},
			} {
				t.AppendRow(table.Row{x.what, fmt.Sprintf("%.3f", x.g)})
			}
			t.AppendFooter(table.Row{"copy, read + write", fmt.Sprintf("%.0f GB/s", l.CopyGB)})
			render(t, cmd.OutOrStdout())
			return nil
		},
	}
	cmd.Flags().Var(&size{&over}, "bytes", "memory that is accessed, such as 1.5GB")
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
