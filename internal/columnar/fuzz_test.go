package columnar

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io"
	"log"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/journal"
	"github.com/warpmap/warpmap/internal/testenv"
)

// wide are columns of all forms.
const wide = "a:int64,b:utf8?,c:bool?,d:large_binary,e:int8?,f:binary[3]"

var wideRows = [][]string{{"1", "one", "true", "AAAA", "1", "AAAA"}, {"2", null, null, "", null, "AAAB"},
	{"-3", "", "false", "AA==", "-5", "////"}}

// FuzzBatch: whatever a message and its body hold, Decode gives an error or a batch that can be used: what is encoded
// of it is decoded as the same.
func FuzzBatch(f *testing.F) {
	columns, err := Parse(wide)
	if err != nil {
		f.Fatal(err)
	}
	for _, rows := range [][][]string{wideRows, wideRows[:1], nil} {
		header, body := payload(f, recordOf(f, columns, rows))
		f.Add(header, body)
	}
	f.Fuzz(func(t *testing.T, header, body []byte) {
		testenv.Bounded(t, len(header)+len(body), func() {
			b, err := Decode(header, body, columns, 1<<16)
			if err != nil {
				return
			}
			p := newPacking(columns)
			k := p.pack(b.Columns, 0, b.Rows)
			one := Encode(columns, b, Make)
			again, err := Decode(one.Header, one.Body, columns, 1<<16)
			if err != nil {
				t.Fatalf("what is encoded is not decoded: %v", err)
			}
			if two := Encode(columns, again, Make); !bytes.Equal(one.Body, two.Body) {
				t.Fatal("what is decoded of it differs")
			}
			if all := p.unpack(k); len(all) != len(columns) || b.Rows > 0 && !bytes.Equal(all[0].Fixed, b.Columns[0].Fixed) {
				t.Fatal("keys are unpacked as others")
			}
		})
	})
}

// FuzzSchema: whatever a message holds, DecodeSchema gives an error or columns that Describe and Parse know, unless
// their names are not for these.
func FuzzSchema(f *testing.F) {
	for _, s := range []string{wide, "a:timestamp[us,UTC],b:time[ns],c:decimal(18,3)?,d:float32"} {
		columns, err := Parse(s)
		if err != nil {
			f.Fatal(err)
		}
		header, err := EncodeSchema(ArrowSchema(columns, columns[:1]))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(header)
	}
	f.Fuzz(func(t *testing.T, header []byte) {
		testenv.Bounded(t, len(header), func() {
			columns, err := DecodeSchema(header)
			if err != nil || len(columns) == 0 {
				return
			}
			for _, c := range columns {
				if _, ok := formOf(c.Type); !ok {
					t.Fatalf("%s has no form", c.Type)
				}
			}
			again, err := EncodeSchema(ArrowSchema(columns, nil))
			if err != nil {
				t.Fatal(err)
			}
			back, err := DecodeSchema(again)
			if err != nil || Describe(back) != Describe(columns) {
				t.Fatalf("%s is %s, %v", Describe(columns), Describe(back), err)
			}
		})
	})
}

// FuzzParse: what Parse reads, Describe writes so that it is read as the same.
func FuzzParse(f *testing.F) {
	f.Add(wide)
	f.Add("a:timestamp[ns,Europe/Berlin]?,b:decimal(38,0),c:time[s],d: duration[ms]")
	f.Fuzz(func(t *testing.T, text string) {
		testenv.Bounded(t, len(text), func() {
			columns, err := Parse(text)
			if err != nil {
				return
			}
			back, err := Parse(Describe(columns))
			if err != nil || Describe(back) != Describe(columns) {
				t.Fatalf("%q is %s, which is %s, %v", text, Describe(columns), Describe(back), err)
			}
			for i, c := range columns {
				if !arrow.TypeEqual(c.Type, back[i].Type) {
					t.Fatalf("%s is %s", c.Type, back[i].Type)
				}
			}
		})
	})
}

