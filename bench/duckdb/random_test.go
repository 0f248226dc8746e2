package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// TestRandomJoins makes files with DuckDB, of random types, formats and options, joins them with DuckDB and with the command, and compares the
// rows, whatever their order. WARPMAP_LONG=1 tries 500 seeds, and WARPMAP_SEED=N the one that failed.
func TestRandomJoins(t *testing.T) {
	seeds := []uint64{1, 2, 3, 4, 5}
	if os.Getenv("WARPMAP_LONG") != "" {
		seeds = nil
		for s := range uint64(500) {
			seeds = append(seeds, 1+s)
		}
	}
	if s, err := strconv.ParseUint(os.Getenv("WARPMAP_SEED"), 10, 64); err == nil {
		seeds = []uint64{s}
	}
	command := buildCommand(t)
	db, err := sql.Open("duckdb", "?threads=2")
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if _, err := db.Exec("SET TimeZone = 'UTC'"); err != nil {
		t.Fatal(err)
	}
	failed, rows := 0, int64(0)
	for _, seed := range seeds {
		g := &game{Rand: rand.New(rand.NewPCG(seed, 12)), db: db, dir: t.TempDir()}
		if err := g.play(command); err != nil {
			t.Errorf("WARPMAP_SEED=%d: %v\nwarpmap %s\n%s", seed, err, strings.Join(g.args, " "), strings.Join(g.made, ";\n"))
			if failed++; failed == 10 {
				break
			}
		}
		rows += g.rows
		os.RemoveAll(g.dir)
	}
	g := &game{db: db, dir: t.TempDir()} // rows that are not the same are told
	out := filepath.Join(g.dir, "out.parquet")
	for _, want := range []string{"SELECT 1 AS a FROM range(3)", "SELECT 1 AS a FROM range(2)", "SELECT NULL::INTEGER AS a FROM range(3)"} {
		err := errors.Join(g.exec("CREATE OR REPLACE TEMP TABLE want AS %s", want), g.exec("COPY (SELECT 1 AS a FROM range(3)) TO %s", quote(out)))
		if err != nil {
			t.Fatal(err)
		}
		if err := g.compare(out); (err == nil) != strings.HasPrefix(want, "SELECT 1 AS a FROM range(3)") {
			t.Errorf("%s: %v", want, err)
		}
	}
	if rows < int64(100*len(seeds)) && len(seeds) > 1 {
		t.Errorf("%d rows came out of %d joins", rows, len(seeds))
	}
}

func buildCommand(t *testing.T) string {
	t.Helper()
	command := filepath.Join(t.TempDir(), "warpmap")
	build := exec.Command("go", "build", "-o", command, "./cmd/warpmap")
	build.Dir, build.Env = filepath.Join("..", ".."), append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return command
}

// game is one random join.
type game struct {
	*rand.Rand
	db   *sql.DB
	dir  string
	args []string // of the command
	made []string // by these statements
	rows int64    // that came out
	// piped is the file that the command gets through a pipe
	piped string
	// how fields of CSV stand: the delimiter, the quote, and what is NULL
	delimiter, quote, null string
}

// side is one of its inputs.
type side struct {
	name, path   string
	names, types []string // of its columns, the keys first
	keys         int
	scan         string   // in SQL
	given        []string // types that the command is told
}

