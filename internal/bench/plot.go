package bench

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"image/color"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// Plot says what to draw of a figure's rows. Columns are named as the figure has them, with their units. Where X holds
// three numbers or more, the plot has lines with markers; where it holds words, or two numbers, it has grouped bars. A series
// that has a figure for none of the numbers is a level line through all of them.
// Peers and limits are grey. An axis whose values span two decades is logarithmic.
type Plot struct {
	Name   string         `json:"name,omitempty"` // end of the file's name; empty where a figure has one plot
	Title  string         `json:"title"`
	X      string         `json:"x"` // columns
	Y      string         `json:"y"`
	Series string         `json:"series,omitempty"` // column with a line or colour for each of its values; may be empty
	Facet  string         `json:"facet,omitempty"`  // column with a picture for each of its values; may be empty
	Only   map[string]any `json:"only,omitempty"`   // shows the rows that have these values in these columns
	LogX   bool           `json:"log_x,omitempty"`
	LogY   bool           `json:"log_y,omitempty"`
	Bound  string         `json:"bound,omitempty"` // column drawn beside each of the series, as a dashed line; may be empty
	Least  string         `json:"least,omitempty"` // columns of the least and the most of the runs, in Y's unit, drawn as a bar across each point; may be empty
	Most   string         `json:"most,omitempty"`
	Fit    bool           `json:"fit,omitempty"` // markers alone, and the line through 0 that fits all of them
}

// File is a file to write, whole.
type File struct {
	Name string
	Data []byte
}

// Files renders the figure: its rows as CSV, and each plot as SVG and PNG.
func (f *Fig) Files() ([]File, error) {
	if err := f.check(); err != nil {
		return nil, err
	}
	base := cmp.Or(slug(f.Name), "figure") // a name that begins with a dot is hidden
	table, err := f.csv()
	if err != nil {
		return nil, err
	}
	files := []File{{base + ".csv", table}}
	for _, p := range f.Plots {
		shown := f.pick(f.Rows, p.Only)
		facets := []any{nil}
		if p.Facet != "" {
			facets = f.values(shown, p.Facet)
		}
		for _, facet := range facets {
			name, rows := base, shown
			if p.Name != "" {
				name += "-" + slug(p.Name)
			}
			title := p.Title
			if p.Facet != "" {
				name += "-" + slug(Cell(facet))
				title += ", " + told(p.Facet, facet)
				rows = f.pick(rows, map[string]any{p.Facet: facet})
			}
			title += "\n" + f.subtitle(p, rows)
			for _, format := range []string{"svg", "png"} {
				data, err := f.draw(p, title, rows, format)
				if err != nil {
					return nil, fmt.Errorf("plot %s: %w", name, err)
				}
				files = append(files, File{name + "." + format, data})
			}
		}
	}
	return files, nil
}

// largest bounds the numbers of a figure. Axes whose ends lie further apart than float64 goes are drawn for ever.
const largest = 1e100

// check tells what a study does not write, and a file that was changed may have.
func (f *Fig) check() error {
	for i, p := range f.Plots {
		columns := slices.AppendSeq([]string{p.X, p.Y}, maps.Keys(p.Only))
		for _, c := range []string{p.Series, p.Bound, p.Facet} {
			if c != "" {
				columns = append(columns, c)
			}
		}
		for _, c := range columns {
			if f.Column(c) < 0 {
				return fmt.Errorf("plot %d: there is no column %q", i+1, c)
			}
		}
	}
	for i, r := range f.Rows {
		if len(r) != len(f.Columns) {
			return fmt.Errorf("row %d has %d cells, and there are %d columns", i+1, len(r), len(f.Columns))
		}
		for c, x := range r {
			n, _ := Number(x)
			switch x.(type) {
			case []any, map[string]any:
				return fmt.Errorf("row %d has %v for %q: want a number, a text, or nothing", i+1, x, f.Columns[c])
			}
			if math.Abs(n) > largest {
				return fmt.Errorf("row %d has %v for %q: want a number up to %v", i+1, n, f.Columns[c], largest)
			}
		}
	}
	return nil
}

func (f *Fig) csv() ([]byte, error) {
	var b bytes.Buffer
	w := csv.NewWriter(&b)
	w.Write(f.Columns)
	for _, r := range f.Rows {
		record := make([]string, len(r))
		for i, x := range r {
			record[i] = Cell(x)
		}
		w.Write(record)
	}
	w.Flush()
	return b.Bytes(), w.Error()
}

