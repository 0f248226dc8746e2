//go:build !linux

package keyspace

import "os"

func push(*os.File, int64, int64, int64) {}
