package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// planted is set in the processes that the tests below start: of this binary, with the tests that follow.
const planted = "WARPMAP_TRIAL_PLANTED"

func isPlanted(t *testing.T) {
	if os.Getenv(planted) == "" {
		t.Skip("it is run by the other tests")
	}
}

func TestPlantedPasses(t *testing.T) {
	isPlanted(t)
	for _, device := range []string{"cpu", "cuda:0"} {
		t.Run(device, func(t *testing.T) {
			testenv.Tried(t, 5, "faults")
			testenv.Tried(t, int(testenv.FirstSeed()%1000), "operations")
		})
	}
}

func TestPlantedFails(t *testing.T) {
	isPlanted(t)
	testenv.Tried(t, 7, "kills")
	t.Fatal("the defect")
}

func TestPlantedHangs(t *testing.T) {
	isPlanted(t)
	time.Sleep(time.Hour)
}

func TestPlantedErrs(t *testing.T) {
	isPlanted(t)
	t.Error("WARPMAP_SEED=5: the defect")
	time.Sleep(time.Hour)
}

func TestPlantedSkips(t *testing.T) {
	isPlanted(t)
	t.Skip("it needs what nobody has")
}

// plants has the named tests be the turns of a part each, of a folder of binaries.
func plants(t *testing.T, names ...string) (tests string, made func() []*part) {
	tests = t.TempDir()
	own, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(tests, "a", "b"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(own, filepath.Join(tests, "a", "b", "run.test")); err != nil {
		t.Skip(err)
	}
	return tests, func() (all []*part) {
		for _, name := range names {
			all = append(all, &part{name: name, share: 1, env: []string{planted + "=1"},
				turns: []turn{{dir: "a/b", tests: "^TestPlanted" + name + "$/^DEVICE$"}}})
		}
		return all
	}
}

// The command runs turns by their shares, adds up what they tried on the device, keeps the log of one that fails, leaves
// out one that is skipped, and tells all with its end.
func TestFindsADefect(t *testing.T) {
	tests, made := plants(t, "Passes", "Fails", "Skips")
	var out strings.Builder
	found := filepath.Join(t.TempDir(), "found")
	err := command(t.Context(), []string{"-tests", tests, "-out", found, "-seed", "2011", "-turns", "3", "-time", "1h"},
		made, &out)
	if err == nil || !strings.Contains(err.Error(), "1 turns found something") {
		t.Fatalf("%v\n%s", err, &out)
	}
	for _, want := range []string{
		`(?m)^1 Passes, a/b: 1 tests, 11 operations, 5 faults in .*: ok$`,
		`(?m)^2 Fails, a/b: 0 tests, 7 kills in .*: FOUND: .*/1002011-Fails-a-b.log$`,
		`(?m)^3 Skips, a/b: 0 tests in .*: skipped$`,
		`(?m)^ *part +turns +tests +programs +operations +faults +kills `,
		`(?m)^ *Passes +1 +1 +- +11 +5 +- .* 0 +\d+s`,
		`(?m)^ *all +3 +1 +- +11 +5 +7 .* 1 +\d+s`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
	logs, _ := filepath.Glob(filepath.Join(found, "*"))
	if len(logs) != 1 {
		t.Fatalf("%q are kept", logs)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the defect", "WARPMAP_SEEDS=1002011", planted + "=1", "TestPlantedFails"} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in %s", want, text)
		}
	}
}

// What fails again and again, and what is skipped, is left out; then all is over before the time is.
func TestLeavesOut(t *testing.T) {
	tests, made := plants(t, "Fails", "Skips", "IsNotThere")
	var out strings.Builder
	err := command(t.Context(), []string{"-tests", tests, "-out", t.TempDir(), "-time", "1h", "-beside", "2"}, made, &out)
	if err == nil {
		t.Error("no error")
	}
	for want, n := range map[string]int{" Fails, a/b: ": mostFindings, " Skips, a/b: ": 1,
		": FOUND: no such test": mostFindings} {
		got := strings.Count(out.String(), want)
		if got < n || got > n+1 || n == 1 && got > 1 { // another one may have been under way
			t.Errorf("%d times %q, want %d:\n%s", got, want, n, &out)
		}
	}
}

// A turn that hangs is a finding, with its stacks.
func TestFindsAHang(t *testing.T) {
	t.Parallel() // it waits
	tests, made := plants(t, "Hangs")
	var out strings.Builder
	found := t.TempDir()
	err := command(t.Context(), []string{"-tests", tests, "-out", found, "-time", "1h", "-deadline", "5s", "-turns", "1"},
		made, &out)
	logs, _ := filepath.Glob(filepath.Join(found, "*.log"))
	if err == nil || len(logs) != 1 {
		t.Fatalf("%v, %q\n%s", err, logs, &out)
	}
	text, err := os.ReadFile(logs[0])
	if err != nil || !strings.Contains(string(text), "goroutine ") || !strings.Contains(string(text), errLate.Error()) {
		t.Errorf("%v: %s", err, text)
	}
}

