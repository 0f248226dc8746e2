// Package join joins two inputs on one or more key columns with the help of a hash table on a GPU, or on the CPU where
// there is none.
//
// The build side is read whole, and its keys go into a table; the probe side streams past it in record batches, so it
// may be larger than memory. Run joins files, Join any Arrow record readers.
//
// # A build side larger than memory
//
// Where the build side takes more than Options.Memory, Run writes both sides' rows to temporary files by a hash of their keys, with their numbers, joins
// each part of the one with its part of the other, and merges what comes out by the numbers: the rows are those that there would be, in their
// order. A part that is still too large is split again. All rows of one key are in memory together. The files have no name once they are open.
//
// # Keys
//
// Numbers, text, binary values, booleans, dates, times, timestamps and durations can be keys. Values are compared, not bytes: an int32
// -1 equals an int64 -1, and equals no uint64. Times, timestamps and durations of different units are compared exactly,
// and so are date32 and date64. Timestamps with a time zone are instants, whatever the zone; they do not join with
// timestamps without one, nor integers with dates, nor dates with timestamps: such pairs are errors. Decimals are compared as numbers, whatever their scales. Of
// floats -0 equals 0 and NaN equals NaN, as in DuckDB. Text is compared by its bytes, in a dictionary or not. A null in any key column
// matches nothing, another null included, unless Options.NullsEqual is set.
//
// Integers, dates and times of up to 16 bytes together, each pair of columns counting what the narrower of its two types takes, go to the
// table as they are. Other keys are hashed to 8 bytes, and what the table finds is compared on the host with the build side's keys, which
// stay in its memory: the join is exact.
//
// # Keys that lie close together
//
// On the CPU device, where no family of tables is named and keys of up to 8 bytes are on average at most 16 apart, as numbers are that were
// given out one after the other, they get no table: row numbers stand by key (Summary.Near). On a GPU they do: what has to go there and
// back is the same. Where Parquet files say that such keys are at most 64 apart on average, semi and anti joins, and counts of inner joins whose build side has no
// key twice, have a bit for each number alone, whatever the device, and look keys up as their pages are decoded: that is less than to pack
// them for a table.
//
// # Several devices
//
// Where there are several (Options.Beside, or what Options.Open gives), each has a copy of the keys' table, and look-ups take turns at them: a build side
// that fits the host's memory fits a GPU's, and no key has to go from one to another. Rows and their order are the same.
//
// # A filter in front
//
// On the CPU device, where most probe rows have no match, a filter of a few bits a key stands before the table (Options.Filter): there a look-up is
// most of the work of such a join, and a bit of a filter is much less. On a GPU it is of no use: to look up a block of keys takes no time beside
// reading and packing them.
//
// # From Parquet to Parquet
//
// Run reads the keys of the probe side's row groups, looks them up, and reads each other column where rows of it come out, all row groups and
// columns side by side. Row groups whose least and largest key say that no row can match are not read, nor, where a file has an index of its
// pages, are pages of keys that cannot match, and pages of other columns without a row that comes out. A row group whose rows all come out once,
// in order, is copied as its encoded pages. Dictionaries stay dictionaries. An output's row groups have 131,072 to 1,048,576 rows (the
// last fewer; one that is copied, as many as it has).
//
// # Order and duplicates
//
// Rows come in probe order, and the matches of one probe row in build order, whatever the device. Each pair of matching
// rows comes out once, and memory does not depend on how often a key repeats. How many threads there are changes nothing of it.
package join

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/bits"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
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
	Right            // every pair of matching rows, then the build rows without a match, with nulls for the probe columns
	Full             // the rows of Left, then those that Right has beside the pairs
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
	// For Run: names of inputs, as OpenAll takes them, and of the output, as CreateAs does; Out "-" (or empty) is standard output as CSV.
	Build, Probe, Out        string
	MoreBuild, MoreProbe     []string // inputs beside the first of each side
	BuildFormat, ProbeFormat Format   // where names do not tell

	On  []Pair // the key columns, at least one pair
	How How
	// NullsEqual lets a null in a key column match a null.
	NullsEqual bool

	Table table.Family // of the maps that hold the keys: one of warpmap.Families; empty for DefaultTable, or for none where keys lie close together
	// Filter says whether a filter tells most keys that have no match, before they are looked up.
	Filter Filter

	Select []string // the output's columns, by their names in it, in this order; empty for all
	Count  bool     // count the output's rows only: Run writes no file, and Join calls no sink
	Limit  int64    // write no more rows than this; 0 for all

	Threads int // work at a time at most; 0 for as many as GOMAXPROCS
	// Memory is about how many bytes of columns are in memory at a time; 0 for no bound. A build side that would take more, or without a bound half of the
	// machine's memory, goes to temporary files with the probe side, in the folder that TMPDIR names, and is joined part by part: the same rows
	// come in the same order. The rows of one key are in memory together.
	Memory      int64
	OutFormat   Format // as in WriteOptions
	Compression string
	RowsPerFile int64

	// Beside are more devices than the one that Run and Join get: each has a copy of the keys' table, and a part of the look-ups.
	Beside []*device.Device
	// Device names the device for Run, as device.Open takes it, where Run gets none; and Open opens it, or several. It is called once, on a goroutine of
	// its own while files are read, and Run closes what it gives. With "auto" (or "") the name that Open gets is "cpu" where that is faster than to open a GPU,
	// with the reason why; else "auto", and no reason.
	Device string
	Open   func(name, why string) ([]*device.Device, error)

	// Progress, if set, is called now and then, from one goroutine at a time.
	Progress func(Progress)

	batch  int     // rows of an output batch at most, and of a probed block at least; 0 for batchRows
	part   int64   // bytes of a part of the build side where there are several; 0 where memory says it, below for one part
	groups [2]int  // rows of an output's row group at least and at most, from Parquet to Parquet; 0 for enoughRows and groupRows
	makers *makers // opens tables; nil for the module's own
	pinned int     // as opener's; 0 where the device says it
}

