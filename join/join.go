// Package join joins two inputs on one or more key columns with the help of a hash table on a GPU, or on the CPU where
// there is none.
//
// The build side is read whole, and its keys go into a table; the probe side streams past it in record batches, so it
// may be larger than memory. Run joins files, Join any Arrow record readers.
//
// # A build side larger than memory
//
// Where the build side takes more than Options.Memory, Run writes both sides' rows to temporary files by a hash of
// their keys, with their numbers, joins each part of the one with its part of the other, and merges what comes out by
// the numbers: the rows are those that there would be, in their order. A part that is still too large is split again.
// All rows of one key are in memory together. The files have no name once they are open.
//
// # Keys
//
// Numbers, text, binary values, booleans, dates, times, timestamps and durations can be keys. Values are compared, not
// bytes: an int32 -1 equals an int64 -1, and equals no uint64. Times, timestamps and durations of different units are
// compared exactly, and so are date32 and date64. Timestamps with a time zone are instants, whatever the zone; they do
// not join with timestamps without one, nor integers with dates, nor dates with timestamps: such pairs are errors.
// Decimals are compared as numbers, whatever their scales. Of floats -0 equals 0 and NaN equals NaN, as in DuckDB. Text
// is compared by its bytes, in a dictionary or not. A null in any key column matches nothing, another null included,
// unless Options.NullsEqual is set.
//
// Integers, dates and times of up to 16 bytes together, each pair of columns counting what the narrower of its two
// types takes, go to the table as they are. Other keys are hashed to 8 bytes, and what the table finds is compared on
// the host with the build side's keys, which stay in its memory: the join is exact.
//
// # Keys that lie close together
//
// On the CPU device, where no family of tables is named and keys of up to 8 bytes are on average at most 16 apart, as
// numbers are that were given out one after the other, they get no table: row numbers stand by key (Summary.Near). On a
// GPU they do: what has to go there and back is the same. Where Parquet files say that such keys are at most 64 apart
// on average, semi and anti joins, and counts of inner joins whose build side has no key twice, have a bit for each
// number alone, whatever the device, and look keys up as their pages are decoded: that is less than to pack them for a
// table.
//
// # Several devices
//
// Where there are several (Options.Beside, or what Options.Open gives), each has a copy of the keys' table, and
// look-ups take turns at them: a build side that fits the host's memory fits a GPU's, and no key has to go from one to
// another. Rows and their order are the same.
//
// # A filter in front
//
// On the CPU device, where most probe rows have no match, a filter of a few bits a key stands before the table
// (Options.Filter): there a look-up is most of the work of such a join, and a bit of a filter is much less. On a GPU it
// is of no use: to look up a block of keys takes no time beside reading and packing them.
//
// # From Parquet to Parquet
//
// Run reads the keys of the probe side's row groups, looks them up, and reads each other column where rows of it come
// out, all row groups and columns side by side. Row groups whose least and largest key say that no row can match are
// not read, nor, where a file has an index of its pages, are pages of keys that cannot match, and pages of other
// columns without a row that comes out. A row group whose rows all come out once, in order, is copied as its encoded
// pages. Dictionaries stay dictionaries. An output's row groups have 131,072 to 1,048,576 rows (the last fewer; one
// that is copied, as many as it has).
//
// # Order and duplicates
//
// Rows come in probe order, and the matches of one probe row in build order, whatever the device. Each pair of matching
// rows comes out once, and memory does not depend on how often a key repeats. How many threads there are changes
// nothing of it.
package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/table"
)

// How says which rows a join keeps.
type How int

const (
	Inner How = iota // every pair of matching rows
	Left             // these, and the probe rows without a match, with nulls for the build columns
	Semi             // the probe rows that have a match, once each
	Anti             // the probe rows that have none
	// every pair of matching rows, then the build rows without a match, with nulls for the probe columns
	Right
	Full // the rows of Left, then those that Right has beside the pairs
)

var hows = []string{"inner", "left", "semi", "anti", "right", "full"}

// Hows lists the names that ParseHow takes.
func Hows() []string { return slices.Clone(hows) }

// ParseHow reads "inner", "left", "semi", "anti", "right" or "full".
func ParseHow(s string) (How, error) {
	if i := slices.Index(hows, s); i >= 0 {
		return How(i), nil
	}
	return 0, fmt.Errorf("a join of kind %q: want one of %s", s, strings.Join(hows, ", "))
}