// kinds are types whose values can be equal, and how values of them are made, as text.
var kinds = []struct {
	types []string
	value func(r *rand.Rand) string
}{
	{[]string{"TINYINT", "SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UBIGINT"}, integer},
	{[]string{"BIGINT", "INTEGER"}, func(r *rand.Rand) string { return strconv.Itoa(r.IntN(2000) - 500) }},
	{[]string{"DECIMAL(4,1)", "DECIMAL(9,2)", "DECIMAL(18,3)", "DECIMAL(30,4)", "INTEGER", "SMALLINT"}, func(r *rand.Rand) string {
		return fmt.Sprintf("%d.%0*d", r.IntN(400)-200, 1+r.IntN(3), r.IntN(10))
	}},
	{[]string{"DOUBLE", "FLOAT", "INTEGER", "UTINYINT", "DECIMAL(9,2)"}, float},
	{[]string{"VARCHAR"}, text},
	{[]string{"VARCHAR"}, func(r *rand.Rand) string { return "key " + strconv.Itoa(r.IntN(3000)) }},
	{[]string{"UUID"}, func(r *rand.Rand) string {
		return fmt.Sprintf("%08x-0000-4000-8000-%012x", r.IntN(3)<<31, r.IntN(1000))
	}},
	{[]string{"DATE", "TIMESTAMP", "TIMESTAMP_S"}, func(r *rand.Rand) string {
		return fmt.Sprintf("%04d-%02d-%02d", []int{1, 1969, 1970, 2024, 9999}[r.IntN(5)], 1+r.IntN(12), 1+r.IntN(28))
	}},
	{[]string{"TIMESTAMP", "TIMESTAMP_MS", "TIMESTAMP_S", "TIMESTAMP_NS"}, stampOf},
	{[]string{"TIMESTAMP WITH TIME ZONE"}, stampOf},
	{[]string{"TIME"}, func(r *rand.Rand) string {
		return fmt.Sprintf("%02d:00:%02d.%06d", r.IntN(24), r.IntN(60), r.IntN(2)*5)
	}},
	{[]string{"BOOLEAN"}, func(r *rand.Rand) string { return strconv.FormatBool(r.IntN(2) == 0) }},
	{[]string{"BLOB"}, func(r *rand.Rand) string { return fmt.Sprintf(`\x%02X\x00%d`, r.IntN(256), r.IntN(4)) }},
}

func integer(r *rand.Rand) string {
	switch r.IntN(4) {
	case 0:
		edge := []string{"0", "127", "-128", "255", "256", "32767", "-32768", "65535", "2147483647", "-2147483648", "4294967295",
			"9223372036854775807", "-9223372036854775808", "18446744073709551615"}
		return edge[r.IntN(len(edge))]
	case 1:
		return strconv.FormatInt(int64(r.Uint64()), 10)
	}
	return strconv.Itoa(r.IntN(300) - 100)
}

func float(r *rand.Rand) string {
	odd := []string{"nan", "inf", "-inf", "-0.0", "0", "1e300", "16777217", "0.1", "1.5"}
	if r.IntN(4) == 0 {
		return odd[r.IntN(len(odd))]
	}
	return strconv.FormatFloat(float64(r.IntN(2000)-1000)/4, 'f', -1, 64)
}

func text(r *rand.Rand) string {
	odd := []string{"", " ", "NA", "NULL", "null", "a,b", "a;b", `say "so"`, "it's", "two\nlines", "cr\r", "tab\t", "ä€😀", "007", "1.0", "#", "true",
		strings.Repeat("long ", 60)}
	if r.IntN(3) == 0 {
		return odd[r.IntN(len(odd))]
	}
	return strconv.FormatInt(r.Int64N(2000), 36)
}

func stampOf(r *rand.Rand) string {
	return fmt.Sprintf("%04d-02-28 %02d:00:%02d%s", 1968+r.IntN(5), r.IntN(24), r.IntN(60), []string{"", ".5", ".25", ".000001"}[r.IntN(4)])
}

func (g *game) chance(percent int) bool { return g.IntN(100) < percent }

func pickOf[T any](g *game, from []T) T { return from[g.IntN(len(from))] }

// exec runs a statement that makes something.
func (g *game) exec(statement string, args ...any) error {
	statement = fmt.Sprintf(statement, args...)
	g.made = append(g.made, statement)
	_, err := g.db.Exec(statement)
	return err
}

