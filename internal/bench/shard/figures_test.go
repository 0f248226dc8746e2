package shard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/benchtest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// What makes and checks batches compiles for GPUs, on machines that have none.
func TestDrawnCompilesForGPUs(t *testing.T) {
	for _, bytes := range []int{4, 8} {
		_, err := device.CompileFor("sm_90", program(bytes))
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// Rates are there, and steps where they are apart.
func TestFigure6(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, Studies, "shard/6", 3000, 1+2*len(ways)+1+2*3, func(at func(string) any) {
		for _, c := range []string{"insert G/s", "find G/s", "insert efficiency", "find efficiency"} {
			benchtest.AtLeast(t, c, at(c), 1e-9)
		}
		if way := at("way").(string); way == "step by step" {
			for _, c := range []string{"count ms", "split ms", "insert ms", "splitting share", "insertion share",
				"find: count ms", "find: look up ms", "find: fetch ms"} {
				benchtest.AtLeast(t, c, at(c), 1e-6)
			}
		} else if way == "copies" && at("insert ms") != nil {
			t.Errorf("%s has steps", way)
		}
		if filled, _ := bench.Number(at("filled")); filled < 0.5 || filled > 0.81 {
			t.Errorf("%v filled", filled)
		}
	}))
}

// What is measured is told after each point, with all that was before.
func TestPointsAreTold(t *testing.T) {
	told := 0
	point := func(fig *bench.Fig) error {
		if told++; len(fig.Rows) != told || fig.Name != "shard/6" || fig.Where.Model == "" {
			t.Errorf("%d rows of %q after %d points", len(fig.Rows), fig.Name, told)
		}
		return nil
	}
	fig, err := benchtest.Study(t, Studies, "shard/6").Measure(benchtest.CPU(t),
		bench.FigOptions{N: 100, Point: point})
	if err != nil || told != len(fig.Rows) {
		t.Errorf("%d points of %d are told, %v", told, len(fig.Rows), err)
	}
}

func TestAsk(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, Studies, "shard/ask", 1500, 2*5, func(at func(string) any) {
		benchtest.AtLeast(t, "µs", at("µs"), 1e-3)
	}))
}

func TestBatch(t *testing.T) {
	benchtest.Draw(t, benchtest.Rows(t, Studies, "shard/batch", 12_000, 2*2, func(at func(string) any) {
		benchtest.AtLeast(t, "insert µs", at("insert µs"), 1e-3)
		benchtest.AtLeast(t, "find µs", at("find µs"), 1e-3)
	}))
}

// Every kind is measured over devices and has no wrong answers.
func TestMeasureKinds(t *testing.T) {
	devices, err := device.OpenAll("cpu:0,cpu:1")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		for _, d := range devices {
			d.Close()
		}
	}()
	for _, o := range []Options{
		{Kind: table.KindMap, Delete: true}, {Kind: table.KindSet}, {Kind: table.KindCounter},
		{Kind: table.KindMultiMap}, {Kind: table.KindMap, Update: true, Distinct: 500},
	} {
		for _, o.Bytes = range []int{4, 8} {
			for _, o.Shard.Mode = range []shard.Mode{shard.Distributed, shard.Independent} {
				o.N, o.Load, o.Hits, o.Runs = 3000, 0.6, 0.5, 1
				row, err := Measure(devices, o)
				if err != nil || row.Wrong != 0 || row.Insert <= 0 || row.Find <= 0 || (row.Delete > 0) != o.Delete ||
					(row.FindAll > 0) != (o.Kind == table.KindMultiMap) || row.Values < row.FindAll {
					t.Errorf("%+v: %+v, %v", o, row, err)
				}
			}
		}
	}
	_, err = Measure(devices, Options{N: 10, Bytes: 16})
	if err == nil || !strings.Contains(err.Error(), "want 4 or 8") {
		t.Error(err)
	}
}

// A wrong answer is counted, of every kind.
func TestWrongIsCounted(t *testing.T) {
	d := []*device.Device{benchtest.CPU(t)}
	for _, o := range []Options{{}, {Kind: table.KindCounter}, {Kind: table.KindMultiMap}, {Update: true}} {
		o.N, o.Load, o.Hits = 1000, 0.6, 1
		w, err := newWork[uint64](d, d, 0, 1, o)
		if err != nil {
			t.Fatal(err)
		}
		// The rows of the first half come, and those of the other half do not.
		err = errors.Join(w.insert(firstOf(w.pairs, 500)), w.find(w.ask))
		wrong, e := 0, error(nil)
		if w.findAll != nil {
			err = errors.Join(err, w.findLists(w.ask))
			wrong, e = w.wrongLists(w.ask)
		} else {
			wrong, e = w.wrong(w.ask, 1)
		}
		if err := errors.Join(err, e, w.close()); err != nil || wrong < 400 {
			t.Errorf("%+v: %d wrong, %v", o, wrong, err)
		}
	}
}

// The processes of a figure end with it when it is killed.
func TestLaunchedEndsWithFigure(t *testing.T) {
	const pidEnv = "WARPMAP_TEST_LAUNCHED" // the file to which the process that is launched writes its number
	if os.Getenv(pidEnv) != "" {
		d, err := device.Open("cpu")
		if err != nil {
			t.Fatal(err)
		}
		launched(d, bench.FigOptions{Self: []string{filepath.Join(filepath.Dir(os.Getenv(pidEnv)), "self")}}, 2)
		return
	}
	dir := t.TempDir()
	name := filepath.Join(dir, "pid")
	script := "#!/bin/sh\necho $$ >" + name + "\nexec sleep 60\n"
	if err := os.WriteFile(filepath.Join(dir, "self"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	figure := exec.Command(os.Args[0], "-test.run=^TestLaunchedEndsWithFigure$")
	figure.Env = append(os.Environ(), pidEnv+"="+name)
	if err := figure.Start(); err != nil {
		t.Fatal(err)
	}
	pid := 0
	for end := time.Now().Add(20 * time.Second); pid == 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		text, _ := os.ReadFile(name)
		pid, _ = strconv.Atoi(strings.TrimSpace(string(text)))
	}
	figure.Process.Kill()
	figure.Wait()
	if pid == 0 {
		t.Fatal("nothing was launched")
	}
	left, err := os.FindProcess(pid)
	if err != nil {
		t.Fatal(err)
	}
	defer left.Kill()
	for end := time.Now().Add(5 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z") {
			break
		}
		if time.Now().After(end) {
			t.Fatal("what the figure launched runs on")
		}
	}
}
