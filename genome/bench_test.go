package genome

import (
	"bytes"
	"compress/gzip" // its blocks are as long as those of zlib, which wrote most files there are
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/warpmap/warpmap/internal/testenv"
)

// BenchmarkFiles reads files that lie in the page cache, and does nothing else: MB/s are of text, and cores are how many
// were at work. That is what reading can give to who counts or classifies.
//
//	go test -run '^$' -bench Files -benchtime 3x ./genome
func BenchmarkFiles(b *testing.B) {
	dir := b.TempDir()
	for name, plain := range map[string]string{"FASTQ": sequencerText(fastq, 16<<20), "FASTA": sequencerText(fasta, 16<<20)} {
		for how, pack := range map[string]func(string) []byte{
			"plain": func(text string) []byte { return bytes.Repeat([]byte(text), 32) },
			"gzip":  func(text string) []byte { return gzippedAt6(strings.Repeat(text, 8)) },
			"bgzip": func(text string) []byte { return bytes.Repeat([]byte(bgzfed(inBlocks(text)...)), 8) },
			"zstd":  func(text string) []byte { return zstdOf(strings.Repeat(text, 8)) },
			"pzstd": func(text string) []byte {
				half := text[:strings.LastIndex(text[:len(text)/2], fmt.Sprintf("\n%c", text[0]))+1]
				return bytes.Repeat(zstdOf(half), 16)
			},
		} {
			file := filepath.Join(dir, name+how)
			if err := os.WriteFile(file, pack(plain), 0o600); err != nil {
				b.Fatal(err)
			}
			for _, threads := range []int{2, 4, 16} {
				b.Run(fmt.Sprintf("%s/%s/threads=%d", name, how, threads), func(b *testing.B) {
					benchmarkFile(b, file, Options{BlockBytes: 2 << 20, Threads: threads})
				})
			}
			os.Remove(file)
		}
	}
}

func benchmarkFile(b *testing.B, file string, o Options) {
	text, before := int64(0), testenv.CPUTime()
	for b.Loop() {
		counts, err := Read(b.Context(), []string{file}, o, func(x *Block) error {
			for _, r := range x.Records {
				text += int64(len(r.Name)) + 2 + int64(r.End+1-r.Start)
			}
			x.Release()
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
		if strings.Contains(b.Name(), "FASTQ") {
			text += counts.Letters + 3*counts.Records // a plus, and qualities
		}
	}
	took := (testenv.CPUTime() - before).Seconds()
	b.SetBytes(text / int64(b.N))
	b.ReportMetric(took/b.Elapsed().Seconds(), "cores")
	b.ReportMetric(float64(text)/took/1e6, "MB/s/core")
}

// sequencerText are reads of 150 letters of a few genomes, with names and qualities as sequencers write them.
func sequencerText(f format, n int) string {
	r := rand.New(rand.NewPCG(1, 1))
	genome := make([]byte, 1<<20)
	for i := range genome {
		genome[i] = "ACGT"[r.IntN(4)]
	}
	var out strings.Builder
	for i := 0; out.Len() < n; i++ {
		at := r.IntN(len(genome) - 150)
		fmt.Fprintf(&out, "%cA00123:45:HJ5YKDSX2:1:%d:%d:%d 1:N:0:ACGTACGT\n%s\n", f, 1101+i/20000, 1000+r.IntN(32000),
			1000+i/30, genome[at:at+150])
		if f == fasta {
			continue
		}
		out.WriteString("+\n")
		for left := 150; left > 0; {
			k := min(1+int(r.ExpFloat64()*20), left)
			out.WriteString(strings.Repeat(string("FFFFFF:,#"[r.IntN(9)]), k))
			left -= k
		}
		out.WriteByte('\n')
	}
	return out.String()
}

func inBlocks(text string) (out []string) {
	for ; len(text) > 0xff00; text = text[0xff00:] {
		out = append(out, text[:0xff00])
	}
	return append(out, text)
}

func gzippedAt6(text string) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, 6)
	if err != nil {
		panic(err)
	}
	z.Write([]byte(text))
	z.Close()
	return b.Bytes()
}

func zstdOf(text string) []byte {
	z, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		panic(err)
	}
	return z.EncodeAll([]byte(text), nil)
}
