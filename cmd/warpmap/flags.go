package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
)

// Flags that several commands have mean the same in all of them.

func threadsFlag(cmd *cobra.Command, threads *int) {
	cmd.Flags().IntVar(threads, "threads", 0, "work on so many at a time; 0 for one for each core")
}

func quietFlag(cmd *cobra.Command, quiet *bool) {
	cmd.Flags().BoolVarP(quiet, "quiet", "q", false, "no progress, no summary")
}

func skipBrokenFlag(cmd *cobra.Command, skip *bool) {
	cmd.Flags().BoolVar(skip, "skip-broken", false, "leave out broken records, and count them")
}

// hush takes away what --quiet does, and gives where warnings go: those are neither progress nor summary.
func hush(cmd *cobra.Command, quiet bool) (warnings io.Writer) {
	warnings = cmd.ErrOrStderr()
	if quiet {
		cmd.SetErr(io.Discard)
	}
	return warnings
}

// folder makes the folder of --out where it is missing. tidy takes it away if it stays empty.
func folder(out string, mode fs.FileMode) (tidy func(), err error) {
	if out == "" {
		return nil, errors.New("--out: want the name of a folder")
	}
	if tidy, err = files.MakeFolder(out, mode); err != nil {
		err = fmt.Errorf("--out: %w", err)
	}
	return tidy, err
}

// keptFile checks the name of a file that is written when all is measured, and makes its folder. tidy removes the
// folder if it is still empty.
func keptFile(flag, name string) (tidy func(), err error) {
	if name == "" {
		return func() {}, nil
	}
	if tidy, err = files.MakeFolder(filepath.Dir(name), 0o755); err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	if err := checkOutputs(nil, nil, output{flag, name}); err != nil {
		tidy()
		return nil, err
	}
	return tidy, nil
}

// ofPairs says of --n that so many pairs, which are made in host memory, do not fit there.
func ofPairs(n, bytes int) error {
	if _, total := device.HostMemory(); total > 0 && int64(n) > total/int64(max(1, bytes)) {
		return fmt.Errorf("--n %d: pairs of %d bytes are made in host memory, of which there is %s: want fewer",
			n, bytes, device.Bytes(total))
	}
	return nil
}

// onThreads has all of the process keep to --threads, until it is undone.
func onThreads(threads int) (undo func(), err error) {
	if threads < 0 || threads > crash.MostThreads {
		return nil, fmt.Errorf("--threads %d: want 1 to %d, or 0 for one for each core", threads, crash.MostThreads)
	}
	if threads == 0 {
		return func() {}, nil
	}
	before := runtime.GOMAXPROCS(threads)
	return func() { runtime.GOMAXPROCS(before) }, nil
}

// spelled gives flags one name in all commands. Scripts may have the other ones.
func spelled(_ *pflag.FlagSet, name string) pflag.NormalizedName {
	if name == "max-memory" {
		name = "memory"
	}
	return pflag.NormalizedName(name)
}

// uses are the flags for all commands that a command does something with. The others are out of its help. A device that
// is named for nothing does no harm, and scripts name one for each command; JSON that does not come would be missed.
type uses struct{ device, json bool }

// onlyUses says what a command and those below it use.
func onlyUses(u uses, cmds ...*cobra.Command) {
	for _, cmd := range cmds {
		if !u.device {
			cmd.PersistentFlags().Var(&deviceName{name: "auto"}, "device", "")
			cmd.PersistentFlags().Var(&size{new(int64)}, "device-memory", "")
			cmd.PersistentFlags().MarkHidden("device")
			cmd.PersistentFlags().MarkHidden("device-memory")
		}
		if !u.json {
			f := cmd.PersistentFlags().VarPF(noJSON{}, "json", "", "")
			f.NoOptDefVal, f.Hidden = "true", true
		}
	}
}

// noJSON is --json where nothing can be told so.
type noJSON struct{}

func (noJSON) String() string { return "" }
func (noJSON) Type() string   { return "bool" }
func (noJSON) Set(text string) error {
	if text == "false" {
		return nil
	}
	return fmt.Errorf("this command prints no figures: leave it out")
}

// canBeEmpty are the flags of text for which ” is a value: no quotes, or no address.
var canBeEmpty = []string{"quote", "listen", "socket", "http", "flight", "flight-socket"}

// oneValue makes a second value of a flag an error, unless the flag is a list, because the last would silently replace
// the first. An empty text is an error, too. Flags of all commands, such as --device, are not visited: scripts name one
// for every command.
func oneValue(f *pflag.Flag) {
	switch f.Value.(type) {
	case pflag.SliceValue, *tableFlag:
	default:
		full := f.Value.Type() == "string" && !slices.Contains(canBeEmpty, f.Name)
		f.Value = &single{Value: f.Value, full: full}
		if f.DefValue == "0s" { // the help leaves out 0 only, now that the type is hidden
			f.DefValue = "0"
		}
	}
}

// single is a flag's value that is set once, or several times to the same text.
type single struct {
	pflag.Value
	full bool // an empty text is an error
	set  bool
	text string
}

func (s *single) Set(text string) error {
	if s.set && s.text != text {
		return fmt.Errorf("it has the value %q already: want one", s.text)
	}
	if s.full && text == "" {
		return errors.New("it is empty: want a value, or leave the flag out")
	}
	s.set, s.text = true, text
	return s.Value.Set(text)
}