// Cell is a cell of a figure as text: empty for nil.
func Cell(x any) string {
	switch x := x.(type) {
	case nil:
		return ""
	case float64:
		return strconv.FormatFloat(x, 'f', -1, 64)
	}
	return fmt.Sprint(x)
}

// slug makes a part of a file's name.
func slug(s string) string {
	s = strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '.' || r == '-' {
			return r
		}
		return '-'
	}, strings.ToLower(s))
	return strings.Trim(s, "-.")
}

// values are the different cells of a column, in the order in which they come.
func (f *Fig) values(rows [][]any, column string) (out []any) {
	c := f.Column(column)
	for _, r := range rows {
		if !slices.Contains(out, r[c]) {
			out = append(out, r[c])
		}
	}
	return out
}

func (f *Fig) pick(rows [][]any, only map[string]any) (out [][]any) {
	for _, r := range rows {
		ok := true
		for column, want := range only {
			ok = ok && equal(r[f.Column(column)], want)
		}
		if ok {
			out = append(out, r)
		}
	}
	return out
}

// equal compares cells: a figure that was kept has floats for whole numbers.
func equal(a, b any) bool {
	x, isX := Number(a)
	y, isY := Number(b)
	return isX && isY && x == y || a == b
}

// Number is a cell of a figure as a number, if it is one.
func Number(x any) (float64, bool) {
	switch x := x.(type) {
	case int:
		return float64(x), true
	case float64:
		return x, true
	}
	return 0, false
}

const (
	plotWidth     = 20 * vg.Centimeter
	plotHeight    = 11 * vg.Centimeter
	legendWidth   = 4.5 * vg.Centimeter
	legendLetters = 24 // that have room in a line
	margin        = 4  // points at least, from the heading to the picture's edges
)

// draw renders the rows as one picture. The legend stands beside the axes, so that it hides nothing.
func (f *Fig) draw(p Plot, title string, rows [][]any, format string) (_ []byte, err error) {
	defer func() { // gonum panics, with a text, where an axis or a size makes no sense
		if r := recover(); r != nil {
			text, is := r.(string)
			if !is {
				panic(r)
			}
			err = fmt.Errorf("it cannot be drawn: %s", text)
		}
	}()
	pic, legend := plot.New(), plot.NewLegend()
	pic.X.Label.Text, pic.Y.Label.Text = axis(p.X), axis(p.Y)
	for _, a := range []*plot.Axis{&pic.X, &pic.Y} {
		a.Label.Padding, a.Label.TextStyle.Font.Size = vg.Points(4), vg.Points(10)
	}
	legend.Padding, legend.TextStyle.Font.Size = vg.Points(2), vg.Points(9)
	legend.Top, legend.Left = true, true
	height := plotHeight
	words := slices.ContainsFunc(rows, func(r []any) bool { _, ok := r[f.Column(p.X)].(string); return ok })
	p.LogY = p.LogY || f.spansDecades(rows, p.Y)
	p.LogX = p.LogX || f.spansDecades(rows, p.X)
	if words || !p.Fit && len(f.values(f.measured(p, rows), p.X)) <= 2 {
		var slots float64
		slots, err = f.bars(p, rows, pic, &legend)
		height = max(5+vg.Length(len(f.values(rows, cmp.Or(p.Series, p.X))))/2, 4+vg.Length(slots)*0.45) * vg.Centimeter
	} else {
		err = f.lines(p, rows, pic, &legend)
	}
	if err != nil {
		return nil, err
	}
	empty := pic.X.Min > pic.X.Max
	if empty { // gonum needs a range for its axes
		pic.X.Min, pic.X.Max, pic.Y.Min, pic.Y.Max = 0, 1, 0, 1
		pic.X.Scale, pic.Y.Scale = plot.LinearScale{}, plot.LinearScale{}
		pic.HideAxes()
	}
	if missing := f.missing(p, rows); missing != "" {
		title += "\n" + missing
	}
	style := pic.Title.TextStyle
	style.YAlign, style.XAlign = draw.YTop, draw.XCenter
	heading := headingOf(title, style)
	for _, more := range heading[min(len(heading), headingLines):] { // the axes have as much room as ever
		height += more.height()
	}
	c, err := draw.NewFormattedCanvas(plotWidth, height, format)
	if err != nil {
		return nil, err
	}
	all := draw.New(c)
	all.SetColor(color.White)
	all.Fill(all.Rectangle.Path())
	top := height - vg.Points(6)
	for _, line := range heading {
		all.FillText(line.style, vg.Point{X: plotWidth / 2, Y: top}, line.text)
		top -= line.height()
	}
	top -= vg.Points(6)
	beside := pic.Y.Label.TextStyle // gonum takes the middle of a logarithmic axis for its top
	beside.Rotation, beside.XAlign, beside.YAlign = math.Pi/2, draw.XCenter, draw.YTop
	text := pic.Y.Label.Text
	pic.Y.Label.Text = ""
	axes := draw.Crop(all, vg.Points(4), -legendWidth, vg.Points(4), top-height)
	if text != "" {
		axes = draw.Crop(axes, vg.Points(14), 0, 0, 0)
	}
	pic.Draw(axes)
	inner := pic.DataCanvas(axes)
	all.FillText(beside, vg.Point{X: vg.Points(2), Y: (inner.Min.Y + inner.Max.Y) / 2}, text)
	if empty {
		middle := style
		middle.Font.Size, middle.YAlign, middle.Color = vg.Points(10), draw.YCenter, grey(1)
		all.FillText(middle, vg.Point{X: (inner.Min.X + inner.Max.X) / 2, Y: (inner.Min.Y + inner.Max.Y) / 2}, "There are no figures to draw here.")
	}
	legend.Draw(draw.Crop(all, plotWidth-legendWidth+vg.Points(8), 0, 0, top-height))
	var b bytes.Buffer
	_, err = c.WriteTo(&b)
	return b.Bytes(), err
}

