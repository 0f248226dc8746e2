package main

import (
	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"
)

// spinner draws bars on stderr, one at a time, where people are watching it.
type spinner struct {
	cmd  *cobra.Command
	on   bool
	bar  *progressbar.ProgressBar
	what string
}

func newSpinner(cmd *cobra.Command) *spinner {
	return &spinner{cmd: cmd, on: terminal(cmd.ErrOrStderr())}
}

// set tells how much is done of a total, −1 where nobody knows it. Another what begins another bar. Without a unit
// there are no numbers.
func (p *spinner) set(what string, done, total int64, unit string) {
	if !p.on {
		return
	}
	if what != p.what {
		p.clear()
		p.what = what
		o := []progressbar.Option{progressbar.OptionSetWriter(p.cmd.ErrOrStderr()),
			progressbar.OptionSetDescription(what),
			progressbar.OptionThrottle(100e6), progressbar.OptionClearOnFinish()}
		if unit != "" {
			o = append(o, progressbar.OptionShowCount(), progressbar.OptionShowIts(),
				progressbar.OptionSetItsString(unit))
		}
		p.bar = progressbar.NewOptions64(total, o...)
	}
	p.bar.Set64(done)
}

func (p *spinner) clear() {
	if p.bar != nil {
		p.bar.Clear()
		p.bar, p.what = nil, ""
	}
}
