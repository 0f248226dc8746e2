// Package nccl is a thin binding of NCCL, libnccl.so.2, without cgo. Each method calls the NCCL function of that name.
// A communicator is made so that no call waits for other members (config.blocking 0, from NCCL 2.14 on). Only Wait
// waits, and a caller can give it up.
package nccl

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/internal/dl"
	"github.com/warpmap/warpmap/internal/faults"
)

// Env is the environment variable that names the library to use in place of Library.
const Env = "WARPMAP_LIBNCCL"

// Library is NCCL's name in the loader's path.
const Library = "libnccl.so.2"

// IDBytes is the size of a unique id.
const IDBytes = 128

// ID is the unique id that all members of a communicator know.
type ID [IDBytes]byte

// Result is an ncclResult_t.
type Result int32

// The results that callers tell apart.
const (
	success       Result = 0
	cudaError     Result = 1 // memory that is short, for one
	systemError   Result = 2
	internalError Result = 3
	remoteError   Result = 6 // another member or the network failed
	inProgress    Result = 7
)

// Error says which call failed, and how.
type Error struct {
	Call string
	Code Result
	Text string
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s (ncclResult %d)", e.Call, e.Text, e.Code) }

// OfOthers tells whether the error may come of another member that is gone: then a socket of this one fails, too.
func (e *Error) OfOthers() bool {
	return e.Code == remoteError || e.Code == systemError || e.Code == internalError
}

// config is ncclConfig_t as of NCCL 2.18; later ones take the rest as unset.
type config struct {
	size, version uint64 // size_t size; unsigned magic, version
	blocking      int32
	cgaCluster    int32
	minCTAs       int32
	maxCTAs       int32
	netName       uintptr
	splitShare    int32
	_             int32
}

const (
	magic         = 0xcafebeef
	configVersion = 21800
	unset         = -1 << 31
	least         = 21800 // of libraries
	scalable      = 22300 // that have ncclCommInitRankScalable
)

// NCCL is the loaded library. It is never unloaded.
type NCCL struct {
	version int
	fn      map[string]uintptr
}

var (
	mu     sync.Mutex
	opened = map[string]*NCCL{}
)

// Open loads the library that the environment variable WARPMAP_LIBNCCL names, or else libnccl.so.2. Errors: the
// loader's; a library older than 2.18.
func Open() (*NCCL, error) {
	path := os.Getenv(Env)
	if path == "" {
		path = Library
	}
	mu.Lock()
	defer mu.Unlock()
	if n := opened[path]; n != nil {
		return n, nil
	}
	keepNVLSOff()
	preset("NCCL_LEGACY_CUDA_REGISTER", "1") // Register takes memory of cuMemAlloc
	lib, err := dl.OpenGlobal(path)
	if err != nil {
		return nil, fmt.Errorf("no NCCL: %w: install it (Debian: libnccl2; Python: pip install nvidia-nccl-cu12), or name the library in %s", err, Env)
	}
	n := &NCCL{fn: map[string]uintptr{}}
	for _, name := range []string{"ncclGetVersion", "ncclGetErrorString", "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommInitRankScalable", "ncclCommAbort",
		"ncclCommDestroy", "ncclCommFinalize", "ncclCommGetAsyncError", "ncclGroupStart", "ncclGroupEnd", "ncclSend",
		"ncclRecv", "ncclCommRegister", "ncclCommDeregister"} {
		if n.fn[name], err = dl.Sym(lib, name); err != nil && !newer[name] {
			return nil, fmt.Errorf("%s is no NCCL, or too old a one: %w", path, err)
		}
	}
	var version int32
	if err := call(n, "ncclGetVersion", uintptr(unsafe.Pointer(&version))); err != nil {
		return nil, err
	}
	if n.version = int(version); n.version < least {
		return nil, fmt.Errorf("%s is NCCL %s: want 2.18 or newer", path, n.Version())
	}
	opened[path] = n
	return n, nil
}

// newer are functions that old libraries lack.
var newer = map[string]bool{"ncclCommInitRankScalable": true, "ncclCommRegister": true, "ncclCommDeregister": true}

// keepNVLSOff leaves NVLink multicast off, unless the environment says otherwise: NCCL reads C's environment, which Go's Setenv does not change.
func keepNVLSOff() {
	preset("NCCL_NVLS_ENABLE", "0")
}

// preset sets a variable of C's environment, unless the environment has it.
func preset(name, value string) {
	if _, set := os.LookupEnv(name); set {
		return
	}
	if setenv, err := dl.Sym(0, "setenv"); err == nil {
		key, to := []byte(name+"\x00"), []byte(value+"\x00")
		dl.Call(setenv, uintptr(unsafe.Pointer(&key[0])), uintptr(unsafe.Pointer(&to[0])), 0)
	}
}

// Version is the library's version, such as "2.28.3".
func (n *NCCL) Version() string {
	return fmt.Sprintf("%d.%d.%d", n.version/10000, n.version/100%100, n.version%100)
}

// call calls a function. A Go pointer among the arguments must be converted to uintptr in the call itself.
//
//go:uintptrescapes
func call(n *NCCL, name string, args ...uintptr) error {
	ordered := n.met(name)
	if ordered != nil && !ends[name] {
		return ordered
	}
	r := dl.Call(n.fn[name], args...)
	if code := Result(int32(r)); code != success && code != inProgress {
		return n.failure(name, code)
	}
	return ordered
}

// ends are the functions that end a group, or free a communicator, also where they return an error.
var ends = map[string]bool{"ncclGroupEnd": true, "ncclCommAbort": true, "ncclCommDestroy": true}

// met is the error of a call for which a test has ordered one: what fails is this member's, what breaks another's.
func (n *NCCL) met(name string) error {
	if !faults.Any() {
		return nil
	}
	code := success
	switch faults.Ask(faults.OfNCCL, faults.NCCL, 0) {
	case faults.Fails:
		code = cudaError
	case faults.Breaks, faults.Lately:
		code = remoteError
	default:
		return nil
	}
	return &faults.Error{Site: faults.NCCL, Err: n.failure(name, code)}
}

func (n *NCCL) failure(name string, code Result) error {
	e := &Error{Call: name, Code: code, Text: "unknown error"}
	if p := dl.Call(n.fn["ncclGetErrorString"], uintptr(code)); p != 0 {
		text := *(**byte)(unsafe.Pointer(&p))
		length := 0
		for *(*byte)(unsafe.Add(unsafe.Pointer(text), length)) != 0 {
			length++
		}
		e.Text = string(unsafe.Slice(text, length))
	}
	return e
}

// GetUniqueID makes an id. One member calls it, and the others get the id from that member.
func (n *NCCL) GetUniqueID() (id ID, err error) {
	err = call(n, "ncclGetUniqueId", uintptr(unsafe.Pointer(&id)))
	return id, err
}

// Comm is a communicator.
type Comm struct {
	// Failing, if it is set, is told of an error that Wait returns, before Wait aborts the communicator: others see that.
	Failing func(error)

	n      *NCCL
	mu     sync.Mutex // held through calls with h, which Abort frees; none of them waits for other members
	h      uintptr
	broken bool
}

// ErrAborted is the error that calls return after Abort.
var ErrAborted = errors.New("the communicator was aborted")

// Init begins to make the communicator of a rank; Wait returns when it is made. The rank's device is the current CUDA
// device of the thread.
func (n *NCCL) Init(size, rank int, id ID) (*Comm, error) {
	cfg := config{size: uint64(unsafe.Sizeof(config{})), version: magic | configVersion<<32, cgaCluster: unset, minCTAs: unset, maxCTAs: unset, splitShare: unset}
	c := &Comm{n: n}
	var err error
	switch {
	case n.fn["ncclCommInitRankScalable"] != 0 && n.version >= scalable:
		err = call(n, "ncclCommInitRankScalable", uintptr(unsafe.Pointer(&c.h)), uintptr(size), uintptr(rank), 1, uintptr(unsafe.Pointer(&id)), uintptr(unsafe.Pointer(&cfg)))
	case runtime.GOARCH == "arm64": // a struct of 128 bytes goes by a pointer to a copy
		err = call(n, "ncclCommInitRankConfig", uintptr(unsafe.Pointer(&c.h)), uintptr(size), uintptr(unsafe.Pointer(&id)), uintptr(rank), uintptr(unsafe.Pointer(&cfg)))
	default: // or on the stack, behind those in registers, of which two are left over
		w := (*[IDBytes / 8]uintptr)(unsafe.Pointer(&id))
		err = call(n, "ncclCommInitRankConfig", uintptr(unsafe.Pointer(&c.h)), uintptr(size), uintptr(rank), uintptr(unsafe.Pointer(&cfg)), 0, 0,
			w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7], w[8], w[9], w[10], w[11], w[12], w[13], w[14], w[15])
	}
	return c, err
}

