package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	tables "github.com/warpmap/warpmap/table"
)

// compileWork is what is to be compiled.
type compileWork struct {
	arch, table, kind  []string
	keyBytes, valBytes []int
	out                string
	strings, shard     bool
}

// stringsKind is what --kind calls maps of strings, which are no kind of table: they stand over a map.
const stringsKind = "strings"

func compileCommand() *cobra.Command {
	var w compileWork
	cmd := &cobra.Command{
		Use:   "compile",
		Short: "Compile kernels ahead, for machines without a compiler",
		Long: `Compile the kernels of tables into a folder, for machines and images that have no compiler: for GPUs of
some architectures, where no GPU need be, by NVRTC; or for the CPU device, by this machine's C++ compiler. --arch amd64
is for two kinds of processors, x86-64-v2 (since about 2009) and x86-64-v3 (with AVX2, since 2013); a newer one takes
the best that is there.

A program finds the kernels by device.WithKernels, in a folder or embedded by go:embed: then it needs neither compiler
nor cache. Or it finds them by WARPMAP_CACHE or device.WithCache; the folder must then belong to its user or to root,
and nobody else may write in it. The program must be of the same version of warpmap.

Kernels are those of tables with their default options, and do not depend on the types of keys and values but by their
widths; Update is compiled for unsigned integers, by Add. For what else a program has, call warpmap.CompileAhead,
warpmap.CompileAheadStrings, shard.CompileAhead and sketch.CompileAhead with its own types. The cache of a machine on
which it ran has the kernels that it launched, and no others.`,
		Example: `  warpmap compile --arch sm_90 --out kernels
  warpmap compile --device cpu --arch amd64 --table warpcore --key-bytes 8 --value-bytes 8 --out kernels
  warpmap compile --arch sm_90 --table slab --kind strings --value-bytes 8 --out kernels
  warpmap compile --arch sm_90 --table warpcore --shard --out kernels
  warpmap compile --arch sm_80,sm_90 --table warpcore,gph --kind map,set --key-bytes 8 --value-bytes 8 --out kernels`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return w.run(cmd) },
	}
	f := cmd.Flags()
	f.StringSliceVar(&w.arch, "arch", nil, "architectures: of GPUs, such as sm_90 (of H100 and H200); of processors, "+
		"amd64, arm64, x86-64-v2, -v3, -v4")
	f.StringVarP(&w.out, "out", "o", "", "the folder to compile into")
	f.StringSliceVar(&w.table, "table", nil, "families of tables (default all)")
	f.StringSliceVar(&w.kind, "kind", []string{tables.KindMap.String()}, "kinds of tables: "+
		strings.Join(append(kindNames(), stringsKind), ", "))
	f.IntSliceVar(&w.keyBytes, "key-bytes", []int{4, 8}, "widths of keys: 4, 8")
	f.IntSliceVar(&w.valBytes, "value-bytes", []int{4, 8}, "widths of values: 4, 8, 16")
	f.BoolVar(&w.shard, "shard", false, "also the kernels that spread such tables over several GPUs")
	cmd.MarkFlagRequired("arch")
	cmd.MarkFlagRequired("out")
	return cmd
}

// aheadOf are the widths that there are, and what compiles tables of them.
var aheadOf = map[[2]int]func(*device.Device, tables.Kind, tables.Family) error{
	{4, 4}:  warpmap.CompileAhead[uint32, uint32],
	{4, 8}:  warpmap.CompileAhead[uint32, uint64],
	{4, 16}: warpmap.CompileAhead[uint32, [2]uint64],
	{8, 4}:  warpmap.CompileAhead[uint64, uint32],
	{8, 8}:  warpmap.CompileAhead[uint64, uint64],
	{8, 16}: warpmap.CompileAhead[uint64, [2]uint64],
}

// spreadOf compiles what spreads rows of such widths over several GPUs.
var spreadOf = map[[2]int]func(*device.Device, tables.Kind) error{
	{4, 4}:  shard.CompileAhead[uint32, uint32],
	{4, 8}:  shard.CompileAhead[uint32, uint64],
	{4, 16}: shard.CompileAhead[uint32, [2]uint64],
	{8, 4}:  shard.CompileAhead[uint64, uint32],
	{8, 8}:  shard.CompileAhead[uint64, uint64],
	{8, 16}: shard.CompileAhead[uint64, [2]uint64],
}

