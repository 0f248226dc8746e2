package operations

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// stringsOf is a map of strings, each made of a number.
type stringsOf struct {
	m    *warpmap.Strings[uint32]
	d    *device.Device
	long int // a bound on what is behind the number
}

// name begins with the number. Zeros and letters follow, up to the bound.
func (m *stringsOf) name(x uint64) string {
	return fmt.Sprint(x) + strings.Repeat("\x00", int(x%3)) + strings.Repeat("x", int(x*0x9e3779b97f4a7c15>>40)%max(1, m.long))
}

func (m *stringsOf) do(c *call) (a answer) {
	switch c.Name {
	case "stats":
		s, err := m.m.Stats()
		a.N, a.Bytes, a.Err = s.Len, s.Bytes, err
	case "len":
		a.N, a.Err = m.m.Len()
	case "check":
		a.Err = m.m.Check()
	case "grow":
		a.Err = m.m.Grow(c.N)
	case "clear":
		a.Err = m.m.Clear()
	case "close":
		a.Err = m.m.Close()
	case "save":
		return m.save(c)
	case "export":
		keys, values, err := m.m.All()
		a.Err = err
		m.export(keys, values, &a)
	case "chunks":
		a.Err = m.m.Chunks(background, func(keys text.Keys, values []uint32) error {
			m.export(keys, values, &a)
			return nil
		})
	default:
		m.batch(c, &a)
	}
	return a
}

func (m *stringsOf) batch(c *call, a *answer) {
	list, values := make([]string, len(c.Keys)), plain[uint32]().all(c.Values)
	for i, x := range c.Keys {
		list[i] = m.name(x)
	}
	keys := text.Of(list...)
	out := make([]uint32, len(list))
	a.Flags = make([]bool, len(list))
	switch c.Name {
	case "insert":
		a.Err = m.m.Insert(keys, values)
	case "insertnew":
		a.N, a.Err = m.m.InsertNew(keys, values, a.Flags)
	case "find":
		a.Err = m.m.Find(keys, out, a.Flags)
	case "contains":
		a.Err = m.m.Contains(keys, a.Flags)
	case "delete":
		a.N, a.Err = m.m.Delete(keys, a.Flags)
	case "wrong":
		if a.Lacks = c.With != "lengths"; !a.Lacks {
			a.Err = m.m.Insert(keys, append(values, 1))
		}
	default:
		a.Lacks = true
	}
	var none error
	a.Values = plain[uint32]().numbers(out, &none)
}

// export adds what was exported to the answer.
func (m *stringsOf) export(keys text.Keys, values []uint32, a *answer) {
	for i, name := range keys.Strings() {
		digits := strings.TrimRight(name, "x\x00")
		x, err := strconv.ParseUint(digits, 10, 64)
		if err == nil && m.name(x) != name {
			err = fmt.Errorf("key %.40q is torn", name)
		}
		if a.Err == nil {
			a.Err = err
		}
		a.Keys, a.Values = append(a.Keys, x), append(a.Values, uint64(values[i]))
	}
}

func (m *stringsOf) save(c *call) (a answer) {
	var file bytes.Buffer
	if a.Err = snapshot.Strings(m.m).Save(background, &file); a.Err != nil {
		return a
	}
	other, err := warpmap.LoadStrings[uint32](background, &file, m.d, table.Family(c.Family), text.Options{})
	if a.Err = err; err != nil {
		return a
	}
	a = (&stringsOf{other, m.d, m.long}).do(&call{Name: "export"})
	if err := other.Close(); a.Err == nil {
		a.Err = err
	}
	return a
}
