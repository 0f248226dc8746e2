package shard

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
)

// The environment of each launcher says who this is, and where rank 0 is.
func TestJoinEnvironment(t *testing.T) {
	for name, c := range map[string]struct {
		env  string
		want JoinOptions
	}{
		"torchrun": {"RANK=3 WORLD_SIZE=8 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=29500 TORCHELASTIC_USE_AGENT_STORE=True TORCHELASTIC_RUN_ID=r",
			JoinOptions{Rank: 3, Size: 8, Local: 1, Meet: "h:29501", Token: "r"}},
		"launch":   {"RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=127.0.0.1 MASTER_PORT=4000 WARPMAP_TOKEN=s", JoinOptions{Rank: 1, Size: 2, Local: 1, Meet: "127.0.0.1:4000", Token: "s"}},
		"Open MPI": {"OMPI_COMM_WORLD_RANK=2 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=0 MASTER_ADDR=::1 MASTER_PORT=1", JoinOptions{Rank: 2, Size: 4, Meet: "[::1]:1"}},
		"Slurm": {"SLURM_PROCID=5 SLURM_NTASKS=6 SLURM_LOCALID=1 SLURM_LAUNCH_NODE_IPADDR=10.0.0.1 SLURM_JOB_ID=41234",
			JoinOptions{Rank: 5, Size: 6, Local: 1, Meet: "10.0.0.1:21234", Token: "41234"}},
		"Kubernetes": {"JOB_COMPLETION_INDEX=1 WORLD_SIZE=2 LOCAL_RANK=0 MASTER_ADDR=cluster-0.cluster MASTER_PORT=29500 WARPMAP_TOKEN=s",
			JoinOptions{Rank: 1, Size: 2, Meet: "cluster-0.cluster:29500", Token: "s"}},
		"torchrun in a pod": {"JOB_COMPLETION_INDEX=1 RANK=3 WORLD_SIZE=4 LOCAL_RANK=1 MASTER_ADDR=h MASTER_PORT=1 WARPMAP_TOKEN=s",
			JoinOptions{Rank: 3, Size: 4, Local: 1, Meet: "h:1", Token: "s"}},
		"mpirun in a pod": {"JOB_COMPLETION_INDEX=1 OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 MASTER_ADDR=h MASTER_PORT=1",
			JoinOptions{Rank: 3, Size: 4, Meet: "h:1"}},
		"alone": {"RANK=0 WORLD_SIZE=1", JoinOptions{Size: 1, Meet: "127.0.0.1:0"}},
	} {
		var got JoinOptions
		if err := got.complete(from(c.env)); err != nil || got != c.want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
	for env, want := range map[string]string{
		"":                     "warpmap launch",
		"RANK=x WORLD_SIZE=2":  `RANK is "x"`,
		"RANK=0 WORLD_SIZE=99": "99 members (want 32 at most)",
		"RANK=0 WORLD_SIZE=2":  "MASTER_ADDR and MASTER_PORT",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=h MASTER_PORT=http": "want a port",
	} {
		var got JoinOptions
		if err := got.complete(from(env)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", env, err, want)
		}
	}
}

// from is an environment.
func from(text string) func(string) string {
	vars := map[string]string{}
	for _, v := range strings.Fields(text) {
		name, value, _ := strings.Cut(v, "=")
		vars[name] = value
	}
	return func(name string) string { return vars[name] }
}

// A token that anybody may know keeps nobody out: without a secret a job begins on one host alone, and the error says
// what to set.
func TestPublicToken(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	t.Setenv("WARPMAP_TOKEN", "")
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for env, want := range map[string]string{
		"SLURM_PROCID=0 SLURM_NTASKS=2 SLURM_LAUNCH_NODE_IPADDR=0.0.0.0 SLURM_JOB_ID=41234":                              "Slurm's number of it",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT=0 TORCHELASTIC_RUN_ID=none":                                 `torchrun's name of it, "none"`,
		"OMPI_COMM_WORLD_RANK=0 OMPI_COMM_WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT=0":                                "the job has no token",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=0 TORCHELASTIC_RUN_ID=none":                               "did not come: rank 1",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT=0 WARPMAP_TOKEN=8d1f7a0e5c":                                 "did not come: rank 1",
		"RANK=0 WORLD_SIZE=2 MASTER_ADDR=0.0.0.0 MASTER_PORT=0 TORCHELASTIC_RUN_ID=3f2c1de0-0f6b-4c64-9d3e-0a1b2c3d4e5f": "did not come: rank 1",
	} {
		t.Run(want, func(t *testing.T) {
			for _, v := range strings.Fields(env) {
				name, value, _ := strings.Cut(v, "=")
				t.Setenv(name, value)
			}
			_, err := Join(t.Context(), JoinOptions{Device: d, Timeout: 100 * time.Millisecond})
			begins := strings.HasPrefix(want, "did")
			if err == nil || !strings.Contains(err.Error(), want) || begins == strings.Contains(err.Error(), "set WARPMAP_TOKEN") {
				t.Errorf("%s: %v, want %q", env, err, want)
			}
		})
	}
}

// Without NCCL the error says what to install.
func TestNoNCCL(t *testing.T) {
	t.Setenv(nccl.Env, "/nowhere/libnccl.so.2")
	if _, err := Join(context.Background(), JoinOptions{Size: 1, Meet: "127.0.0.1:0"}); err == nil || !strings.Contains(err.Error(), "no NCCL") || !strings.Contains(err.Error(), nccl.Env) {
		t.Error(err)
	}
}
