// Package goredis tries `warpmap serve` with go-redis, as programs use it. It is a module of its own: the library would
// take its time of every `go test ./...`.
//
//	go build -o /tmp/warpmap ./cmd/warpmap && WARPMAP=/tmp/warpmap go -C bench/goredis test .
package goredis
