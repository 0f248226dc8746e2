package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/ports"
	"github.com/warpmap/warpmap/internal/testenv"
)

// The test binary is the program and the launchers, too, by the name under which it is called.
func TestMain(m *testing.M) {
	switch name := filepath.Base(os.Args[0]); name {
	case "cluster":
		main()
	case "scontrol":
		fmt.Println("127.0.0.1\nnode2")
	case "srun", "mpirun", "torchrun":
		if err := actAs(name, os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, name, err)
			os.Exit(1)
		}
	default:
		os.Exit(m.Run())
	}
}

// keys is the number of keys of each process.
const keys = 500

// place is a folder with the program, and with the test's own launchers, which replace real ones.
type place struct {
	*testing.T
	dir string
	env []string
}

func newPlace(t *testing.T, launchers ...string) place {
	t.Helper()
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	p := place{T: t, dir: t.TempDir()}
	exe, err := os.Executable()
	p.must(err)
	p.must(os.Mkdir(filepath.Join(p.dir, "bin"), 0o777))
	p.must(os.Symlink(exe, filepath.Join(p.dir, "cluster")))
	for _, name := range launchers {
		p.must(os.Symlink(exe, filepath.Join(p.dir, "bin", name)))
	}
	source := filepath.Join("..", "..", "shard", "internal", "nccl", "standin", "testdata", "standin.c")
	if _, err := os.Stat(source); err != nil {
		t.Skip("needs a checkout: ", err)
	}
	lib := filepath.Join(p.dir, "libnccl.so")
	cc := exec.Command("cc", "-D_GNU_SOURCE", "-shared", "-fPIC", "-pthread", "-o", lib, source)
	if out, err := cc.CombinedOutput(); err != nil {
		t.Skipf("needs a C compiler: %v %s", err, out)
	}
	p.env = append(os.Environ(), "PATH="+filepath.Join(p.dir, "bin")+":"+os.Getenv("PATH"), "WARPMAP_LIBNCCL="+lib,
		"WARPMAP_TOKEN=")
	return p
}

func (p place) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

// program is the arguments of each process.
var program = []string{"--device", "cpu", "--n", strconv.Itoa(keys)}

// run runs a command in the folder and returns its output.
func (p place) run(env []string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.Context(), 3*time.Minute) // kernels may have to be compiled
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = p.dir, append(slices.Clone(p.env), env...), 10*time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// together runs commands at the same time and returns the output of all.
func (p place) together(n int, command func(i int) (env, args []string)) (string, error) {
	text, errs := make([]string, n), make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		env, args := command(i)
		wg.Go(func() { text[i], errs[i] = p.run(env, args...) })
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return strings.Join(text, ""), err
		}
	}
	return strings.Join(text, ""), nil
}

// wants fails the test unless each of n ranks has found the keys of the next.
func (p place) wants(n int, out string, err error) {
	p.Helper()
	for rank := range n {
		want := fmt.Sprintf("rank %d of %d: found all %d keys of rank %d; the map has %d keys\n", rank, n, keys,
			(rank+1)%n, n*keys)
		if err != nil || strings.Count(out, want) != 1 {
			p.Fatalf("want %q, err %v, output:\n%s", want, err, out)
		}
	}
}

// port returns a free port.
func (p place) port() string {
	port, err := ports.Free()
	p.must(err)
	return port
}

// sizes runs a test with 2 processes and with 3.
func sizes(t *testing.T, test func(t *testing.T, n int)) {
	for _, n := range []int{2, 3} {
		t.Run(strconv.Itoa(n), func(t *testing.T) { test(t, n) })
	}
}

func TestEnvironment(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		p := newPlace(t)
		at := []string{"WORLD_SIZE=" + strconv.Itoa(n), "MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + p.port()}
		out, err := p.together(n, func(i int) (env, args []string) {
			return append(slices.Clone(at), "RANK="+strconv.Itoa(i)), append([]string{"./cluster"}, program...)
		})
		p.wants(n, out, err)
	})
}

