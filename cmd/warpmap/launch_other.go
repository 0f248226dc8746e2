//go:build !linux

package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
)

// run refuses: elsewhere no system ends the ranks for a launch that is killed.
func (l *launched) run(*cobra.Command, []string) error {
	return fmt.Errorf("launch is for Linux: start each rank with torchrun's variables set: %w", errors.ErrUnsupported)
}
