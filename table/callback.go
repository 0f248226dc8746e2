package table

// Args are the named device arguments of a callback: device slices, which the callback sees as pointers to their
// elements, and integers and floats. There are at most 16.
type Args map[string]any
