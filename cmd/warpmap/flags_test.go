package main

import (
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// everyCommand visits a command and all below it.
func everyCommand(cmd *cobra.Command, visit func(cmd *cobra.Command)) {
	visit(cmd)
	for _, c := range cmd.Commands() {
		everyCommand(c, visit)
	}
}

// A flag that several commands have is of one type and one shorthand in all of them.
func TestFlagsAreOfOneKind(t *testing.T) {
	type kind struct{ kind, short, of string }
	seen := map[string]kind{}
	everyCommand(root(), func(cmd *cobra.Command) {
		cmd.LocalFlags().VisitAll(func(f *pflag.Flag) {
			now := kind{f.Value.Type(), f.Shorthand, cmd.CommandPath()}
			switch f.Name {
			case "memory", "threads", "out", "devices", "json", "quiet", "force", "device", "device-memory", "skip-broken",
				"seed", "max-memory":
			default:
				return
			}
			if f.Name == "max-memory" {
				t.Errorf("%s: --max-memory is --memory", now.of)
			}
			before, is := seen[f.Name]
			if seen[f.Name] = now; is && (before.kind != now.kind || before.short != now.short) {
				t.Errorf("--%s: %+v and %+v", f.Name, before, now)
			}
		})
	})
	if seen["out"].short != "o" || seen["quiet"].short != "q" || len(seen) < 10 {
		t.Errorf("%+v", seen)
	}
}

// The help of a command has no flags that do nothing there; a device is taken all the same, and JSON refused.
func TestFlagsThatDoNothing(t *testing.T) {
	dir := t.TempDir()
	reads, counts := filepath.Join(dir, "x.fa"), filepath.Join(dir, "x.wk")
	if err := os.WriteFile(reads, []byte(">x\nACGTACGTTTACG\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	must(t, "kmers", "count", reads, "-k", "3", "--out", counts, "--max-memory", "1GB", "--threads", "1")
	for path, has := range map[string]string{
		"kmers stats": "json", "kmers histo": "json", "kmers query": "json", "kmers dump": "", "kmers count": "device json",
		"devices": "json", "version": "json", "launch": "", "gen tpch": "json", "classify info": "json",
		"classify serve": "device", "classify query": "device json", "classify build": "device json", "compile": "device",
		"demo": "device", "bench draw": "", "bench fig": "device json", "join": "device json",
		"distinct": "device json", "top": "device json", "serve": "device json",
	} {
		help, _, err := run(t, append(strings.Fields(path), "--help")...)
		for _, flag := range []string{"device", "device-memory", "json"} {
			want := strings.Contains(" "+has+" ", " "+strings.TrimSuffix(flag, "-memory")+" ")
			if err != nil || strings.Contains(help, "--"+flag+" ") != want {
				t.Errorf("%s: --%s is in its help: %v, want %v (%v)", path, flag, !want, want, err)
			}
		}
	}
	for _, args := range [][]string{{"kmers", "stats", counts}, {"kmers", "histo", counts}, {"kmers", "query", counts, "ACG"}} {
		out, _, err := run(t, append(args, "--json")...)
		if err != nil || !json.Valid([]byte(out)) {
			t.Errorf("%v: %v, %s", args, err, out)
		}
	}
	out, _, err := run(t, "kmers", "query", counts, "ACG", "TTT", "--json")
	if want := `[{"kmer":"ACG","count":3},{"kmer":"TTT","count":1}]`; err != nil ||
		strings.Join(strings.Fields(out), "") != want {
		t.Errorf("%v, %s, want %s", err, out, want)
	}
	for _, args := range []string{"kmers dump " + counts, "demo", "launch -- true", "compile --arch amd64 --out x"} {
		cmd := root()
		cmd.SetOut(io.Discard)
		cmd.SetErr(io.Discard)
		cmd.SetArgs(append([]string{"--json"}, strings.Fields(args)...))
		if err := cmd.Execute(); exitCode(err) != exitUsage || !strings.Contains(err.Error(), "--json") {
			t.Errorf("--json %s: %v", args, err)
		}
	}
}

// --threads binds the whole process as long as the command runs.
func TestThreads(t *testing.T) {
	before := runtime.GOMAXPROCS(0)
	undo, err := onThreads(before + 1)
	if now := runtime.GOMAXPROCS(0); err != nil || now != before+1 {
		t.Errorf("%d threads, %v", now, err)
	}
	undo()
	if now := runtime.GOMAXPROCS(0); now != before {
		t.Errorf("%d threads afterwards, want %d", now, before)
	}
	_, _, err = run(t, "classify", "query", "x", "y", "--threads", "-1")
	if exitCode(err) == 0 {
		t.Error(err)
	}
	if _, err = onThreads(1025); err == nil ||
		!strings.Contains(err.Error(), "--threads 1025: want 1 to 1024") {
		t.Error(err)
	}
}

// TestFlagsGivenTwice gives flags that are no lists two values: no command takes the last one silently.
func TestFlagsGivenTwice(t *testing.T) {
	dir := t.TempDir()
	in := filepath.Join(dir, "in.csv")
	if err := os.WriteFile(in, []byte("a,b\n1,2\n1,3\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"distinct", in, "-c", "a", "-c", "b"}, {"top", in, "--column", "a", "-c", "b"},
		{"join", in, in, "--on", "a", "--how", "semi", "--how", "anti"}, {"join", in, in, "--on", "a", "--limit", "1", "--limit=2"},
		{"join", in, in, "--on", "a", "--memory", "1GB", "--memory", "2GB"},
	} {
		out, _, err := run(t, args...)
		flag := args[len(args)-2]
		if err == nil || exitCode(err) != exitUsage || !strings.Contains(err.Error(), "already: want one") || out != "" {
			t.Errorf("%s: %q %v, want an error of %s", args, out, err, flag)
		}
	}
	if got := must(t, "distinct", in, "-c", "b", "--column", "b", "--quiet", "-q"); got != "2\n" {
		t.Errorf("the same value twice: %s", got)
	}
	must(t, "join", in, in, "--on", "a", "--on", "b", "--select", "a", "--select", "b")
	everyCommand(root(), func(cmd *cobra.Command) {
		cmd.LocalNonPersistentFlags().VisitAll(func(f *pflag.Flag) {
			_, list := f.Value.(pflag.SliceValue)
			_, one := f.Value.(*single)
			if _, table := f.Value.(*tableFlag); !list && !table && !one && f.Name != "help" {
				t.Errorf("%s --%s takes two values", cmd.CommandPath(), f.Name)
			}
		})
	})
}