var aheadOfStrings = map[int]func(*device.Device, tables.Family) error{
	4:  warpmap.CompileAheadStrings[uint32],
	8:  warpmap.CompileAheadStrings[uint64],
	16: warpmap.CompileAheadStrings[[2]uint64],
}

var archNames = regexp.MustCompile(`^(sm_[1-9][0-9]+|amd64|arm64|x86-64-v[234])$`)

func (w *compileWork) run(cmd *cobra.Command) error {
	if len(w.arch) == 0 {
		return errors.New("--arch: want an architecture, such as sm_90 or amd64")
	}
	for _, arch := range w.arch { // before anything is compiled for others
		if !archNames.MatchString(arch) {
			return fmt.Errorf("--arch %q: want sm_ and a number of GPUs, such as sm_90; or of processors amd64, "+
				"arm64, x86-64-v2, x86-64-v3 or x86-64-v4", arch)
		}
	}
	var wanted []tables.Kind
	for _, name := range w.kind {
		if name == stringsKind {
			w.strings = true
			continue
		}
		kind, err := kindOf(name)
		if err != nil {
			return fmt.Errorf("--kind: %w; or %s, over a map", err, stringsKind)
		}
		wanted = append(wanted, kind)
	}
	if err := w.some(wanted); err != nil {
		return err
	}
	if w.shard && len(w.spread(wanted)) == 0 {
		return fmt.Errorf("--shard with --kind %s: there are none over several GPUs; leave it out, or add others",
			strings.Join(w.kind, ","))
	}
	for _, key := range w.keyBytes {
		for _, value := range w.valBytes {
			if aheadOf[[2]int{key, value}] == nil {
				return fmt.Errorf(
					"--key-bytes %d, --value-bytes %d: want keys of 4 or 8 bytes, and values of 4, 8 or 16", key, value)
			}
		}
	}
	tidy, err := folder(w.out, 0o755)
	if err != nil {
		return err
	}
	defer tidy()
	defer w.unlock()
	for _, arch := range w.architectures() { // before anything is compiled for others
		d, err := w.open(cmd, arch)
		if err != nil {
			return err
		}
		if err := d.Close(); err != nil {
			return err
		}
	}
	for _, arch := range w.architectures() {
		if err := w.compile(cmd, arch, wanted); err != nil {
			return err
		}
	}
	return w.tell(cmd)
}

// some returns an error of a family that none of the kinds has, and of a kind that none of the families has.
func (w *compileWork) some(wanted []tables.Kind) error {
	names := namesOf(wanted)
	if w.strings {
		wanted, names = append(slices.Clone(wanted), tables.KindMap), append(names, stringsKind)
	}
	used := map[string]bool{}
	for i, kind := range wanted {
		has := w.families(kind)
		if len(has) == 0 {
			return fmt.Errorf("--kind %s with --table %s: want one of %s", names[i], strings.Join(w.table, ","),
				strings.Join(familiesOf(kind), ", "))
		}
		for _, family := range has {
			used[string(family)] = true
		}
	}
	if len(wanted) == 0 {
		return fmt.Errorf("--kind: want some of %s", strings.Join(append(kindNames(), stringsKind), ", "))
	}
	for _, name := range w.table {
		if !used[name] {
			return fmt.Errorf("--table %s: want some of %s", name, kindList())
		}
	}
	return nil
}

// architectures are those that OpenAhead knows.
func (w *compileWork) architectures() (all []string) {
	for _, arch := range w.arch {
		if arch == "amd64" {
			all = append(all, "x86-64-v2", "x86-64-v3")
			continue
		}
		all = append(all, arch)
	}
	return all
}

func (w *compileWork) wants(family tables.Family) bool {
	return len(w.table) == 0 || slices.Contains(w.table, string(family))
}

// open opens the device that compiles for an architecture into the folder.
func (w *compileWork) open(cmd *cobra.Command, arch string) (*device.Device, error) {
	d, err := device.OpenAhead(arch, device.WithCache(w.out), device.WithContext(cmd.Context()))
	if err != nil {
		return nil, &deviceError{err}
	}
	return d, nil
}

