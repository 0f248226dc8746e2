package main

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	shardbench "github.com/warpmap/warpmap/internal/bench/shard"
	"github.com/warpmap/warpmap/shard"
	tables "github.com/warpmap/warpmap/table"
)

// several are the flags of a command that can run over several devices.
type several struct {
	list, mode string
	regions    int
	piece      int
}

func (s *several) flags(cmd *cobra.Command) {
	cmd.Flags().Var((*deviceList)(&s.list), "devices", "run over several devices: all (every GPU), or a list such as "+
		"0,1 or cpu:0,cpu:1; goes before --device")
}

// deviceList is a flag of what device.OpenAll takes, or joined.
type deviceList string

func (l *deviceList) Type() string   { return "string" }
func (l *deviceList) String() string { return string(*l) }

func (l *deviceList) Set(text string) error {
	*l = deviceList(text)
	if text == "all" || text == joined {
		return nil
	}
	seen := map[string]bool{}
	for name := range strings.SplitSeq(text, ",") {
		name = strings.TrimSpace(name)
		if name == "" {
			return errors.New("a name is missing between commas: want all, or a list such as 0,1")
		}
		if strings.Trim(name, "0123456789") == "" {
			name = "cuda:" + name
		}
		if err := new(deviceName).Set(name); err != nil {
			return err
		}
		if seen[name] {
			return fmt.Errorf("%s is listed twice", name)
		}
		seen[name] = true
	}
	return nil
}

// open opens what --devices names.
func (s *several) open(cmd *cobra.Command, with ...device.Option) (devices []*device.Device, close func(), err error) {
	most := *cmd.Flags().Lookup("device-memory").Value.(*size).bytes
	if most < 0 {
		return nil, nil, fmt.Errorf("--device-memory %d: want a size, such as 2GB", most)
	}
	devices, err = device.OpenAll(s.list, append(with, device.WithContext(lasting(cmd)), device.WithMemory(most))...)
	if err != nil {
		return nil, nil, &deviceError{err}
	}
	return devices, func() {
		for _, d := range devices {
			d.Close()
		}
	}, nil
}

// openOr opens what --devices names, or without it what --device does.
func (s *several) openOr(cmd *cobra.Command, with ...device.Option) (devices []*device.Device, close func(),
	err error) {
	switch s.list {
	case "":
		d, err := openDevice(cmd, with...)
		return []*device.Device{d}, func() { d.Close() }, err
	case joined:
		return nil, nil, fmt.Errorf("--devices %s: want the devices of one process: all, or a list such as 0,1", joined)
	}
	return s.open(cmd, with...)
}

func (s *several) modeOf() (shard.Mode, error) {
	for _, m := range []shard.Mode{shard.Distributed, shard.Independent} {
		if s.mode == m.String() {
			return m, nil
		}
	}
	return 0, fmt.Errorf("--mode %s: want distributed or independent", s.mode)
}

type severalResult struct {
	Where    bench.Where      `json:"where"`
	Devices  []device.Info    `json:"devices"`
	Table    string           `json:"table"`
	Kind     string           `json:"kind,omitempty"` // empty for a map
	Update   bool             `json:"update,omitempty"`
	Mode     string           `json:"mode"`
	N        int              `json:"n"` // rows on each device
	Distinct int              `json:"distinct,omitempty"`
	Bytes    int              `json:"bytes"` // of a key, and of a value
	Rows     []shardbench.Row `json:"rows"`
}

// benchOptions returns the options of a measurement over several devices.
func (s *several) benchOptions(cmd *cobra.Command, b *benchFlags) (o shardbench.Options, err error) {
	for _, flag := range []string{"each", "values-per-key", "false-positives", "bytes", "queries", "keys",
		"device-bytes", "seed", "batch", "build", "chosen", "policy", "host-values"} {
		if cmd.Flags().Changed(flag) {
			return o, fmt.Errorf("--%s with --devices: it is only for one device", flag)
		}
	}
	kind, err := kindOf(b.kind)
	if err != nil {
		return o, err
	}
	o = shardbench.Options{Family: tables.Family(b.family), Kind: kind, Update: b.o.Update, Bytes: b.o.KeyBytes,
		N: b.o.N, Distinct: b.o.Distinct, Hits: b.o.Hits, Delete: true,
		Shard: shard.Options{Regions: s.regions, Piece: s.piece}}
	values := cmd.Flags().Changed("value-bytes")
	switch set := kind == tables.KindSet; {
	case !slices.Contains([]tables.Kind{tables.KindMap, tables.KindSet, tables.KindCounter, tables.KindMultiMap}, kind):
		return o, fmt.Errorf("--kind %v with --devices: want map, set, counter or multimap", kind)
	case o.Update && kind != tables.KindMap:
		return o, fmt.Errorf("--update with --kind %v: want --kind map", kind)
	case o.Bytes != 4 && o.Bytes != 8, !set && values && b.o.ValueBytes != o.Bytes:
		return o, fmt.Errorf("--key-bytes %d --value-bytes %d with --devices: want 4 and 4, or 8 and 8", o.Bytes,
			b.o.ValueBytes)
	case set && values:
		return o, errors.New("--value-bytes with --kind set: a set has no values")
	case cmd.Flags().Changed("distinct") && !o.Draws():
		return o, fmt.Errorf("--distinct with --devices and --kind %v: want --kind counter or multimap, or --update",
			kind)
	case cmd.Flags().Changed("distinct") && o.Distinct < 1:
		return o, fmt.Errorf("--distinct %d: want 1 or more", o.Distinct)
	}
	o.Shard.Mode, err = s.modeOf()
	return o, err
}

