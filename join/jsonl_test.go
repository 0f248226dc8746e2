package join

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// jsonFound is what a scan of lines gives, as text.
func jsonFound(each func(s *jsonScan, member func(row, column int, value []byte, place int) error) (int, error)) string {
	var names []string
	var found strings.Builder
	s := newJSONScan(func(name string) (int, error) {
		if names = append(names, name); strings.HasPrefix(name, "wrong") {
			return 0, errors.New("a wrong name")
		} else if strings.HasPrefix(name, "no") {
			return -1, nil
		}
		return len(names) - 1, nil
	}, false)
	rows, err := each(s, func(row, column int, value []byte, place int) error {
		fmt.Fprintf(&found, "%d %q %s %d\n", row, names[column], value, place)
		if string(value) == "13" {
			return errors.New("a wrong value")
		}
		return nil
	})
	return fmt.Sprintf("%s%d rows, %v", &found, rows, err)
}

// jsonAgrees tells where the scanner finds anything else than the decoder, which looks at all lines.
func jsonAgrees(b []byte) error {
	got := jsonFound(func(s *jsonScan, member func(int, int, []byte, int) error) (int, error) { return s.each(b, member) })
	want := jsonFound(func(s *jsonScan, member func(int, int, []byte, int) error) (rows int, err error) {
		for from := 0; from < len(b); {
			line, _, _ := bytes.Cut(b[from:], []byte{'\n'})
			text := bytes.TrimPrefix(line, bom)
			if len(bytes.Trim(text, " \t\r")) > 0 {
				if err := s.decode(text, func(c int, v []byte) error { return member(rows, c, v, from) }); err != nil {
					return rows, at(b, from, err)
				}
				rows++
			}
			from += len(line) + 1
		}
		return rows, nil
	})
	if got != want {
		return fmt.Errorf("%q:\n%s\nwant\n%s", b, got, want)
	}
	return nil
}

// randomJSON is a line that is an object, or nearly.
func randomJSON(rng *rand.Rand) []byte {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	blank := func() string { return pick("", "", "", " ", "\t", " \r") }
	var value func(depth int) string
	object := func(depth int) string {
		var b strings.Builder
		b.WriteString("{" + blank())
		for i := range rng.IntN(5) {
			if i > 0 {
				b.WriteString(blank() + "," + blank())
			}
			name := pick("a", "b", "c", "no", "no2", "", "a longer name", "\u00e9", `a\"b`, `\u0061`)
			if rng.IntN(60) == 0 {
				name = "wrong"
			}
			b.WriteString(`"` + name + `"` + blank() + ":" + blank() + value(depth+1))
		}
		return b.String() + blank() + "}"
	}
	value = func(depth int) string {
		if depth < 4 && rng.IntN(8) == 0 {
			return object(depth)
		}
		if depth < 4 && rng.IntN(12) == 0 {
			return "[" + value(depth+1) + blank() + "," + value(depth+1) + "]"
		}
		return pick("0", "-0", "1", "13", "-12.5", "1e5", "1.25E-7", "12345678901234567890", "true", "false", "null", `""`,
			`"x"`, `"some text, longer than a word"`, `"a \"quoted\" \\ \/ \b\f\n\r\t"`, `"\u00e9\ud83d\ude00"`, "\"é😀\"",
			`"{[}]:,"`)
	}
	line := []byte(blank() + object(0) + blank())
	if rng.IntN(3) == 0 { // one byte is another
		line[rng.IntN(len(line))] = pick(`"`, "{", "}", "[", ",", ":", "\\", "0", "-", ".", "e", " ", "\x01", "\xff", "u", "\n")[0]
	}
	return line
}

