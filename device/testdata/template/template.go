// Package template is called by a word of C++.
package template

type Int struct {
	Default uint32
	U32     uint32
	_       uint32
	New     uint32
	_       uint64
	Out     uint64
	Class   Struct
}

type Struct struct{ While, And, This uint32 }
