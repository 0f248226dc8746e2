package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// actAs records the arguments of a launcher, and starts the processes of this host with the variables that the
// launcher sets.
func actAs(launcher string, args []string) error {
	if err := os.WriteFile(launcher+".arguments", []byte(strings.Join(args, " ")), 0o666); err != nil {
		return err
	}
	options, passed, command := split(args)
	if len(command) == 0 {
		return fmt.Errorf("no command in %q", args)
	}
	env := os.Environ()
	var n int
	var vars func(i int) []string
	var err error
	switch launcher {
	case "srun":
		n, err = strconv.Atoi(os.Getenv("TASKS"))
		vars = func(i int) []string {
			return []string{fmt.Sprint("SLURM_PROCID=", i), fmt.Sprint("SLURM_NTASKS=", n), fmt.Sprint("SLURM_LOCALID=", i),
				"SLURM_LAUNCH_NODE_IPADDR=127.0.0.1"}
		}
	case "mpirun": // other hosts get only the variables that -x names
		env = slices.DeleteFunc(env, func(v string) bool {
			name, _, _ := strings.Cut(v, "=")
			return (name == "WARPMAP_TOKEN" || strings.HasPrefix(name, "MASTER_")) && !slices.Contains(passed, name)
		})
		var hosts []byte
		hosts, err = os.ReadFile(options["--hostfile"])
		for _, m := range regexp.MustCompile(`(?m)^\w+ slots=(\d+)$`).FindAllSubmatch(hosts, -1) {
			slots, _ := strconv.Atoi(string(m[1]))
			n += slots
		}
		vars = func(i int) []string {
			return []string{fmt.Sprint("OMPI_COMM_WORLD_RANK=", i), fmt.Sprint("OMPI_COMM_WORLD_SIZE=", n),
				fmt.Sprint("OMPI_COMM_WORLD_LOCAL_RANK=", i)}
		}
	case "torchrun":
		node, _ := strconv.Atoi(os.Getenv("NODE"))
		n, err = strconv.Atoi(options["--nproc-per-node"])
		nodes, err2 := strconv.Atoi(options["--nnodes"])
		host, port, err3 := net.SplitHostPort(options["--rdzv-endpoint"])
		err = errors.Join(err, err2, err3)
		vars = func(i int) []string {
			return []string{fmt.Sprint("RANK=", node*n+i), fmt.Sprint("WORLD_SIZE=", nodes*n), fmt.Sprint("LOCAL_RANK=", i),
				"MASTER_ADDR=" + host, "MASTER_PORT=" + port, "TORCHELASTIC_USE_AGENT_STORE=True",
				"TORCHELASTIC_RUN_ID=" + options["--rdzv-id"]}
		}
	}
	if err != nil || n == 0 {
		return fmt.Errorf("%d processes for %q: %w", n, args, err)
	}
	if token := os.Getenv("WARPMAP_TOKEN"); len(token) < 32 {
		return fmt.Errorf("the token has %d characters", len(token))
	}
	processes := make([]*exec.Cmd, n)
	for i := range processes {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env, cmd.Stdout, cmd.Stderr = append(slices.Clone(env), vars(i)...), os.Stdout, os.Stderr
		if err := cmd.Start(); err != nil {
			return err
		}
		processes[i] = cmd
	}
	for _, cmd := range processes {
		err = errors.Join(err, cmd.Wait())
	}
	return err
}

// split splits the arguments of a launcher into its options, the variables that it passes on, and the command.
func split(args []string) (options map[string]string, passed, command []string) {
	options = map[string]string{}
	for len(args) > 0 && strings.HasPrefix(args[0], "-") {
		name, value, has := strings.Cut(args[0], "=")
		args = args[1:]
		if !has && name != "--no-python" {
			value, args = args[0], args[1:]
		}
		if options[name] = value; name == "-x" {
			passed = append(passed, value)
		}
	}
	return options, passed, args
}

// node is a mapping, a list or a scalar of YAML.
type node struct {
	fields map[string]*node
	list   []*node
	scalar string
}

// at returns the node on a path of keys and of positions in lists; an empty node if there is none.
func (n *node) at(path ...string) *node {
	for _, name := range path {
		next := n.fields[name]
		if i, err := strconv.Atoi(name); err == nil && i < len(n.list) {
			next = n.list[i]
		}
		if n = next; n == nil {
			return &node{}
		}
	}
	return n
}

// text returns the scalar on a path.
func (n *node) text(path ...string) string { return n.at(path...).scalar }

// yamlLine is a line without its indentation and its comment.
type yamlLine struct {
	indent int
	text   string
}

// yaml parses the YAML that kubernetes.yaml needs: mappings and lists in blocks, scalars on one line, lists in
// brackets.
type yaml struct {
	*testing.T
	lines []yamlLine
}

func parseYAML(t *testing.T, document string) *node {
	t.Helper()
	y := &yaml{T: t}
	comment := regexp.MustCompile(`(^|\s+)#.*$`)
	for line := range strings.Lines(document) {
		line = comment.ReplaceAllString(strings.TrimSuffix(line, "\n"), "")
		if text := strings.TrimLeft(line, " "); text != "" {
			y.lines = append(y.lines, yamlLine{len(line) - len(text), strings.TrimSpace(text)})
		}
	}
	n := y.block(0)
	if len(y.lines) > 0 {
		t.Fatalf("YAML: %q is in no block", y.lines[0].text)
	}
	return n
}

var yamlKey = regexp.MustCompile(`^([\w./-]+):(?: +(.*))?$`)

// block parses the lines with an indentation, and those that belong to them.
func (y *yaml) block(indent int) *node {
	y.Helper()
	n := &node{}
	for len(y.lines) > 0 && y.lines[0].indent == indent {
		line := y.lines[0]
		if rest, item := strings.CutPrefix(line.text, "- "); item && n.fields == nil {
			y.lines[0] = yamlLine{indent + 2, rest}
			n.list = append(n.list, y.block(indent+2))
			continue
		}
		m := yamlKey.FindStringSubmatch(line.text)
		if y.lines = y.lines[1:]; m == nil || n.list != nil || n.fields[m[1]] != nil {
			y.Fatalf("YAML: %q is no pair of a new key and a value", line.text)
		}
		value := &node{}
		switch {
		case m[2] == "" && len(y.lines) > 0 && y.lines[0].indent > indent:
			value = y.block(y.lines[0].indent)
		case strings.HasPrefix(m[2], "["):
			var list []string
			if err := json.Unmarshal([]byte(m[2]), &list); err != nil {
				y.Fatalf("YAML: %q: %v", line.text, err)
			}
			for _, text := range list {
				value.list = append(value.list, &node{scalar: text})
			}
		case m[2] == "" || strings.Contains(m[2], ": "):
			y.Fatalf("YAML: %q has no value", line.text)
		default:
			value.scalar = strings.Trim(m[2], `"`)
		}
		if n.fields == nil {
			n.fields = map[string]*node{}
		}
		n.fields[m[1]] = value
	}
	return n
}