// Progress tells how far a join is.
type Progress struct {
	Stage string // "read" (the build side), "build", "probe"
	Done  int64  // rows of the stage's input
	Total int64  // -1 where unknown
}

// Summary is what a join did. Seconds are those in which a stage was busy, on all goroutines together; the stages overlap, so that
// each can exceed Total.
type Summary struct {
	How       string       `json:"how"`
	Device    string       `json:"device"`
	Table     table.Family `json:"table"`
	BuildRows int64        `json:"build_rows"`
	ProbeRows int64        `json:"probe_rows"`
	OutRows   int64        `json:"out_rows"`
	Filtered  int64        `json:"filtered"`      // keys of the probe side, or words of keys, that a filter kept from being looked up
	Near      bool         `json:"near"`          // the keys lie so close together that they needed no table
	Skipped   int64        `json:"skipped"`       // row groups of the probe side whose keys were not read, because none can match
	Pages     int64        `json:"skipped_pages"` // pages of the other row groups that were not read, because none of their rows matches, by the file's index
	Reading   float64      `json:"reading_s"`
	Building  float64      `json:"building_s"`
	Probing   float64      `json:"probing_s"`
	Writing   float64      `json:"writing_s"`
	Total     float64      `json:"total_s"`
}

// batchRows is the size of batches where nothing else decides it.
const batchRows = 1 << 16

func (o Options) writeOptions() WriteOptions {
	return WriteOptions{Format: o.OutFormat, Compression: o.Compression, RowsPerFile: o.RowsPerFile}
}

// Run joins files, one or several a side, into one, or a folder of them. Formats go by the names' suffixes (Suffixes) where none are given.
// The output is written under a temporary name beside its own and renamed when it is whole. From CSV to CSV values that are no keys are
// written as they were read.
//
// Without a device, Options.Open opens one.
//
// An output may take the place of an input; CheckOutput tells whether it would.
//
// Errors: a file that cannot be read, a key column that is missing (the error lists those there are) or of a type
// that cannot be a key, a build side whose keys do not fit into the device's memory, ctx's own.
func Run(ctx context.Context, d *device.Device, o Options) (s Summary, err error) {
	err = catch(brokeOff, func() (err error) { s, err = run(ctx, d, o); return err })
	return s, err
}