// column is an expression of the row i: some values of a type, and nulls.
func (g *game) column(typ string, value func(r *rand.Rand) string, pool []string, salt int) string {
	if pool == nil {
		for range 1 + g.IntN(40) {
			pool = append(pool, value(g.Rand))
		}
	}
	var quoted []string
	for _, p := range pool {
		quoted = append(quoted, quote(p))
	}
	x := fmt.Sprintf("TRY_CAST([%s][1 + (hash(i, %d) %% %d)::INTEGER] AS %s)", strings.Join(quoted, ", "), salt, len(pool), typ)
	if nulls := pickOf(g, []int{0, 0, 5, 50, 100}); nulls > 0 {
		x = fmt.Sprintf("CASE WHEN hash(i, %d) %% 100 >= %d THEN %s END", salt+1, nulls, x)
	}
	return x
}

// play makes both sides, joins them twice, and compares.
func (g *game) play(command string) error {
	b, p := &side{name: "b"}, &side{name: "p"}
	g.delimiter, g.quote, g.null = pickOf(g, []string{",", ",", ";", "|"}), pickOf(g, []string{`"`, `"`, "'"}), pickOf(g, []string{"", "", "NA"})
	b.keys = 1 + g.IntN(5)/3
	p.keys = b.keys
	var columns [2][]string
	for k := range b.keys {
		kind := pickOf(g, kinds)
		var pool []string
		for range pickOf(g, []int{3, 50, 400}) {
			pool = append(pool, kind.value(g.Rand))
		}
		for i, s := range []*side{b, p} {
			typ := pickOf(g, kind.types)
			s.names, s.types = append(s.names, fmt.Sprintf("%sk%d", s.name, k)), append(s.types, typ)
			columns[i] = append(columns[i], g.column(typ, nil, pool, 10*k+100*i))
		}
	}
	for i, s := range []*side{b, p} {
		s.path = filepath.Join(g.dir, s.name+pickOf(g, []string{".parquet", ".parquet", ".csv"}))
		for c := range g.IntN(4) {
			kind := pickOf(g, kinds)
			typ := pickOf(g, kind.types)
			s.names, s.types = append(s.names, fmt.Sprintf("%s%d", s.name, c)), append(s.types, typ)
			columns[i] = append(columns[i], g.column(typ, kind.value, nil, 1000+10*c+100*i))
		}
		if g.chance(20) && strings.HasSuffix(s.path, ".parquet") {
			s.names, s.types = append(s.names, s.name+"_n"), append(s.types, "")
			columns[i] = append(columns[i], pickOf(g, []string{"[i, NULL, i % 7]", "{'a': i, 'b': ['x' || i % 3]}", "to_days((i % 40)::INTEGER)",
				"CASE WHEN i % 3 > 0 THEN [[i % 5]] END", "NULL::INTEGER", "MAP {'k': i % 9}"}))
		}
		if err := g.write(s, columns[i], pickOf(g, []int{0, 1, 40, 1500, 1500 + 12000*i})); err != nil {
			return err
		}
	}
	return g.join(command, b, p)
}

