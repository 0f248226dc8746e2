package classify

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/genome"
)

// Since 2025 NCBI's taxonomy has a cellular root above its domains, and an acellular root above its realms. A report has
// one domain in a lineage, as Kraken's has, and the domains of abundances have no read twice.
func TestDomainsOfNCBI(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "nodes.dmp"), `1	|	1	|	no rank	|
131567	|	1	|	cellular root	|
2	|	131567	|	domain	|
10239	|	1	|	acellular root	|
2559587	|	10239	|	realm	|
2732396	|	2559587	|	kingdom	|
30	|	2	|	species	|
31	|	2732396	|	species	|
`)
	r := rand.New(rand.NewPCG(7, 8))
	cell, virus := string(letters(r, 1000)), string(letters(r, 1000))
	refs := filepath.Join(dir, "refs.fa")
	write(t, refs, ">a taxid|30\n"+cell+"\n>b taxid|31\n"+virus+"\n")
	d := cpu(t)
	b, err := NewBuilder(d, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Add(t.Context(), []string{refs}, genome.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := b.Database()
	if err != nil {
		t.Fatal(err)
	}
	c, err := NewClassifier(d, db, QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	tally := c.NewTally(false)
	run(t, c, tally, []string{cell[:200], virus[:200]}, nil, KrakenLines)
	var report, abundances bytes.Buffer
	if err := errors.Join(tally.Report(&report), tally.Abundances(&abundances)); err != nil {
		t.Fatal(err)
	}
	wantReport := "100.00\t2\t0\tR\t1\troot\n" +
		" 50.00\t1\t0\tD\t10239\t  \n 50.00\t1\t0\tD1\t2559587\t    \n 50.00\t1\t0\tK\t2732396\t      \n" +
		" 50.00\t1\t1\tS\t31\t        \n" +
		" 50.00\t1\t0\tR1\t131567\t  \n 50.00\t1\t0\tD\t2\t    \n 50.00\t1\t1\tS\t30\t      \n"
	if diff := cmp.Diff(wantReport, report.String()); diff != "" {
		t.Error(diff)
	}
	wantAbundances := "rank\ttaxid\tname\treads\tpercent\nspecies\t30\t\t1\t50.0000\nspecies\t31\t\t1\t50.0000\n" +
		"kingdom\t2732396\t\t1\t50.0000\ndomain\t2\t\t1\t50.0000\ndomain\t10239\t\t1\t50.0000\n"
	if diff := cmp.Diff(wantAbundances, abundances.String()); diff != "" {
		t.Error(diff)
	}
}