func run(ctx context.Context, d *device.Device, o Options) (Summary, error) {
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
		build.asText(func(name string) bool { return slices.ContainsFunc(o.On, func(p Pair) bool { return p.Build == name }) })
		probe.asText(func(name string) bool { return slices.ContainsFunc(o.On, func(p Pair) bool { return p.Probe == name }) })
	}
	plan, err := planOutput(build.Schema(), probe.Schema(), o)
	if err != nil {
		return Summary{}, err
	}
	j := newJoiner(devicesOf(d, o), o)
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

// files joins into a writer, or counts where there is none. From Parquet to Parquet columns go as their files have them.
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

// because adds to an error of a key column in a CSV file which field made it so.
func because(err error, build, probe *Reader) error {
	var k *keyTypeError
	if !errors.As(err, &k) {
		return err
	}
	r := build
	if k.side == "probe" {
		r = probe
	}
	if k.column >= len(r.made) || r.made[k.column].path == "" {
		return err
	}
	w := r.made[k.column]
	if w.line == 0 {
		return fmt.Errorf("%w; the name of a folder made it so, with %q, in %s", err, w.value, w.path)
	}
	return fmt.Errorf("%w; line %d of %s made it so, with %q", err, w.line, w.path, w.value)
}

// OutputSchema is the schema of a join's output: the probe's columns, then for inner and left joins the build's
// without its key columns, and for right and full joins with them; of these, the ones that Options.Select names. A build column whose name is taken gets the suffix "_build", more
// than once if it must.
func OutputSchema(build, probe *arrow.Schema, o Options) (*arrow.Schema, error) {
	p, err := planOutput(build, probe, o)
	if err != nil {
		return nil, err
	}
	return p.schema, nil
}

// output says where a join's columns come from.
type output struct {
	schema  *arrow.Schema
	columns []source
}

// source is a column of one side.
type source struct {
	build bool
	at    int
}

func planOutput(build, probe *arrow.Schema, o Options) (*output, error) {
	if _, err := planKeys(build, probe, o.On, o.NullsEqual); err != nil {
		return nil, err
	}
	fields := slices.Clone(probe.Fields())
	var from []source
	for i := range fields {
		from = append(from, source{at: i})
	}
	for i := range fields {
		fields[i].Nullable = fields[i].Nullable || o.How.keepsBuild()
	}
	if o.How.pairs() {
		used := map[string]bool{}
		for _, f := range fields {
			used[f.Name] = true
		}
		payload := payloadColumns(build, o)
		// Names that clash with no probe column stay, so they are taken before any suffix is tried.
		clash := map[int]bool{}
		for _, i := range payload {
			if name := build.Field(i).Name; used[name] {
				clash[i] = true
			} else {
				used[name] = true
			}
		}
		for _, i := range payload {
			f := build.Field(i)
			for clash[i] && used[f.Name] {
				f.Name += "_build"
			}
			used[f.Name] = true
			f.Nullable = f.Nullable || o.How.keepsProbe()
			fields, from = append(fields, f), append(from, source{true, i})
		}
	}
	for i := range fields {
		// Two files' field numbers are not one file's.
		m := fields[i].Metadata
		if k := m.FindKey("PARQUET:field_id"); k >= 0 {
			fields[i].Metadata = arrow.NewMetadata(slices.Delete(slices.Clone(m.Keys()), k, k+1), slices.Delete(slices.Clone(m.Values()), k, k+1))
		}
	}
	p := &output{arrow.NewSchema(fields, nil), from}
	return p, p.choose(o.Select)
}

// choose leaves the columns of the given names, in their order.
func (p *output) choose(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var fields []arrow.Field
	var from []source
	for i, name := range names {
		at := p.schema.FieldIndices(name)
		switch {
		case len(at) == 0:
			return fmt.Errorf("the output has no column %q to select; its columns: %s", name, columnNames(p.schema))
		case len(at) > 1:
			return fmt.Errorf("the output has %d columns named %q: rename all but one", len(at), name)
		case slices.Contains(names[:i], name):
			return fmt.Errorf("column %q is selected twice", name)
		}
		fields, from = append(fields, p.schema.Field(at[0])), append(from, p.columns[at[0]])
	}
	p.schema, p.columns = arrow.NewSchema(fields, nil), from
	return nil
}