// write makes a side's file.
func (g *game) write(s *side, columns []string, rows int) error {
	var selected []string
	for i, c := range columns {
		selected = append(selected, c+" AS "+s.names[i])
	}
	from := fmt.Sprintf("SELECT %s FROM range(%d) r(i)", strings.Join(selected, ", "), rows)
	if strings.HasSuffix(s.path, ".parquet") {
		codec := pickOf(g, []string{"snappy", "zstd", "gzip", "brotli", "lz4_raw", "uncompressed"})
		s.scan = fmt.Sprintf("read_parquet(%s)", quote(s.path))
		folders := ""
		if rows > 0 && len(s.names) > s.keys && g.chance(15) { // a folder for each value of one column more
			s.path = filepath.Join(g.dir, s.name)
			part := s.name + "_part"
			from = fmt.Sprintf("SELECT *, %s AS %s FROM (%s)", pickOf(g, []string{"hash(%[1]s) % 5", "DATE '2024-02-28' + (hash(%[1]s) % 3)::INTEGER",
				"['a=b', 'c d/e%', NULL, 'NA', 'ä'][1 + (hash(%[1]s) % 5)::INTEGER]", "NULLIF(hash(%[1]s) % 3, 0)"}), part, from)
			from = strings.ReplaceAll(from, "%[1]s", s.names[s.keys])
			s.scan = fmt.Sprintf("read_parquet(%s, hive_partitioning = true)", quote(s.path+"/**/*.parquet"))
			folders = ", PARTITION_BY (" + part + ")"
		}
		return g.exec("COPY (%s) TO %s (FORMAT parquet, COMPRESSION %s, PARQUET_VERSION %s, ROW_GROUP_SIZE %d%s)", from, quote(s.path), codec,
			pickOf(g, []string{"V1", "V2"}), pickOf(g, []int{2048, 4096, 122880}), folders)
	}
	var types []string
	for i, name := range s.names {
		types = append(types, fmt.Sprintf("%s: %s", name, quote(s.types[i])))
		if i < s.keys || g.chance(50) {
			s.given = append(s.given, name+"="+s.types[i])
		}
	}
	as := fmt.Sprintf("HEADER true, DELIMITER %s, QUOTE %s, ESCAPE %[2]s, NULLSTR %s", quote(g.delimiter), quote(g.quote), quote(g.null))
	nulls := "['']" // the command takes an empty field for NULL, whatever else is
	if g.null != "" {
		nulls = "['', " + quote(g.null) + "]"
	}
	s.scan = fmt.Sprintf("read_csv(%s, auto_detect = false, columns = {%s}, header = true, delim = %s, quote = %s, escape = %s, nullstr = %s, "+
		"allow_quoted_nulls = false)", quote(s.path), strings.Join(types, ", "), quote(g.delimiter), quote(g.quote), quote(g.quote), nulls)
	return g.exec("COPY (%s) TO %s (FORMAT csv, %s)", from, quote(s.path), as)
}

// join joins with both, and compares.
func (g *game) join(command string, b, p *side) error {
	var pairs, on []string
	equal := pickOf(g, []string{"=", "=", "=", "IS NOT DISTINCT FROM"})
	for k := range b.keys {
		pairs = append(pairs, b.names[k]+"="+p.names[k])
		on = append(on, fmt.Sprintf("b.%s %s p.%s", b.names[k], equal, p.names[k]))
	}
	how := pickOf(g, []string{"inner", "inner", "left", "right", "full", "semi", "anti"})
	columns := "p.*"
	switch how {
	case "inner", "left":
		if len(b.names) > b.keys {
			columns += ", b.* EXCLUDE (" + strings.Join(b.names[:b.keys], ", ") + ")"
		}
	case "right", "full":
		columns += ", b.*"
	}
	out := filepath.Join(g.dir, "out.parquet")
	if p.text() && b.text() && !p.binary() && !b.binary() && g.chance(40) {
		out = filepath.Join(g.dir, "out.csv")
	}
	probe := p.path
	if p.text() && g.chance(30) {
		g.piped, probe = p.path, "-"
	}
	g.args = []string{"join", "--device", "cpu", "-q", b.path, probe, "--on", strings.Join(pairs, ","), "--how", how}
	if probe == "-" {
		g.args = append(g.args, "--probe-format", "csv")
	}
	if equal != "=" {
		g.args = append(g.args, "--nulls-equal")
	}
	if given := append(slices.Clone(b.given), p.given...); len(given) > 0 {
		g.args = append(g.args, "--types", strings.Join(given, ","))
	}
	if b.text() || p.text() {
		g.args = append(g.args, "--delimiter", g.delimiter, "--quote", g.quote)
		if g.null != "" {
			g.args = append(g.args, "--null", g.null)
		}
	}
	if g.chance(20) {
		g.args = append(g.args, "--memory", pickOf(g, []string{"1", "100KB", "10MB"}))
	}
	if g.chance(30) {
		g.args = append(g.args, "--threads", strconv.Itoa(1+g.IntN(4)))
	}
	// DuckDB 1.5.6 finds nothing where it joins binary keys of a Parquet file with one row, and has tables instead of files no such fault.
	err := errors.Join(g.exec("CREATE OR REPLACE TEMP TABLE b AS FROM %s", b.scan), g.exec("CREATE OR REPLACE TEMP TABLE p AS FROM %s", p.scan),
		g.exec("CREATE OR REPLACE TEMP TABLE want AS SELECT %s FROM p %s JOIN b ON %s", columns, how, strings.Join(on, " AND ")))
	if err != nil {
		return fmt.Errorf("DuckDB: %w", err)
	}
	if err := g.db.QueryRow("SELECT count(*) FROM want").Scan(&g.rows); err != nil {
		return err
	}
	if g.chance(20) {
		g.args = append(g.args, "--count")
		said, err := g.warpmap(command)
		if got := strings.TrimSpace(said); err != nil || got != strconv.FormatInt(g.rows, 10) {
			return fmt.Errorf("%s rows are counted, and DuckDB has %d: %v", got, g.rows, err)
		}
		return nil
	}
	g.args = append(g.args, "--out", out)
	if _, err := g.warpmap(command); err != nil {
		return err
	}
	return g.compare(out)
}

