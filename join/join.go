// Package join joins two inputs on one or more key columns with the help of a hash table on a GPU, or on the CPU where
// there is none.
//
// A join reads the build side whole and puts its keys into a table. The probe side streams past the table in record
// batches, so it may be larger than memory. Run joins files; Join joins any Arrow record readers.
//
// # A build side larger than memory
//
// If the build side takes more than Options.Memory, Run writes the rows of both sides, with their numbers, to temporary
// files, by a hash of their keys. It joins each part of one side with its part of the other, and merges the results by
// the row numbers. So the rows and their order are the same as without parts. A part that is still too large is split
// again. All rows of one key are in memory together. The files have no name once they are open.
//
// # Pipes
//
// A probe side that can be read once is joined as it comes, if the types of its columns need not be found: an Arrow
// stream, or CSV where the output is CSV or a count, or Options.Text has the types of the columns that come out. A
// block of rows is what has come, and what comes of it is written at once. Columns of CSV are text, and keys are read
// as the build side's types; a value that does not fit is an error. All else goes to a temporary file first.
//
// # Keys
//
// Numbers, text, binary values, UUIDs, booleans, dates, times, timestamps and durations can be keys. Values are
// compared, not bytes: an int32 -1 equals an int64 -1, and equals no uint64. Integers and decimals are compared
// exactly, whatever their scales; beside a column of floats all numbers are rounded to floats, of 32 bits if neither
// column has 64, as in DuckDB. -0 equals 0 and NaN equals NaN. Times, timestamps and durations of different units are
// compared exactly, and so are date32 and date64; a date equals a timestamp without a time zone at its midnight.
// Timestamps with a time zone are instants, whatever the zone, and do not join with those without. Other pairs of
// kinds, such as integers and text, are errors. Text is compared by its bytes, in a dictionary or not, and a UUID is
// 16 bytes. A null in any key column matches nothing, not even another null, unless Options.NullsEqual is set.
//
// Integers, dates and times of up to 16 bytes together go to the table as they are; each pair of columns counts what
// the narrower of its two types takes. Other keys are hashed to 8 bytes. What the table finds for them is compared on
// the host with the build side's keys, which stay in host memory, so the join is exact.
//
// # Keys that lie close together
//
// On the CPU device, keys that lie close together get no table: row numbers are stored by key (Summary.Near). This
// applies if no family of tables is named and keys of up to 8 bytes are at most 16 apart on average, as numbers are
// that were given out one after the other. On a GPU such keys do get a table, because as much has to go to the GPU and
// back either way.
//
// If Parquet files say that such keys are at most 64 apart on average, some joins need only one bit for each number,
// whatever the device: semi and anti joins, and counts of inner joins whose build side has no key twice. They look keys
// up as the pages are decoded, which costs less than packing the keys for a table.
//
// On the CPU device, other keys get a table of the join's own if no family of tables is named and Options.Filter is not
// FilterOn. It is made in parts that fit a core's cache, needs no kernel, and each goroutine looks its own block of
// keys up. Keys of 9 to 16 bytes are hashed to 8 for it, and what it finds is compared. Counts of Parquet files by keys
// of up to 16 bytes get a smaller one, a tally of how often each key comes: a row of it is a line of the cache, and no
// row of the build side has a number.
//
// # Several devices
//
// If there are several devices (Options.Beside, or what Options.Open gives), each has a copy of the keys' table, and
// look-ups take turns at them: a build side that fits the host's memory fits a GPU's, and no key has to go from one
// device to another. Rows and their order are the same.
//
// # A filter in front
//
// On the CPU device, if a family is named and most probe rows have no match, a filter of a few bits a key stands
// before the table (Options.Filter). There look-ups are most of the work of such a join, and asking the filter costs
// much less. On a GPU a filter is of no use: to look up a block of keys takes no time beside reading and packing them.
//
// # From Parquet to Parquet
//
// Run reads the keys of the probe side's row groups and looks them up. Then it reads each other column where rows of it
// come out. All row groups and columns are read side by side. Run does not read row groups whose least and largest key
// say that no row can match. If a file has an index of its pages, Run also does not read pages of keys that cannot
// match, and pages of other columns without a row that comes out. If all rows of a row group come out once, in order,
// its encoded pages are copied. Dictionaries stay dictionaries. The row groups of an output have 131,072 to 1,048,576
// rows. The last may have fewer, and a copied row group has as many as it had before.
//
// # From CSV to CSV
//
// Values that are no keys are not parsed. Columns that stand side by side in the output are carried as one column of
// text, which a row of the input gives at once where it has no quotes. The keys get the types of the first rows, and
// each is looked at when it is read; if one has another type, the join begins anew, after it has read all. So do counts
// of CSV. Outputs and errors of inputs are as if all had been read first. Pipes, standard input and output, joins with
// a limit, and build sides of more than a twelfth of Memory go without.
//
// # Order and duplicates
//
// Rows come in the order of the probe side, and the matches of one probe row in the order of the build side, whatever
// the device. Each pair of matching rows comes out once. Memory does not depend on how often a key repeats. The number
// of threads changes none of this.
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
	Left             // the rows of Inner, and the probe rows without a match, with nulls for the build columns
	Semi             // the probe rows that have a match, once each
	Anti             // the probe rows that have no match
	// every pair of matching rows, then the build rows without a match, with nulls for the probe columns
	Right
	Full // the rows of Left, then the build rows without a match, as in Right
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

