package join

import (
	"context"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

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
	j.note()
	for i, c := range j.payload {
		t, err := newTaker(build.Schema().Field(c).Type, chunks[i])
		if err != nil {
			return fmt.Errorf("build column %q: %w", build.Schema().Field(c).Name, err)
		}
		j.takers = append(j.takers, t.limit(j.atOnce()))
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
		j.sum.Near, j.sum.Table = j.index.near(), ""
		if j.index.usesTables() {
			j.sum.Table = j.family
		}
	}
	return err
}

func (j *joiner) opener() opener {
	return opener{j.makers, j.devices, j.missing, j.family, j.filter, j.cores, j.pinned}
}

func rowsOf(r array.RecordReader) int64 {
	if r, ok := r.(interface{ Rows() int64 }); ok {
		return r.Rows()
	}
	return -1
}
