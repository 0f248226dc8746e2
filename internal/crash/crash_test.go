package crash

import (
	"context"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
)

// caught is the panic of f.
func caught(f func()) (p any) {
	defer func() { p = recover() }()
	f()
	return nil
}

func deep() { panic("deep") }

func TestCatch(t *testing.T) {
	err := Catch(func() error { deep(); return nil })
	var e *Error
	if !errors.As(err, &e) || e.Value != "deep" || !strings.Contains(string(e.Stack), "crash.deep") || err.Error() != "deep" {
		t.Fatalf("%v", err)
	}
	if again := Catch(func() error { panic(e) }); again != error(e) {
		t.Errorf("a panic with an Error is another: %v", again)
	}
	if want := errors.New("no"); Catch(func() error { return want }) != want || Catch(func() error { return nil }) != nil {
		t.Error("what f returns does not come back")
	}
}

// A panic ends the context and comes out of Wait, once, whatever else the goroutines return.
func TestGroup(t *testing.T) {
	g, ctx := WithContext(context.Background())
	g.Go(func() error { <-ctx.Done(); return ctx.Err() })
	g.Go(func() error { deep(); return nil })
	p := caught(func() { t.Errorf("Wait returns %v", g.Wait()) })
	if e, ok := p.(*Error); !ok || e.Value != "deep" || !strings.Contains(string(e.Stack), "crash.deep") {
		t.Errorf("%v", p)
	}
	if cause, ok := context.Cause(ctx).(*Error); !ok || cause.Value != "deep" {
		t.Errorf("the context ends by %v", context.Cause(ctx))
	}
	if again := caught(func() { g.Wait() }); again != nil {
		t.Errorf("told twice: %v", again)
	}
	g, ctx = WithContext(context.Background())
	want := errors.New("no")
	g.Go(func() error { return want })
	<-ctx.Done()
	if err := g.Wait(); err != want || context.Cause(ctx) != want {
		t.Errorf("%v, %v", err, context.Cause(ctx))
	}
	var zero Group
	zero.SetLimit(1)
	for range 3 {
		zero.Go(func() error { return nil })
	}
	if err := zero.Wait(); err != nil {
		t.Error(err)
	}
}

// The error that ends the context is the one that Wait returns, and not the context's error, with which the other
// goroutines end. A goroutine is seldom faster than the failing one: of 300,000 groups, about ten failed here.
func TestGroupReturnsTheCause(t *testing.T) {
	want := errors.New("the cause")
	for i := range 300_000 {
		g, ctx := WithContext(context.Background())
		g.Go(func() error { <-ctx.Done(); return ctx.Err() })
		g.Go(func() error { return want })
		if err := g.Wait(); err != want {
			t.Fatalf("group %d: %v", i, err)
		}
	}
}

func TestWaitGroup(t *testing.T) {
	var g WaitGroup
	done := false
	g.Go(func() { done = true })
	g.Wait()
	g.Go(deep)
	if e, ok := caught(g.Wait).(*Error); !ok || e.Value != "deep" || !done {
		t.Errorf("%v, %v", e, done)
	}
	g.Wait()
}

func TestThreads(t *testing.T) {
	for n, want := range map[int]int{-1: runtime.GOMAXPROCS(0), 0: runtime.GOMAXPROCS(0), 7: 7, math.MaxInt: MostThreads} {
		if got := Threads(n); got != want {
			t.Errorf("%d threads of %d, want %d", got, n, want)
		}
	}
}

func TestGo(t *testing.T) {
	got := make(chan *Error)
	Handle(func(e *Error) { got <- e })
	defer Handle(nil)
	Go(deep)
	if e := <-got; e.Value != "deep" {
		t.Error(e)
	}
}
