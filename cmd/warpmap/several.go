package main

import (
	"cmp"
	"fmt"
	"os"

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
	cmd.Flags().StringVar(&s.list, "devices", "", "run over several devices: all (every GPU), or a list such as 0,1 "+
		"or cpu:0,cpu:1; goes before --device")
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
	Where   bench.Where      `json:"where"`
	Devices []device.Info    `json:"devices"`
	Table   string           `json:"table"`
	Mode    string           `json:"mode"`
	N       int              `json:"n"` // pairs that each device brings
	Rows    []shardbench.Row `json:"rows"`
}

// bench measures a map over the devices, each of which brings n pairs, at each load factor.
func (s *several) bench(cmd *cobra.Command, family string, o bench.TableOptions, keep string) error {
	for _, flag := range []string{"each", "values-per-key", "distinct", "false-positives", "bytes", "queries", "keys",
		"key-bytes", "value-bytes", "device-bytes", "seed", "batch",
		"build", "update", "chosen", "kind"} {
		if cmd.Flags().Changed(flag) {
			return fmt.Errorf("--%s beside --devices: over several devices maps of 4+4 bytes with random keys are "+
				"measured, as many look-ups as pairs", flag)
		}
	}
	mode, err := s.modeOf()
	if err != nil {
		return err
	}
	if s.list == joined {
		return s.joined(cmd, family, o, keep)
	}
	devices, closeAll, err := s.open(cmd)
	if err != nil {
		return err
	}
	defer closeAll()
	out := severalResult{Where: bench.Here(devices[0]), Table: family, Mode: s.mode, N: o.N}
	for _, d := range devices {
		out.Devices = append(out.Devices, d.Info())
	}
	for i, load := range o.Loads {
		if terminal(cmd.ErrOrStderr()) {
			fmt.Fprintf(cmd.ErrOrStderr(), "setting %d of %d\n", i+1, len(o.Loads))
		}
		row, err := shardbench.Measure(devices, shardbench.Options{Family: tables.Family(family), N: o.N, Load: load,
			Hits: o.Hits, Shard: shard.Options{Mode: mode, Regions: s.regions, Piece: s.piece}})
		if err != nil {
			return err
		}
		out.Rows = append(out.Rows, row)
	}
	return out.print(cmd, keep)
}

// joined is what --devices says where this process is one of a job's, of which each has a device.
const joined = "joined"

// joined measures a map over the members of the job that this process is one of; rank 0 prints.
func (s *several) joined(cmd *cobra.Command, family string, o bench.TableOptions, keep string) error {
	if s.mode != shard.Distributed.String() {
		return fmt.Errorf("--mode %s beside --devices joined: want distributed", s.mode)
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
	out := severalResult{Where: bench.Here(d), Devices: []device.Info{d.Info()}, Table: family, Mode: joined, N: o.N}
	wrong := 0
	for _, load := range o.Loads {
		row, err := shardbench.MeasureJoined(m, shardbench.Options{Family: tables.Family(family), N: o.N, Load: load,
			Hits: o.Hits, Shard: shard.Options{Regions: s.regions, Piece: s.piece}})
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
	return out.print(cmd, keep)
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
	t.SetTitle("%s", fmt.Sprintf("%s, %s over %d devices (%s): %d pairs on each", out.Table, out.Mode,
		out.Rows[0].Devices, out.Where.Model, out.N))
	t.AppendHeader(table.Row{"load", "filled", "insert G/s", "find G/s", "bytes", "scratch", "wrong"})
	for _, r := range out.Rows {
		t.AppendRow(table.Row{r.Load, fmt.Sprintf("%.3f", r.Filled), fmt.Sprintf("%.3f", r.Insert),
			fmt.Sprintf("%.3f", r.Find), device.Bytes(r.Bytes), device.Bytes(r.Scratch), r.Wrong})
	}
	render(t, cmd.OutOrStdout())
	return nil
}