// FuzzFile: whatever blocks a file has, with checksums that are right, Load gives an error or a table that is saved and
// loaded as the same.
func FuzzFile(f *testing.F) {
	devices := cpu(f)
	for _, columns := range []string{"id:int64,n:int64", "id:int64,s:utf8?", "s:utf8"} {
		x := newTable(f, devices, columns, 1, Options{})
		rows := [][]string{{"1", "5"}, {"2", "6"}}
		if len(x.schema.Values) == 0 {
			rows = [][]string{{"1"}, {"2"}}
		}
		if _, err := x.Put(Insert, batchOf(f, x.schema.All(), rows)); err != nil {
			f.Fatal(err)
		}
		var file bytes.Buffer
		if err := x.Save(context.Background(), &file); err != nil {
			f.Fatal(err)
		}
		f.Add(file.Bytes())
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		testenv.Bounded(t, len(file), func() {
			file = healed(file)
			x, err := Load(context.Background(), bytes.NewReader(file), devices, Options{Family: "warpcore"})
			if err != nil {
				return
			}
			defer x.Close()
			n, err := x.Rows()
			if err != nil {
				t.Fatal(err)
			}
			var again bytes.Buffer
			if err := x.Save(context.Background(), &again); err != nil {
				t.Fatal(err)
			}
			y, err := Load(context.Background(), &again, []*device.Device{devices[0]}, Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer y.Close()
			if m, err := y.Rows(); err != nil || m != n {
				t.Fatalf("%d rows, and loaded again %d, %v", n, m, err)
			}
		})
	})
}

// healed makes the checksums of blocks right.
func healed(file []byte) []byte {
	file = bytes.Clone(file)
	for at := len(magic); at+blockPrefix <= len(file); {
		header, body := uint64(binary.LittleEndian.Uint32(file[at+1:])), binary.LittleEndian.Uint64(file[at+5:])
		rest := uint64(len(file) - at - blockPrefix)
		if header > rest || body > rest-header {
			break
		}
		end := at + blockPrefix + int(header+body)
		sum := crc32.Update(crc32.Checksum(file[at:at+13], castagnoli), castagnoli, file[at+blockPrefix:end])
		binary.LittleEndian.PutUint32(file[at+13:], sum)
		at = end
	}
	return file
}

// FuzzLog: whatever records a log has, with checksums that are right, each is an error or is done to the table that the
// first of them made, which can be saved then; and their bytes are the same when they are written again.
func FuzzLog(f *testing.F) {
	devices := cpu(f)
	for _, columns := range []string{"id:int64,n:int64", "id:int64,s:utf8?", "s:utf8"} {
		j, folder := newJournal(f)
		x := newTable(f, devices, columns, 1, Options{})
		rows := [][]string{{"1", "5"}, {"2", "6"}}
		if len(x.schema.Values) == 0 {
			rows = [][]string{{"1"}, {"2"}}
		}
		if err := x.LogCreated(j); err != nil {
			f.Fatal(err)
		}
		x.LogTo(j)
		_, err := x.Put(Insert, batchOf(f, x.schema.All(), rows))
		_, deleteErr := x.Put(Delete, batchOf(f, x.schema.Keys, [][]string{rows[0][:1]}))
		if err = errors.Join(err, deleteErr, x.Clear()); err != nil {
			f.Fatal(err)
		}
		LogDropped(j, x.ID(), x.schema.Name)
		if err := j.Close(); err != nil {
			f.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(folder, "log.1"))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			text = healedLog(text)
			var x *Table
			again := []byte(LogFormat.Magic)
			sound, err := LogFormat.Read(bytes.NewReader(text), int64(len(text)), func(head, body []byte) (err error) {
				c := ParseChange(head, body)
				switch {
				case c.Kind == Created && x == nil:
					x, err = c.Table(devices, Options{})
				case x != nil:
					x.Redo(c, true)
				}
				again = append(append(append(again, c.first()...), c.header...), c.body...)
				return err
			})
			if x != nil {
				defer x.Close()
				if err := x.Save(context.Background(), io.Discard); err != nil {
					t.Fatal(err)
				}
			}
			if sound > 0 && !bytes.HasPrefix(again, text[:sound]) {
				t.Fatalf("%d sound bytes, %v, are written as others", sound, err)
			}
		})
	})
}

func newJournal(t testing.TB) (j *journal.Journal, folder string) {
	t.Helper()
	folder = t.TempDir()
	j, err := journal.Open(folder, journal.SyncNever, LogFormat, log.New(io.Discard, "", 0))
	if err == nil {
		err = j.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	return j, folder
}

// healedLog makes the checksums of records right.
func healedLog(text []byte) []byte {
	text = bytes.Clone(text)
	for at := len(LogFormat.Magic); at+journal.HeadBytes <= len(text); {
		n, err := LogFormat.Body(text[at : at+journal.HeadBytes])
		if err != nil || n > int64(len(text)-at-journal.HeadBytes) {
			break
		}
		end := at + journal.HeadBytes + int(n)
		journal.Seal(text[at:end])
		at = end
	}
	return text
}
