// Package crash hands the panic of a goroutine to the goroutine that waits for it, so that the deferred calls of the
// waiting one run: they remove files that are not whole and end processes. Without it, a panic in any goroutine ends
// the process at once. Packages that commands run start all goroutines through it, or their goroutines recover
// themselves.
package crash

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// MostThreads is how many threads anybody may ask for: more than any machine has cores. Each takes memory of its own.
const MostThreads = 1024

// Threads is how many threads an option asks for: 0 or less stands for GOMAXPROCS.
func Threads(n int) int {
	if n <= 0 {
		n = runtime.GOMAXPROCS(0)
	}
	return min(n, MostThreads)
}

// Ended is why a context has ended; an error of one that is nil; or nil.
func Ended(ctx context.Context) error {
	if ctx == nil {
		return errors.New("a nil context: want context.Background()")
	}
	return context.Cause(ctx)
}

// Error is a panic as an error.
type Error struct {
	Value any    // what panic was called with
	Stack []byte // the stack of the goroutine that it came from
}

func (e *Error) Error() string { return fmt.Sprint(e.Value) }

// Of makes an Error of what recover returned. If that is an Error already, it keeps its stack.
func Of(p any) *Error {
	if e, ok := p.(*Error); ok {
		return e
	}
	return &Error{p, debug.Stack()}
}

// Plant, if it is set, is called before everything that Catch calls and after everything that goroutines of this
// package do. Tests make it panic.
var Plant func()

func plant() {
	if Plant != nil {
		Plant()
	}
}

// Catch calls f. Errors: those of f; its panic as an *Error.
func Catch(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = Of(p)
		}
	}()
	plant()
	return f()
}

// first keeps the first panic of several goroutines.
type first struct{ atomic.Pointer[Error] }

// keep calls f and keeps its panic, which is then its error.
func (c *first) keep(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			e := Of(p)
			c.CompareAndSwap(nil, e)
			err = e
		}
	}()
	err = f()
	plant()
	return err
}

// again panics with what was kept, once.
func (c *first) again() {
	if e := c.Swap(nil); e != nil {
		panic(e)
	}
}

// Group is an errgroup.Group whose Wait panics with the *Error of the first panic of its goroutines. A panic ends the
// context as an error does.
type Group struct {
	group  errgroup.Group
	cancel context.CancelCauseFunc
	failed atomic.Pointer[error] // the first error
	crash  first
}

// WithContext does what errgroup.WithContext does.
func WithContext(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel}, ctx
}

// SetLimit does what SetLimit of errgroup.Group does.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Go does what Go of errgroup.Group does.
func (g *Group) Go(f func() error) {
	g.group.Go(func() error {
		if err := g.crash.keep(f); err != nil {
			g.failed.CompareAndSwap(nil, &err) // before other goroutines return the error of the context
			if g.cancel != nil {
				g.cancel(err)
			}
		}
		return nil
	})
}

// Wait does what Wait of errgroup.Group does. If a goroutine panicked, it panics with that goroutine's *Error.
func (g *Group) Wait() error {
	g.group.Wait()
	var err error
	if first := g.failed.Load(); first != nil {
		err = *first
	}
	if g.cancel != nil {
		g.cancel(err)
	}
	g.crash.again()
	return err
}

// WaitGroup is a sync.WaitGroup whose Wait panics with the *Error of the first panic of its goroutines.
type WaitGroup struct {
	group sync.WaitGroup
	crash first
}

// Go does what Go of sync.WaitGroup does.
func (g *WaitGroup) Go(f func()) {
	g.group.Go(func() { g.crash.keep(func() error { f(); return nil }) })
}

// Wait does what Wait of sync.WaitGroup does. If a goroutine panicked, it panics with that goroutine's *Error.
func (g *WaitGroup) Wait() {
	g.group.Wait()
	g.crash.again()
}

// Beside runs f in a goroutine of a group. Its panic goes to Handle's function, and does not wait for the group's Wait:
// others wait for what f does, or for a lock that it has.
func Beside(wg *sync.WaitGroup, f func()) {
	wg.Add(1)
	Go(func() {
		defer wg.Done()
		f()
	})
}

var handler atomic.Pointer[func(*Error)]

// Handle sets the function that gets the panics of goroutines for which nobody waits; nil means none. In
// a command, this function ends the command.
func Handle(f func(*Error)) {
	if f == nil {
		handler.Store(nil)
		return
	}
	handler.Store(&f)
}

// Go starts a goroutine for which nobody waits. If it panics, Handle's function gets the panic; without such a
// function, the panic ends the process, as panics do.
func Go(f func()) {
	go func() {
		defer func() {
			if p := recover(); p != nil {
				e := Of(p)
				if h := handler.Load(); h != nil {
					(*h)(e)
					return
				}
				panic(fmt.Sprintf("%v\n\n%s", e, e.Stack))
			}
		}()
		f()
		plant()
	}()
}
