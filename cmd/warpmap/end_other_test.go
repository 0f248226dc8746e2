//go:build !linux

package main

import (
	"errors"
	"os/exec"
)

func limitFiles(uint64) error { return errors.ErrUnsupported }

func moreRoom(int) error { return errors.ErrUnsupported }

func ownGroup(cmd *exec.Cmd) (killAll func()) { return func() { cmd.Process.Kill() } }