// compile compiles all kernels for an architecture.
func (w *compileWork) compile(cmd *cobra.Command, arch string, kinds []tables.Kind) (err error) {
	d, err := w.open(cmd, arch)
	if err != nil {
		return err
	}
	defer func() {
		if closing := d.Close(); err == nil { // else it says the same again
			err = closing
		}
	}()
	ahead := func(what string, compile func() error) error {
		if err := cmd.Context().Err(); err != nil {
			return err
		}
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", arch, what)
		return compile()
	}
	for _, kind := range kinds {
		for _, family := range w.families(kind) {
			for _, key := range w.keyBytes {
				for _, value := range w.valuesOf(kind) {
					err := ahead(fmt.Sprintf("%v of %s, keys of %d bytes%s", kind, family, key, valueNote(kind, value)),
						func() error {
							return aheadOf[[2]int{key, value}](d, kind, family)
						})
					if err != nil {
						return err
					}
				}
			}
		}
	}
	for _, kind := range w.spread(kinds) {
		for _, key := range w.keyBytes {
			for _, value := range w.spreadValues(kind) {
				err := ahead(fmt.Sprintf("spreading %v over several GPUs, keys of %d bytes%s", kind, key,
					valueNote(kind, value)), func() error {
					return spreadOf[[2]int{key, max(value, 4)}](d, kind) // a set has no values
				})
				if err != nil {
					return err
				}
			}
		}
	}
	if !w.strings {
		return nil
	}
	for _, family := range w.families(tables.KindMap) {
		for _, value := range w.valBytes {
			err := ahead(fmt.Sprintf("%s of %s, values of %d", stringsKind, family, value), func() error {
				return aheadOfStrings[value](d, family)
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// families are those of a kind that are wanted.
func (w *compileWork) families(kind tables.Kind) []tables.Family {
	return slices.DeleteFunc(slices.Clone(warpmap.Families(kind)), func(f tables.Family) bool { return !w.wants(f) })
}

// spread are those of the kinds that --shard is for.
func (w *compileWork) spread(kinds []tables.Kind) []tables.Kind {
	if !w.shard {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(kinds), func(k tables.Kind) bool {
		return k == tables.KindFilter || k == warpmap.KindCache
	})
}

// spreadValues are the widths of what goes with keys of a kind: values, counts, or nothing.
func (w *compileWork) spreadValues(kind tables.Kind) []int {
	switch kind {
	case tables.KindSet:
		return []int{0}
	case tables.KindCounter:
		return []int{4, 8}
	}
	return w.valBytes
}

// valuesOf are the widths of values of a kind; for one without values, or with counts, one that stands for none.
func (w *compileWork) valuesOf(kind tables.Kind) []int {
	if valueNote(kind, 1) == "" {
		return w.valBytes[:min(1, len(w.valBytes))]
	}
	return w.valBytes
}

func valueNote(kind tables.Kind, value int) string {
	switch kind {
	case tables.KindSet, tables.KindCounter, tables.KindFilter:
		return ""
	}
	return fmt.Sprintf(" and values of %d", value)
}

// unlock takes away the lock of a cache that holds nothing else.
func (w *compileWork) unlock() {
	if held, err := os.ReadDir(w.out); err == nil && len(held) == 1 && held[0].Name() == "lock" {
		os.Remove(filepath.Join(w.out, "lock"))
	}
}

// tell says what lies in the folder.
func (w *compileWork) tell(cmd *cobra.Command) error {
	files, err := os.ReadDir(w.out)
	if err != nil {
		return err
	}
	n, bytes := 0, int64(0)
	for _, f := range files {
		program := strings.HasSuffix(f.Name(), ".cubin") || strings.HasSuffix(f.Name(), ".so")
		if info, err := f.Info(); err == nil && program {
			n++
			bytes += info.Size()
		}
	}
	_, err = fmt.Fprintf(cmd.OutOrStdout(),
		"%s has %d programs, %s; give it to device.WithKernels, or set WARPMAP_CACHE to it\n",
		w.out, n, device.Bytes(bytes))
	return err
}
