package main

import (
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/internal/ports"
)

// launched is a job on this host.
type launched struct {
	n     int
	grace time.Duration // how long the others may take to end by themselves when one failed
}

func launchCommand() *cobra.Command {
	var l launched
	cmd := &cobra.Command{
		Use:   "launch -n N -- COMMAND [ARGUMENT …]",
		Short: "Start a process for each GPU of this host, as members of one job",
		Long: `Start a command N times, with the variables of torchrun set: RANK and LOCAL_RANK from 0 on, WORLD_SIZE,
and MASTER_ADDR and MASTER_PORT, where rank 0 is to listen; and a token in WARPMAP_TOKEN that keeps others out. Go
programs join by shard.Join.

Signals go to all. When one process fails, the others may end by themselves, for they say which rank is gone; those that
have not after --grace are ended, with what they have started. If launch itself is killed (kill -9) so are all ranks,
but not what they have started. The exit code is 0 if all processes end with 0.

Rank 0 has launch's standard input. If that is a terminal, Ctrl-Z stops rank 0, too, and other members of a job take it
for gone after a few seconds.`,
		Example: "  warpmap launch -n 4 -- warpmap bench --devices joined --n 250000000 --load 0.8\n  warpmap launch " +
			"-n 2 -- env",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if l.n < 1 || l.n > 1024 {
				return fmt.Errorf("--processes %d: want 1 to 1024", l.n)
			}
			if args[0] == "" {
				return wrongUsage("argument 1 is empty: want a command")
			}
			if l.grace < 0 {
				return fmt.Errorf("--grace %v: want 0s or more", l.grace)
			}
			return l.run(cmd, args)
		},
	}
	cmd.Flags().SetInterspersed(false)
	cmd.Flags().IntVarP(&l.n, "processes", "n", 1, "how many processes to start")
	cmd.Flags().DurationVar(&l.grace, "grace", 10*time.Second, "how long processes may go on when one has failed")
	return cmd
}

// environment is what all processes have, with the job's mark.
func (l *launched) environment(mark string) ([]string, error) {
	port, err := ports.Free()
	if err != nil {
		return nil, err
	}
	env := append(os.Environ(), "WORLD_SIZE="+strconv.Itoa(l.n), "LOCAL_WORLD_SIZE="+strconv.Itoa(l.n),
		"MASTER_ADDR=127.0.0.1", "MASTER_PORT="+port, mark)
	if _, set := os.LookupEnv("NCCL_NVLS_ENABLE"); !set {
		env = append(env, "NCCL_NVLS_ENABLE=0")
	}
	return env, nil
}
