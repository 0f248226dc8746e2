package table

// Args are the named device arguments of a callback: device slices, seen there as pointers to their elements, and
// integers and floats. At most MaxArgs.
type Args map[string]any
