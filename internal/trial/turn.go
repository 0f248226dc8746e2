package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
)

// run is a turn that is under way.
type run struct {
	part *part
	turn turn
	n    int
	seed uint64
}

// build makes the test binaries that the parts need, or finds them. done removes what was made,
// unless a finding's log tells to run it again.
func (t *trial) build(ctx context.Context) (done func(), err error) {
	done = func() {}
	made := ""
	if t.tests == "" {
		if made, err = os.MkdirTemp("", "trial-"); err != nil {
			return done, err
		}
		done = func() {
			if !slices.ContainsFunc(t.parts, func(p *part) bool { return len(p.findings) > 0 }) { // whose logs name them
				os.RemoveAll(made)
			}
		}
	} else if t.tests, err = filepath.Abs(t.tests); err != nil {
		return done, err
	}
	for _, p := range t.parts {
		for _, x := range p.turns {
			dir := x.dir
			if x.fuzz {
				dir = "internal/fuzz"
			}
			if t.binaries[dir] != "" {
				continue
			}
			if t.tests != "" {
				t.binaries[dir] = filepath.Join(t.tests, filepath.FromSlash(dir), "run.test")
				if _, err := os.Stat(t.binaries[dir]); err != nil {
					return done, err
				}
				continue
			}
			fmt.Fprintf(t.said, "building the tests of %s\n", dir)
			t.binaries[dir] = filepath.Join(made, strings.ReplaceAll(dir, "/", "-")+".test")
			args := []string{"test", "-c", "-o", t.binaries[dir], "./" + dir}
			switch {
			case x.fuzz:
				args = []string{"build", "-o", t.binaries[dir], "./" + dir}
			case dir == "root":
				args[len(args)-1] = "."
			}
			if text, err := exec.CommandContext(ctx, "go", args...).CombinedOutput(); err != nil {
				return done, fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, text)
			}
		}
	}
	return done, nil
}

// lasts is how long a turn goes on that says so itself: each part has some in the time that there is.
func (t *trial) lasts() time.Duration {
	return max(time.Second, min(t.time/30, 4*time.Minute, time.Until(t.end)))
}

// process is what a turn runs, and the variables that it has beside others.
func (t *trial) process(r *run) (cmd *exec.Cmd, env []string, err error) {
	x, lasts := r.turn, t.lasts().Round(time.Second)
	dir := filepath.FromSlash(x.dir)
	if x.dir == "root" && t.tests == "" {
		dir = "."
	}
	dir = filepath.Join(t.tests, dir)
	if x.fuzz {
		cmd = exec.Command(t.binaries["internal/fuzz"], "-time", lasts.String(), "-run", x.tests)
	} else {
		env = append(slices.Clone(r.part.env), fmt.Sprintf("WARPMAP_SEEDS=%d", r.seed))
		if strings.HasPrefix(t.device, "cuda") {
			env = append(env, "WARPMAP_REQUIRE="+cmp.Or(os.Getenv("WARPMAP_REQUIRE"), "cuda,nvrtc"))
		}
		if x.lasts {
			env = append(env, "WARPMAP_PROGRAMS="+lasts.String(), "WARPMAP_FOUND="+t.out)
		}
		cmd = exec.Command(t.binaries[x.dir], "-test.v", "-test.timeout", "0", "-test.paniconexit0",
			"-test.run", strings.ReplaceAll(x.tests, "DEVICE", t.device))
		if cmd.Dir, err = filepath.Abs(dir); err != nil {
			return nil, nil, err
		}
	}
	cmd.Env = append(os.Environ(), env...)
	return cmd, env, nil
}

// again is the command that runs the turn again.
func again(cmd *exec.Cmd, env []string) string {
	text := ""
	if cmd.Dir != "" {
		text = "cd " + quoted(cmd.Dir) + " && "
	}
	for _, e := range env {
		text += quoted(e) + " "
	}
	for _, a := range cmd.Args {
		text += quoted(a) + " "
	}
	return strings.TrimSpace(text)
}

// quoted is a word as a shell takes it.
func quoted(word string) string {
	if strings.ContainsAny(word, " '$|^()*\\&;<>?[]{}~#\"") {
		return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
	}
	return word
}

// errLate is of a turn that does not end.
var errLate = errors.New("it did not end by its deadline")

