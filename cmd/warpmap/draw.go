package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/files"
)

func drawCommand() *cobra.Command {
	var out string
	cmd := &cobra.Command{
		Use:   "draw FILE...",
		Short: "Draw figures that were kept",
		Long: `Draw figures that bench fig has kept with --keep: write each as CSV, with its plots as SVG and PNG, to
the folder of --out. Nothing is measured.`,
		Example: "  warpmap bench draw bench/results/h200/fig-gph-9.json --out plots",
		Args:    cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			tidy, err := folder(out, 0o755)
			if err != nil {
				return err
			}
			defer tidy()
			drawn := map[string]string{} // the file of each figure
			for _, name := range args {
				data, err := os.ReadFile(name)
				if err != nil {
					return &genome.InputError{Input: name, Err: files.Cause(err)}
				}
				var fig bench.Fig
				if err := json.Unmarshal(data, &fig); err != nil || len(fig.Columns) == 0 {
					return &genome.InputError{Input: name, Err: errors.New("no figure that bench fig --keep wrote")}
				}
				if other, twice := drawn[fig.Name]; twice {
					return wrongUsage("%s: its figure %s is drawn from %s already: draw it into another folder", name,
						fig.Name, other)
				}
				drawn[fig.Name] = name
				written, err := writeFigure(&fig, out)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				fmt.Fprintln(cmd.OutOrStdout(), strings.Join(written, "\n"))
			}
			return nil
		},
	}
	cmd.Flags().StringVarP(&out, "out", "o", "plots", "folder to write to")
	return cmd
}
