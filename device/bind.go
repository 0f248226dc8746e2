package device

import "errors"

// Bind finds a kernel as KernelOf does, and writes it to a variable. errors.Join of several calls tells all that a
// module lacks.
func Bind[P any](m *Module, name string, k *Kernel[P]) (err error) {
	*k, err = KernelOf[P](m, name)
	return err
}

// IsOutOfMemory tells whether the error is, or wraps, an *OutOfMemoryError.
func IsOutOfMemory(err error) bool {
	if err == nil { // mostly, and then nothing is allocated
		return false
	}
	var e *OutOfMemoryError
	return errors.As(err, &e)
}