// warpmap runs the command.
func (g *game) warpmap(command string) (string, error) {
	cmd := exec.Command(command, g.args...)
	if g.piped != "" {
		in, err := os.ReadFile(g.piped)
		if err != nil {
			return "", err
		}
		cmd.Stdin = bytes.NewReader(in)
	}
	out, err := cmd.Output()
	if e, ok := err.(*exec.ExitError); ok {
		err = fmt.Errorf("%w: %s", err, e.Stderr)
	}
	return string(out), err
}

// text tells that a side is CSV.
func (s *side) text() bool { return strings.HasSuffix(s.path, ".csv") }

// binary tells that a side has a column of binary values, which the command writes to CSV in another way than DuckDB.
func (s *side) binary() bool { return slices.Contains(s.types, "BLOB") }

// compare compares a file's rows with those of the table want, as its columns' types.
func (g *game) compare(out string) error {
	described, err := g.db.Query("SELECT column_name, column_type FROM (DESCRIBE want)")
	if err != nil {
		return err
	}
	defer described.Close()
	var casts, columns []string
	for described.Next() {
		var name, typ string
		if err := described.Scan(&name, &typ); err != nil {
			return err
		}
		casts = append(casts, fmt.Sprintf("CAST(%s AS %s) AS %[1]s", name, typ))
		columns = append(columns, fmt.Sprintf("%s: %s", name, quote(typ)))
	}
	described.Close()
	scan := "read_parquet(" + quote(out) + ")"
	if strings.HasSuffix(out, ".csv") {
		scan = fmt.Sprintf("read_csv(%s, auto_detect = false, columns = {%s}, header = true, delim = ',', quote = '\"', escape = '\"', "+
			"nullstr = '', allow_quoted_nulls = false)", quote(out), strings.Join(columns, ", "))
	}
	if err := g.exec("CREATE OR REPLACE TEMP TABLE got AS SELECT %s FROM %s", strings.Join(casts, ", "), scan); err != nil {
		return err
	}
	var more, less int64
	err = g.db.QueryRow("SELECT (SELECT count(*) FROM (FROM got EXCEPT ALL FROM want)), (SELECT count(*) FROM (FROM want EXCEPT ALL FROM got))").
		Scan(&more, &less)
	if err == nil && more+less > 0 {
		err = fmt.Errorf("of %d rows %d are missing, and %d others are there", g.rows, less, more)
	}
	return err
}