// benchResult returns the result of a measurement, without rows.
func (s *several) benchResult(d *device.Device, o shardbench.Options) severalResult {
	out := severalResult{Where: bench.Here(d), Table: string(o.Family), Kind: o.Kind.String(), Update: o.Update,
		Mode: s.mode, N: o.N, Distinct: o.Distinct, Bytes: o.Bytes}
	if o.Kind == tables.KindMap {
		out.Kind = ""
	}
	return out
}

// bench measures a table over the devices at each load factor.
func (s *several) bench(cmd *cobra.Command, b *benchFlags) error {
	o, err := s.benchOptions(cmd, b)
	if err != nil {
		return err
	}
	if s.list == joined {
		return s.joined(cmd, o, b)
	}
	devices, closeAll, err := s.open(cmd)
	if err != nil {
		return err
	}
	defer closeAll()
	out := s.benchResult(devices[0], o)
	for _, d := range devices {
		out.Devices = append(out.Devices, d.Info())
	}
	for i, load := range b.o.Loads {
		if terminal(cmd.ErrOrStderr()) {
			fmt.Fprintf(cmd.ErrOrStderr(), "setting %d of %d\n", i+1, len(b.o.Loads))
		}
		o.Load = load
		row, err := shardbench.Measure(devices, o)
		if err != nil {
			return err
		}
		out.Rows = append(out.Rows, row)
	}
	return out.print(cmd, b.keep)
}

// joined is what --devices says where this process is one of a job's, of which each has a device.
const joined = "joined"

// joined measures a table over the members of the job that this process is one of; rank 0 prints.
func (s *several) joined(cmd *cobra.Command, o shardbench.Options, b *benchFlags) error {
	if s.mode != shard.Distributed.String() {
		return fmt.Errorf("--mode %s with --devices joined: want distributed", s.mode)
	}
	d, err := memberDevice(cmd)
	if err != nil {
		return err
	}
	defer d.Close()
	m, err := shard.Join(cmd.Context(), shard.JoinOptions{Device: d})
	if err != nil {
		return err
	}
	defer m.Close()
	out := s.benchResult(d, o)
	out.Devices, out.Mode = []device.Info{d.Info()}, joined
	wrong := 0
	for _, o.Load = range b.o.Loads {
		row, err := shardbench.MeasureJoined(m, o)
		if err != nil {
			return err
		}
		wrong += row.Wrong
		out.Rows = append(out.Rows, row)
	}
	if wrong > 0 {
		return fmt.Errorf("rank %d: %d wrong answers", m.Rank(), wrong)
	}
	if m.Rank() > 0 {
		return nil
	}
	return out.print(cmd, b.keep)
}

// memberDevice is the GPU with this process's number on its host, or with --device cpu a CPU device.
func memberDevice(cmd *cobra.Command) (*device.Device, error) {
	name, err := cmd.Flags().GetString("device")
	if err != nil {
		return nil, err
	}
	kind := "cuda"
	if name == "cpu" {
		kind = name
	}
	d, err := device.Open(kind+":"+cmp.Or(os.Getenv("LOCAL_RANK"), os.Getenv("OMPI_COMM_WORLD_LOCAL_RANK"),
		os.Getenv("SLURM_LOCALID"), "0"), device.WithContext(lasting(cmd)))
	if err != nil {
		return nil, &deviceError{err}
	}
	return d, nil
}

// print keeps and prints what was measured.
func (out severalResult) print(cmd *cobra.Command, keep string) error {
	if keep != "" {
		if err := bench.Keep(keep, out); err != nil {
			return err
		}
	}
	if jsonFlag(cmd) {
		return printJSON(cmd.OutOrStdout(), out)
	}
	t := newTable(cmd)
	kind := cmp.Or(out.Kind, tables.KindMap.String())
	if out.Update {
		kind += " with updates"
	}
	t.SetTitle("%s", fmt.Sprintf("%s %s, %d-byte keys, %s over %d devices (%s): %d rows on each", out.Table, kind,
		out.Bytes, out.Mode, out.Rows[0].Devices, out.Where.Model, out.N))
	head := table.Row{"load", "filled"}
	var rates []int // the columns that this kind has
	for i, name := range []string{"insert G/s", "find G/s", "find all G/s", "values G/s", "delete G/s"} {
		if ratesOf(out.Rows[0])[i] > 0 {
			head, rates = append(head, name), append(rates, i)
		}
	}
	t.AppendHeader(append(head, "bytes", "scratch", "wrong"))
	for _, r := range out.Rows {
		line := table.Row{r.Load, fmt.Sprintf("%.3f", r.Filled)}
		for _, i := range rates {
			line = append(line, fmt.Sprintf("%.3f", ratesOf(r)[i]))
		}
		t.AppendRow(append(line, device.Bytes(r.Bytes), device.Bytes(r.Scratch), r.Wrong))
	}
	render(t, cmd.OutOrStdout())
	return nil
}

func ratesOf(r shardbench.Row) []float64 {
	return []float64{r.Insert, r.Find, r.FindAll, r.Values, r.Delete}
}
