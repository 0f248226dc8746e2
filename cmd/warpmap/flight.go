package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/join"
	"github.com/warpmap/warpmap/serve/flight"
	"github.com/warpmap/warpmap/table"
)

// flightFlags are the flags of serve.
type flightFlags struct {
	listen, socket   string
	http, folder     string
	save, log        string
	password         string // its file
	cert, key        string
	insecure, quiet  bool
	tables           []*servedTable
	over             several
	o                flight.Options
	message, exports int64
}

// servedTable is a --table and the flags behind it.
type servedTable struct {
	flight.Spec
	file string
}

func (s *flightFlags) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&s.listen, "flight", "", "address for clients of Arrow Flight; empty for none, :8815 for all the "+
		"machine's")
	f.StringVar(&s.socket, "flight-socket", "", "name for a Unix socket for them, with mode 0600")
	f.Var(&tableFlag{s, "NAME[=FILE]", func(_ *servedTable, text string) error {
		name, file, filled := strings.Cut(text, "=")
		if name == "" || filled && file == "" {
			return errors.New("want NAME=FILE, or NAME beside --schema")
		}
		s.tables = append(s.tables, &servedTable{Spec: flight.Spec{Name: name}, file: file})
		return nil
	}}, "table", "serve a table, which is made of a file in a format that join reads, or of a snapshot, or is empty")
	f.Var(&tableFlag{s, "NAMES", func(t *servedTable, text string) (err error) {
		t.Keys, err = join.ParseNames(text)
		return err
	}}, "key", "the key columns of the --table before it")
	f.Var(&tableFlag{s, "NAMES", func(t *servedTable, text string) (err error) {
		if t.Values = []string{}; text != "" {
			t.Values, err = join.ParseNames(text)
		}
		return err
	}}, "value", "its value columns; left out, all that are no keys; empty, none: the table is a set")
	f.Var(&tableFlag{s, "COLUMNS", func(t *servedTable, text string) error {
		t.Columns = text
		_, err := columnar.Parse(text)
		return err
	}}, "schema", "its columns where it is empty, such as id:int64,price:float64? with ? where nulls may be")
	f.Var(&tableFlag{s, "NAME", func(t *servedTable, text string) error {
		if t.Family = table.Family(text); text != "" && !slices.Contains(families(), text) {
			return fmt.Errorf("a family %q: want one of %s", text, strings.Join(families(), ", "))
		}
		return nil
	}}, "family", "its family of hash tables; left out, one is chosen")
	f.Var(&size{&s.o.Memory}, "table-memory", "most bytes of value columns of tables in host memory; left out, "+
		"no bound")
	f.Var(&size{&s.message}, "max-message", "most bytes of a batch for Flight; left out, 64 MiB")
	f.IntVar(&s.o.Rows, "max-rows", 1<<24, "most rows of a batch for Flight")
	f.Var(&size{&s.exports}, "max-exports", "most bytes of exports that wait for clients of Flight; left out, 1 GiB")
	f.IntVar(&s.o.Clients, "flight-clients", 256, "most connections for Flight at once")
	f.IntVar(&s.o.Streams, "flight-calls", 16, "most calls of such a connection at once")
	f.DurationVar(&s.o.MaxTime, "max-time", 0, "give up a call of Flight that takes so long; 0 for never")
	s.over.flags(cmd)
}

// tableFlag is a flag of the last --table.
type tableFlag struct {
	of   *flightFlags
	kind string
	set  func(t *servedTable, text string) error
}

func (f *tableFlag) Type() string   { return f.kind }
func (f *tableFlag) String() string { return "" }

func (f *tableFlag) Set(text string) error {
	var last *servedTable
	if n := len(f.of.tables); n > 0 {
		last = f.of.tables[n-1]
	} else if f.kind != "NAME[=FILE]" {
		return errors.New("want it behind the --table that it is of")
	}
	return f.set(last, text)
}