// DefaultTable is the family of the tables that hold the keys if Options name no family.
const DefaultTable = warpmap.WarpCore

// Options describe a join.
type Options struct {
	// Build, Probe and Out are for Run: the names of the inputs, as OpenAll takes them, and the name of the output, as
	// CreateAs takes it. If Out is "-" or empty, the output goes to standard output as CSV.
	Build, Probe, Out        string
	MoreBuild, MoreProbe     []string    // inputs beside the first of each side
	BuildFormat, ProbeFormat Format      // the formats of the inputs, where names do not tell
	Text                     TextOptions // of both sides

	On  []Pair // the key columns, at least one pair
	How How
	// NullsEqual lets a null in a key column match a null.
	NullsEqual bool

	// Table is the family of the maps that hold the keys: one of warpmap.Families. If it is empty, the family is
	// DefaultTable on a GPU; on the CPU device there is no table if the keys lie close together, else one of the join's
	// own.
	Table table.Family
	// Filter says whether a filter finds most keys without a match before they are looked up.
	Filter Filter

	Select []string // the output's columns, by their names in the output, in this order; empty for all
	Count  bool     // count the output's rows only: Run writes no file, and Join calls no sink
	Limit  int64    // write no more rows than this; 0 for all

	Threads int // how many threads work at a time at most; 0 for as many as GOMAXPROCS
	// Memory is about how many bytes of columns are in memory at a time; 0 for no bound. If the build side would take
	// more than Memory, or without a bound more than half of the machine's memory, both sides go to temporary files in
	// the folder that TMPDIR names, and are joined part by part. The same rows come in the same order. All rows of one
	// key are in memory together.
	Memory      int64
	OutFormat   Format // this and the next two: as in WriteOptions
	Compression string
	RowsPerFile int64

	// Beside are more devices, in addition to the one that Run and Join get. Each has a copy of the keys' table, and
	// does a part of the look-ups.
	Beside []*device.Device
	// Device and Open are for Run, if it gets no device. Device names the device, as device.Open takes it, and Open
	// opens it, or several. If it is "auto" or "cpu", and Open fails for want of a compiler or on a system without
	// devices, the cores join without a device, unless Table or FilterOn want a table of a family. Open is called once,
	// on a goroutine of its own while files are read, and Run closes the devices that it returns. If Device is "auto"
	// (or ""), Open gets the name "cpu" where the CPU is faster than opening a GPU, and the reason why; otherwise it
	// gets "auto" and no reason.
	Device string
	Open   func(name, why string) ([]*device.Device, error)

	// Progress, if set, is called now and then, from one goroutine at a time.
	Progress func(Progress)
}

