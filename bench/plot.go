package bench

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"fmt"
	"image/color"
	"math"
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
// numbers, it is lines with markers; where it holds words, grouped bars.
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
	base := slug(f.Name)
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
func (f *Fig) draw(p Plot, title string, rows [][]any, format string) ([]byte, error) {
	for _, c := range []string{p.X, p.Y, p.Series, p.Bound} {
		if c != "" && f.Column(c) < 0 {
			return nil, fmt.Errorf("there is no column %q", c)
		}
	}
	pic, legend := plot.New(), plot.NewLegend()
	pic.X.Label.Text, pic.Y.Label.Text = axis(p.X), axis(p.Y)
	for _, a := range []*plot.Axis{&pic.X, &pic.Y} {
		a.Label.Padding, a.Label.TextStyle.Font.Size = vg.Points(4), vg.Points(10)
	}
	legend.Padding, legend.TextStyle.Font.Size = vg.Points(2), vg.Points(9)
	legend.Top, legend.Left = true, true
	height := plotHeight
	words := slices.ContainsFunc(rows, func(r []any) bool { _, ok := r[f.Column(p.X)].(string); return ok })
	var err error
	if words {
		err = f.bars(p, rows, pic, &legend)
		height = max(height, vg.Length(len(rows)+4)*0.7*vg.Centimeter)
	} else {
		err = f.lines(p, rows, pic, &legend)
	}
	if err != nil {
		return nil, err
	}
	if pic.X.Min > pic.X.Max { // nothing was drawn: gonum needs a range for its axes
		pic.X.Min, pic.X.Max, pic.Y.Min, pic.Y.Max = 0, 1, 0, 1
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

func colour(i int) color.Color { return plotutil.DarkColors[i%len(plotutil.DarkColors)] }

// mark is another where colours come again.
func mark(i int) draw.GlyphDrawer { return plotutil.Shape(i + 3*(i/len(plotutil.DarkColors))) }

func (f *Fig) lines(p Plot, rows [][]any, pic *plot.Plot, legend *plot.Legend) error {
	x, y := f.Column(p.X), f.Column(p.Y)
	names, parts := f.series(p, rows)
	var all plotter.XYs
	for i, part := range parts {
		points := p.points(part, x, y)
		if len(points) == 0 {
			continue
		}
		all = append(all, points...)
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return err
		}
		line.Color, line.Width = colour(i), vg.Points(1.2)
		marks.Color, marks.Shape, marks.Radius = colour(i), mark(i), vg.Points(3)
		if p.Fit {
			pic.Add(marks)
			legend.Add(names[i], marks)
		} else {
			pic.Add(line, marks)
			if p.Series != "" {
				legend.Add(names[i], line, marks)
			}
		}
		if whiskers := f.whiskers(p, part, colour(i)); whiskers != nil {
			pic.Add(whiskers)
		}
		if bound := p.points(part, x, f.Column(p.Bound)); len(bound) > 0 {
			line, err := plotter.NewLine(bound)
			if err != nil {
				return err
			}
			line.Color, line.Dashes = colour(i), []vg.Length{vg.Points(4), vg.Points(3)}
			pic.Add(line)
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
		fit.Dashes = []vg.Length{vg.Points(4), vg.Points(3)}
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

// bars lie on their sides: labels of any length have room then.
func (f *Fig) bars(p Plot, rows [][]any, pic *plot.Plot, legend *plot.Legend) error {
	x, y := f.Column(p.X), f.Column(p.Y)
	labels := f.values(rows, p.X)
	slices.Reverse(labels) // from the top
	names, parts := f.series(p, rows)
	width := 0.5 * vg.Centimeter * vg.Length(len(rows)) / vg.Length(max(1, len(labels)*len(parts))) // the picture has as much height for each row
	for i, part := range parts {
		heights := make(plotter.Values, len(labels))
		for _, r := range part {
			heights[slices.Index(labels, r[x])], _ = Number(r[y])
		}
		bars, err := plotter.NewBarChart(heights, width)
		if err != nil {
			return err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width = true, colour(i), 0
		bars.Offset = width * vg.Length(float64(len(parts)-1)/2-float64(i))
		pic.Add(bars)
		if p.Series != "" {
			legend.Add(names[i], bars)
		}
	}
	text := make([]string, len(labels))
	for i, l := range labels {
		text[i] = Cell(l)
	}
	pic.NominalY(text...)
	pic.X.Label.Text, pic.Y.Label.Text = axis(p.Y), ""
	if p.Facet == "unit" && len(rows) > 0 {
		pic.X.Label.Text = Cell(rows[0][f.Column(p.Facet)])
	}
	pic.X.Min, pic.X.Tick.Marker = min(pic.X.Min, 0), even{}
	return nil
}
