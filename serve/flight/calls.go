package flight

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	wire "github.com/apache/arrow-go/v18/arrow/flight"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/table"
)

// command is what a descriptor's command, or a ticket, says in JSON.
type command struct {
	Table string        `json:"table"`
	Mode  columnar.Mode `json:"mode,omitempty"`  // of DoPut
	Part  int           `json:"part,omitempty"`  // of DoGet
	Parts int           `json:"parts,omitempty"` // of DoGet and GetFlightInfo
}

// mostParts bounds the parts of an export.
const mostParts = 1 << 16

// parse reads JSON, and nothing behind it.
func parse(text []byte, to any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(to); err != nil {
		return err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is more behind it")
	}
	return nil
}

// parseCommand reads a command: JSON, or a table's name alone.
func parseCommand(text []byte) (c command, err error) {
	if !bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")) {
		c.Table = string(text)
	} else {
		if err := parse(text, &c); err != nil {
			return c, input(fmt.Errorf("no command: %w", err))
		}
	}
	if c.Parts == 0 {
		c.Parts = 1
	}
	if c.Parts < 1 || c.Parts > mostParts || c.Part < 0 || c.Part >= c.Parts {
		return c, input(fmt.Errorf("part %d of %d: want parts from 1 to %d, and a part from 0 on below that", c.Part,
			c.Parts, mostParts))
	}
	return c, nil
}

// described is the command of a descriptor: a path is a table's name.
func described(d *wire.FlightDescriptor) (command, error) {
	switch {
	case d != nil && d.Type == wire.DescriptorPATH && len(d.Path) == 1:
		return command{Table: d.Path[0], Parts: 1}, nil
	case d != nil && d.Type == wire.DescriptorCMD:
		return parseCommand(d.Cmd)
	}
	return command{}, input(errors.New("want a descriptor: a path of one name, a table's, or a command in JSON"))
}

// stream is what clients send rows by.
type stream interface {
	Recv() (*wire.FlightData, error)
	Context() context.Context
}

// begin reads until the schema of what comes is there. It gives the table, the command, and what is wanted of it:
// columns gives the table's part of that.
func (s *Server) begin(c *call, from stream, columns func(*entry, command) ([]columnar.Column, error)) (e *entry,
	cmd command, rows *incoming, err error) {
	var to *wire.FlightDescriptor
	for {
		d, err := c.receive(from.Recv)
		if err != nil {
			if errors.Is(err, io.EOF) {
				err = input(errors.New("the stream ends before its schema has come"))
			}
			return nil, cmd, nil, err
		}
		if to == nil {
			to = d.FlightDescriptor
		}
		if release(d.DataBody); len(d.DataHeader) == 0 {
			c.work.Store(0) // nothing of it is answered
			continue
		}
		if cmd, err = described(to); err != nil {
			return nil, cmd, nil, err
		}
		if e, err = s.tables.get(cmd.Table); err != nil {
			return nil, cmd, nil, err
		}
		want, err := columns(e, cmd)
		if err != nil {
			return nil, cmd, nil, err
		}
		got, err := columnar.DecodeSchema(d.DataHeader)
		if err != nil {
			return nil, cmd, nil, input(err)
		}
		order, err := e.Schema().Match(want, got)
		c.work.Store(0)
		return e, cmd, &incoming{got, order, s.o.Rows}, err
	}
}

// incoming are the columns that a client sends, and where those that are wanted are among them.
type incoming struct {
	columns []columnar.Column
	order   []int
	most    int
}

func (in *incoming) batch(d *wire.FlightData) (columnar.Batch, error) {
	b, err := columnar.Decode(d.DataHeader, d.DataBody, in.columns, in.most)
	if err != nil {
		return b, input(err)
	}
	return b.Pick(in.order), nil
}

// receiving hands on what comes, while that before it is at work. The channel ends with the stream; an error is the
// last. It may receive until the call has returned.
func (c *call) receiving(from stream) <-chan received {
	to := make(chan received, 1)
	crash.Go(func() {
		defer close(to)
		for {
			d, err := c.receive(from.Recv)
			if errors.Is(err, io.EOF) {
				return
			}
			select {
			case to <- received{d, err}:
			case <-from.Context().Done():
				return
			}
			if err != nil {
				return
			}
		}
	})
	return to
}

type received struct {
	data *wire.FlightData
	err  error
}