// tuning is what a join decides by itself where nothing is set. Tests set it.
type tuning struct {
	batch int // rows of an output batch at most, and of a probed block at least; 0 for batchRows
	// bytes of a part of the build side where there are several; 0 where memory says it, below for one part, and by
	// columns where formats allow that
	part   int64
	groups [2]int  // rows of an output's row group at least and at most; zeros for enoughRows and groupRows
	shares int     // of memory: a batch takes one at most; 0 for batchShare
	makers *makers // opens tables; nil for the module's own
	pinned int     // as opener's; 0 where the device says it
	apart  bool    // no columns are strips
}

// Progress tells how far a join has come.
type Progress struct {
	Stage string // "read" (the build side), "build", "probe"
	Done  int64  // rows of the stage's input
	Total int64  // -1 where unknown
}

// Summary tells what a join did. Seconds are those in which a stage was busy, on all goroutines together. The stages
// overlap, so each can exceed Total.
type Summary struct {
	How       string       `json:"how"`
	Device    string       `json:"device"`
	Table     table.Family `json:"table"` // the family of the tables; empty if none was used
	BuildRows int64        `json:"build_rows"`
	ProbeRows int64        `json:"probe_rows"`
	OutRows   int64        `json:"out_rows"`
	// Filtered counts the probe keys, or words of keys, that a filter kept from being looked up.
	Filtered int64 `json:"filtered"`
	Near     bool  `json:"near"` // whether the keys lie so close together that they needed no table
	// Skipped counts the row groups of the probe side whose keys were not read, because none of them can match.
	Skipped int64 `json:"skipped"`
	// Pages counts the pages of the other row groups that were not read, because by the file's index none of their rows
	// matches.
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

// Run joins files, one or several on each side, into one file or a folder of files. If no formats are given, the
// suffixes of the names tell them (Suffixes). Run writes the output under a temporary name beside its own, and renames
// it when it is whole. From CSV to CSV, values that are not keys are written as they were read.
//
// If d is nil, Options.Open opens a device.
//
// An output may take the place of an input; CheckOutput tells whether it would.
//
// Errors: an *OptionError of what Options say, such as a column that is missing (the error lists the columns that there
// are); an *InputError of a file that cannot be read, or has a key column of a type that cannot be a key; a build side
// whose keys do not fit into the device's memory; the context's error.
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
	if err := cmp.Or(o.writeOptions().check(o.Out), o.Text.check()); err != nil {
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
	sum, err := runGlancing(ctx, d, o, t, buildFiles, probeFiles)
	sum.Total = time.Since(start).Seconds()
	return sum, err
}

// runOnce opens the inputs, with a glance where that is told, and joins them. It tells whether types are from a glance.
// The devices are those of an earlier run, or are opened; closing them is left to the caller.
func runOnce(ctx context.Context, d *device.Device, o Options, t tuning, buildFiles, probeFiles []inputFile,
	glance bool, devices **opening) (s Summary, glanced bool, err error) {
	glanceAt := func(key func(p Pair) string) {
		if o.Text.key = nil; glance {
			o.Text.key = func(name string) bool {
				return slices.ContainsFunc(o.On, func(p Pair) bool { return key(p) == name })
			}
		}
	}
	glanceAt(func(p Pair) string { return p.Build })
	build, err := openFiles(o.BuildFormat, buildFiles, o.Text)
	if err != nil {
		return s, false, err
	}
	defer build.Close()
	glanceAt(func(p Pair) string { return p.Probe })
	probe, err := o.openProbe(probeFiles, build)
	if err != nil {
		return s, build.glancedAt(), err
	}
	defer probe.Close()
	glanced = build.glancedAt() || probe.glancedAt()
	if err := o.Text.checkUse(build, probe); err != nil {
		return s, glanced, err
	}
	if _, err := planKeys(build.Schema(), probe.Schema(), o.On, o.NullsEqual); err != nil {
		if errors.As(err, new(*OptionError)) {
			return s, glanced, o.Text.otherDelimiter(err, build, probe)
		}
		return s, glanced, ofInput(because(err, build, probe))
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
		return s, glanced, err
	}
	if f, _ := o.writeOptions().format(o.Out); (f == CSV || f == TSV) && !o.Count && !t.apart {
		plan = plan.inStrips(build, probe, map[Format]byte{CSV: ',', TSV: '\t'}[f])
	}
	j := newJoiner(devicesOf(d, o), o, t)
	way, err := j.way(build, probe, plan)
	if err != nil {
		return s, glanced, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if j.choose(build, probe, *devices, cancel); j.opening != nil {
		*devices = j.opening
	}
	if o.Count {
		err = j.files(ctx, build, probe, plan, way, nil)
		if o.Limit > 0 {
			j.sum.OutRows = min(j.sum.OutRows, o.Limit)
		}
	} else {
		err = j.toFile(ctx, build, probe, plan, way)
	}
	return j.sum, glanced, err
}

// toFile joins into o.Out.
func (j *joiner) toFile(ctx context.Context, build, probe *Reader, plan *output, way way) error {
	as := parquetOptions{chosen: j.Compression != "", threads: j.Threads, memory: j.Memory}
	as.columns = plan.nodes(build, probe, j.How)
	for i, n := range as.columns {
		if n != nil && !way.columns && !n.nameless() {
			as.columns[i] = nil // written as what Arrow makes of it
		}
	}
	to := j.writeOptions()
	to.widths = plan.widths
	out, err := create(j.Out, cmp.Or(plan.written, plan.schema), to, as)
	if err != nil {
		return err
	}
	defer out.Abort()
	if err := j.files(ctx, build, probe, plan, way, out); err != nil {
		return err
	}
	closing := time.Now()
	out.rows = j.sum.OutRows
	err = out.Close()
	j.sum.Writing += time.Since(closing).Seconds()
	return err
}

// files joins into a writer, or counts where there is none. From Parquet to Parquet columns go as their files have
// them.
func (j *joiner) files(ctx context.Context, build, probe *Reader, plan *output, way way, out *Writer) error {
	if way.parts > 1 {
		defer context.AfterFunc(ctx, probe.interrupt)()
		err := catch(brokeOff, func() error { return j.parted(ctx, build, probe, plan, out, way) })
		if err == nil && probe.isLive() && ctx.Err() != nil { // what came is not all
			err = context.Cause(ctx)
		}
		return err
	}
	if way.columns {
		return catch(brokeOff, func() error { return j.columns(ctx, build, probe, plan, out) })
	}
	j.out = plan.only(build, probe, j.On)
	if err := j.within(len(plan.columns), build, probe); err != nil {
		return err
	}
	if out != nil {
		j.sink = out.Write
	}
	return catch(brokeOff, func() error { return j.run(ctx, build, probe) })
}

// Join joins two readers and calls sink with each batch of the output. A batch has at most 65,536 rows, and the schema
// that OutputSchema gives. The sink must retain what it keeps. Join's own goroutine calls sink, and another one the
// probe's Next; both are done when Join returns. If a reader knows its number of rows (a method
// Rows() int64), the progress includes it.
//
// The build rows stay in host memory, the keys in the device's memory: 4 or 8 bytes for the key and 4 for the row
// number, divided by the table's load factor.
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
	o.Threads = crash.Threads(o.Threads)
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
	missing error    // why there is no device, where the cores do without
	family  table.Family
	filter  Filter
	sink    func(arrow.RecordBatch) error
	sum     Summary

	cores   bool // keys get no table of a family
	byBits  bool // and where only asked for, none on any device
	pinned  int  // as opener's
	plan    *keyPlan
	out     *output
	payload []int    // build columns of the output
	takers  []*taker // theirs
	starts  []int64  // the first row of each build chunk, and the end
	// stretches has the chunk of each 2^stretchBits-th build row
	stretches []int32
	index     matcher
	beside    int      // how many blocks are looked up at a time
	taken     int64    // rows that came out, where there is a limit
	seen      []uint32 // a bit for each representative that was found, where build rows without a match come out
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
