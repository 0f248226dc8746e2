package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// fence is a block of code of a page.
type fence struct {
	page string // from the root: "docs/tables.md"
	line int    // of the block's first line there
	lang string // "go", or "" of commands
	text string
}

// fences are all blocks of code of docs/*.md and README.md, in this order.
func fences(t *testing.T) (all []fence) {
	t.Helper()
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 { // a test binary that runs far from the sources
		t.Skip("the sources are not here")
	}
	for _, name := range append(pages, "../../README.md") {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile("(?ms)^```(\\w*)\n(.*?)^```").FindAllSubmatchIndex(text, -1) {
			line := 1 + strings.Count(string(text[:m[4]]), "\n")
			all = append(all, fence{strings.TrimPrefix(name, "../../"), line, string(text[m[2]:m[3]]), string(text[m[4]:m[5]])})
		}
	}
	return all
}

// commands are the lines of a block, each with those that a backslash joins to it.
func (f fence) commands() []string {
	if f.lang != "" {
		return nil
	}
	text := regexp.MustCompile(`\\\n\s*`).ReplaceAllString(f.text, "")
	return strings.FieldsFunc(text, func(r rune) bool { return r == '\n' })
}

// notRun are the commands of pages that this test does not run, by how they begin, and why.
var notRun = map[string]string{
	"go get ":                            "needs the network",
	"go install ":                        "needs the network",
	"mkdir taxonomy && curl -s https://": "needs the network",
	"curl ":                              "needs the server; serve_test.go asks it the same",
	"go test ./":                         "this test is part of it",
	"go run ./internal/trial":            "takes hours; its own tests run it",
	"WARPMAP_HOSTILE=":                   "goes on as long as it says; TestHostileHours runs for two seconds",
	"WARPMAP_PROGRAMS=":                  "goes on as long as it says; internal/operations runs shorter",
	"WARPMAP_MODEL=":                     "this test is part of it; TestModelFindsMissingOrder of slab runs some",
	"go run ./cmd/warpmap demo":          "main_test.go runs it",
	"warpmap classify serve ":            "goes on until it is ended; serve_test.go runs it",
	"warpmap serve ":                     "goes on until it is ended; flight_test.go runs it",
	"warpmap compile ":                   "takes long; compile_test.go runs it",
	"warpmap bench limits ":              "takes minutes on a CPU; each warpmap bench measures the same limits",
	"warpmap bench fig ":                 "takes long; the studies' tests measure all figures with few rows",
	"warpmap bench draw ":                "takes long; draw_test.go draws all that is kept",
	"warpmap launch -n 4 -- warpmap bench --devices joined": "needs four GPUs and NCCL",
	"warpmap launch -n 4 -- ./cluster":                      "the tests of examples/cluster run it",
	"go build ./examples/cluster":                           "the tests of examples/cluster build it",
	"sbatch ":                                               "needs Slurm; the tests of examples/cluster run the script",
	"mpirun ":                                               "needs Open MPI; the tests of examples/cluster run it if it is installed",
	"torchrun ":                                             "needs torchrun; the tests of examples/cluster run the script",
	"kubectl ":                                              "needs Kubernetes; the tests of examples/cluster run the Job's environment",
}

// smaller is what makes commands of pages run with few rows, on whatever device is here.
var smaller = []struct{ what, with string }{
	{`^warpmap tune gph\b`, `$0 --n 2000 --trials 2`},
	{`--n \d+`, `--n 2000`},
	{`--queries \d+`, `--queries 4000`},
	{`--distinct \d+`, `--distinct 200`},
	{`--bytes \d+(MB)?`, `--bytes 1000000`},
	{`--sf [\d.]+`, `--sf 0.002`},
	{`--rows-per-file \d+`, `--rows-per-file 10000`},
	{`--devices all`, `--devices cpu:0,cpu:1`},
}

// The commands of README.md and of docs/ do as they stand there, one after the other in one folder, with fewer rows.
func TestDocsCommandsRun(t *testing.T) {
	d, err := device.Open("auto")
	testenv.Require(t, "cpu", err)
	d.Close()
	tools, dir, used, ran := commandFolder(t), docsFolder(t), map[string]bool{}, 0
	for _, f := range fences(t) {
		for _, line := range f.commands() {
			if begin := begins(line); begin != "" {
				used[begin] = true
				continue
			}
			small := line
			for _, s := range smaller {
				small = regexp.MustCompile(s.what).ReplaceAllString(small, s.with)
			}
			start := time.Now()
			cmd := exec.Command("sh", "-ec", small)
			cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"), "WARPMAP_PROFILES="+dir)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%s has\n%s\nwhich, as %s, ends with %v:\n%s", f.page, line, small, err, out)
			}
			t.Logf("%4d ms  %s", time.Since(start).Milliseconds(), small)
			ran++
		}
	}
	for begin := range notRun {
		if !used[begin] {
			t.Errorf("no page has a command that begins with %q: take it off the list of those that are not run", begin)
		}
	}
	if ran < 25 {
		t.Errorf("%d commands ran", ran)
	}
}

