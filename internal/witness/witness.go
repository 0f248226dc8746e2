// Package witness tells tests what is compiled, and when; and the frame, for whom.
package witness

// Compiles, where a test has set it, is called when a compiler begins with a program, or with one of its kernels alone,
// and calls what it returns when the compiler is done. It is called by several goroutines at a time.
var Compiles func(program, kernel string) (done func())

// Nothing has devices take nothing for what their compilers make: for tests that ask what is compiled, and launch none of
// it. It is set while no device is open.
var Nothing bool

// AsOnGPU makes a device of device.OpenAhead compile what a GPU would, and no kernel beside.
var AsOnGPU bool

// ForOthers tells whether a device, a *device.Device, compiles for others, and every kernel that they may launch. Package
// device sets it, for the frame, and for nobody else.
var ForOthers func(d any) bool

// Begin tells of a program, or of one of its kernels where kernel is not empty.
func Begin(program, kernel string) (done func()) {
	if Compiles == nil {
		return func() {}
	}
	return Compiles(program, kernel)
}