// run runs a turn, and counts what came of it. An error is one of this command.
func (t *trial) run(ctx context.Context, r *run) error {
	cmd, env, err := t.process(r)
	if err != nil {
		return err
	}
	where := strings.ReplaceAll(r.turn.dir, "/", "-")
	name := filepath.Join(t.out, fmt.Sprintf("%d-%s-%s.log", r.seed, r.part.name, where))
	log, err := os.Create(name)
	if err != nil {
		return err
	}
	defer log.Close()
	fmt.Fprintf(log, "%s\n\n", again(cmd, env))
	cmd.Stdout, cmd.Stderr = log, log
	begin := time.Now()
	within := t.deadline
	if r.turn.lasts {
		within += 2 * t.lasts() // what fails is reduced
	}
	ended := t.wait(ctx, cmd, within)
	took := time.Since(begin)
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	o := read(string(text))
	cut := ctx.Err() != nil && !errors.Is(ended, errLate) && !o.failed
	word := "ok"
	switch {
	case cut && ended != nil:
		word = "cut off"
	case ended != nil || o.failed:
		word = "FOUND: " + name
	case o.tests == 0 && o.skipped == 0 && !r.turn.fuzz:
		ended, word = errors.New("it has no such test"), "FOUND: no such test"
	case o.tests == 0 && !r.turn.fuzz:
		word = "skipped"
	}
	t.Lock()
	defer t.Unlock()
	p := r.part
	p.under--
	p.ran++
	p.tests += o.tests
	p.used += took
	for what, n := range o.tried {
		p.tried[what] += n
	}
	if strings.HasPrefix(word, "FOUND") {
		p.findings = append(p.findings, name)
		fmt.Fprintf(log, "\nthe end: %v\n", ended)
	} else if word == "cut off" && strings.Contains(string(text), "WARPMAP_SEED=") {
		// a test has told of an error, and did not come to its end
		p.findings, word = append(p.findings, name), "FOUND: "+name
		fmt.Fprint(log, "\nthe end: it was cut off\n")
	} else if err := os.Remove(name); err != nil {
		return err
	}
	i := slices.IndexFunc(p.turns, func(x turn) bool { return x.dir == r.turn.dir && x.tests == r.turn.tests })
	if i >= 0 && strings.HasPrefix(word, "FOUND") {
		p.turns[i].failed++
	}
	if i >= 0 && (word == "skipped" || p.turns[i].failed >= mostFindings) {
		p.turns = slices.Delete(slices.Clone(p.turns), i, i+1)
	}
	fmt.Fprintf(t.said, "%d %s, %s: %d tests%s in %v: %s\n", r.n, p.name, r.turn.dir, o.tests, o.text(),
		took.Round(time.Second), word)
	return nil
}

// wait runs a process until it ends, its time is over or ctx is done. A late one is asked for its stacks.
func (t *trial) wait(ctx context.Context, cmd *exec.Cmd, within time.Duration) error {
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- crash.Catch(cmd.Wait) }()
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case err := <-ended:
		endGroup(cmd) // what it has left running
		return err
	case <-ctx.Done():
		endGroup(cmd)
		return <-ended
	case <-late.C:
	}
	askStacks(cmd)
	select {
	case <-ended:
	case <-time.After(10 * time.Second):
	}
	endGroup(cmd)
	return errLate
}

// outcome is what the output of a turn says.
type outcome struct {
	tests, skipped int // that passed and that did not run, without those that have others below them
	failed         bool
	tried          map[string]int
}

var (
	resultLine = regexp.MustCompile(`(?m)^ *--- (PASS|FAIL|SKIP): (\S+)`)
	triedLine  = regexp.MustCompile(`(?m)\btried (\d+) (\w+)$`)
)

// read takes apart what test binaries print with -test.v, and what the fuzzers print at the end.
func read(text string) outcome {
	o := outcome{tried: map[string]int{}}
	results, parents := map[string]string{}, map[string]bool{}
	for _, m := range resultLine.FindAllStringSubmatch(text, -1) {
		results[m[2]] = m[1]
		for i, c := range m[2] {
			if c == '/' {
				parents[m[2][:i]] = true
			}
		}
		o.failed = o.failed || m[1] == "FAIL"
	}
	for name, result := range results {
		switch {
		case parents[name]:
		case result == "PASS":
			o.tests++
		case result == "SKIP":
			o.skipped++
		}
	}
	for _, m := range triedLine.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		o.tried[m[2]] += n
	}
	return o
}

// text are the numbers of a line.
func (o outcome) text() (text string) {
	for _, c := range columns {
		if n := o.tried[c]; n > 0 {
			text += fmt.Sprintf(", %d %s", n, c)
		}
	}
	return text
}
