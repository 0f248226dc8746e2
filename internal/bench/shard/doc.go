// Package shard measures tables over several devices: how insertion and look-ups scale (WarpCore, §IV-E and Figure 6), what the steps of an exchange
// take, and which look-ups are better asked of all devices. Where a study is given one CPU device, CPU devices stand for four GPUs.
package shard

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the figures of this package.
var Studies = []bench.Study{
	{Name: "shard/6", About: "scaling over several devices: inserts and look-ups, step by step and overlapped", Run: figure6, CUDA: 250_000_000, CPU: 100_000},
	{Name: "shard/ask", About: "look-ups asked of all devices beside those that go to owners, by the size of a batch", Run: figureAsk, CUDA: 100_000_000, CPU: 20_000},
}
