package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/kmers"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/join"
	"github.com/warpmap/warpmap/serve/flight"
	"github.com/warpmap/warpmap/table"
)

// The codes that the process ends with.
const (
	exitOther  = 1
	exitUsage  = 2
	exitInput  = 3
	exitDevice = 4
	exitMemory = 5
)

const exitCodes = `Exit codes: 0 all is well, 1 any other failure, 2 wrong usage, 3 an input that cannot be read or
joined, 4 a device that cannot be used or was lost, 5 too little memory. Shells have their own after a signal, such as
130 after Ctrl-C.`

// deviceError is an error of a device that cannot be opened.
type deviceError struct{ err error }

func (e *deviceError) Error() string { return e.err.Error() }
func (e *deviceError) Unwrap() error { return e.err }

// ranError is an error of a command that ran. What else goes wrong is the command line.
type ranError struct{ err error }

func (e *ranError) Error() string { return e.err.Error() }
func (e *ranError) Unwrap() error { return e.err }

// ranErrors marks the errors of a command and of all below it, and has them refuse an empty argument, as a variable of
// the shell that is not set makes it; arguments of launch belong to another program. It has flags refuse a second
// value, and an empty one.
func ranErrors(cmd *cobra.Command) {
	cmd.LocalNonPersistentFlags().VisitAll(oneValue)
	if cmd.HasParent() {
		cmd.PersistentFlags().VisitAll(func(f *pflag.Flag) {
			if cmd.Root().PersistentFlags().Lookup(f.Name) == nil {
				oneValue(f)
			}
		})
	}
	if run := cmd.RunE; run != nil {
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			if i := slices.Index(args, ""); i >= 0 && cmd.Name() != "launch" {
				return fmt.Errorf("argument %d is empty: want a name", i+1)
			}
			if err := run(cmd, args); err != nil {
				return &ranError{err}
			}
			return nil
		}
	}
	for _, c := range cmd.Commands() {
		ranErrors(c)
	}
}

// withUsage says of a command line that is wrong how a right one looks.
func withUsage(cmd *cobra.Command, err error) error {
	if err == nil || errors.As(err, new(*ranError)) {
		return err
	}
	if cmd.HasSubCommands() {
		return fmt.Errorf("%w\n%s --help lists all commands", trimmed{err}, cmd.CommandPath())
	}
	return fmt.Errorf("%w\nusage: %s; %s --help says more", trimmed{err}, cmd.UseLine(), cmd.CommandPath())
}

// trimmed is an error without the empty lines behind it.
type trimmed struct{ error }

func (e trimmed) Error() string { return strings.TrimSpace(e.error.Error()) }
func (e trimmed) Unwrap() error { return e.error }

// usageError is an error of arguments that names no flag.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// wrongUsage returns a usageError with a text as of fmt.Errorf.
func wrongUsage(text string, args ...any) error { return &usageError{fmt.Errorf(text, args...)} }

// exitCode returns the code that the process ends with because of an error. Errors of a flag's value begin with the
// flag.
func exitCode(err error) int {
	var (
		ran   *ranError
		usage *usageError
		full  *table.FullError
		own   *deviceError
		fault *device.FaultError
		build *device.CompileError
		many  *join.TooManyError
		wrong *join.OptionError
		input *join.InputError
		reads *genome.InputError
		outer *genome.OptionError
		bound *bench.OptionError
		name  *columnar.NameError
		wk    *kmers.FileError
		rows  *flight.DamagedError
		log   *flight.DamagedLogError
		panic *crash.Error
	)
	switch {
	case errors.As(err, &panic):
		return exitOther
	case !errors.As(err, &ran) || errors.As(err, &usage) || errors.As(err, &wrong) ||
		errors.As(err, &outer) || errors.As(err, &bound) || errors.As(err, &name) ||
		strings.HasPrefix(err.Error(), "--"):
		return exitUsage
	case device.IsOutOfMemory(err) || errors.As(err, &full) || errors.As(err, &many):
		return exitMemory
	case errors.As(err, &own) || errors.As(err, &fault) || errors.As(err, &build) ||
		errors.Is(err, device.ErrNoCompiler) || errors.Is(err, device.ErrNoNVRTC):
		return exitDevice
	case errors.As(err, &input) || errors.As(err, &reads) || errors.As(err, &wk) || errors.As(err, &rows) ||
		errors.As(err, &log):
		return exitInput
	}
	return exitOther
}