// with makes calls with the communicator, unless it is freed.
func (c *Comm) with(calls func(h uintptr) error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.h == 0 || c.broken {
		return ErrAborted
	}
	return calls(c.h)
}

// Wait waits until what was begun is under way on the stream, or until give is closed. Errors: the communicator's;
// ErrAborted. After an error the communicator is aborted, so that nothing goes on in the callers' memory.
func (c *Comm) Wait(give <-chan struct{}) (err error) {
	defer func() {
		if err != nil {
			if c.Failing != nil {
				c.Failing(err)
			}
			c.Abort()
		}
	}()
	for from, pause := time.Now(), time.Microsecond; ; pause = min(2*pause, 5*time.Millisecond) {
		if time.Since(from) < soon { // an exchange is under way after some 100 µs
			pause = time.Microsecond
		}
		code := inProgress
		err := c.with(func(h uintptr) error {
			return call(c.n, "ncclCommGetAsyncError", h, uintptr(unsafe.Pointer(&code)))
		})
		switch {
		case err != nil:
			return err
		case code == success:
			return nil
		case code != inProgress:
			return c.n.failure("ncclCommGetAsyncError", code)
		}
		select {
		case <-give:
			return ErrAborted
		case <-time.After(pause):
		}
	}
}

// Register has NCCL send from device memory and receive into it without copies of its own, if it can. The result undoes
// that: it must be called before the memory is freed. It does nothing if NCCL cannot register memory, or after Abort.
func (c *Comm) Register(addr uint64, bytes int) (undo func()) {
	if c.n.fn["ncclCommRegister"] == 0 || c.n.fn["ncclCommDeregister"] == 0 || bytes == 0 {
		return func() {}
	}
	var handle uintptr
	c.with(func(h uintptr) error {
		optional(c.n, "ncclCommRegister", h, uintptr(addr), uintptr(bytes), uintptr(unsafe.Pointer(&handle)))
		return nil
	})
	if handle == 0 {
		return func() {}
	}
	return func() {
		c.with(func(h uintptr) error { optional(c.n, "ncclCommDeregister", h, handle); return nil })
	}
}

