package main

import (
	"fmt"
	"io"
	"runtime"
	"strconv"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
)

func devicesCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "devices",
		Short: "List the devices that tables can be made on",
		Long: "List the GPUs and the CPU that tables can be made on, and say what is missing where one cannot be " +
			"used.",
		Example: "  warpmap devices\n  warpmap devices --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			found, problems := device.List()
			if jsonFlag(cmd) {
				out := struct {
					Devices  []device.Info `json:"devices"`
					Problems []string      `json:"problems"`
				}{append([]device.Info{}, found...), []string{}}
				for _, p := range problems {
					out.Problems = append(out.Problems, p.Error())
				}
				return printJSON(cmd.OutOrStdout(), out)
			}
			t := newTable(cmd)
			t.AppendHeader(table.Row{"device", "model", "arch", "units", "memory", "huge pages", "PCI", "NUMA",
				"128-bit swap", "compiler", "driver"})
			for _, i := range found {
				huge := "-"
				if !i.CUDA() {
					huge = strconv.FormatBool(i.HugePages)
				}
				t.AppendRow(table.Row{i.Name, i.Model, i.Arch, i.Multiprocessors, device.Bytes(i.Memory), huge,
					orDash(i.PCI), numa(i.NUMA), i.CAS128, orDash(i.Compiler), orDash(i.Driver)})
			}
			render(t, cmd.OutOrStdout())
			for _, i := range found {
				if !i.CUDA() && !i.HugePages && runtime.GOOS == "linux" {
					fmt.Fprintf(cmd.OutOrStdout(), "%s: faster with huge pages: as root, write madvise to "+
						"/sys/kernel/mm/transparent_hugepage/enabled\n", i.Name)
				}
			}
			for _, p := range problems {
				fmt.Fprintln(cmd.OutOrStdout(), "not usable:", p)
			}
			return nil
		},
	}
}

func newTable(cmd *cobra.Command) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(cmd.OutOrStdout())
	t.SetStyle(table.StyleLight)
	return t
}

// render draws a table for people, and writes it as TSV to what is no terminal.
func render(t table.Writer, w io.Writer) {
	if terminal(w) {
		t.Render()
	} else {
		t.RenderTSV()
	}
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// numa is the number of a node; the system may not tell it.
func numa(node int) string {
	if node < 0 {
		return "-"
	}
	return strconv.Itoa(node)
}
