package cache

import (
	_ "embed"
	"errors"
	"fmt"
	"reflect"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

//go:embed score.cu
var scoreCU string

// scoreHeader makes the file score.h of an expression over pairs of these types.
func scoreHeader(cfg config, expression string, key, value reflect.Type) device.File {
	number := func(t reflect.Type, bytes int) string {
		if name, ok := frame.Scalar(t); ok {
			return name
		}
		return fmt.Sprintf("u%d", 8*bytes)
	}
	takes, gives, of := "config::value", "", ""
	if cfg.paired() && cfg.valueBytes > 0 {
		name := number(value, cfg.valueBytes)
		takes, gives = fmt.Sprintf("u%d", 8*cfg.valueBytes), fmt.Sprintf("%s value, ", name)
		of = fmt.Sprintf("score_bits<%s>(value), ", name)
	}
	k := number(key, cfg.keyBytes)
	return device.File{Name: "score.h", Text: fmt.Sprintf(`#pragma once
#include "warpmap.cuh"
template <class T, class Bits> __device__ __forceinline__ T score_bits(Bits b) {
    T x;
    memcpy(&x, &b, sizeof x);
    return x;
}
__device__ __forceinline__ double score_expression(%s key, %su32 old, u32 time, bool hit) {
    return (double)(
#line 1 "score"
%s
    );
}
__device__ __forceinline__ double score_by(u%d key, %s value, u32 old, u32 time, bool hit) {
    return score_expression(score_bits<%s>(key), %sold, time, hit);
}
`, k, gives, expression, 8*cfg.keyBytes, takes, k, of)}
}

// scoring is what a cache has whose scores an expression gives.
type scoring struct {
	header device.File
	kernel device.Kernel[scoreParams]
}

// compileScore compiles the expression. Its errors come when the cache is made.
func (c *core) compileScore() error {
	if c.opts.Score == "" {
		return nil
	}
	p := c.program("cache_score", scoreCU)
	p.Files = append(p.Files, c.opts.scoring.header)
	m, err := c.frame.Device.Compile(p)
	if err != nil {
		return err
	}
	return device.Bind(m, "score", &c.opts.scoring.kernel)
}

// scored gives pairs that are about to be put their scores, in memory that is lent until done.
func (c *core) scored(st *device.Stream, p *putParams) (done func(), err error) {
	if c.opts.Score == "" || p.Scores != 0 {
		return func() {}, nil
	}
	lease, err := c.frame.Scratch(4 * int64(p.N))
	if err != nil {
		return nil, err
	}
	p.Scores = lease.Mem.Addr()
	s := &scoreParams{Table: c.t, Keys: p.Keys, Values: p.Values, Scores: p.Scores, N: p.N, Now: p.Now, Time: p.Time}
	if err := c.opts.scoring.kernel.Launch(st, c.grid(int64(p.N)), s); err != nil {
		lease.Done()
		return nil, err
	}
	return lease.Done, nil
}

// rescore gives what was looked up its new scores.
func (c *core) rescore(st *device.Stream, p *findParams) error {
	if c.opts.Score == "" || p.Quiet != 0 {
		return nil
	}
	return c.opts.scoring.kernel.Launch(st, c.grid(int64(p.N)), &scoreParams{Table: c.t, Keys: p.Keys, N: p.N,
		Now: p.Now, Time: p.Time})
}

// noScore says that an operation is none for a cache whose scores an expression gives.
func (c *core) noScore(what string) error {
	if c.opts.Score == "" {
		return nil
	}
	return fmt.Errorf("cache: %s for a cache with Options.Score, which has inserts, look-ups and deletions alone: %w", what,
		errors.ErrUnsupported)
}