// DoExchange looks up: key columns come, and value columns go, with a column that tells which keys were found. The rows
// of replies are those that came, in their order. A batch has one reply, unless that were larger than a message may be.
// While one is looked up, the next is received and the one before it is sent.
func (s *Server) DoExchange(x wire.FlightService_DoExchangeServer) error {
	return s.do(x.Context(), "DoExchange", func(c *call) error {
		e, _, in, err := s.begin(c, x, func(e *entry, cmd command) ([]columnar.Column, error) {
			if cmd.Mode != "" && cmd.Mode != "find" {
				return nil, input(fmt.Errorf("DoExchange in mode %q: want find", string(cmd.Mode)))
			}
			return e.Schema().Keys, nil
		})
		if err != nil {
			return err
		}
		schema, err := columnar.EncodeSchema(columnar.ArrowSchema(e.Schema().Reply(), nil))
		if err != nil {
			return err
		}
		if err := c.send(func() error { return x.Send(&wire.FlightData{DataHeader: schema}) }); err != nil {
			return err
		}
		replies, sent := make(chan reply, 1), make(chan error, 1)
		crash.Go(func() {
			sent <- crash.Catch(func() error {
				for r := range replies {
					if err := c.send(func() error { return x.Send(r.data) }); err != nil {
						return err
					}
					if r.last {
						c.answered()
					}
				}
				return nil
			})
		})
		err = s.lookUp(c, c.receiving(x), e, in, replies, sent)
		close(replies)
		if err != nil {
			return err
		}
		return <-sent
	})
}

// reply is a reply to a batch, or the last of several.
type reply struct {
	data *wire.FlightData
	last bool
}

// lookUp looks up what comes. When it returns without an error, all is looked up, or sending has failed.
func (s *Server) lookUp(c *call, from <-chan received, e *entry, in *incoming, to chan<- reply, sent chan error) error {
	for r := range from {
		if r.err != nil {
			return r.err
		}
		if len(r.data.DataHeader) == 0 {
			c.answered()
			continue
		}
		b, err := in.batch(r.data)
		if err != nil {
			return err
		}
		for at, first := 0, true; at < b.Rows || first; first = false {
			var f columnar.Frame
			next := 0
			err := s.tables.on(&e, func(e *entry) (err error) {
				f, next, err = e.Find(b, at, int64(s.o.Message)/8*7, alloc)
				return err
			})
			if err != nil {
				return err
			}
			d := &wire.FlightData{DataHeader: f.Header, DataBody: f.Body}
			if first {
				d.AppMetadata = r.data.AppMetadata
			}
			select {
			case to <- reply{d, next == b.Rows}:
			case err := <-sent:
				sent <- err
				return err
			}
			at = next
		}
		s.metrics.found.Add(int64(b.Rows))
		release(r.data.DataBody)
	}
	return nil
}

// DoPut writes: what a mode does to the rows of a batch is answered by JSON, when it is done, and with a log that is
// always synced, when it is on the disk. Meanwhile the next batches are done, and one fsync is for all of them.
func (s *Server) DoPut(x wire.FlightService_DoPutServer) error {
	return s.do(x.Context(), "DoPut", func(c *call) error {
		mode := columnar.Insert
		e, _, in, err := s.begin(c, x, func(e *entry, cmd command) ([]columnar.Column, error) {
			if cmd.Mode != "" {
				mode = cmd.Mode
			}
			return e.Columns(mode), e.CanPut(mode)
		})
		if err != nil {
			return input(err)
		}
		done, sent := make(chan columnar.Result, resultsAhead), make(chan error, 1)
		crash.Go(func() { sent <- crash.Catch(func() error { return s.acknowledge(c, x, done) }) })
		err = s.put(c, c.receiving(x), e, mode, in, done, sent)
		close(done)
		return cmp.Or(err, <-sent)
	})
}

// resultsAhead is how many batches are done, and not acknowledged yet, before the next waits.
const resultsAhead = 16

