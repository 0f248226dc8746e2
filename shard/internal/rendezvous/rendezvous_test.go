package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// free is an address where nobody listens.
func free(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// meet brings the ranks of a job together.
func meet(t *testing.T, size int, ranks ...int) (meetings []*Meeting, errs []error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	meetings, errs = make([]*Meeting, len(ranks)), make([]error, len(ranks))
	addr := free(t)
	var wg sync.WaitGroup
	for i, rank := range ranks {
		wg.Add(1)
		go func() {
			defer wg.Done()
			meetings[i], errs[i] = Meet(ctx, Options{Rank: rank, Size: size, Addr: addr, Token: "t"})
		}()
	}
	wg.Wait()
	return meetings, errs
}

func TestAgree(t *testing.T) {
	meetings, errs := meet(t, 4, 3, 1, 0, 2)
	var wg sync.WaitGroup
	for i, m := range meetings {
		if errs[i] != nil {
			t.Fatal(errs[i])
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			if all, err := m.Agree(nil); err != nil || len(all) != 4 { // nothing is something to say
				t.Errorf("%v, %v", all, err)
			}
			for round := range 100 {
				all, err := m.Agree(fmt.Appendf(nil, "%d of %d", round, m.o.Rank))
				if err != nil {
					t.Error(err)
					return
				}
				for rank, body := range all {
					if string(body) != fmt.Sprintf("%d of %d", round, rank) {
						t.Errorf("round %d: rank %d says %q", round, rank, body)
					}
				}
			}
		}()
	}
	wg.Wait()
	for _, m := range meetings {
		m.Close()
		m.Close()
	}
}

// A rank that does not come is named, to those that came, too.
func TestAbsent(t *testing.T) {
	_, errs := meet(t, 4, 0, 2)
	var absent *AbsentError
	if !errors.As(errs[0], &absent) || !slices.Equal(absent.Ranks, []int{1, 3}) || !errors.Is(errs[0], context.DeadlineExceeded) {
		t.Errorf("rank 0: %v", errs[0])
	}
	if errs[1] == nil || !strings.Contains(errs[1].Error(), "these did not come: rank 1 3") {
		t.Errorf("rank 2: %v", errs[1])
	}
	_, errs = meet(t, 2, 1)
	if !errors.As(errs[0], &absent) || !slices.Equal(absent.Ranks, []int{0}) {
		t.Errorf("without rank 0: %v", errs[0])
	}
}

func TestStrangers(t *testing.T) {
	addr := free(t)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	done := make(chan error)
	var first *Meeting
	go func() {
		var err error
		first, err = Meet(ctx, Options{Rank: 0, Size: 2, Addr: addr, Token: "t"})
		done <- err
	}()
	for want, o := range map[string]Options{
		"another job's token":            {Rank: 1, Size: 2, Addr: addr, Token: "u"},
		"rank 2 of 3 in a job of 2":      {Rank: 2, Size: 3, Addr: addr, Token: "t"},
		"want a rank from 0 to one less": {Rank: 2, Size: 2, Addr: addr, Token: "t"},
	} {
		if _, err := Meet(ctx, o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	conn, err := net.Dial("tcp", addr) // says nothing that makes sense
	if err != nil {
		t.Fatal(err)
	}
	conn.Write([]byte("GET / HTTP/1.1\r\n\r\n"))
	defer conn.Close()
	second, err := Meet(ctx, Options{Rank: 1, Size: 2, Addr: addr, Token: "t"})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	second.Close()
	first.Close()
}

// Who is gone is named to all: one whose connection breaks, one that gives up, one that left while others want to agree, and rank 0.
func TestGone(t *testing.T) {
	for _, rank := range []int{0, 2} {
		for what, go_ := range map[string]func(m *Meeting){
			"its connection broke": func(m *Meeting) {
				m.mu.Lock()
				m.closing = true // as dead as a process that was killed
				m.mu.Unlock()
				for _, p := range m.peers {
					p.conn.Close()
				}
			},
			"no memory":   func(m *Meeting) { m.Fail("no memory") },
			"it has left": func(m *Meeting) { m.Close() },
		} {
			meetings, errs := meet(t, 3, 0, 1, 2)
			if err := errors.Join(errs...); err != nil {
				t.Fatal(err)
			}
			go_(meetings[rank])
			for i, m := range meetings {
				if i == rank {
					continue
				}
				start := time.Now()
				_, err := m.Agree(nil)
				var e *GoneError
				if !errors.As(err, &e) || e.Rank != rank || time.Since(start) > 2*Silence {
					t.Errorf("rank %d, of which %s: rank %d says %v", rank, what, i, err)
				}
			}
			for _, m := range meetings {
				m.Close()
			}
		}
	}
}

// Who has left agrees on nothing more, and does not wait; and who waits while its process leaves does not go on waiting.
func TestAgreeAfterLeaving(t *testing.T) {
	for rank := range 2 {
		meetings, errs := meet(t, 2, 0, 1)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		m := meetings[rank]
		waiting := make(chan error)
		go func() {
			_, err := m.Agree(nil) // the other does not come
			waiting <- err
		}()
		time.Sleep(50 * time.Millisecond)
		m.Close()
		for range 2 {
			select {
			case err := <-waiting:
				if !errors.Is(err, ErrLeft) {
					t.Errorf("rank %d: %v", rank, err)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("rank %d waits", rank)
			}
			go func() {
				_, err := m.Agree(nil)
				waiting <- err
			}()
		}
		<-waiting
		meetings[1-rank].Close()
	}
}

// What all have agreed on is everybody's, though a rank leaves right behind it and another already wants more of it.
func TestAgreedThenLeft(t *testing.T) {
	for range 20 {
		meetings, errs := meet(t, 3, 0, 1, 2)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for rank, m := range meetings {
			wg.Add(1)
			go func() {
				defer wg.Done()
				if all, err := m.Agree(nil); err != nil || len(all) != 3 {
					t.Errorf("rank %d: %v", rank, err)
				}
				switch rank {
				case 1:
					if _, err := m.Agree(nil); err == nil {
						t.Error("rank 2 agrees, which has left")
					}
				case 2:
					m.Close()
				}
			}()
		}
		wg.Wait()
		for _, m := range meetings {
			m.Close()
		}
	}
}
