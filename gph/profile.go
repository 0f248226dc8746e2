package gph

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/table"
)

// Profiles hold what `warpmap tune gph` found to be fastest on a device. In a program that asks for them, by UseProfiles, New
// takes from them what Options leave open. A profile that cannot be read, or is of another device, is as none: a table must
// not fail for a file that only tunes it.

// useProfiles is what UseProfiles set.
var useProfiles atomic.Bool

// UseProfiles sets whether the tables that this program makes from now on take what Options leave open from the
// device's profile: see ProfileFile. A program starts without profiles, so that a table is the same on every machine
// and in every test. The main function of a program may ask for them. The command warpmap does.
func UseProfiles(use bool) { useProfiles.Store(use) }

// Setting holds what the paper calls the parameters (§7.1, Parameters Tuning): the Options that change speed and not
// answers. Zero values are left open.
type Setting struct {
	Bucket         int     `json:"bucket"`          // M
	VirtualBuckets int     `json:"virtual_buckets"` // R
	CellBytes      int     `json:"cell_bytes"`
	KeysPerCell    float64 `json:"keys_per_cell"`
	InsertGroup    int     `json:"insert_group"` // |h|
	FindGroup      int     `json:"find_group"`   // |g|
}

// Options returns o with this setting, and with NoProfile.
func (s Setting) Options(o table.Options) Options {
	return Options{Options: o, Bucket: s.Bucket, VirtualBuckets: s.VirtualBuckets, CellBytes: s.CellBytes, KeysPerCell: s.KeysPerCell,
		InsertGroup: s.InsertGroup, FindGroup: s.FindGroup, NoProfile: true}
}

// Complete fills in what the setting leaves open, as New does without a profile for a table with that load factor.
func (s Setting) Complete(info device.Info, keyBytes, valueBytes int, load float64) (Setting, error) {
	o := s.Options(table.Options{LoadFactor: load})
	err := o.complete(info, &config{keyBytes: keyBytes, valueBytes: valueBytes})
	return Setting{Bucket: o.Bucket, VirtualBuckets: o.VirtualBuckets, CellBytes: o.CellBytes, KeysPerCell: o.KeysPerCell,
		InsertGroup: o.InsertGroup, FindGroup: o.FindGroup}, err
}

// check tells whether New would take the setting.
func (s Setting) check() error {
	if full, err := s.Complete(device.Info{}, 4, 4, 0); err != nil {
		return err
	} else if full != s {
		return errors.New("gph: a setting that leaves something open")
	}
	return nil
}

// profileVersion changes when a setting begins to mean something else: older profiles are then as none.
const profileVersion = 1

// Profile is what a file of tuned settings holds, for one model of device.
type Profile struct {
	Version int     `json:"version"`
	Model   string  `json:"model"` // device.Info.Model
	Tuned   []Tuned `json:"tuned"`
}

// Tuned is a setting, the tables that it is for, and how fast it was. It holds for load factors up to its own that are
// in the same class. The classes are up to 0.6, up to 0.8, and up to 1.
type Tuned struct {
	KeyBytes   int     `json:"key_bytes"`
	ValueBytes int     `json:"value_bytes"`
	LoadFactor float64 `json:"load_factor"`
	Setting
	Objective string    `json:"objective"`
	Rate      float64   `json:"rate"`         // billions a second
	Default   float64   `json:"default_rate"` // rate of the defaults, measured in turns with the setting
	Commit    string    `json:"commit"`
	Date      time.Time `json:"date"`
}

func loadClass(load float64) int {
	switch {
	case load <= 0.6:
		return 0
	case load <= 0.8:
		return 1
	}
	return 2
}

// find gives the setting for a table; nil: there is none.
func (p *Profile) find(keyBytes, valueBytes int, load float64) *Setting {
	for i, t := range p.Tuned {
		if t.KeyBytes == keyBytes && t.ValueBytes == valueBytes && loadClass(t.LoadFactor) == loadClass(load) && load <= t.LoadFactor {
			return &p.Tuned[i].Setting
		}
	}
	return nil
}

// Drop removes the setting for tables of these widths and this class of load factors.
func (p *Profile) Drop(keyBytes, valueBytes int, load float64) {
	kept := []Tuned{}
	for _, t := range p.Tuned {
		if t.KeyBytes != keyBytes || t.ValueBytes != valueBytes || loadClass(t.LoadFactor) != loadClass(load) {
			kept = append(kept, t)
		}
	}
	p.Tuned = kept
}

