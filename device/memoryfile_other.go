//go:build !linux

package device

import "os"

func memoryFile() *os.File { return nil }
