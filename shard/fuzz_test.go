package shard

import (
	"net"
	"strconv"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzAgreed: what a member says is read as it was said, or is an error that names its rank.
func FuzzAgreed(f *testing.F) {
	for _, w := range []word{{}, {Table: -1, What: "Insert", Said: []byte{1, 2}}, {Err: "it failed", Table: 1 << 40}} {
		body, err := encoded(w)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
		f.Add(body[:len(body)-1])
	}
	sizes, err := encoded([]int{1, 2, 3})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(sizes)
	f.Add([]byte{0xf8, 0x7f, 255, 255, 255, 255, 255, 255, 255})
	f.Fuzz(func(t *testing.T, body []byte) {
		testenv.Bounded(t, len(body), func() {
			agreedOn(t, body, func(a, b word) bool {
				return a.Table == b.Table && a.What == b.What && a.Err == b.Err && string(a.Said) == string(b.Said)
			})
			agreedOn(t, body, func(a, b []int) bool { return len(a) == len(b) })
			agreedOn(t, body, func(a, b map[string][]uint64) bool { return len(a) == len(b) })
		})
	})
}

func agreedOn[T any](t *testing.T, body []byte, same func(a, b T) bool) {
	x, err := decoded[T](7, body)
	if err != nil {
		if !strings.Contains(err.Error(), "rank 7") {
			t.Errorf("an error that does not name the rank: %v", err)
		}
		return
	}
	again, err := encoded(x)
	if err != nil {
		t.Fatal(err)
	}
	if y, err := decoded[T](7, again); err != nil || !same(x, y) {
		t.Errorf("%+v is said, and heard as %+v, %v", x, y, err)
	}
}

// FuzzEnvironment: whatever the environment says, a job has some members, and rank 0 an address with a port; or the
// error is a line that names a variable or says what to set.
func FuzzEnvironment(f *testing.F) {
	for _, env := range []string{"RANK=3\nWORLD_SIZE=8\nLOCAL_RANK=1\nMASTER_ADDR=h\nMASTER_PORT=29500\nTORCHELASTIC_USE_AGENT_STORE=True",
		"OMPI_COMM_WORLD_RANK=2\nOMPI_COMM_WORLD_SIZE=4\nMASTER_ADDR=::1\nMASTER_PORT=1", "RANK=0\nWORLD_SIZE=1",
		"SLURM_PROCID=5\nSLURM_NTASKS=6\nSLURM_LAUNCH_NODE_IPADDR=10.0.0.1,x\nSLURM_JOB_ID=-99999999999",
		"RANK=-1\nWORLD_SIZE=33", "RANK=0\nWORLD_SIZE=2\nMASTER_ADDR=h:1\nMASTER_PORT=65535"} {
		f.Add(env)
	}
	f.Fuzz(func(t *testing.T, env string) {
		testenv.Bounded(t, len(env), func() {
			vars := map[string]string{}
			for line := range strings.Lines(env) {
				name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
				vars[name] = value
			}
			of := func(name string) string { return vars[name] }
			var o JoinOptions
			if err := o.complete(of); err != nil {
				if strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), string(family)) {
					t.Errorf("%q", err)
				}
				return
			}
			_, port, err := net.SplitHostPort(o.Meet)
			if n, wrong := strconv.ParseUint(port, 10, 16); err != nil || wrong != nil || n > 65535 || o.Size < 1 ||
				o.Size > MaxDevices || o.Rank < 0 || o.Local < 0 {
				t.Errorf("%q: %+v, %v, %v", env, o, err, wrong)
			}
			public(o.Token, of)
		})
	})
}