// begins is the entry of notRun for a command, or nothing.
func begins(line string) string {
	for begin := range notRun {
		if strings.HasPrefix(line, begin) {
			return begin
		}
	}
	return ""
}

// docsFolder is a folder with all files that commands of pages read.
func docsFolder(t *testing.T) string {
	dir := genomes(t) // tax, refs, 1.fa, 2.fa
	const script = `
mv tax taxonomy && mkdir genomes more && mv refs/6.fa genomes && gzip refs/7.fa && mv refs/7.fa.gz more
fastq() { awk '/^>/ { print "@" substr($0, 2); next } { print; print "+"; gsub(/./, "I"); print }' "$1" | gzip; }
cp 1.fa simulated.fa
for to in reads sample sample_1; do fastq 1.fa >$to.fq.gz; done
fastq 2.fa >sample_2.fq.gz`
	cmd := exec.Command("sh", "-ec", script)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return dir
}

// The commands of pages exist, with the flags that they are given there, whether they are run or not.
func TestDocsCommandsExist(t *testing.T) {
	word, found := regexp.MustCompile(`^[a-z]+$`), 0
	for _, f := range fences(t) {
		for _, line := range f.commands() {
			for _, command := range regexp.MustCompile(`&&|[|;]| -- `).Split(line, -1) {
				args := strings.Fields(strings.TrimPrefix(strings.TrimSpace(command), "go run ./cmd/"))
				if len(args) == 0 || args[0] != "warpmap" {
					continue
				}
				found++
				args = args[1:]
				sub := args
				if i := slices.IndexFunc(args, func(a string) bool { return !word.MatchString(a) }); i >= 0 {
					sub = args[:i]
				}
				help, errs, err := run(t, append(slices.Clone(sub), "--help")...)
				if err != nil || !strings.Contains(help, "\n  warpmap "+strings.Join(sub, " ")) {
					t.Errorf("%s has %q, but there is no such command: %v\n%s%s", f.page, command, err, help, errs)
					continue
				}
				for _, a := range args {
					flag, _, _ := strings.Cut(a, "=")
					if strings.HasPrefix(flag, "--") && !strings.Contains(help, " "+flag+" ") {
						t.Errorf("%s has %q, but warpmap %s has no %s", f.page, command, strings.Join(sub, " "), flag)
					}
				}
			}
		}
	}
	if found < 30 {
		t.Errorf("%d commands", found)
	}
}

// snippetImports are the packages that a snippet may name without importing them.
var snippetImports = []string{
	"errors", "fmt", "log", "os", "strings", "github.com/warpmap/warpmap",
	"github.com/warpmap/warpmap/device", "github.com/warpmap/warpmap/dycuckoo", "github.com/warpmap/warpmap/join",
	"github.com/warpmap/warpmap/shard", "github.com/warpmap/warpmap/sketch", "github.com/warpmap/warpmap/table/snapshot",
	"github.com/warpmap/warpmap/warpcore",
}

// snippetsMain runs all snippets but whole programs. They share what docs/tables.md says: d, ctx and check. Their kernels are
// compiled as those of tests are.
const snippetsMain = `package main

import (
	"context"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/internal/quick"
)

var (
	ctx = context.Background()
	d   *warpmap.Device
)

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func main() {
	quick.Kernels = true
	var err error
	d, err = warpmap.Open("cpu")
	check(err)
	for i, snippet := range snippets {
		fmt.Println("snippet", i)
		snippet()
	}
	check(d.Close())
}
`

// The Go snippets of pages compile, run, and print what their comments say. All are built at once, from files that stand in
// the module for this build alone: whole programs each, the others as functions of one program.
func TestDocsSnippetsRun(t *testing.T) {
	if testing.Short() {
		t.Skip("it builds the module again, without the race detector")
	}
	all := fences(t)
	goCommand, err := exec.LookPath("go")
	testenv.Require(t, "go", err)
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir, overlay := t.TempDir(), map[string]string{} // files of the module, and what stands for them
	put := func(name, text string) {
		real := filepath.Join(dir, strings.ReplaceAll(name, "/", "-"))
		if err := os.WriteFile(real, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		overlay[filepath.Join(root, "docs", name)] = real
	}
	var snippets, programs []fence
	for _, f := range all {
		if f.lang != "go" {
			continue
		}
		if strings.HasPrefix(f.text, "package main\n") {
			put(fmt.Sprintf("program%d/main.go", len(programs)), f.text)
			programs = append(programs, f)
			continue
		}
		var b strings.Builder
		b.WriteString("package main\n\n")
		for _, path := range snippetImports {
			if regexp.MustCompile(`\b` + filepath.Base(path) + `\.[A-Z]`).MatchString(f.text) {
				fmt.Fprintf(&b, "import %q\n", path)
			}
		}
		fmt.Fprintf(&b, "\nfunc init() { snippets[%d] = func() {\n", len(snippets))
		fmt.Fprintf(&b, "//line %s:%d\n%s}}\n", f.page, f.line, f.text)
		put(fmt.Sprintf("snippets/s%02d.go", len(snippets)), b.String())
		snippets = append(snippets, f)
	}
	if len(snippets) < 15 || len(programs) == 0 {
		t.Fatalf("%d snippets, %d programs", len(snippets), len(programs))
	}
	put("snippets/main.go", snippetsMain+fmt.Sprintf("\nvar snippets [%d]func()\n", len(snippets)))
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), replace, 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"build", "-overlay", filepath.Join(dir, "overlay.json"), "-o", dir + "/", "./docs/snippets"}
	for i := range programs {
		args = append(args, fmt.Sprintf("./docs/program%d", i))
	}
	runIn := func(in, name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "GOGC=400", "GOFLAGS="+os.Getenv("GOFLAGS")+" -ldflags=-w")
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
		}
		return string(out)
	}
	runIn(root, goCommand, args...)
	standInNCCL(t) // each program is the one member of a job
	t.Setenv("RANK", "0")
	t.Setenv("WORLD_SIZE", "1")
	for i, f := range programs {
		f.prints(t, runIn(t.TempDir(), filepath.Join(dir, fmt.Sprintf("program%d", i))))
	}
	out := runIn(t.TempDir(), filepath.Join(dir, "snippets"))
	for i, printed := range regexp.MustCompile(`(?m)^snippet \d+\n`).Split(out, -1)[1:] {
		snippets[i].prints(t, printed)
	}
}

