// Package crash brings the panic of a goroutine to the one that waits for it, so that its deferred calls run: they remove files that are not whole and
// end processes. Without it a panic in any goroutine ends the process at once. All goroutines of packages that commands run are started through
// it, or recover themselves.
package crash

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"
)

// Error is a panic.
type Error struct {
	Value any    // what panic was called with
	Stack []byte // of the goroutine that it came from
}

func (e *Error) Error() string { return fmt.Sprint(e.Value) }

// Of makes an Error of what recover gave. One that is an Error already keeps its stack.
func Of(p any) *Error {
	if e, ok := p.(*Error); ok {
		return e
	}
	return &Error{p, debug.Stack()}
}

// Plant, where it is set, is called before all that Catch calls and behind all that goroutines of this package do: tests make it panic.
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

// Group is an errgroup.Group whose Wait panics with the *Error of the first panic of its goroutines. The context ends with a panic as it does with an
// error.
type Group struct {
	group  errgroup.Group
	cancel context.CancelCauseFunc
	crash  first
}

// WithContext is errgroup.WithContext.
func WithContext(ctx context.Context) (*Group, context.Context) {
	ctx, cancel := context.WithCancelCause(ctx)
	return &Group{cancel: cancel}, ctx
}

// SetLimit is that of errgroup.Group.
func (g *Group) SetLimit(n int) { g.group.SetLimit(n) }

// Go is that of errgroup.Group.
func (g *Group) Go(f func() error) {
	g.group.Go(func() error {
		err := g.crash.keep(f)
		if err != nil && g.cancel != nil {
			g.cancel(err)
		}
		return err
	})
}

// Wait is that of errgroup.Group, and panics with the *Error of a goroutine that did.
func (g *Group) Wait() error {
	err := g.group.Wait()
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

// Go is that of sync.WaitGroup.
func (g *WaitGroup) Go(f func()) {
	g.group.Go(func() { g.crash.keep(func() error { f(); return nil }) })
}

// Wait is that of sync.WaitGroup, and panics with the *Error of a goroutine that did.
func (g *WaitGroup) Wait() {
	g.group.Wait()
	g.crash.again()
}

var handler atomic.Pointer[func(*Error)]

// Handle names the function that gets the panics of goroutines for which nobody waits; nil for none. A command ends with it.
func Handle(f func(*Error)) {
	if f == nil {
		handler.Store(nil)
		return
	}
	handler.Store(&f)
}

// Go starts a goroutine for which nobody waits. Its panic goes to Handle's function, and without one ends the process, as panics do.
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
