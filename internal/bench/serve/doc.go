// Package serve measures servers from outside: what they do in a second, how long their clients wait, and what a
// request costs server and clients. Its clients are its own, and cost so little that they do not bound the server.
package serve

import "github.com/warpmap/warpmap/internal/bench"

// Studies are the figures. Where there are fewer than leastMeasured keys, each point is measured once and shortly.
var Studies = []bench.Study{
	{Name: "serve/redis", About: "`warpmap serve` beside Redis, by turns, from clients on the same cores", Run: keys,
		CUDA: 1_000_000, CPU: 1_000_000},
}
