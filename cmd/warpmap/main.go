// Command warpmap joins files with GPU hash tables, makes data to join, and measures the tables.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/internal/frame"
)

func main() {
	gph.UseProfiles(true)
	ignoreFileLimit()
	ctx, cancel := context.WithCancelCause(context.Background())
	came := make(chan os.Signal, 1)
	// Nothing stops this when all is done: a signal that comes then would end as a failure what was none.
	signal.Notify(came, ends...)
	crash.Go(func() {
		s := <-came
		if finishes.Load() {
			signal.Stop(came) // before anybody says that another signal ends the process: this would swallow it
		}
		cancel(&signalError{s})
	})
	crash.Handle(func(e *crash.Error) { // compilers and others that the context ends have a while for that
		cancel(e)
		time.Sleep(patience)
		fail(ctx, e)
	})
	context.AfterFunc(ctx, func() {
		if finishes.Load() && !crashed(ctx) {
			signal.Stop(came) // a second signal ends the process
			return
		}
		time.Sleep(patience)
		fail(ctx, ctx.Err())
	})
	out := &stdout{to: os.Stdout}
	err := crash.Catch(func() error {
		cmd := root()
		cmd.SetOut(out)
		cmd, err := cmd.ExecuteContextC(ctx)
		return withUsage(cmd, err)
	})
	if err == nil && out.err != nil {
		err = &ranError{out.err}
	}
	if err != nil || crashed(ctx) {
		fail(ctx, err)
	}
}

// crashed tells that a goroutine broke off for which nobody waits.
func crashed(ctx context.Context) bool { return errors.As(context.Cause(ctx), new(*crash.Error)) }

// patience is how long a command may take to end after a signal. A compiler, a device or a full pipe cannot be
// interrupted.
const patience = 2 * time.Second

// finishes tells that the command finishes what has begun when a signal comes, however long that takes, and that this
// is no failure.
var finishes atomic.Bool

// lasting is the command's context for what compiles kernels. Where the command finishes what has begun, it goes on
// behind a signal: the last snapshot of a server may want kernels that nothing wanted before.
func lasting(cmd *cobra.Command) context.Context {
	ends := cmd.Context()
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ends))
	context.AfterFunc(ends, func() {
		if !finishes.Load() || crashed(ends) {
			cancel(context.Cause(ends))
		}
	})
	return ctx
}

var failing sync.Mutex

// signalError says which signal ends a command.
type signalError struct{ os.Signal }

func (e *signalError) Error() string { return e.String() + " signal received" }

// fail ends the process with a message, and leaves no file that is not whole. A panic asks for a report. The process
// dies of a signal, as it would without us: a loop of a shell then ends, too, which would go on after any exit code.
func fail(ctx context.Context, err error) {
	failing.Lock() // whoever comes second
	files.RemoveHidden()
	code := exitCode(err)
	if ctx.Err() != nil && (!finishes.Load() || crashed(ctx)) {
		err, code = context.Cause(ctx), exitOther
	}
	text, stack := frame.OneLine(err).Error(), ""
	if e := (*crash.Error)(nil); errors.As(err, &e) {
		text = strings.Join(strings.Fields(text), " ") + report
		if traced(os.Getenv("GOTRACEBACK")) {
			stack = string(e.Stack)
		}
	}
	fmt.Fprintln(os.Stderr, "warpmap:", text)
	fmt.Fprint(os.Stderr, stack)
	if e := (*signalError)(nil); errors.As(err, &e) {
		dieOf(e.Signal)
	}
	os.Exit(code)
}

const report = ": this is a defect of warpmap: please report it at github.com/warpmap/warpmap, with the command; " +
	"with GOTRACEBACK=all in the environment it prints the stack, too"

// traced tells that a value of Go's variable asks for more of a panic than its text.
func traced(level string) bool {
	return !slices.Contains([]string{"", "none", "single", "0", "1"}, level)
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "warpmap",
		Short: "GPU hash tables: join files, count values and k-mers, classify reads, serve, measure",
		Long: `warpmap does with GPU hash tables what people do with large files: it joins them, counts their distinct
and most frequent values, counts k-mers, and tells which genomes reads come from. It serves keys and values, and
measures the tables. Where there is no GPU, the same kernels run on the CPU.

` + exitCodes,
		Example: `  warpmap demo
  warpmap gen tpch --sf 0.1 --out t
  warpmap join t/orders.parquet t/lineitem.parquet --on o_orderkey=l_orderkey --out t/j.parquet
  warpmap top t/lineitem.parquet --column l_partkey -k 10
  warpmap kmers count reads.fq.gz -k 21 --canonical --out reads.wk
  warpmap bench --table warpcore --n 10000000 --load 0.533,0.8,0.9`,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.PersistentFlags().Var(&deviceName{"auto"}, "device", "where to run: auto, cpu, or cuda:N")
	cmd.PersistentFlags().Var(&size{new(int64)}, "device-memory",
		"take no more of the device's memory than this, such as 2GB")
	cmd.PersistentFlags().Bool("json", false, "print figures as JSON")
	devices, gen, demo, launch := devicesCommand(), genCommand(), demoCommand(), launchCommand()
	compile, version, serve := compileCommand(), versionCommand(), serveCommand()
	onlyUses(uses{json: true}, devices, gen, version)
	onlyUses(uses{device: true}, demo, compile)
	onlyUses(uses{}, launch)
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return flagError(err) })
	cmd.AddCommand(devices, benchCommand(), tuneCommand(), demo, gen, joinCommand(), distinctCommand(), topCommand(),
		launch, kmersCommand(), classifyCommand(), serve, compile, version)
	cmd.SetGlobalNormalizationFunc(spelled)
	cmd.SetHelpTemplate(helpTemplate(cmd.UsageTemplate()))
	cmd.InitDefaultHelpFlag()
	cmd.InitDefaultCompletionCmd()
	cmd.InitDefaultHelpCmd()
	help, _, _ := cmd.Find([]string{"help"})
	help.Args = knownTopic
	groups(cmd)
	ranErrors(cmd)
	return cmd
}