// Set puts a setting in. It replaces the setting for the same tables.
func (p *Profile) Set(t Tuned) {
	p.Drop(t.KeyBytes, t.ValueBytes, t.LoadFactor)
	p.Tuned = append(p.Tuned, t)
}

// profilesVariable names the folder of profiles, or says off.
const profilesVariable = "WARPMAP_PROFILES"

// ErrNoProfiles is the error that ProfileFile returns if profiles are turned off.
var ErrNoProfiles = errors.New("profiles are turned off (" + profilesVariable + "=off)")

// ProfileFile returns where the profile for a model of device is: gph-<model>.json in $WARPMAP_PROFILES, or else in the
// folder warpmap of the user's configuration.
func ProfileFile(model string) (string, error) {
	dir := os.Getenv(profilesVariable)
	switch {
	case dir == "off":
		return "", ErrNoProfiles
	case dir == "":
		user, err := os.UserConfigDir()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(user, "warpmap")
	}
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(model))
	return filepath.Join(dir, "gph-"+strings.Join(strings.FieldsFunc(name, func(r rune) bool { return r == '-' }), "-")+".json"), nil
}

// ReadProfile reads a profile for a model of device. An error tells why there is none. fs.ErrNotExist means that nobody
// made one.
func ReadProfile(file, model string) (*Profile, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 1<<20))
	if err != nil {
		return nil, err
	}
	var p Profile
	if err := json.Unmarshal(data, &p); err != nil {
		return nil, fmt.Errorf("profile %s: %w", file, err)
	}
	if p.Version != profileVersion || p.Model != model {
		return nil, fmt.Errorf("profile %s: of version %d for %q, not of %d for %q", file, p.Version, p.Model, profileVersion, model)
	}
	for _, t := range p.Tuned {
		if err := t.check(); err != nil {
			return nil, fmt.Errorf("profile %s: %w", file, err)
		}
	}
	return &p, nil
}

// Save writes the profile for a model of device, whole or not at all, and makes the folder of the file. If it is the
// file that New reads, tables made from now on take it.
func (p *Profile) Save(file, model string) error {
	p.Version, p.Model = profileVersion, model
	data, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	if err := files.WriteFile(file, func(f *os.File) error { _, err := f.Write(append(data, '\n')); return err }); err != nil {
		return err
	}
	profiles.Delete(profileKey{file, model})
	return nil
}

// profiles are those that were read, each once: *Profile by profileKey; nil where there is none.
var profiles sync.Map

type profileKey struct{ file, model string }

// activeProfile is the profile that New reads for a device; nil: none.
func activeProfile(model string) *Profile {
	if !useProfiles.Load() {
		return nil
	}
	file, err := ProfileFile(model)
	if err != nil {
		return nil
	}
	key := profileKey{file, model}
	if p, ok := profiles.Load(key); ok {
		return p.(*Profile)
	}
	p, err := ReadProfile(file, model)
	if err != nil {
		p = nil
	}
	profiles.Store(key, p)
	return p
}

// Profiled tells whether New has a profile for the device.
func Profiled(info device.Info) bool { return activeProfile(info.Model) != nil }

// consult fills in what the device's profile has for the table. Its numbers were measured together: one that the caller
// set otherwise makes the rest of the layout a guess, so then nothing is taken. Groups stand for themselves. Nor is anything
// taken where memory is so short that a larger bucket could keep a table from being made.
func (o *Options) consult(info device.Info, cfg *config) {
	if o.NoProfile || o.MaxBytes > 0 && o.MaxBytes < 1<<20 {
		return
	}
	p, load := activeProfile(info.Model), o.LoadFactor
	if p == nil {
		return
	}
	if load == 0 {
		load = defaultLoadFactor
	}
	s := p.find(cfg.keyBytes, cfg.valueBytes, load)
	if s == nil {
		return
	}
	open := func(x, y int) bool { return x == 0 || x == y }
	if !open(o.Bucket, s.Bucket) || !open(o.VirtualBuckets, s.VirtualBuckets) || !open(o.CellBytes, s.CellBytes) ||
		o.KeysPerCell != 0 && o.KeysPerCell != s.KeysPerCell {
		return
	}
	o.Bucket, o.VirtualBuckets, o.CellBytes, o.KeysPerCell = s.Bucket, s.VirtualBuckets, s.CellBytes, s.KeysPerCell
	if o.InsertGroup == 0 {
		o.InsertGroup = s.InsertGroup
	}
	if o.FindGroup == 0 {
		o.FindGroup = s.FindGroup
	}
}