// Lines have the members and the errors that a decoder finds, which looks at each; and few lines need it.
func TestJSONScan(t *testing.T) {
	n := 20_000
	if testenv.Long() {
		n = 2_000_000
	}
	rng := rand.New(rand.NewPCG(uint64(testenv.FirstSeed()), 7))
	for range n {
		var b []byte
		for range 1 + rng.IntN(3) {
			b = append(append(b, randomJSON(rng)...), '\n')
		}
		if rng.IntN(4) == 0 {
			b = b[:len(b)-1]
		}
		if err := jsonAgrees(b); err != nil {
			t.Fatal(err)
		}
	}
	lines := []byte(strings.Repeat(`{"a": 1.5, "b":"x\"y", "c":{"d":[1,{}]}, "e":null}`+"\r\n", 100))
	s, known := newJSONScan(func(string) (int, error) { return 0, nil }, false), 0
	for i := 0; i < len(lines); known++ {
		end := s.line(lines, i, known)
		if end == 0 {
			break
		}
		i = end
	}
	if known < 99 {
		t.Errorf("line %d of 100 needs the decoder", known+1)
	}
}

// A value behind those of the glance makes a column what it is where all values are looked at before, and an error the
// same.
func TestGlanceOfJSON(t *testing.T) {
	cutInto(t, 400)
	kinds := map[string]func(i int) string{
		"integers": func(i int) string { return fmt.Sprint(i%20 - 3) },
		"floats":   func(i int) string { return fmt.Sprintf("%.1f", float64(i%20)) },
		"dates":    func(i int) string { return fmt.Sprintf(`"2024-01-%02d"`, 1+i%20) },
		"booleans": func(i int) string { return []string{"true", "false"}[i%2] },
		"texts":    func(i int) string { return fmt.Sprintf(`"key %d"`, i%20) },
		"nulls":    func(int) string { return "null" },
	}
	odd := []string{"7", "-2", "1.5", "1e2", "1e400", "18446744073709551616", `"5"`, `""`, `"2024-01-09"`, `"2024-02-30"`,
		`"2024-01-02 03:04:05Z"`, `"NaN"`, "true", "null", `{"k":1}`, "[2]", "\"\xff\"", "nope", `1,"k":2`, `1,"z":2`, `1}{`,
		`"\u0031"`}
	dir, ctx, different := t.TempDir(), context.Background(), map[string]bool{}
	count := func(o ColumnOptions, scan func(begin func(*columnScan) error, do func(*values) error) (*columnScan,
		error)) string {
		e := &exact{}
		c, err := scan(e.begin, e.take)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(c.rows.Load(), c.nulls.Load(), c.field.Type, e.keys.Len())
	}
	glanced := 0
	for kind, value := range kinds {
		for _, other := range append(slices.Clone(odd), "", "gone") {
			var text strings.Builder
			for i := range 60 {
				v := fmt.Sprintf(`"k":%s,`, value(i))
				if i == 50 && other != "" {
					v = fmt.Sprintf(`"k":%s,`, other)
				}
				if i == 50 && other == "gone" {
					v = ""
				}
				fmt.Fprintf(&text, "{\"a\":%d,%s\"b\":\"x%d\"}\n", i, v, i)
			}
			path := put(t, filepath.Join(dir, "x.jsonl"), text.String())
			o := ColumnOptions{Inputs: []string{path}, Column: "k", Threads: 2}
			inputs, err := expandAll("", o.Inputs)
			if err != nil {
				t.Fatal(err)
			}
			got := count(o, func(begin func(*columnScan) error, do func(*values) error) (*columnScan, error) {
				return o.scan(ctx, begin, do)
			})
			want := count(o, func(begin func(*columnScan) error, do func(*values) error) (*columnScan, error) {
				return o.scanOnce(ctx, inputs, false, begin, do)
			})
			if got != want {
				t.Errorf("%s, and %s:\n%s\nwant\n%s", kind, other, got, want)
			}
			if _, err := o.scanOnce(ctx, inputs, true, (&exact{}).begin, func(x *values) error { return nil }); err == nil {
				glanced++
			}
			different[want] = true
		}
	}
	if len(different) < 20 || glanced < 40 {
		t.Errorf("%d outcomes differ, and a glance is enough for %d of %d", len(different), glanced, len(kinds)*(len(odd)+2))
	}
}
