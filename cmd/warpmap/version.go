package main

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// version is what the command is made of.
type version struct {
	Version  string   `json:"version"`
	Commit   string   `json:"commit"`             // see bench.Commit
	Modified bool     `json:"modified,omitempty"` // since that commit
	Go       string   `json:"go"`
	Platform string   `json:"platform"`
	Devices  []string `json:"devices"` // with what brings each: driver and compiler
}

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Tell the version, and what it runs on",
		Long: "Tell the version of this command, the commit and the Go release that it was built from, and the " +
			"devices that it can use.",
		Example: "  warpmap version\n  warpmap version --json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			v := versionHere()
			if jsonFlag(cmd) {
				return printJSON(cmd.OutOrStdout(), v)
			}
			out := cmd.OutOrStdout()
			fmt.Fprintln(out, "warpmap", v.Version)
			fmt.Fprintln(out, "commit:", v.Commit+map[bool]string{true: bench.WithChanges}[v.Modified])
			fmt.Fprintln(out, "go:", v.Go, v.Platform)
			for _, d := range v.Devices {
				fmt.Fprintln(out, "device:", d)
			}
			return nil
		},
	}
}

func versionHere() version {
	v := version{Version: "(unknown)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		Devices: []string{}}
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		v.Version = b.Main.Version
	}
	v.Commit, v.Modified = strings.CutSuffix(bench.Commit(), bench.WithChanges)
	found, _ := device.List()
	for _, i := range found {
		var with []string
		for _, s := range []string{i.Driver, i.Compiler} {
			if s != "" {
				with = append(with, s)
			}
		}
		v.Devices = append(v.Devices, fmt.Sprintf("%s (%s; %s)", i.Name, i.Model, strings.Join(with, ", ")))
	}
	return v
}