// headingLines is how many lines of heading the picture's height allows for.
const headingLines = 4

// headingLine is a line above the axes.
type headingLine struct {
	text  string
	style draw.TextStyle
}

func (l headingLine) height() vg.Length { return l.style.Font.Size * 1.3 }

// headingOf gives the lines of a title, the first of which is larger, each in as many as it takes to stay within the picture.
func headingOf(title string, style draw.TextStyle) (lines []headingLine) {
	for i, paragraph := range strings.Split(title, "\n") {
		style.Font.Size = vg.Points(9)
		if i == 0 {
			style.Font.Size = vg.Points(13)
		}
		end := func(line string) {
			own := style
			own.Font.Size *= min(1, headingWidth/max(1, style.Width(line))) // a word alone may be longer
			lines = append(lines, headingLine{line, own})
		}
		line := ""
		for word := range strings.FieldsSeq(paragraph) {
			switch longer := line + " " + word; {
			case line == "":
				line = word
			case style.Width(longer) > headingWidth:
				end(line)
				line = word
			default:
				line = longer
			}
		}
		end(line)
	}
	return lines
}

// headingWidth is how long a line of the heading may be.
const headingWidth = plotWidth - 2*margin*vg.Inch/72

// series are the rows of each line or colour, by name.
func (f *Fig) series(p Plot, rows [][]any) (names []string, parts [][][]any) {
	if p.Series == "" {
		return []string{p.Y}, [][][]any{rows}
	}
	for _, v := range f.values(rows, p.Series) {
		names = append(names, wrapped(told(p.Series, v), legendLetters))
		parts = append(parts, f.pick(rows, map[string]any{p.Series: v}))
	}
	return names, parts
}

// told is a cell as text. A number alone says nothing.
func told(column string, x any) string {
	if n, ok := Number(x); ok {
		return column + " " + amount(n)
	}
	return Cell(x)
}

// points are those of the rows that have numbers in both columns, by x. What a logarithmic axis cannot show is left out.
func (p Plot) points(rows [][]any, x, y int) (points plotter.XYs) {
	if y < 0 {
		return nil
	}
	for _, r := range rows {
		px, okX := Number(r[x])
		if py, okY := Number(r[y]); okX && okY && !(p.LogX && px <= 0) && !(p.LogY && py <= 0) {
			points = append(points, plotter.XY{X: px, Y: py})
		}
	}
	slices.SortStableFunc(points, func(a, b plotter.XY) int { return cmp.Compare(a.X, b.X) })
	return points
}

// level are the ends of a level line through all rows, of a series with one figure and no x.
func (p Plot) level(series, rows [][]any, x, y int) (points plotter.XYs) {
	if len(series) != 1 || series[0][x] != nil {
		return nil
	}
	height, ok := Number(series[0][y])
	across := p.points(rows, x, y)
	if !ok || p.LogY && height <= 0 || len(across) == 0 {
		return nil
	}
	return plotter.XYs{{X: across[0].X, Y: height}, {X: across[len(across)-1].X, Y: height}}
}