func (h How) String() string {
	if h < 0 || int(h) >= len(hows) {
		return fmt.Sprintf("How(%d)", int(h))
	}
	return hows[h]
}

// pairs tells that pairs of matching rows come out.
func (h How) pairs() bool { return h != Semi && h != Anti }

// keepsProbe tells that probe rows without a match come out beside them.
func (h How) keepsProbe() bool { return h == Left || h == Full }

// keepsBuild tells that build rows without a match come out behind them.
func (h How) keepsBuild() bool { return h == Right || h == Full }

// DefaultTable is the family of the tables that hold the keys where Options name none.
const DefaultTable = warpmap.WarpCore

// Options describe a join.
type Options struct {
	// For Run: names of inputs, as OpenAll takes them, and of the output, as CreateAs does; Out "-" (or empty) is
	// standard output as CSV.
	Build, Probe, Out        string
	MoreBuild, MoreProbe     []string // inputs beside the first of each side
	BuildFormat, ProbeFormat Format   // where names do not tell

	On  []Pair // the key columns, at least one pair
	How How
	// NullsEqual lets a null in a key column match a null.
	NullsEqual bool

	// of the maps that hold the keys: one of warpmap.Families; empty for DefaultTable, or for none where keys lie close
	// together
	Table table.Family
	// Filter says whether a filter tells most keys that have no match, before they are looked up.
	Filter Filter

	Select []string // the output's columns, by their names in it, in this order; empty for all
	Count  bool     // count the output's rows only: Run writes no file, and Join calls no sink
	Limit  int64    // write no more rows than this; 0 for all

	Threads int // work at a time at most; 0 for as many as GOMAXPROCS
	// Memory is about how many bytes of columns are in memory at a time; 0 for no bound. A build side that would take
	// more, or without a bound half of the machine's memory, goes to temporary files with the probe side, in the folder
	// that TMPDIR names, and is joined part by part: the same rows come in the same order. The rows of one key are in
	// memory together.
	Memory      int64
	OutFormat   Format // as in WriteOptions
	Compression string
	RowsPerFile int64

	// Beside are more devices than the one that Run and Join get: each has a copy of the keys' table, and a part of the
	// look-ups.
	Beside []*device.Device
	// Device names the device for Run, as device.Open takes it, where Run gets none; and Open opens it, or several. It
	// is called once, on a goroutine of its own while files are read, and Run closes what it gives. With "auto" (or "")
	// the name that Open gets is "cpu" where that is faster than to open a GPU, with the reason why; else "auto", and
	// no reason.
	Device string
	Open   func(name, why string) ([]*device.Device, error)

	// Progress, if set, is called now and then, from one goroutine at a time.
	Progress func(Progress)
}

// tuning is what a join decides by itself where nothing is set. Tests set it.
type tuning struct {
	batch int // rows of an output batch at most, and of a probed block at least; 0 for batchRows
	// bytes of a part of the build side where there are several; 0 where memory says it, below for one part
	part   int64
	groups [2]int  // rows of an output's row group at least and at most; zeros for enoughRows and groupRows
	makers *makers // opens tables; nil for the module's own
	pinned int     // as opener's; 0 where the device says it
}

// Progress tells how far a join is.
type Progress struct {
	Stage string // "read" (the build side), "build", "probe"
	Done  int64  // rows of the stage's input
	Total int64  // -1 where unknown
}

// Summary is what a join did. Seconds are those in which a stage was busy, on all goroutines together; the stages
// overlap, so that each can exceed Total.
type Summary struct {
	How       string       `json:"how"`
	Device    string       `json:"device"`
	Table     table.Family `json:"table"`
	BuildRows int64        `json:"build_rows"`
	ProbeRows int64        `json:"probe_rows"`
	OutRows   int64        `json:"out_rows"`
	// keys of the probe side, or words of keys, that a filter kept from being looked up
	Filtered int64 `json:"filtered"`
	Near     bool  `json:"near"` // the keys lie so close together that they needed no table
	// row groups of the probe side whose keys were not read, because none can match
	Skipped int64 `json:"skipped"`
	// pages of the other row groups that were not read, because none of their rows matches, by the file's index
	Pages    int64   `json:"skipped_pages"`
	Reading  float64 `json:"reading_s"`
	Building float64 `json:"building_s"`
	Probing  float64 `json:"probing_s"`
	Writing  float64 `json:"writing_s"`
	Total    float64 `json:"total_s"`
}