// check completes the options. Errors: flags that do not fit.
func (s *flightFlags) check() error {
	if s.listen == "" && s.socket == "" {
		return errors.New("--flight or --flight-socket: want one to listen on")
	}
	if err := s.checkServer(); err != nil {
		return err
	}
	if s.message < 0 || s.exports < 0 || s.o.Memory < 0 || s.o.Rows < 1 || s.o.Clients < 1 || s.o.Streams < 1 ||
		s.o.MaxTime < 0 {
		return fmt.Errorf("--max-message %d, --max-exports %d, --table-memory %d, --max-rows %d, --flight-clients %d, "+
			"--flight-calls %d, --max-time %v: want sizes, numbers from 1 on, and no time below 0", s.message,
			s.exports, s.o.Memory, s.o.Rows, s.o.Clients, s.o.Streams, s.o.MaxTime)
	}
	for i, t := range s.tables {
		for _, other := range s.tables[:i] {
			if other.Name == t.Name {
				return fmt.Errorf("--table %s: there are two of this name", t.Name)
			}
		}
		if t.file == "" && (t.Columns == "" || len(t.Keys) == 0) {
			return fmt.Errorf("--table %s: want a file behind =, or --schema and --key", t.Name)
		}
		if t.file != "" && t.Columns != "" {
			return fmt.Errorf("--schema beside --table %s=%s: the columns are the file's", t.Name, t.file)
		}
	}
	s.o.Message, s.o.Exports = int(s.message), s.exports
	if s.folder != "" {
		s.o.Folder = filepath.Join(s.folder, "tables")
	}
	return s.checkAddresses()
}

// flights is a server of tables, and where it listens.
type flights struct {
	*flight.Server
	listeners []net.Listener
	devices   func()
}

// open makes the server and its tables.
func (s *flightFlags) open(cmd *cobra.Command) (_ *flights, err error) {
	f := &flights{devices: func() {}}
	defer func() {
		if err != nil {
			f.close()
		}
	}()
	if f.listeners, err = s.listeners(); err != nil {
		return nil, err
	}
	if s.o.Devices, f.devices, err = s.over.openOr(cmd); err != nil {
		f.devices = func() {}
		return nil, err
	}
	if f.Server, err = flight.New(cmd.Context(), s.o); err != nil {
		return nil, err
	}
	for _, t := range s.tables {
		if err := s.fill(cmd.Context(), f.Server, t); err != nil {
			return nil, err
		}
	}
	return f, nil
}

// fill makes a table of a flag, unless its snapshot was read.
func (s *flightFlags) fill(ctx context.Context, to *flight.Server, t *servedTable) error {
	say := func(text string, args ...any) { s.o.Log.Printf("table %s: "+text, append([]any{t.Name}, args...)...) }
	if has, err := to.Has(t.Spec); has || err != nil {
		if err == nil {
			say("it is as it was in %s", s.o.Folder)
		}
		return err
	}
	begin := time.Now()
	if t.file == "" {
		return to.Create(t.Spec)
	}
	if snapshot, err := isTable(t.file); err != nil {
		return err
	} else if snapshot {
		return s.load(ctx, to, t)
	}
	if len(t.Keys) == 0 {
		return fmt.Errorf("--table %s=%s: want --key", t.Name, t.file)
	}
	rows, left, err := to.Fill(ctx, t.Spec, func() (flight.Source, error) { return join.OpenAll("", t.file) })
	if err != nil {
		return err
	}
	say("%d rows loaded in %v", rows, time.Since(begin).Round(time.Millisecond))
	if left > 0 {
		say("%d rows with nulls among the keys are left out", left)
	}
	return nil
}

// isTable tells whether a file is a table's snapshot.
func isTable(name string) (bool, error) {
	f, err := os.Open(name)
	if err != nil {
		return false, nil // a pattern, or what join tells of
	}
	defer f.Close()
	if about, err := f.Stat(); err != nil || !about.Mode().IsRegular() {
		return false, err
	}
	first := make([]byte, columnar.MagicBytes)
	n, err := io.ReadFull(f, first)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		return false, err
	}
	return columnar.IsFile(first[:n]), nil
}

func (s *flightFlags) load(ctx context.Context, to *flight.Server, t *servedTable) error {
	if len(t.Keys) > 0 || t.Values != nil {
		return fmt.Errorf("--key or --value beside --table %s=%s: it is a snapshot, which says them", t.Name, t.file)
	}
	f, err := os.Open(t.file)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := to.Load(ctx, f, t.Spec); err != nil {
		return fmt.Errorf("%s: %w", t.file, err)
	}
	return nil
}

// close ends the server, and all that it uses.
func (f *flights) close() (err error) {
	for _, l := range f.listeners {
		l.Close()
	}
	if f.Server != nil {
		err = f.Close()
	}
	f.devices()
	return err
}
