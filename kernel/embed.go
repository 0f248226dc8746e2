// Package kernel holds the vocabulary that every kernel is written in: CUDA C++ headers that compile for a GPU and for
// the CPU device alike. It also has Go twins of the hash functions. A picture of the vocabulary is in warpmap.cuh.
package kernel

import "embed"

//go:embed *.cuh
var headers embed.FS

// File is one header.
type File struct{ Name, Text string }

// Files returns the headers, in a fixed order.
func Files() []File { return files }

var files = func() (out []File) {
	entries, err := headers.ReadDir(".")
	if err != nil {
		panic(err)
	}
	for _, e := range entries {
		text, err := headers.ReadFile(e.Name())
		if err != nil {
			panic(err)
		}
		out = append(out, File{e.Name(), string(text)})
	}
	return out
}()