func TestLaunch(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the command")
	}
	goCommand, err := exec.LookPath("go")
	testenv.Require(t, "go", err)
	warpmap := filepath.Join(t.TempDir(), "warpmap")
	build := exec.Command(goCommand, "build", "-ldflags=-w", "-o", warpmap, "github.com/warpmap/warpmap/cmd/warpmap")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	sizes(t, func(t *testing.T, n int) {
		p := newPlace(t)
		launch := []string{warpmap, "launch", "-n", strconv.Itoa(n), "--", "./cluster"}
		out, err := p.run(nil, append(launch, program...)...)
		p.wants(n, out, err)
	})
}

// script copies a script into the folder, checks its syntax, and returns its path.
func (p place) script(name string) string {
	p.Helper()
	text, err := os.ReadFile(name)
	p.must(err)
	path := filepath.Join(p.dir, name)
	p.must(os.WriteFile(path, text, 0o777))
	if out, err := p.run(nil, "bash", "-n", path); err != nil {
		p.Fatalf("%s: %v\n%s", name, err, out)
	}
	return path
}

// recorded returns the arguments with which the test's own launcher was called.
func (p place) recorded(name string) string {
	p.Helper()
	text, err := os.ReadFile(filepath.Join(p.dir, name+".arguments"))
	p.must(err)
	return string(text)
}

func TestSlurm(t *testing.T) {
	sizes(t, func(t *testing.T, n int) {
		p := newPlace(t, "srun", "scontrol")
		script := p.script("slurm.sh")
		text, err := os.ReadFile(script)
		p.must(err)
		for _, line := range regexp.MustCompile(`(?m)^#SBATCH.*$`).FindAllString(string(text), -1) {
			if !regexp.MustCompile(`^#SBATCH --[a-z-]+=[\w:]+$`).MatchString(line) {
				t.Errorf("%q is no option of sbatch", line)
			}
		}
		port, err := strconv.Atoi(p.port())
		p.must(err)
		env := []string{"SLURM_JOB_ID=" + strconv.Itoa(port-20000), "SLURM_JOB_NODELIST=node[1-2]",
			"TASKS=" + strconv.Itoa(n)}
		out, err := p.run(env, append([]string{"bash", script}, program...)...)
		p.wants(n, out, err)
		if got := p.recorded("srun"); !strings.Contains(got, "--gpu-bind=none") || strings.Contains(got, "per-task") {
			t.Errorf("srun has the arguments %s", got)
		}
	})
}

func TestMPI(t *testing.T) {
	for _, launcher := range []string{"test launcher", "Open MPI"} {
		t.Run(launcher, func(t *testing.T) {
			sizes(t, func(t *testing.T, n int) {
				var own []string
				if launcher == "test launcher" {
					own = []string{"mpirun"}
				} else {
					out, err := exec.Command("mpirun", "--version").Output()
					if err == nil && !bytes.Contains(out, []byte("Open MPI")) {
						err = fmt.Errorf("mpirun is %s", out)
					}
					testenv.Require(t, "openmpi-bin", err)
				}
				p := newPlace(t, own...)
				hosts := filepath.Join(p.dir, "hosts")
				p.must(os.WriteFile(hosts, fmt.Appendf(nil, "# one host\nlocalhost slots=%d\n", n), 0o666))
				env := []string{"MASTER_PORT=" + p.port(), "OMPI_ALLOW_RUN_AS_ROOT=1",
					"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"}
				out, err := p.run(env, append([]string{"bash", p.script("mpi.sh"), hosts}, program...)...)
				p.wants(n, out, err)
			})
		})
	}
}

func TestTorchrun(t *testing.T) {
	t.Run("one host", func(t *testing.T) {
		sizes(t, func(t *testing.T, n int) {
			p := newPlace(t, "torchrun")
			env := []string{"GPUS=" + strconv.Itoa(n), "PORT=" + p.port()}
			out, err := p.run(env, append([]string{"bash", p.script("torchrun.sh")}, program...)...)
			p.wants(n, out, err)
			if got := p.recorded("torchrun"); !strings.Contains(got, "--no-python") {
				t.Errorf("torchrun has the arguments %s", got)
			}
		})
	})
	t.Run("two hosts", func(t *testing.T) {
		p := newPlace(t, "torchrun")
		args := append([]string{"bash", p.script("torchrun.sh")}, program...)
		env := []string{"GPUS=1", "NODES=2", "PORT=" + p.port()}
		if out, err := p.run(env, args...); err == nil || !strings.Contains(out, "set WARPMAP_TOKEN") {
			t.Errorf("without a token: %v, %s", err, out)
		}
		env = append(env, "WARPMAP_TOKEN=0123456789abcdef0123456789abcdef")
		out, err := p.together(2, func(i int) ([]string, []string) {
			return append(slices.Clone(env), "NODE="+strconv.Itoa(i)), args
		})
		p.wants(2, out, err)
	})
}

