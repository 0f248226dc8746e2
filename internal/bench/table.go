package bench

import (
	"cmp"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/workload"
)

// TableOptions say what Table measures.
type TableOptions struct {
	Keys       string    // kind, see workload.NewKeys
	KeyBytes   int       // 4, 8, 16 or 32
	ValueBytes int       // the same, or 64
	N          int       // pairs
	Queries    int       // look-ups; 0: of each key that is there, once
	Hits       float64   // share of them that hit
	Loads      []float64 // load factors
	Seed       uint64
	Each       int `json:",omitempty"` // pairs with one key, of multimaps; 0: one
	Batch      int `json:",omitempty"` // pairs of an InsertOn; 0: all in one
	// Distinct is how many keys those of the pairs are drawn from, each as likely, or as Keys says of look-ups. 0: all keys are different. A map
	// then has any of a key's values.
	Distinct int `json:",omitempty"`
	// FalsePositives and FilterBytes are table.FilterOptions.FalsePositives and Bytes.
	FalsePositives float64 `json:",omitempty"`
	FilterBytes    int64   `json:",omitempty"`
	// DeviceBytes is stadium.Options.DeviceBytes, of tables that may lie in host memory.
	DeviceBytes int64               `json:",omitempty"`
	Build       bool                `json:",omitempty"` // by BuildOn, where the table has it, in place of InsertOn
	Update      bool                `json:",omitempty"` // by UpdateOn, where the table has it, which adds the values of a key up
	Chosen      float64             `json:",omitempty"` // share of the rows, of pairs and of look-ups, that InsertIfOn and FindIfOn do; 0: all
	Policy      string              `json:",omitempty"` // of a cache
	HostValues  bool                `json:",omitempty"` // of a cache
	Step        func(done, all int) `json:"-"`          // progress; may be nil
}

func (o TableOptions) pairBytes() int { return o.KeyBytes + o.ValueBytes }

// Room is how many pairs a table has to have room for in which a key stands once.
func (o TableOptions) Room() int { return cmp.Or(o.Distinct, o.N) }

// Row is one line of Table: rates are billions a second of device time, medians of Runs: pairs that are inserted (of a set, a counter and
// a filter, keys), and keys that are looked up, however many values they have. Columns that a kind does not have are 0.
type Row struct {
	Load        float64 `json:"load"`             // as wanted
	Filled      float64 `json:"filled,omitempty"` // as measured, of the slots that the table came to have
	Insert      float64 `json:"insert"`
	Build       float64 `json:"build,omitempty"`  // in place of Insert; of multimaps, beside it
	Update      float64 `json:"update,omitempty"` // in place of Insert
	InsertShare float64 `json:"insert_share"`     // of random compare-and-swaps of the pair's size; of what is in its place too
	Find        float64 `json:"find"`
	FindShare   float64 `json:"find_share"`           // of random look-ups of 64 bytes, of filters 32
	Bytes       int64   `json:"bytes"`                // of the table
	HostBytes   int64   `json:"host_bytes,omitempty"` // of these, in host memory
	MeanProbes  float64 `json:"mean_probes"`
	Wrong       int     `json:"wrong"` // answers, of Queries, and of what else was measured
	Limits      Limits  `json:"limits"`

	InsertAdded float64    `json:"insert_added,omitempty"` // of sets: inserts that tell which keys were new
	Delete      float64    `json:"delete,omitempty"`       // of sets: all keys, told which were there
	Asked       int        `json:"asked,omitempty"`        // of multimaps: look-ups, for Queries may leave them open
	Values      float64    `json:"values,omitempty"`       // of multimaps: values that Find gives
	Count       float64    `json:"count,omitempty"`        // of multimaps: keys whose values are counted
	Filter      *FilterRow `json:"filter,omitempty"`
	Cache       *CacheRow  `json:"cache,omitempty"`
}

// Filling is Insert, or what is measured in its place.
func (r Row) Filling() float64 { return cmp.Or(r.Insert, r.Update, r.Build) }

// OptionError is an error of options that nothing can be measured with.
type OptionError struct{ error }

func (e *OptionError) Unwrap() error { return e.error }

// WrongOption returns an OptionError with a text as of fmt.Errorf.
func WrongOption(text string, args ...any) error { return &OptionError{fmt.Errorf(text, args...)} }

// Make makes a table of any kind, of that load factor, for the Work's pairs. It closes what it made before an error.
type Make[K, V workload.Wide] func(w *Work[K, V], load float64) (Subject, error)

// Table measures inserts of N pairs into an empty table of each load factor, and look-ups in it; and the machine's
// limits over memory of the table's size, in the same run. Errors: an *OptionError, before anything is measured; those of
// tables and devices.
func Table[K, V workload.Wide](d *device.Device, o TableOptions, make Make[K, V]) ([]Row, error) {
	if o.N < 1 || o.Queries < 0 || o.Batch < 0 || o.Each < 0 || o.Each > o.N || !(o.Hits >= 0 && o.Hits <= 1) || len(o.Loads) == 0 {
		return nil, WrongOption("bench: %d pairs, %d with one key, in batches of %d, %d look-ups, %v of them hits, %d load factors: nothing to measure",
			o.N, o.Each, o.Batch, o.Queries, o.Hits, len(o.Loads))
	}
	if !(o.Chosen >= 0 && o.Chosen <= 1) {
		return nil, WrongOption("bench: a share of %v of the rows: want 0 to 1", o.Chosen)
	}
	if o.Distinct < 0 || o.Distinct > o.N || o.Distinct > 0 && (o.Each > 1 || o.N > math.MaxUint32) {
		return nil, WrongOption("bench: keys of %d pairs, drawn from %d, or %d pairs with each: want one of both, no more keys than pairs, and to draw, fewer than 2³²",
			o.N, o.Distinct, o.Each)
	}
	w, err := NewWork[K, V](d, o)
	if err != nil {
		return nil, err
	}
	defer w.Free()
	var rows []Row
	for i, load := range o.Loads {
		if o.Step != nil {
			o.Step(i, len(o.Loads))
		}
		s, err := make(w, load)
		if err != nil {
			return rows, err
		}
		row, err := w.Measure(s)
		err = errors.Join(err, s.Table.Close())
		if err != nil {
			return rows, fmt.Errorf("load factor %v: %w", load, err)
		}
		row.Load = load
		if row.Limits, err = MeasureLimits(d, max(row.Bytes-row.HostBytes, 1<<20), min(o.N, max(w.Options.Queries, 1<<20))); err != nil {
			return rows, err
		}
		row.FindShare = row.Find / row.Limits.Lookup64
		if s.Reads == 32 {
			row.FindShare = row.Find / row.Limits.Lookup32
		}
		row.InsertShare = row.Filling() / row.Limits.Swap64
		if s.Bytes > 8 && row.Limits.Swap128 > 0 {
			row.InsertShare = row.Filling() / row.Limits.Swap128
		}
		rows = append(rows, row)
	}
	return rows, nil
}