// batchRows is the size of batches where nothing else decides it.
const batchRows = 1 << 16

func (o Options) writeOptions() WriteOptions {
	return WriteOptions{Format: o.OutFormat, Compression: o.Compression, RowsPerFile: o.RowsPerFile}
}

// Run joins files, one or several a side, into one, or a folder of them. Formats go by the names' suffixes (Suffixes)
// where none are given. The output is written under a temporary name beside its own and renamed when it is whole. From
// CSV to CSV values that are no keys are written as they were read.
//
// Without a device, Options.Open opens one.
//
// An output may take the place of an input; CheckOutput tells whether it would.
//
// Errors: a file that cannot be read, a key column that is missing (the error lists those there are) or of a type
// that cannot be a key, a build side whose keys do not fit into the device's memory, ctx's own.
func Run(ctx context.Context, d *device.Device, o Options) (Summary, error) {
	return runTuned(ctx, d, o, tuning{})
}

func runTuned(ctx context.Context, d *device.Device, o Options, t tuning) (s Summary, err error) {
	err = catch(brokeOff, func() (err error) { s, err = run(ctx, d, o, t); return err })
	return s, err
}

func run(ctx context.Context, d *device.Device, o Options, t tuning) (Summary, error) {
	start := time.Now()
	if o.Out == "" {
		o.Out = "-"
	}
	if err := o.writeOptions().check(o.Out); err != nil {
		return Summary{}, err
	}
	buildFiles, err := expandAll(o.BuildFormat, append([]string{o.Build}, o.MoreBuild...))
	if err != nil {
		return Summary{}, err
	}
	probeFiles, err := expandAll(o.ProbeFormat, append([]string{o.Probe}, o.MoreProbe...))
	if err != nil {
		return Summary{}, err
	}
	if err := once(slices.Concat(buildFiles, probeFiles)); err != nil {
		return Summary{}, err
	}
	build, err := openFiles(o.BuildFormat, buildFiles)
	if err != nil {
		return Summary{}, err
	}
	defer build.Close()
	probe, err := openFiles(o.ProbeFormat, probeFiles)
	if err != nil {
		return Summary{}, err
	}
	defer probe.Close()
	if _, err := planKeys(build.Schema(), probe.Schema(), o.On, o.NullsEqual); err != nil {
		return Summary{}, ofInput(because(err, build, probe))
	}
	if f, _ := o.writeOptions().format(o.Out); (f == CSV || f == TSV) && !o.Count {
		build.asText(func(name string) bool {
			return slices.ContainsFunc(o.On, func(p Pair) bool { return p.Build == name })
		})
		probe.asText(func(name string) bool {
			return slices.ContainsFunc(o.On, func(p Pair) bool { return p.Probe == name })
		})
	}
	plan, err := planOutput(build.Schema(), probe.Schema(), o)
	if err != nil {
		return Summary{}, err
	}
	j := newJoiner(devicesOf(d, o), o, t)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	j.choose(build, probe, cancel)
	if o.Count {
		err = j.files(ctx, build, probe, plan, nil)
		if o.Limit > 0 {
			j.sum.OutRows = min(j.sum.OutRows, o.Limit)
		}
	} else {
		err = j.toFile(ctx, build, probe, plan)
	}
	if e := j.closeDevice(); e != nil && (err == nil || errors.Is(err, context.Canceled)) {
		err = e
	}
	j.sum.Total = time.Since(start).Seconds()
	return j.sum, err
}

// toFile joins into o.Out.
func (j *joiner) toFile(ctx context.Context, build, probe *Reader, plan *output) error {
	as := parquetOptions{chosen: j.Compression != "", threads: j.Threads, memory: j.Memory}
	if n, _ := j.parts(build, plan); probe.pq != nil && n == 1 {
		as.columns = plan.nodes(build, probe, j.How)
	}
	out, err := create(j.Out, plan.schema, j.writeOptions(), as)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := j.files(ctx, build, probe, plan, out); err != nil {
		return err
	}
	closing := time.Now()
	err = out.Close()
	j.sum.Writing += time.Since(closing).Seconds()
	return err
}

