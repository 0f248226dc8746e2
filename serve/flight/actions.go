package flight

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/table"
)

// order is what an action's body says: a table's name alone, or JSON.
type order struct {
	Table    string       `json:"table"`
	Columns  string       `json:"columns,omitempty"`
	Keys     []string     `json:"keys,omitempty"`
	Values   []string     `json:"values,omitempty"`
	Family   table.Family `json:"family,omitempty"`
	Capacity int          `json:"capacity,omitempty"`
}

// mostCapacity bounds the rows that a client says will come.
const mostCapacity = 1 << 32

// mostRoom is for how many rows there is room at once, whatever a client says: a table grows as they come.
const mostRoom = 1 << 18

func parseOrder(text []byte) (o order, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		o.Table = string(text)
		return o, nil
	}
	if err := parse(text, &o); err != nil {
		return o, input(fmt.Errorf("no body of an action: %w", err))
	}
	if o.Capacity < 0 || o.Capacity > mostCapacity {
		return o, input(fmt.Errorf("a capacity of %d rows: want 0 to %d", o.Capacity, mostCapacity))
	}
	return o, nil
}

// actions are what DoAction does.
var actions = []struct {
	name, about string
	do          func(s *Server, ctx context.Context, o order) (results [][]byte, err error)
}{
	{"stats", "what a table takes, in JSON; of all tables where the body is empty", (*Server).stats},
	{"save", "write a table's snapshot, or those of all where the body is empty", func(s *Server, ctx context.Context,
		o order) ([][]byte, error) {
		return nil, s.tables.save(ctx, o.Table)
	}},
	{"load", "put what a table's snapshot has in its place", func(s *Server, ctx context.Context, o order) ([][]byte,
		error) {
		return nil, s.tables.reload(ctx, o.Table)
	}},
	{"clear", "remove all rows of a table", func(s *Server, _ context.Context, o order) ([][]byte, error) {
		e, err := s.tables.get(o.Table)
		if err != nil {
			return nil, err
		}
		if err := s.tables.writable(); err != nil {
			return nil, err
		}
		if err := e.Clear(); err != nil {
			return nil, err
		}
		return nil, s.tables.commit()
	}},
	{"create", `make a table: {"table":"prices","columns":"id:int64,price:float64?","keys":["id"]}; also values, ` +
		`family and capacity`, func(s *Server, _ context.Context, o order) ([][]byte, error) {
		return nil, input(s.Create(Spec{o.Table, o.Columns, o.Keys, o.Values, o.Family, min(o.Capacity, mostRoom)}))
	}},
	{"drop", "remove a table and its snapshot", func(s *Server, _ context.Context, o order) ([][]byte, error) {
		return nil, s.tables.drop(o.Table)
	}},
}

func (s *Server) stats(_ context.Context, o order) (results [][]byte, err error) {
	all := s.tables.list()
	if o.Table != "" {
		e, err := s.tables.get(o.Table)
		if err != nil {
			return nil, err
		}
		all = []*entry{e}
	}
	for _, e := range all {
		st, err := e.Stats()
		if o.Table == "" && errors.Is(err, table.ErrClosed) {
			continue // it was dropped meanwhile
		} else if err != nil {
			return nil, err
		}
		results = append(results, st.JSON())
	}
	return results, nil
}

// DoAction does one of the actions that ListActions tells of.
func (s *Server) DoAction(a *wire.Action, x wire.FlightService_DoActionServer) error {
	return s.do(x.Context(), "DoAction", func(c *call) error {
		for _, known := range actions {
			if known.name != a.GetType() {
				continue
			}
			o, err := parseOrder(a.GetBody())
			if err != nil {
				return err
			}
			results, err := known.do(s, x.Context(), o)
			if err != nil {
				return err
			}
			for _, r := range results {
				if err := c.send(func() error { return x.Send(&wire.Result{Body: r}) }); err != nil {
					return err
				}
			}
			return nil
		}
		return status.Errorf(codes.Unimplemented, "no action %q: ListActions tells which there are", a.GetType())
	})
}

// ListActions tells what DoAction does.
func (s *Server) ListActions(_ *wire.Empty, x wire.FlightService_ListActionsServer) error {
	return s.do(x.Context(), "ListActions", func(c *call) error {
		for _, a := range actions {
			one := &wire.ActionType{Type: a.name, Description: a.about}
			if err := c.send(func() error { return x.Send(one) }); err != nil {
				return err
			}
		}
		return nil
	})
}