// The environment that the Job sets, and what Kubernetes adds to it, is enough for the program.
func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile("kubernetes.yaml")
	if os.IsNotExist(err) {
		t.Skip(err)
	}
	documents := strings.Split(string(text), "\n---\n")
	if err != nil || len(documents) != 2 {
		t.Fatalf("%d documents, %v", len(documents), err)
	}
	service, job := parseYAML(t, documents[0]), parseYAML(t, documents[1])
	pod := job.at("spec", "template", "spec")
	name, subdomain := job.text("metadata", "name"), pod.text("subdomain")
	for _, c := range []struct{ what, got, want string }{
		{"Service", service.text("apiVersion") + " " + service.text("kind"), "v1 Service"},
		{"Job", job.text("apiVersion") + " " + job.text("kind"), "batch/v1 Job"},
		{"the Service's name", service.text("metadata", "name"), subdomain},
		{"the Service's address", service.text("spec", "clusterIP"), "None"},
		{"the Service's pods", service.text("spec", "selector", "job-name"), name},
		{"completionMode", job.text("spec", "completionMode"), "Indexed"},
		{"parallelism", job.text("spec", "parallelism"), job.text("spec", "completions")},
		{"restartPolicy", pod.text("restartPolicy"), "Never"},
		{"the GPUs", pod.text("containers", "0", "resources", "limits", "nvidia.com/gpu"), "1"},
		{"the medium", pod.text("volumes", "0", "emptyDir", "medium"), "Memory"},
		{"the volume", pod.text("containers", "0", "volumeMounts", "0", "name"), pod.text("volumes", "0", "name")},
		{"its path", pod.text("containers", "0", "volumeMounts", "0", "mountPath"), "/dev/shm"},
		{"the command", pod.text("containers", "0", "command", "0"), "/cluster"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.what, c.got, c.want)
		}
	}
	const namespace = "tests"
	vars := map[string]string{} // as the kubelet makes them: a value may name variables that come earlier
	var names []string
	env := pod.at("containers", "0", "env")
	for i := range env.list {
		v := env.at(strconv.Itoa(i))
		value := v.text("value")
		switch {
		case v.text("valueFrom", "fieldRef", "fieldPath") == "metadata.namespace":
			value = namespace
		case v.text("valueFrom", "secretKeyRef", "name") == name && v.text("valueFrom", "secretKeyRef", "key") == "token":
			value = "0123456789abcdef0123456789abcdef"
		}
		value = regexp.MustCompile(`\$\((\w+)\)`).ReplaceAllStringFunc(value, func(s string) string {
			if known, ok := vars[s[2:len(s)-1]]; ok {
				return known
			}
			return s
		})
		vars[v.text("name")] = value
		names = append(names, v.text("name"))
	}
	if got, want := vars["MASTER_ADDR"], name+"-0."+subdomain+"."+namespace+".svc.cluster.local"; got != want {
		t.Errorf("MASTER_ADDR %s, want %s", got, want)
	}
	if vars["WORLD_SIZE"] != job.text("spec", "completions") || len(vars["WARPMAP_TOKEN"]) != 32 {
		t.Errorf("the environment %v", vars)
	}
	p := newPlace(t)
	vars["MASTER_ADDR"], vars["MASTER_PORT"] = "127.0.0.1", p.port() // no DNS here has the pod's name
	n, err := strconv.Atoi(vars["WORLD_SIZE"])
	p.must(err)
	args := append([]string{"./cluster"}, program...)
	for i := range pod.at("containers", "0", "args").list {
		args = append(args, pod.text("containers", "0", "args", strconv.Itoa(i)))
	}
	out, err := p.together(n, func(i int) ([]string, []string) {
		own := []string{"JOB_COMPLETION_INDEX=" + strconv.Itoa(i)}
		for _, name := range names {
			own = append(own, name+"="+vars[name])
		}
		return own, args
	})
	p.wants(n, out, err)
}