// measured are the rows that have a number to draw.
func (f *Fig) measured(p Plot, rows [][]any) (out [][]any) {
	y := f.Column(p.Y)
	for _, r := range rows {
		if _, ok := Number(r[y]); ok {
			out = append(out, r)
		}
	}
	return out
}

// spansDecades tells whether a column's numbers are all above 0, and the largest is a hundred times the least or more.
func (f *Fig) spansDecades(rows [][]any, column string) bool {
	least, most := math.Inf(1), 0.0
	for _, r := range rows {
		if x, ok := Number(r[f.Column(column)]); ok {
			least, most = min(least, x), max(most, x)
		}
	}
	return least > 0 && most >= 100*least
}

const (
	missingMost    = 3  // reasons that missing tells
	missingLetters = 90 // of each reason
)

// missing says why rows have nothing to draw, where the figure has noted it.
func (f *Fig) missing(p Plot, rows [][]any) string {
	x, y, note := f.Column(p.X), f.Column(p.Y), f.Column("note")
	var order []string
	places := map[string][]string{}
	for _, r := range rows {
		if _, ok := Number(r[y]); ok || note < 0 || Cell(r[note]) == "" {
			continue
		}
		who, why := "", Cell(r[note])
		if p.Series != "" {
			who = told(p.Series, r[f.Column(p.Series)])
			why = strings.TrimPrefix(why, who+": ")
		}
		if letters := []rune(why); len(letters) > missingLetters {
			why = strings.TrimSpace(string(letters[:missingLetters])) + " …"
		}
		key := who + "\x00" + why
		if places[key] == nil {
			order = append(order, key)
		}
		if at := told(p.X, r[x]); !slices.Contains(places[key], at) {
			places[key] = append(places[key], at)
		}
	}
	who := map[string][]string{} // by places and reason
	var groups []string
	for _, key := range order {
		name, why, _ := strings.Cut(key, "\x00")
		group := strings.Join(places[key], ", ") + " (" + why + ")"
		if who[group] == nil {
			groups = append(groups, group)
		}
		who[group] = append(who[group], name)
	}
	var out []string
	for _, group := range groups[:min(len(groups), missingMost)] {
		out = append(out, strings.TrimSpace(strings.Join(who[group], ", ")+" at "+group))
	}
	if more := len(groups) - missingMost; more > 0 {
		out = append(out, fmt.Sprintf("%d more", more))
	}
	if len(out) == 0 {
		return ""
	}
	return "No figure: " + strings.Join(out, "; ")
}

// peers begins the names of what others have made, and of what the machine itself does.
var peers = regexp.MustCompile(`^(cuckoo|MegaKV|Misra|Go map|sync\.Map|xsync|swiss|CUDA's malloc|Stash|clStash|hybrid|coalesced)\b`)

// palette are colours that also those tell apart who do not see all of them.
var palette = []color.RGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255}, {0xcc, 0x79, 0xa7, 255}, {0xe6, 0x9f, 0x00, 255}, {0x56, 0xb4, 0xe9, 255},
	{0x33, 0x22, 0x88, 255}, {0x88, 0x22, 0x55, 255}, {0x99, 0x99, 0x33, 255}, {0x44, 0xaa, 0x99, 255}, {0xaa, 0x44, 0x99, 255}, {0x11, 0x77, 0x33, 255},
}

// colour is another for each i; behind the palette they get darker.
func colour(i int) color.Color {
	c, dark := palette[i%len(palette)], uint8(1+i/len(palette))
	return color.RGBA{c.R / dark, c.G / dark, c.B / dark, 255}
}

var greys = []uint8{0x50, 0x80, 0xa8, 0x68, 0x94, 0xb8}

func grey(i int) color.Color { return color.Gray{Y: greys[i%len(greys)]} }

// dashes of lines that have the same, or nearly the same, grey.
var dashes = [][]vg.Length{nil, {4, 2}, {1.5, 2}, {6, 2, 1.5, 2}, {8, 3}, {1, 3}}

// look is how a series is drawn.
type look struct {
	color  color.Color
	dashes []vg.Length
	mark   draw.GlyphDrawer
}