// When the time is over, a turn that is under way is cut off, which is no finding.
func TestCutsOff(t *testing.T) {
	t.Parallel() // it waits
	tests, made := plants(t, "Hangs")
	var out strings.Builder
	err := command(t.Context(), []string{"-tests", tests, "-out", t.TempDir(), "-time", "2s"}, made, &out)
	if err == nil || err.Error() != "no test was run" || !strings.Contains(out.String(), ": cut off\n") {
		t.Errorf("%v\n%s", err, &out)
	}
}

// A turn that has told of an error when it is cut off is a finding nevertheless, and its log stays.
func TestKeepsWhatIsCutOff(t *testing.T) {
	t.Parallel() // it waits
	tests, made := plants(t, "Errs")
	var out strings.Builder
	folder := t.TempDir()
	err := command(t.Context(), []string{"-tests", tests, "-out", folder, "-time", "5s"}, made, &out)
	logs, _ := filepath.Glob(filepath.Join(folder, "*.log"))
	if err == nil || !strings.Contains(out.String(), "FOUND") || len(logs) != 1 {
		t.Errorf("%v, %d logs\n%s", err, len(logs), &out)
	}
}

// Test binaries that were built are removed, unless there is a finding, whose log names one.
func TestKeepsWhatLogsName(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	for _, findings := range [][]string{nil, {"a log"}} {
		done, err := (&trial{parts: []*part{{findings: findings}}}).build(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done()
		if left, _ := filepath.Glob(filepath.Join(folder, "trial-*")); len(left) != len(findings) {
			t.Errorf("%d findings, and %v is left", len(findings), left)
		}
	}
}

// Bad arguments are errors before anything runs.
func TestArguments(t *testing.T) {
	tests, made := plants(t, "Passes")
	for _, args := range [][]string{{"-time", "0"}, {"-run", "none"}, {"-run", "("}, {"more"}, {"-beside", "0"},
		{"-device", "cuda:1"}, {"-device", "gpu"},
		{"-tests", filepath.Join(tests, "absent")}} {
		var out strings.Builder
		if err := command(t.Context(), append(args, "-out", t.TempDir(), "-turns", "1"), made, &out); err == nil ||
			strings.Contains(out.String(), "tests") {
			t.Errorf("%q: %v\n%s", args, err, &out)
		}
	}
}

// The part that is furthest behind its share is next.
func TestShares(t *testing.T) {
	a, b := &part{name: "a", share: 3, turns: []turn{{}}}, &part{name: "b", share: 1, turns: []turn{{}}}
	x := &trial{parts: []*part{a, b}}
	for range 400 {
		p := x.next().part
		p.under--
		p.used += time.Second
	}
	if a.used != 300*time.Second || b.used != 100*time.Second {
		t.Errorf("of 400 s %v and %v are used, want three quarters and one", a.used, b.used)
	}
}

// Each turn names tests that there are.
func TestTurnsHaveTests(t *testing.T) {
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "go.mod")); err != nil {
		t.Skip("the sources are not here")
	}
	t.Chdir(root)
	fuzzed := 0
	for _, p := range parts() {
		for _, x := range p.turns {
			dir := filepath.FromSlash(x.dir)
			if x.dir == "root" {
				dir = "."
			}
			names := functions(t, dir)
			if x.fuzz {
				fuzzed++
				if !slices.ContainsFunc(names, func(name string) bool { return strings.HasPrefix(name, "Fuzz") }) {
					t.Errorf("%s has a corpus, and no fuzzers", x.dir)
				}
				continue
			}
			pattern, below, _ := strings.Cut(x.tests, "/")
			if below != "" && below != "^DEVICE$" {
				t.Errorf("%s: the test below is %s", x.tests, below)
			}
			if !slices.ContainsFunc(names, regexp.MustCompile(pattern).MatchString) {
				t.Errorf("%s has no tests %s", x.dir, pattern)
			}
		}
	}
	if fuzzed < 10 {
		t.Errorf("%d packages have fuzzers", fuzzed)
	}
}

// functions are the names of a folder's test functions.
func functions(t *testing.T, dir string) (names []string) {
	files, err := filepath.Glob(filepath.Join(dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%s has no tests: %v", dir, err)
	}
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is && fn.Recv == nil {
				names = append(names, fn.Name.Name)
			}
		}
	}
	return names
}

// The command that a log begins with is one that a shell takes.
func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{"-test.v": "-test.v", "^TestA$": "'^TestA$'", "it's": "'it'\\''s'"} {
		if got := quoted(word); got != want {
			t.Errorf("%s: %s, want %s", word, got, want)
		}
	}
}
