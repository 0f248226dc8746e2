package kmers

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// More k-mers than a row group holds come back in order, with their counts.
func TestParquet(t *testing.T) {
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	r, text := rand.New(rand.NewPCG(1, 2)), []byte(">a\n")
	for range groupRows + groupRows/4 {
		text = append(text, "ACGT"[r.IntN(4)])
	}
	in, out := filepath.Join(t.TempDir(), "in.fa"), filepath.Join(t.TempDir(), "out.wk")
	if err := os.WriteFile(in, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Count(t.Context(), d, []string{in}, Options{K: 13}, out); err != nil {
		t.Fatal(err)
	}
	f, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var written bytes.Buffer
	if err := f.WriteParquet(&written, 0, ^uint32(0)); err != nil {
		t.Fatal(err)
	}
	p, err := file.NewParquetReader(bytes.NewReader(written.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	if p.NumRows() != int64(f.Stats.Distinct) || p.NumRowGroups() != 2 {
		t.Fatalf("%d rows in %d groups, want %d in 2", p.NumRows(), p.NumRowGroups(), f.Stats.Distinct)
	}
	var kmers []parquet.ByteArray
	var counts []int32
	for i := range 2 {
		g := p.RowGroup(i)
		n := g.NumRows()
		k, c := make([]parquet.ByteArray, n), make([]int32, n)
		a, err := g.Column(0)
		if err != nil {
			t.Fatal(err)
		}
		b, err := g.Column(1)
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < n; {
			_, got, err := a.(*file.ByteArrayColumnChunkReader).ReadBatch(n-at, k[at:], nil, nil)
			if err != nil || got == 0 {
				t.Fatal(got, err)
			}
			for j := range got {
				k[at+int64(j)] = bytes.Clone(k[at+int64(j)])
			}
			at += int64(got)
		}
		for at := int64(0); at < n; {
			_, got, err := b.(*file.Int32ColumnChunkReader).ReadBatch(n-at, c[at:], nil, nil)
			if err != nil || got == 0 {
				t.Fatal(got, err)
			}
			at += int64(got)
		}
		kmers, counts = append(kmers, k...), append(counts, c...)
	}
	i := 0
	f.Each(func(kmer Kmer, count uint32) error {
		if want := Append(nil, kmer, f.K); !bytes.Equal(kmers[i], want) || counts[i] != int32(count) {
			t.Fatalf("row %d: %s %d, want %s %d", i, kmers[i], counts[i], want, count)
		}
		i++
		return nil
	})
}
