package main

import (
	"bytes"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	_ "github.com/duckdb/duckdb-go/v2"
)

// cost is what a process took: seconds from its start to its end, seconds of all its threads together, and bytes at its peak.
type cost struct {
	Wall float64 `json:"wall_s"`
	CPU  float64 `json:"cpu_s"`
	Peak int64   `json:"peak_bytes"`
}

// sqlMode is the first argument of a process that runs SQL. The process that measures never opens a database: the peak of a process
// counts what its parent held when it was started.
const sqlMode = "sql"

// runSQL runs statements with so many threads, and prints what the last one gives: its first row.
func runSQL(args []string) error {
	db, err := sql.Open("duckdb", "?threads="+args[0])
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	statements := args[1:]
	for _, s := range statements[:len(statements)-1] {
		if _, err := db.Exec(s); err != nil {
			return err
		}
	}
	rows, err := db.Query(statements[len(statements)-1])
	if err != nil {
		return err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return err
	}
	if rows.Next() {
		values, to := make([]any, len(columns)), make([]any, len(columns))
		for i := range to {
			to[i] = &values[i]
		}
		if err := rows.Scan(to...); err != nil {
			return err
		}
		fmt.Println(strings.TrimSuffix(fmt.Sprintln(values...), "\n"))
	}
	return rows.Err()
}

// spawn runs a command to its end.
func spawn(env []string, name string, args ...string) (cost, string, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	var out, said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &said
	start := time.Now()
	err := cmd.Run()
	wall := time.Since(start).Seconds()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w: %s", name, err, strings.TrimSpace(said.String()))
	}
	if err != nil {
		return cost{}, "", err
	}
	used := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	cpu := cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	return cost{wall, cpu.Seconds(), used.Maxrss << 10}, strings.TrimSpace(out.String()), nil
}

// duckdb runs statements in a process of their own.
func duckdb(o options, statements ...string) (cost, string, error) {
	self, err := os.Executable()
	if err != nil {
		return cost{}, "", err
	}
	before := []string{"SET temp_directory = " + quote(o.work), fmt.Sprintf("SET preserve_insertion_order = %t", !o.unordered)}
	return spawn(nil, self, append([]string{sqlMode, strconv.Itoa(o.threads)}, append(before, statements...)...)...)
}

func query(o options, statements ...string) (string, error) {
	_, out, err := duckdb(o, statements...)
	return out, err
}

// warpmap runs the command that is measured.
func warpmap(o options, args ...string) (cost, string, error) {
	args = append(args, "--device", o.device)
	args = append(args, strings.Fields(o.args)...)
	return spawn([]string{"GOMAXPROCS=" + strconv.Itoa(o.threads)}, o.warpmap, args...)
}

func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