// prints fails the test unless a snippet has printed what the comments behind its fmt.Println say.
func (f fence) prints(t *testing.T, got string) {
	t.Helper()
	var want strings.Builder
	for _, m := range regexp.MustCompile(`(?m)^\s*fmt\.Println\(.*\) // (.*)$`).FindAllStringSubmatch(f.text, -1) {
		fmt.Fprintln(&want, m[1])
	}
	if want.Len() == 0 || got != want.String() {
		t.Errorf("%s:%d prints\n%sand says\n%s", f.page, f.line, got, &want)
	}
}

// The examples of warpmap join --help do as they stand there.
func TestJoinExamplesRun(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	d.Close()
	tools, dir := commandFolder(t), t.TempDir()
	shell := func(line string) {
		t.Helper()
		cmd := exec.Command("sh", "-ec", line)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v: %s", line, err, out)
		}
	}
	for name, text := range map[string]string{
		"customers.csv": "id,name\n1,a\n2,b\n", "sales.csv": "customer,what\n1,x\n3,y\n", "users.csv": "user,n\n1,a\n", "vip.csv": "user\n1\n",
		"users.jsonl": "{\"user\":1}\n", "days.csv": "region,day\nN,2024-02-29\n", "e.csv": "user,region,day\n1,N,2024-02-29\n2,S,2024-03-01\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	shell("warpmap gen tpch --sf 0.001 --out .; mkdir -p events/day=2024-02-29; gzip -c e.csv >events.csv.gz")
	for _, out := range []string{"events.parquet", "events.arrow", "events/day=2024-02-29/x.parquet"} {
		shell("warpmap join e.csv e.csv --on user --how semi --quiet --out " + out)
	}
	shell("warpmap join days.csv days.csv --on day --how semi --quiet --out days.parquet")
	found := 0
	for line := range strings.Lines(joinCommand().Example) {
		if line = strings.TrimSpace(line); strings.Contains(line, "warpmap join ") {
			found++
			shell(line)
		}
	}
	if found < 8 {
		t.Errorf("%d examples", found)
	}
}

// The examples of every --help are right command lines: their flags are there, and take such values.
func TestExamplesAreRight(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("kmers.txt", nil, 0o666); err != nil {
		t.Fatal(err)
	}
	script := `exec 3>&1; warpmap() { printf '%s\0' "$@" >&3; echo >&3; }; zcat() { :; }; curl() { :; }` + "\n"
	var collect func(cmd *cobra.Command)
	collect = func(cmd *cobra.Command) {
		script += cmd.Example[:max(0, strings.Index(cmd.Example+"\n\nExit", "\n\nExit"))] + "\n"
		for _, c := range cmd.Commands() {
			collect(c)
		}
	}
	collect(root())
	lines, err := exec.Command("sh", "-c", script).Output()
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for line := range strings.Lines(string(lines)) {
		args := strings.Split(strings.TrimSuffix(line, "\x00\n"), "\x00")
		n++
		cmd, rest, err := root().Find(args)
		if err == nil {
			err = cmp.Or(cmd.ParseFlags(rest), cmd.ValidateArgs(cmd.Flags().Args()), cmd.ValidateRequiredFlags(),
				cmd.ValidateFlagGroups())
		}
		if err != nil {
			t.Errorf("warpmap %q: %v", args, err)
		}
	}
	if n < 80 {
		t.Errorf("%d examples", n)
	}
}

// commandFolder is a folder with this test's program as the command warpmap.
func commandFolder(t *testing.T) string {
	dir := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nWARPMAP_TEST_COMMAND=1 exec %q \"$@\"\n", os.Args[0])
	if err := os.WriteFile(filepath.Join(dir, "warpmap"), []byte(script), 0o777); err != nil {
		t.Fatal(err)
	}
	return dir
}