// looks are those of series, by their names: peers are grey.
func looks(names []string) (out []look) {
	others, own := 0, 0
	for i, name := range names {
		if peers.MatchString(name) {
			out = append(out, look{grey(others), dashes[others%len(dashes)], plotutil.Shape(i)})
			others++
		} else {
			out = append(out, look{colour(own), nil, plotutil.Shape(i)})
			own++
		}
	}
	return out
}

func (f *Fig) lines(p Plot, rows [][]any, pic *plot.Plot, legend *plot.Legend) error {
	x, y := f.Column(p.X), f.Column(p.Y)
	names, parts := f.series(p, rows)
	styles := looks(names)
	var all plotter.XYs
	bounds := 0
	for i, part := range parts {
		points := p.points(part, x, y)
		if len(points) == 0 {
			points = p.level(part, rows, x, y)
		}
		if len(points) == 0 {
			continue
		}
		all = append(all, points...)
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width, line.Dashes = styles[i].color, vg.Points(1.2), styles[i].dashes
		marks.Color, marks.Shape, marks.Radius = styles[i].color, styles[i].mark, vg.Points(3)
		if p.Fit {
			pic.Add(marks)
			legend.Add(names[i], marks)
		} else {
			pic.Add(line, marks)
			if p.Series != "" {
				legend.Add(names[i], line, marks)
			}
		}
		if whiskers := f.whiskers(p, part, styles[i].color); whiskers != nil {
			pic.Add(whiskers)
		}
		if bound := p.points(part, x, f.Column(p.Bound)); len(bound) > 0 {
			line, err := plotter.NewLine(bound)
			if err != nil {
				return err
			}
			line.Color, line.Dashes = grey(1), []vg.Length{vg.Points(4), vg.Points(3)}
			pic.Add(line)
			if bounds++; bounds == 1 {
				defer legend.Add(wrapped(p.Bound, legendLetters), line)
			}
		}
	}
	if len(all) == 0 {
		return nil
	}
	pic.Add(plotter.NewGrid())
	if p.LogY {
		if pic.Y.Min < pic.Y.Max {
			pic.Y.Scale, pic.Y.Tick.Marker = plot.LogScale{}, ticker{plot.LogTicks{Prec: -1}}
		}
	} else {
		pic.Y.Min, pic.Y.Tick.Marker = min(pic.Y.Min, 0), even{}
	}
	pic.X.Tick.Marker = even{}
	if p.Fit && f.Fit != nil {
		pic.X.Min = min(pic.X.Min, 0)
		fit, err := plotter.NewLine(plotter.XYs{{X: 0, Y: 0}, {X: pic.X.Max, Y: f.Fit.Slope * pic.X.Max}})
		if err != nil {
			return err
		}
		fit.Color, fit.Dashes = grey(1), []vg.Length{vg.Points(4), vg.Points(3)}
		pic.Add(fit)
		legend.Add(fmt.Sprintf("fit, r = %.4f,", f.Fit.R), fit)
		legend.Add(fmt.Sprintf("of %d clusters", f.Fit.Clusters))
		return nil
	}
	f.ticks(p, all, pic)
	return nil
}

// whiskers are bars from the least to the most of the runs.
func (f *Fig) whiskers(p Plot, rows [][]any, c color.Color) *plotter.YErrorBars {
	if p.Least == "" {
		return nil
	}
	var at struct {
		plotter.XYs
		plotter.YErrors
	}
	x, y, least, most := f.Column(p.X), f.Column(p.Y), f.Column(p.Least), f.Column(p.Most)
	for _, r := range rows {
		px, okX := Number(r[x])
		py, okY := Number(r[y])
		low, okLow := Number(r[least])
		high, okHigh := Number(r[most])
		if okX && okY && okLow && okHigh && !(p.LogX && px <= 0) && !(p.LogY && low <= 0) {
			at.XYs = append(at.XYs, plotter.XY{X: px, Y: py})
			at.YErrors = append(at.YErrors, struct{ Low, High float64 }{py - low, high - py})
		}
	}
	bars, err := plotter.NewYErrorBars(at)
	if err != nil {
		return nil // no row has all numbers
	}
	bars.Color = c
	return bars
}

