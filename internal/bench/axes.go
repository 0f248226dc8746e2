package bench

import (
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
)

// axes say what columns are that name themselves briefly, for plots: with what is counted, and its unit. Those with G/s serve for M/s, too.
var axes = map[string]string{
	"insert G/s":              "inserts, G/s",
	"find G/s":                "keys looked up, G/s",
	"find G/s, no hits":       "keys looked up, none there, G/s",
	"find G/s, half hits":     "keys looked up, half of them there, G/s",
	"find G/s, all hits":      "keys looked up, all there, G/s",
	"delete G/s":              "keys deleted, G/s",
	"retrieve G/s":            "values found, G/s",
	"mixed G/s":               "operations of mixed batches, G/s",
	"overwrite G/s":           "pairs inserted over others, G/s",
	"insert-new G/s":          "pairs offered that are there, G/s",
	"allocate G/s":            "slabs allocated, G/s",
	"release G/s":             "slabs given back, G/s",
	"moved G/s":               "pairs moved, G/s",
	"probe G/s":               "rows of S probed, G/s",
	"mean G/s":                "inserts, G/s",
	"rows G/s":                "rows counted or added up, G/s",
	"contains G/s":            "keys looked up, G/s",
	"G/s":                     "operations, G/s",
	"K/s":                     "look-ups, K/s",
	"M keys/s":                "keys, millions a second",
	"times":                   "speed, times that of a Go map",
	"M/s":                     "letters or reads, M/s",
	"GB/s":                    "bytes of the file, GB/s",
	"total ms":                "time, ms",
	"seconds":                 "time, s",
	"µs":                      "time of a batch, µs",
	"p99 µs":                  "time, 99th percentile, µs",
	"difference ms":           "time of Stash less that of clStash, ms",
	"build %":                 "share of building in the time, %",
	"hits %":                  "look-ups that hit, %",
	"refused %":               "inserts refused, %",
	"efficiency %":            "warp execution efficiency, %",
	"AO %":                    "achieved occupancy, %",
	"EI · CPI billions":       "EI · CPI, billions of cycles",
	"time · AO ms":            "time · AO, ms",
	"table GB":                "table, GB",
	"M letters":               "letters of genomes, millions",
	"batch":                   "batch",
	"load":                    "load factor",
	"filled":                  "filled factor",
	"utilization":             "memory utilization: bytes of pairs / bytes of the table",
	"density":                 "storage density: bytes of pairs / bytes of the table",
	"density of buckets":      "storage density of buckets: bytes of values / bytes",
	"bytes a pair":            "memory, bytes a pair",
	"pair bytes":              "key and value, bytes",
	"key+value bytes":         "key + value, bytes",
	"false positives":         "absent keys reported as there, share",
	"M":                       "M, slots of a bucket",
	"R":                       "R, rings that an insert may search",
	"|g|":                     "|g|, lanes of a group",
	"s":                       "exponent s of Zipf's law",
	"exponent":                "exponent of Zipf's law",
	"r":                       "r, deletions for each insert",
	"α":                       "α, least filled factor",
	"β":                       "β",
	"conflicts":               "operations on one word",
	"hashes":                  "hash functions",
	"rings a move":            "rings examined, a relocation",
	"pool, times as many":     "slabs in the pool, times as many as are allocated",
	"efficiency":              "efficiency: time one after the other / time mixed",
	"efficiency, at once":     "efficiency: time one after the other / time mixed",
	"times as fast as cuckoo": "speed, times that of cuckoo",
	"insert efficiency":       "rate a device / rate of one device alone",
	"find efficiency":         "rate a device / rate of one device alone",
}

// units are what a rate's short form stands for.
var units = map[string]string{"G/s": "billions a second", "M/s": "millions a second", "K/s": "thousands a second"}

// axis is the text of an axis: what is counted, and in what unit.
func axis(column string) string {
	text, known := axes[column]
	if !known {
		if text, known = axes[strings.Replace(column, "M/s", "G/s", 1)]; known {
			text = strings.Replace(text, "G/s", "M/s", 1)
		} else {
			text = column
		}
	}
	for short, long := range units {
		if strings.HasSuffix(text, ", "+short) {
			text = strings.TrimSuffix(text, short) + long + " (" + short + ")"
		}
	}
	return text
}

// amount writes a number for people, all alike: 0.25, 1,024, 67.1 M, 1.5 G.
func amount(x float64) string {
	short := func(x float64, unit string) string { return strconv.FormatFloat(x, 'g', 3, 64) + " " + unit }
	switch a := math.Abs(x); {
	case a >= 999.5e6:
		return short(x/1e9, "G")
	case a >= 999_500:
		return short(x/1e6, "M")
	case a >= 1000:
		return grouped(strconv.FormatFloat(math.Round(x), 'f', -1, 64))
	default:
		return strconv.FormatFloat(x, 'g', 4, 64)
	}
}