// files joins into a writer, or counts where there is none. From Parquet to Parquet columns go as their files have
// them.
func (j *joiner) files(ctx context.Context, build, probe *Reader, plan *output, out *Writer) error {
	if n, most := j.parts(build, plan); n > 1 {
		return catch(brokeOff, func() error { return j.parted(ctx, build, probe, plan, out, n, most) })
	}
	if probe.pq != nil && (out == nil || out.columns() != nil) {
		return catch(brokeOff, func() error { return j.columns(ctx, build, probe, plan, out) })
	}
	j.out = plan.only(build, probe, j.On)
	if out != nil {
		j.sink = out.Write
	}
	return catch(brokeOff, func() error { return j.run(ctx, build, probe) })
}

// Join joins two readers and calls sink with each batch of the output, of at most 65,536 rows, with the schema that
// OutputSchema gives. The sink must retain what it keeps. It is called from a goroutine of Join's own, and so
// is the probe's Next, each from one at a time; both are done when Join returns. A reader that knows its number of rows
// (a method Rows() int64) gets them into the progress.
//
// Build rows are kept in host memory, keys in the device's: 4 or 8 bytes for the key and 4 for the row number, divided
// by the table's load factor.
func Join(ctx context.Context, d *device.Device, build, probe array.RecordReader, o Options,
	sink func(arrow.RecordBatch) error) (Summary, error) {
	return joinTuned(ctx, d, build, probe, o, tuning{}, sink)
}

func joinTuned(ctx context.Context, d *device.Device, build, probe array.RecordReader, o Options, t tuning,
	sink func(arrow.RecordBatch) error) (Summary, error) {
	j := newJoiner(devicesOf(d, o), o, t)
	j.sink = sink
	err := catch(brokeOff, func() (err error) {
		if j.out, err = planOutput(build.Schema(), probe.Schema(), o); err != nil {
			return err
		}
		return j.run(ctx, build, probe)
	})
	j.sum.Total = time.Since(j.began).Seconds()
	return j.sum, err
}

// devicesOf are the devices of a join that gets one, or none.
func devicesOf(d *device.Device, o Options) []*device.Device {
	if d == nil {
		return nil
	}
	return append([]*device.Device{d}, o.Beside...)
}

// newJoiner fills in what the options leave open.
func newJoiner(devices []*device.Device, o Options, t tuning) *joiner {
	if t.batch == 0 {
		t.batch = batchRows
	}
	if t.groups[1] == 0 {
		t.groups = [2]int{enoughRows, groupRows}
	}
	if t.makers == nil {
		t.makers = &ownMakers
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	j := &joiner{Options: o, tuning: t, began: time.Now(), family: cmp.Or(o.Table, DefaultTable)}
	j.sum = Summary{How: o.How.String(), Table: j.family}
	if len(devices) > 0 {
		j.have(devices)
		return j
	}
	j.use(false)
	j.byBits, j.pinned = false, t.pinned
	return j
}

type joiner struct {
	Options
	tuning
	began   time.Time
	devices []*device.Device
	opening *opening // where set, the devices come from there
	family  table.Family
	filter  Filter
	sink    func(arrow.RecordBatch) error
	sum     Summary

	near    bool // keys that lie close together need no table
	byBits  bool // and where only asked for, none on any device
	pinned  int  // as opener's
	plan    *keyPlan
	out     *output
	payload []int    // build columns of the output
	takers  []*taker // theirs
	starts  []int64  // the first row of each build chunk, and the end
	index   matcher
	taken   int64    // rows that came out, where there is a limit
	seen    []uint32 // a bit for each representative that was found, where build rows without a match come out
}

func (j *joiner) run(ctx context.Context, build, probe array.RecordReader) (err error) {
	if j.plan, err = planKeys(build.Schema(), probe.Schema(), j.On, j.NullsEqual); err != nil {
		return err
	}
	if err := j.build(ctx, build); err != nil {
		return err
	}
	j.watch()
	defer func() { err = cmp.Or(err, j.index.close()) }()
	return j.probe(ctx, probe)
}

// first is the first error of several: where many meet the same fault, as a full disk, it is told once.
func first(errs []error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// brokeOff is what catch says of a panic that nothing else explains.
const brokeOff = "the join broke off"

// each calls f(0) to f(n-1) on as many goroutines as there are hardware threads, and gives what they return; a panic is
// an error.
func each(n int, f func(int) error) []error {
	errs := make([]error, n)
	var wg crash.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range n {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			errs[i] = catch(brokeOff, func() error { return f(i) })
		})
	}
	wg.Wait()
	return errs
}