// ticks marks the values that were measured, where they are few.
func (f *Fig) ticks(p Plot, all plotter.XYs, pic *plot.Plot) {
	seen := map[float64]bool{}
	var at plot.ConstantTicks
	for _, xy := range all {
		if !seen[xy.X] {
			seen[xy.X] = true
			at = append(at, plot.Tick{Value: xy.X, Label: amount(xy.X)})
		}
	}
	if p.LogX && pic.X.Min < pic.X.Max {
		pic.X.Scale, pic.X.Tick.Marker = plot.LogScale{}, ticker{plot.LogTicks{Prec: -1}}
	}
	if len(at) <= 8 {
		pic.X.Tick.Marker = at
	}
}

// gap is the room between groups of bars, of which each has 1.
const gap = 0.8

// bars lie on their sides: labels of any length have room then. It tells how much room they take. Only what was measured, or has a note, takes room.
func (f *Fig) bars(p Plot, rows [][]any, pic *plot.Plot, legend *plot.Legend) (slots float64, err error) {
	if len(f.measured(p, rows)) == 0 {
		return 0, nil
	}
	x, y, note := f.Column(p.X), f.Column(p.Y), f.Column("note")
	names, parts := f.series(p, rows)
	styles := looks(names)
	first := 0.0 // where bars begin
	if p.LogY {
		least := math.Inf(1)
		for _, r := range f.measured(p, rows) {
			v, _ := Number(r[y])
			least = min(least, v)
		}
		first = math.Pow(10, math.Floor(math.Log10(0.9*least)))
	}
	named := make([]bool, len(names))
	var ticks plot.ConstantTicks
	none := plotter.XYLabels{}
	for _, l := range f.values(rows, p.X) {
		from := slots
		for i, part := range parts {
			for _, r := range part {
				if !equal(r[x], l) {
					continue
				}
				v, ok := Number(r[y])
				if !ok {
					if note >= 0 && Cell(r[note]) != "" {
						slots++
						none.XYs, none.Labels = append(none.XYs, plotter.XY{X: first, Y: 0.5 - slots}), append(none.Labels, " no figure")
					}
					continue
				}
				slots++
				bar, err := plotter.NewPolygon(plotter.XYs{{X: first, Y: 0.05 - slots}, {X: v, Y: 0.05 - slots}, {X: v, Y: 0.95 - slots}, {X: first, Y: 0.95 - slots}})
				if err != nil {
					return 0, err
				}
				bar.Color, bar.LineStyle.Width = styles[i].color, 0
				if p.Series == "" && peers.MatchString(Cell(l)) {
					bar.Color = grey(1)
				}
				pic.Add(bar)
				if p.Series != "" && !named[i] {
					named[i] = true
					legend.Add(names[i], bar)
				}
				if least, ok := f.number(r, p.Least); ok && least > 0 {
					most, _ := f.number(r, p.Most)
					spread, err := plotter.NewLine(plotter.XYs{{X: least, Y: 0.5 - slots}, {X: most, Y: 0.5 - slots}})
					if err != nil {
						return 0, err
					}
					pic.Add(spread)
				}
			}
		}
		if slots > from {
			ticks = append(ticks, plot.Tick{Value: -(from + slots) / 2, Label: told(p.X, l)})
			slots += gap
		}
	}
	if len(ticks) == 0 {
		return 0, nil
	}
	if len(none.XYs) > 0 {
		labels, err := plotter.NewLabels(none)
		if err != nil {
			return 0, err
		}
		for i := range labels.TextStyle {
			labels.TextStyle[i].YAlign, labels.TextStyle[i].Color, labels.TextStyle[i].Font.Size = draw.YCenter, grey(0), vg.Points(8)
		}
		pic.Add(labels)
	}
	pic.Y.Tick.Marker, pic.Y.Tick.Length, pic.Y.LineStyle.Width, pic.Y.Tick.LineStyle.Width = ticks, 0, 0, 0
	pic.Y.Min, pic.Y.Max = gap-slots, 0
	pic.X.Label.Text, pic.Y.Label.Text = axis(p.Y), ""
	if p.Facet == "unit" && len(rows) > 0 {
		pic.X.Label.Text = Cell(rows[0][f.Column(p.Facet)])
	}
	pic.X.Min, pic.X.Tick.Marker = min(pic.X.Min, first), even{}
	if p.LogY {
		pic.X.Scale, pic.X.Tick.Marker = plot.LogScale{}, ticker{plot.LogTicks{Prec: -1}}
	}
	return slots, nil
}

// number is a cell of a column that may be none.
func (f *Fig) number(r []any, column string) (float64, bool) {
	if c := f.Column(column); column != "" && c >= 0 {
		return Number(r[c])
	}
	return 0, false
}