var long = regexp.MustCompile(`\b\d{4,}\b`)

// grouped puts commas into the long whole numbers of a text.
func grouped(text string) string {
	return long.ReplaceAllStringFunc(text, func(s string) string {
		for i := len(s) - 3; i > 0; i -= 3 {
			s = s[:i] + "," + s[i:]
		}
		return s
	})
}

// ticker writes the ticks of another one as amounts.
type ticker struct{ plot.Ticker }

// Ticks are those of the other one.
func (t ticker) Ticks(least, most float64) []plot.Tick {
	ticks := slices.DeleteFunc(t.Ticker.Ticks(least, most), func(x plot.Tick) bool { return x.Value < least*(1-1e-9) || x.Value > most*(1+1e-9) })
	labels := 0
	for i, x := range ticks {
		if x.Label != "" {
			ticks[i].Label = amount(x.Value)
			labels++
		}
	}
	if labels < 2 { // where there is no decade, fine ticks have names, too
		for i, x := range ticks {
			ticks[i].Label = amount(x.Value)
		}
	}
	return ticks
}

// even are the ticks of an axis that is not logarithmic, all in the unit of the largest.
type even struct{}

// Ticks are the usual ones.
func (even) Ticks(least, most float64) []plot.Tick {
	ticks := plot.DefaultTicks{}.Ticks(least, most)
	unit, name := 1.0, ""
	switch largest := max(math.Abs(least), math.Abs(most)); {
	case largest >= 1e9:
		unit, name = 1e9, " G"
	case largest >= 1e6:
		unit, name = 1e6, " M"
	}
	for i, x := range ticks {
		switch {
		case x.Label == "":
		case unit == 1 || x.Value == 0:
			ticks[i].Label = amount(x.Value)
		default:
			ticks[i].Label = strconv.FormatFloat(x.Value/unit, 'g', 4, 64) + name
		}
	}
	return ticks
}

// beside are columns of which the subtitle tells the least and the most, unless the title told them.
var beside = []struct {
	column, text string
	told         *regexp.Regexp
}{
	{"pairs", "%s pairs", regexp.MustCompile(`\d{3,} (\S+ )*pairs|pairs of (\S+ )+\d{3,}`)},
	{"operations", "%s operations", regexp.MustCompile(`\d{3,} (\S+ )*operations`)},
	{"load", "load factor %s", regexp.MustCompile(`load factor \d`)},
	{"filled", "filled factor %s", regexp.MustCompile(`filled to \d`)},
}

// subtitle says what was measured, on what, and when; the parts that the title has are left out.
func (f *Fig) subtitle(p Plot, rows [][]any) string {
	var told []string
	for _, x := range beside {
		if text := f.span(x.column, rows); text != "" && !slices.Contains([]string{p.X, p.Y, p.Series, p.Facet}, x.column) && !x.told.MatchString(f.Title) {
			told = append(told, fmt.Sprintf(x.text, text))
		}
	}
	what := strings.ReplaceAll(grouped(f.Title), "∝", "~") // which the font lacks
	if len(told) > 0 {
		what += "; " + strings.Join(told, ", ")
	}
	commit, changes := strings.CutSuffix(f.Where.Commit, WithChanges)
	commit = commit[:min(len(commit), 9)]
	if changes {
		commit += WithChanges
	}
	where := fmt.Sprintf("%s, commit %s, %s", f.Where.Model, commit, f.Where.Date.Format("2006-01-02"))
	if s := f.Spread; s != nil {
		where += fmt.Sprintf("; medians of %d runs, which lie %.1f %% apart (half of them), %.0f %% at most", Runs, 100*s.Median, 100*s.Most)
	}
	return what + "\n" + where
}

// span is the least and the most of a column; empty where it has no numbers.
func (f *Fig) span(column string, rows [][]any) string {
	c := f.Column(column)
	if c < 0 {
		return ""
	}
	least, most := math.Inf(1), math.Inf(-1)
	for _, r := range rows {
		if x, ok := Number(r[c]); ok {
			least, most = min(least, x), max(most, x)
		}
	}
	switch {
	case least > most:
		return ""
	case amount(least) == amount(most):
		return amount(least)
	}
	return amount(least) + " to " + amount(most)
}

// wrapped breaks a text into lines of so many letters at most, where words allow.
func wrapped(text string, most int) string {
	var lines []string
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > most {
			lines, line = append(lines, line), ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}
