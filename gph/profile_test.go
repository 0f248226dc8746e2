package gph

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

const profileModel = "NVIDIA Model (X) 1"

// profileOptions are what a table with these options becomes.
func profileOptions(t *testing.T, o Options) Options {
	t.Helper()
	if err := o.complete(device.Info{Name: "cuda:0", Model: profileModel}, &config{keyBytes: 4, valueBytes: 4}); err != nil {
		t.Fatal(err)
	}
	o.Seed, o.cellLoad = 0, 0 // what no caller sets
	return o
}

func tuned() Tuned {
	return Tuned{KeyBytes: 4, ValueBytes: 4, LoadFactor: 0.75,
		Setting: Setting{Bucket: 16, VirtualBuckets: 8, CellBytes: 2, KeysPerCell: 5, InsertGroup: 8, FindGroup: 2}}
}

// withProfiles lets a test ask for the profiles of a folder.
func withProfiles(t *testing.T, dir string) {
	t.Setenv(profilesVariable, dir)
	UseProfiles(true)
	t.Cleanup(func() { UseProfiles(false) })
}

func TestProfile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "deep", "er")
	withProfiles(t, dir)
	file, err := ProfileFile(profileModel)
	if err != nil || file != filepath.Join(dir, "gph-nvidia-model-x-1.json") {
		t.Fatal(file, err)
	}
	load := table.Options{LoadFactor: 0.7}
	before := profileOptions(t, Options{Options: load})
	p := &Profile{}
	p.Set(tuned())
	p.Set(tuned())
	if err := p.Save(file, profileModel); err != nil || len(p.Tuned) != 1 {
		t.Fatal(p, err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("beside the profile: %v", left)
	}
	want := tuned().Options(load)
	want.NoProfile = false
	if got := profileOptions(t, Options{Options: load}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	if got := profileOptions(t, Options{Options: load, Bucket: 16, FindGroup: 4}); got.VirtualBuckets != 8 || got.FindGroup != 4 || got.InsertGroup != 8 {
		t.Errorf("a group of the caller's own: %+v", got)
	}
	for name, o := range map[string]Options{
		"another layout": {Options: load, Bucket: 4}, "other cells": {Options: load, KeysPerCell: 2}, "no profile": {Options: load, NoProfile: true},
		"a higher load": {}, "another class": {Options: table.Options{LoadFactor: 0.5}}, "little memory": {Options: table.Options{LoadFactor: 0.7, MaxBytes: 1 << 16}},
	} {
		if got := profileOptions(t, o); got.VirtualBuckets != before.VirtualBuckets || got.CellBytes != before.CellBytes {
			t.Errorf("%s: %+v", name, got)
		}
	}
	t.Setenv(profilesVariable, "off")
	if got := profileOptions(t, Options{Options: load}); got != before {
		t.Errorf("off: %+v", got)
	}
}

// A table is the same on every machine, whatever was tuned there, until the program asks.
func TestProfilesOnlyWhereAsked(t *testing.T) {
	withProfiles(t, t.TempDir())
	file, err := ProfileFile(profileModel)
	if err != nil {
		t.Fatal(err)
	}
	p := &Profile{}
	p.Set(tuned())
	if err := p.Save(file, profileModel); err != nil {
		t.Fatal(err)
	}
	o, info := Options{Options: table.Options{LoadFactor: 0.7}}, device.Info{Model: profileModel}
	if got := profileOptions(t, o); got.VirtualBuckets != tuned().VirtualBuckets || !Profiled(info) {
		t.Errorf("asked, and not taken: %+v", got)
	}
	UseProfiles(false)
	if got := profileOptions(t, o); got.VirtualBuckets == tuned().VirtualBuckets || Profiled(info) {
		t.Errorf("not asked, and taken: %+v", got)
	}
}

// A profile that is none changes nothing.
func TestBadProfile(t *testing.T) {
	good := `{"version": 1, "model": "` + profileModel + `", "tuned": [{"key_bytes": 4, "value_bytes": 4, "load_factor": 0.8, ` +
		`"bucket": 16, "virtual_buckets": 8, "cell_bytes": 2, "keys_per_cell": 5, "insert_group": 8, "find_group": 2}]}`
	before := profileOptions(t, Options{})
	for name, text := range map[string]string{
		"good": good, "empty": "", "cut": good[:len(good)/2], "not an object": "[1]", "version": strings.Replace(good, `"version": 1`, `"version": 99`, 1),
		"foreign": strings.Replace(good, "Model (X)", "Model (Y)", 1), "no bucket": strings.Replace(good, `"bucket": 16, `, "", 1),
		"a bucket of 5": strings.Replace(good, `"bucket": 16`, `"bucket": 5`, 1), "a group of 3": strings.Replace(good, `"find_group": 2`, `"find_group": 3`, 1),
		"huge cells": strings.Replace(good, `"keys_per_cell": 5`, `"keys_per_cell": 1e300`, 1),
	} {
		withProfiles(t, t.TempDir())
		file, err := ProfileFile(profileModel)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := profileOptions(t, Options{}); (got == before) != (name != "good") {
			t.Errorf("%s: %+v", name, got)
		}
		if _, err := ReadProfile(file, profileModel); (err == nil) != (name == "good") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