// only lets readers leave out the columns that are no keys and do not come out, and gives the plan for what they then have. A
// reader that is nil is left alone.
func (p *output) only(build, probe *Reader, on []Pair) *output {
	out := &output{schema: p.schema, columns: slices.Clone(p.columns)}
	for _, side := range []bool{true, false} {
		r := probe
		if side {
			r = build
		}
		if r == nil {
			continue
		}
		var keep []int
		for i, f := range r.schema.Fields() {
			key := slices.ContainsFunc(on, func(o Pair) bool { return side && o.Build == f.Name || !side && o.Probe == f.Name })
			if key || slices.Contains(p.columns, source{side, i}) {
				keep = append(keep, i)
			}
		}
		r.only(keep)
		for i, c := range out.columns {
			if c.build == side {
				out.columns[i].at = slices.Index(keep, c.at)
			}
		}
	}
	return out
}

// nodes are the types of the flat columns of Parquet files, which stay.
func (p *output) nodes(build, probe *Reader, how How) []*parquetNode {
	nodes := make([]*parquetNode, len(p.columns))
	for i, c := range p.columns {
		r := probe
		if c.build {
			r = build
		}
		if r.pq != nil {
			if col := r.pq.flat(c.at); col != nil {
				nodes[i] = &parquetNode{col, col.MaxDefinitionLevel() == 1 || c.build && how.keepsProbe() || !c.build && how.keepsBuild()}
			}
		}
	}
	return nodes
}

// payloadColumns are the build's columns that come out: the keys only where rows do that have no probe row to show theirs.
func payloadColumns(build *arrow.Schema, o Options) []int {
	var out []int
	for i, f := range build.Fields() {
		if o.How.keepsBuild() || !slices.ContainsFunc(o.On, func(p Pair) bool { return p.Build == f.Name }) {
			out = append(out, i)
		}
	}
	return out
}