// helpTemplate returns the template of all help, from cobra's template of a usage: a summary, the usage and examples,
// then the details, then commands and flags.
func helpTemplate(usage string) string {
	const commands = "{{if .HasAvailableSubCommands}}{{$cmds"
	before, after, _ := strings.Cut(usage, commands)
	return "{{.Short}}\n\n" + before + "{{with .Long}}\n\n{{.}}{{end}}" + commands + after
}

// knownTopic has help about what is no command be wrong usage.
func knownTopic(help *cobra.Command, args []string) error {
	cmd, rest, err := help.Root().Find(args)
	if err == nil && len(rest) > 0 {
		err = fmt.Errorf("unknown command %q for %q", rest[0], cmd.CommandPath())
	}
	return err
}

// groups has commands with others below them print their help, and take no word that is none of these for an argument.
func groups(cmd *cobra.Command) {
	for _, c := range cmd.Commands() {
		if c.HasSubCommands() && !c.Runnable() {
			c.Args, c.RunE = cobra.NoArgs, func(c *cobra.Command, _ []string) error { return c.Help() }
			c.DisableFlagsInUseLine = true
		}
		groups(c)
	}
}

// flagError says of a number that is none what is wanted, and not which function of Go's refused it.
func flagError(err error) error {
	var n *strconv.NumError
	if !errors.As(err, &n) {
		return err
	}
	wanted := "a whole number"
	switch {
	case errors.Is(err, strconv.ErrRange):
		wanted = "a number that is not so large"
	case n.Func == "ParseUint":
		wanted = "a whole number, 0 or more"
	case n.Func == "ParseBool":
		wanted = "true or false"
	case n.Func == "ParseFloat":
		wanted = "a number"
	}
	said, _, _ := strings.Cut(err.Error(), ": strconv.")
	return fmt.Errorf("%s: want %s", said, wanted)
}

// openDevice opens what --device names, and tells on stderr which it is where the choice was left to us.
func openDevice(cmd *cobra.Command, with ...device.Option) (*device.Device, error) {
	name, err := cmd.Flags().GetString("device")
	if err != nil {
		return nil, err
	}
	d, err := openNamed(cmd, name, with...)
	if err == nil && name == "auto" {
		fmt.Fprintln(cmd.ErrOrStderr(), chosen(d, ""))
	}
	return d, err
}

// chosen says which device it is where the choice was ours, and what made it.
func chosen(d *device.Device, why string) string {
	i := d.Info()
	switch {
	case i.CUDA():
		return fmt.Sprintf("device: %s (%s)", i.Name, i.Model)
	case why != "":
		return fmt.Sprintf("device: %s (%s): %s", i.Name, i.Model, why)
	}
	return fmt.Sprintf("device: %s (%s), for want of a GPU; warpmap devices says why", i.Name, i.Model)
}

func openNamed(cmd *cobra.Command, name string, with ...device.Option) (*device.Device, error) {
	most := *cmd.Flags().Lookup("device-memory").Value.(*size).bytes
	if most < 0 {
		return nil, fmt.Errorf("--device-memory %d: want a size, such as 2GB", most)
	}
	d, err := device.Open(name, append(with, device.WithContext(lasting(cmd)), device.WithMemory(most))...)
	if err != nil {
		return nil, &deviceError{err}
	}
	return d, nil
}

// deviceName is a flag of what device.Open takes.
type deviceName struct{ name string }

func (d *deviceName) Type() string   { return "string" }
func (d *deviceName) String() string { return d.name }

func (d *deviceName) Set(name string) error {
	kind, number, numbered := strings.Cut(name, ":")
	_, err := strconv.ParseUint(number, 10, 31)
	if name != "auto" && (kind != "cpu" && kind != "cuda" || numbered && err != nil) {
		return errors.New("want auto, cpu, cpu:N, or cuda:N")
	}
	d.name = name
	return nil
}

// size is a flag of bytes: 2GB, 512MiB, 1000; or -1.
type size struct{ bytes *int64 }

func (s *size) Type() string { return "size" }

func (s *size) String() string {
	if s.bytes == nil || *s.bytes == 0 {
		return ""
	}
	return fmt.Sprint(*s.bytes)
}

func (s *size) Set(text string) error {
	if text == "-1" {
		*s.bytes = -1
		return nil
	}
	n, err := humanize.ParseBytes(text)
	if err != nil || n > 1<<60 || n == 0 && strings.ContainsAny(text, "123456789") { // a part of a byte is not none
		return fmt.Errorf("want a size, such as 2GB, 512MiB or 1000000")
	}
	*s.bytes = int64(n)
	return nil
}

// stdout is standard output. It keeps the first error of a write, which those that print lines and tables pass over.
type stdout struct {
	to  *os.File
	err error
}

func (s *stdout) Write(b []byte) (int, error) {
	n, err := s.to.Write(b)
	if s.err == nil {
		s.err = err
	}
	return n, err
}

func (s *stdout) Fd() uintptr { return s.to.Fd() }

func jsonFlag(cmd *cobra.Command) bool {
	on, _ := cmd.Flags().GetBool("json")
	return on
}

func printJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// terminal tells whether people are watching w.
func terminal(w io.Writer) bool {
	f, ok := w.(interface{ Fd() uintptr })
	return ok && term.IsTerminal(int(f.Fd()))
}
