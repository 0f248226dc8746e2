// Package shard measures tables over several devices: the scaling of inserts and look-ups (WarpCore, §IV-E and Figure
// 6), the time of the steps of an exchange, and the time of small batches. If a study gets one CPU device, it uses four
// CPU devices instead of four GPUs.
package shard

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the figures of this package.
var Studies = []bench.Study{
	{Name: "shard/6", About: "scaling of inserts and look-ups over several devices, and the time of their steps",
		Run: figure6, CUDA: 250_000_000, CPU: 100_000, Takes: []string{"devices"}},
	{Name: "shard/batch", About: "time of small batches on one and on all devices",
		Run: figureBatch, CUDA: 20_000_000, CPU: 20_000, Takes: []string{"devices"}},
	{Name: "shard/ask", About: "look-ups that all devices do compared with look-ups that go to the owners of keys",
		Run: figureAsk, CUDA: 100_000_000, CPU: 20_000, Takes: []string{"devices"}},
}