// optional calls a function whose failure changes nothing: tests order none.
//
//go:uintptrescapes
func optional(n *NCCL, name string, args ...uintptr) { dl.Call(n.fn[name], args...) }

// soon is how long Wait asks again and again with hardly a pause.
const soon = 3 * time.Millisecond

// Piece is a run of bytes that goes to a member or comes from it.
type Piece struct {
	Addr  uint64
	Bytes int
	Peer  int
}

// Exchange begins to send and receive on the stream, all pieces at once; Wait returns when that is under way.
func (c *Comm) Exchange(send, receive []Piece, stream uintptr) error {
	runtime.LockOSThread() // a group is its thread's
	defer runtime.UnlockOSThread()
	return c.with(func(h uintptr) error {
		if err := call(c.n, "ncclGroupStart"); err != nil {
			return err
		}
		const bytes = 1 // ncclUint8
		var err error
		for _, p := range send {
			err = errors.Join(err, call(c.n, "ncclSend", uintptr(p.Addr), uintptr(p.Bytes), bytes, uintptr(p.Peer), h, stream))
		}
		for _, p := range receive {
			err = errors.Join(err, call(c.n, "ncclRecv", uintptr(p.Addr), uintptr(p.Bytes), bytes, uintptr(p.Peer), h, stream))
		}
		return errors.Join(err, call(c.n, "ncclGroupEnd"))
	})
}

// Abort ends all that the communicator does in this process, and frees the communicator. It waits for calls that use
// it, but not for the work that they began. A second call does nothing.
func (c *Comm) Abort() error { return c.free("ncclCommAbort") }

// Destroy frees a communicator on which nothing is under way. It is collective among the ranks of a host. Until all of
// them have called it, give ends it: then the communicator is aborted. After that, only what the other ranks do ends
// it, and Abort waits for it. After Abort it does nothing.
func (c *Comm) Destroy(give <-chan struct{}) error {
	err := c.with(func(h uintptr) error { return call(c.n, "ncclCommFinalize", h) })
	if err == nil {
		err = c.Wait(give)
	} else if c.Failing != nil && !errors.Is(err, ErrAborted) {
		c.Failing(err)
	}
	switch {
	case errors.Is(err, ErrAborted):
		return nil
	case err != nil:
		return err
	}
	return c.free("ncclCommDestroy")
}

// free frees the communicator, once.
func (c *Comm) free(how string) error {
	err := c.with(func(h uintptr) error {
		c.broken = true
		return call(c.n, how, h)
	})
	if errors.Is(err, ErrAborted) {
		return nil
	}
	return err
}