// put does the batches that come. When it returns, nothing more comes to done, and all in there has happened.
func (s *Server) put(c *call, from <-chan received, e *entry, mode columnar.Mode, in *incoming,
	done chan<- columnar.Result, sent chan error) error {
	for r := range from {
		if r.err != nil {
			return r.err
		}
		if len(r.data.DataHeader) == 0 {
			c.answered()
			continue
		}
		b, err := in.batch(r.data)
		if err != nil {
			return err
		}
		if err := s.tables.writable(); err != nil {
			return err
		}
		var result columnar.Result
		err = s.tables.on(&e, func(e *entry) (err error) {
			result, err = e.Put(mode, b)
			return err
		})
		release(r.data.DataBody)
		if err != nil && result.Refused == nil {
			s.tables.commit() // a part may be done, which is so after a crash then
			return err
		}
		s.metrics.put.Add(int64(b.Rows))
		select {
		case done <- result:
		case err := <-sent:
			sent <- err
			return err
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// acknowledge tells what was done, when it may be told.
func (s *Server) acknowledge(c *call, x wire.FlightService_DoPutServer, done <-chan columnar.Result) error {
	for r := range done {
		all := []columnar.Result{r}
		for len(done) > 0 {
			all = append(all, <-done)
		}
		if err := s.tables.commit(); err != nil {
			return err
		}
		for _, r := range all {
			text, err := json.Marshal(r)
			if err != nil {
				return err
			}
			if err := c.send(func() error { return x.Send(&wire.PutResult{AppMetadata: text}) }); err != nil {
				return err
			}
			c.answered()
		}
	}
	return nil
}

// DoGet gives all rows of a table, or those of one of several parts.
func (s *Server) DoGet(ticket *wire.Ticket, x wire.FlightService_DoGetServer) error {
	return s.do(x.Context(), "DoGet", func(c *call) error {
		cmd, err := parseCommand(ticket.GetTicket())
		if err != nil {
			return err
		}
		e, err := s.tables.get(cmd.Table)
		if err != nil {
			return err
		}
		schema := e.Schema()
		header, err := columnar.EncodeSchema(columnar.ArrowSchema(schema.All(), schema.Keys))
		if err != nil {
			return err
		}
		if err := c.send(func() error { return x.Send(&wire.FlightData{DataHeader: header}) }); err != nil {
			return err
		}
		// Writes wait while rows are brought here, and must not wait for the client.
		var frames []columnar.Frame
		kept := int64(0)
		defer func() { s.exports.Add(-kept) }()
		keep := func(f columnar.Frame) error {
			n := int64(len(f.Body) + len(f.Header))
			kept += n
			if all := s.exports.Add(n); all > s.o.Exports {
				return status.Errorf(codes.ResourceExhausted, "exports that wait for clients take %d bytes, %d may: "+
					"ask for one of several parts at a time", all, s.o.Exports)
			}
			frames = append(frames, f)
			return nil
		}
		err = s.tables.on(&e, func(e *entry) error { return e.Export(x.Context(), cmd.Part, cmd.Parts, keep) })
		if err != nil {
			return err
		}
		for i, f := range frames {
			frames[i] = columnar.Frame{}
			d := &wire.FlightData{DataHeader: f.Header, DataBody: f.Body}
			if err := c.send(func() error { return x.Send(d) }); err != nil {
				return err
			}
			n := int64(len(f.Body) + len(f.Header))
			s.exports.Add(-n)
			kept -= n
		}
		return nil
	})
}

// info tells of a table.
func (s *Server) info(e *entry, cmd command) (*wire.FlightInfo, error) {
	schema := e.Schema()
	text, err := framed(columnar.ArrowSchema(schema.All(), schema.Keys))
	if err != nil {
		return nil, err
	}
	rows, err := e.Rows()
	if err != nil {
		return nil, err
	}
	out := &wire.FlightInfo{Schema: text, TotalRecords: rows, TotalBytes: -1,
		FlightDescriptor: &wire.FlightDescriptor{Type: wire.DescriptorPATH, Path: []string{schema.Name}}}
	for part := range cmd.Parts {
		ticket, err := json.Marshal(command{Table: schema.Name, Part: part, Parts: cmd.Parts})
		if err != nil {
			return nil, err
		}
		out.Endpoint = append(out.Endpoint, &wire.FlightEndpoint{Ticket: &wire.Ticket{Ticket: ticket}})
	}
	return out, nil
}

// ListFlights tells of all tables.
func (s *Server) ListFlights(_ *wire.Criteria, x wire.FlightService_ListFlightsServer) error {
	return s.do(x.Context(), "ListFlights", func(c *call) error {
		for _, e := range s.tables.list() {
			info, err := s.info(e, command{Parts: 1})
			if errors.Is(err, table.ErrClosed) {
				continue // it was dropped meanwhile
			} else if err != nil {
				return err
			}
			if err := c.send(func() error { return x.Send(info) }); err != nil {
				return err
			}
		}
		return nil
	})
}

// GetFlightInfo tells of a table. A command may ask for several parts: each is an endpoint with a ticket of its own.
func (s *Server) GetFlightInfo(ctx context.Context, d *wire.FlightDescriptor) (info *wire.FlightInfo, err error) {
	err = s.do(ctx, "GetFlightInfo", func(*call) error {
		cmd, err := described(d)
		if err != nil {
			return err
		}
		e, err := s.tables.get(cmd.Table)
		if err != nil {
			return err
		}
		info, err = s.info(e, cmd)
		return err
	})
	return info, err
}

// GetSchema tells the columns of a table.
func (s *Server) GetSchema(ctx context.Context, d *wire.FlightDescriptor) (*wire.SchemaResult, error) {
	info, err := s.GetFlightInfo(ctx, d)
	if err != nil {
		return nil, err
	}
	return &wire.SchemaResult{Schema: info.Schema}, nil
}