// Join joins two readers and calls sink with each batch of the output, of at most 65,536 rows, with the schema that
// OutputSchema gives. The sink must retain what it keeps. It is called from a goroutine of Join's own, and so
// is the probe's Next, each from one at a time; both are done when Join returns. A reader that knows its number of rows
// (a method Rows() int64) gets them into the progress.
//
// Build rows are kept in host memory, keys in the device's: 4 or 8 bytes for the key and 4 for the row number, divided
// by the table's load factor.
func Join(ctx context.Context, d *device.Device, build, probe array.RecordReader, o Options, sink func(arrow.RecordBatch) error) (Summary, error) {
	j := newJoiner(devicesOf(d, o), o)
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
func newJoiner(devices []*device.Device, o Options) *joiner {
	if o.batch == 0 {
		o.batch = batchRows
	}
	if o.groups[1] == 0 {
		o.groups = [2]int{enoughRows, groupRows}
	}
	if o.Threads <= 0 {
		o.Threads = runtime.GOMAXPROCS(0)
	}
	if o.makers == nil {
		o.makers = &ownMakers
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	j := &joiner{Options: o, began: time.Now(), family: cmp.Or(o.Table, DefaultTable)}
	j.sum = Summary{How: o.How.String(), Table: j.family}
	if len(devices) > 0 {
		j.have(devices)
		return j
	}
	j.use(false)
	j.byBits, j.pinned = false, o.pinned
	return j
}

type joiner struct {
	Options
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

// watch makes room for notice.
func (j *joiner) watch() {
	if j.How.keepsBuild() {
		j.seen = make([]uint32, (j.sum.BuildRows+31)/32)
	}
}

// build reads the build side and indexes its keys.
func (j *joiner) build(ctx context.Context, build array.RecordReader) error {
	for _, c := range j.out.columns {
		if c.build && !j.Count {
			j.payload = append(j.payload, c.at)
		}
	}
	keys := &packed{}
	chunks := make([][]arrow.ArrayData, len(j.payload))
	j.starts = []int64{0}
	total := rowsOf(build)
	for {
		clock := time.Now()
		more := build.Next()
		j.sum.Reading += time.Since(clock).Seconds()
		if !more {
			break
		}
		rec := build.RecordBatch()
		if rec.NumRows() == 0 {
			continue
		}
		clock = time.Now()
		for i, c := range j.payload {
			data := rec.Column(c).Data()
			data.Retain()
			chunks[i] = append(chunks[i], data)
		}
		if err := j.plan.pack(keys, rec, true); err != nil {
			return err
		}
		j.sum.Building += time.Since(clock).Seconds()
		j.sum.BuildRows += rec.NumRows()
		j.starts = append(j.starts, j.sum.BuildRows)
		j.Progress(Progress{"read", j.sum.BuildRows, total})
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
	}
	if err := build.Err(); err != nil {
		return fmt.Errorf("reading the build side: %w", err)
	}
	clock := time.Now()
	defer func() { j.sum.Building += time.Since(clock).Seconds() }()
	for i, c := range j.payload {
		t, err := newTaker(build.Schema().Field(c).Type, chunks[i])
		if err != nil {
			return fmt.Errorf("build column %q: %w", build.Schema().Field(c).Name, err)
		}
		j.takers = append(j.takers, t)
	}
	return j.makeIndex(ctx, keys)
}

// makeIndex makes the index of the build side's keys, when the device is open.
func (j *joiner) makeIndex(ctx context.Context, keys *packed) (err error) {
	if err := j.ready(); err != nil {
		return err
	}
	j.index, err = newIndex(ctx, j.opener(), j.plan, keys, func(done int) {
		j.Progress(Progress{"build", int64(done), j.sum.BuildRows})
	})
	if err == nil {
		j.sum.Near = j.index.near()
	}
	return err
}

func (j *joiner) opener() opener {
	return opener{j.makers, j.devices, j.family, j.filter, j.near, j.pinned}
}

func rowsOf(r array.RecordReader) int64 {
	if r, ok := r.(interface{ Rows() int64 }); ok {
		return r.Rows()
	}
	return -1
}

// block is a stretch of probe rows that is looked up at once: small batches are put together, large ones cut.
type block struct {
	recs []arrow.RecordBatch
	rows int
}

func (b *block) release() {
	for _, r := range b.recs {
		r.Release()
	}
}

// probe streams the probe side: one goroutine reads, one writes, and this one looks up and takes rows.
func (j *joiner) probe(ctx context.Context, probe array.RecordReader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	more, stop := context.WithCancel(ctx) // until there are enough rows
	defer stop()
	blocks, outs := make(chan *block, 1), make(chan arrow.RecordBatch, 1)
	var reading, writing float64
	var both crash.WaitGroup
	both.Go(func() {
		defer close(blocks)
		err := catch("reading the probe side broke off", func() (err error) { reading, err = j.read(more, probe, blocks); return err })
		if err != nil && (more.Err() == nil || ctx.Err() != nil) {
			cancel(err)
		}
	})
	both.Go(func() {
		for rec := range outs {
			if ctx.Err() == nil {
				clock := time.Now()
				if err := catch("it broke off", func() error { return j.sink(rec) }); err != nil {
					cancel(fmt.Errorf("writing the output: %w", err))
				}
				writing += time.Since(clock).Seconds()
				j.sum.OutRows += rec.NumRows()
			}
			rec.Release()
		}
	})
	total, done := rowsOf(probe), int64(0)
	enough := false
	for b := range blocks {
		if !enough && ctx.Err() == nil {
			err := catch(brokeOff, func() error {
				clock := time.Now()
				waiting, err := j.block(ctx, b, outs)
				j.sum.Probing += (time.Since(clock) - waiting).Seconds()
				done += int64(b.rows)
				j.Progress(Progress{"probe", done, total})
				return err
			})
			if err == errEnough {
				enough = true
				stop()
			} else if err != nil {
				cancel(err)
			}
		}
		b.release()
	}
	if j.How.keepsBuild() && !enough && ctx.Err() == nil {
		if err := catch(brokeOff, func() error { return j.rest(ctx, outs) }); err != nil && err != errEnough {
			cancel(err)
		}
	}
	close(outs)
	both.Wait()
	j.sum.ProbeRows, j.sum.Filtered = done, j.index.filtered()
	j.sum.Reading += reading
	j.sum.Writing += writing
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}

// read cuts the probe side into blocks.
func (j *joiner) read(ctx context.Context, probe array.RecordReader, blocks chan<- *block) (seconds float64, err error) {
	b := &block{}
	send := func() error {
		if b.rows == 0 {
			return nil
		}
		select {
		case blocks <- b:
			b = &block{}
			return nil
		case <-ctx.Done():
			b.release()
			return ctx.Err()
		}
	}
	for {
		clock := time.Now()
		more := probe.Next()
		seconds += time.Since(clock).Seconds()
		if !more {
			break
		}
		rec := probe.RecordBatch()
		for from := int64(0); from < rec.NumRows(); {
			to := min(rec.NumRows(), from+int64(j.batch))
			b.recs = append(b.recs, rec.NewSlice(from, to))
			b.rows += int(to - from)
			from = to
			if b.rows >= j.batch {
				if err := send(); err != nil {
					return seconds, err
				}
			}
		}
	}
	if err := probe.Err(); err != nil {
		b.release()
		return seconds, fmt.Errorf("reading the probe side: %w", err)
	}
	return seconds, send()
}

// block looks up a block's keys and sends the output's rows; it returns the time it waited for the writer.
func (j *joiner) block(ctx context.Context, b *block, outs chan<- arrow.RecordBatch) (waiting time.Duration, err error) {
	keys := &packed{}
	for _, r := range b.recs {
		if err := j.plan.pack(keys, r, false); err != nil {
			return 0, err
		}
	}
	keys.settle()
	reps := make([]int64, b.rows)
	if err := j.index.find(keys, reps); err != nil {
		return 0, err
	}
	j.notice(reps)
	if j.Count {
		for _, rep := range reps {
			j.sum.OutRows += int64(j.times(rep))
		}
		return 0, nil
	}
	takers, err := j.blockTakers(b)
	if err != nil {
		return 0, err
	}
	left, right := make([]loc, 0, j.batch), make([]loc, 0, j.batch)
	flush := func() error {
		w, err := j.emit(ctx, b, takers, left, right, outs)
		waiting += w
		left, right = left[:0], right[:0]
		return err
	}
	i := 0
	for c, r := range b.recs {
		for row := range int(r.NumRows()) {
			rep := reps[i]
			i++
			for k := range j.times(rep) {
				if j.Limit > 0 && j.taken == j.Limit {
					return waiting, cmp.Or(flush(), errEnough)
				}
				j.taken++
				left = append(left, loc{c, row})
				if len(j.payload) > 0 {
					if rep >= 0 {
						right = append(right, j.buildLoc(j.index.match(rep, k)))
					} else {
						right = append(right, null)
					}
				}
				if len(left) == j.batch {
					if err := flush(); err != nil {
						return waiting, err
					}
				}
			}
		}
	}
	return waiting, flush()
}

// notice marks the representatives that were found, where build rows without a match come out.
func (j *joiner) notice(reps []int64) {
	if !j.How.keepsBuild() {
		return
	}
	last := int64(-1)
	for _, rep := range reps {
		if rep < 0 || rep == last {
			continue
		}
		last = rep
		if word, bit := &j.seen[rep/32], uint32(1)<<(rep%32); atomic.LoadUint32(word)&bit == 0 {
			atomic.OrUint32(word, bit)
		}
	}
}

// unmatched lists the build rows without a match.
func (j *joiner) unmatched() []int64 {
	matched := make([]bool, j.sum.BuildRows)
	for i, word := range j.seen {
		for ; word != 0; word &= word - 1 {
			rep := int64(32*i + bits.TrailingZeros32(word))
			for k := range j.index.matches(rep) {
				matched[j.index.match(rep, k)] = true
			}
		}
	}
	var rows []int64
	for row, m := range matched {
		if !m {
			rows = append(rows, int64(row))
		}
	}
	return rows
}

// rest sends the build rows without a match.
func (j *joiner) rest(ctx context.Context, outs chan<- arrow.RecordBatch) error {
	rows := j.unmatched()
	if j.Limit > 0 {
		rows = rows[:min(int64(len(rows)), j.Limit-j.taken)]
	}
	if j.Count {
		j.sum.OutRows += int64(len(rows))
		return nil
	}
	none := &block{}
	takers, err := j.blockTakers(none)
	if err != nil {
		return err
	}
	for batch := range slices.Chunk(rows, j.batch) {
		left, right := make([]loc, len(batch)), make([]loc, len(batch))
		for i, row := range batch {
			left[i], right[i] = null, j.buildLoc(row)
		}
		if _, err := j.emit(ctx, none, takers, left, right, outs); err != nil {
			return err
		}
	}
	return nil
}

// errEnough ends a join that has as many rows as were asked for.
var errEnough = errors.New("enough rows")

// times is how often a probe row comes out whose keys have the given representative.
func (j *joiner) times(rep int64) int {
	switch {
	case rep >= 0 && j.How.pairs():
		return j.index.matches(rep)
	case j.How.keepsProbe(), j.How == Semi && rep >= 0, j.How == Anti && rep < 0:
		return 1
	}
	return 0
}

// blockTakers makes a taker for each column of the output, over a block for the probe's.
func (j *joiner) blockTakers(b *block) ([]*taker, error) {
	var all []*taker
	next := 0
	for i, c := range j.out.columns {
		if c.build {
			all = append(all, j.takers[next])
			next++
			continue
		}
		chunks := make([]arrow.ArrayData, len(b.recs))
		for i, r := range b.recs {
			chunks[i] = r.Column(c.at).Data()
		}
		t, err := newTaker(j.out.schema.Field(i).Type, chunks)
		if err != nil {
			return nil, fmt.Errorf("probe column %q: %w", j.out.schema.Field(i).Name, err)
		}
		all = append(all, t)
	}
	return all, nil
}

// buildLoc finds the chunk of a build row.
func (j *joiner) buildLoc(row int64) loc {
	if len(j.starts) == 2 {
		return loc{0, int(row)}
	}
	c := sort.Search(len(j.starts)-1, func(c int) bool { return j.starts[c+1] > row })
	return loc{c, int(row - j.starts[c])}
}

// emit takes the rows of one output batch and sends it, in halves if their text does not fit one array.
func (j *joiner) emit(ctx context.Context, b *block, takers []*taker, left, right []loc, outs chan<- arrow.RecordBatch) (waiting time.Duration, err error) {
	if len(left) == 0 {
		return 0, nil
	}
	cols := make([]arrow.Array, len(takers))
	// A block that is one batch, and comes out whole, need not be copied.
	whole := len(b.recs) == 1 && len(left) == b.rows
	for i := 0; whole && i < len(left); i++ {
		whole = left[i].row == i
	}
	errs := each(len(cols), func(c int) (err error) {
		var data arrow.ArrayData
		from := j.out.columns[c]
		switch {
		case from.build:
			data, err = takers[c].take(right)
		case whole:
			cols[c] = b.recs[0].Column(from.at)
			cols[c].Retain()
			return nil
		default:
			data, err = takers[c].take(left)
		}
		if err == nil {
			cols[c] = array.MakeFromData(data)
			data.Release()
		}
		return err
	})
	for c, err := range errs {
		if errors.Is(err, errTooBig) && len(left) > 1 {
			h := len(left) / 2
			var first, second []loc
			if len(right) > 0 {
				first, second = right[:h], right[h:]
			}
			w1, err := j.emit(ctx, b, takers, left[:h], first, outs)
			if err != nil {
				return w1, err
			}
			w2, err := j.emit(ctx, b, takers, left[h:], second, outs)
			return w1 + w2, err
		}
		if err != nil {
			return 0, fmt.Errorf("column %q: %w", j.out.schema.Field(c).Name, err)
		}
	}
	rec := array.NewRecordBatch(j.out.schema, cols, int64(len(left)))
	for _, c := range cols {
		c.Release()
	}
	clock := time.Now()
	select {
	case outs <- rec:
		return time.Since(clock), nil
	case <-ctx.Done():
		rec.Release()
		return time.Since(clock), context.Cause(ctx)
	}
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

// each calls f(0) to f(n-1) on as many goroutines as there are hardware threads, and gives what they return; a panic is an
// error.
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
