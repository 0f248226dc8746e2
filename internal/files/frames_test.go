package files

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

// framesOf packs each text as a frame, with a frame before it that says how long it is, as pzstd does. told: its header
// has the length of the text.
func framesOf(told bool, texts ...string) string {
	var out bytes.Buffer
	for i, text := range texts {
		var frame bytes.Buffer
		z, err := zstd.NewWriter(&frame, zstd.WithEncoderCRC(i%2 == 0), zstd.WithEncoderConcurrency(1))
		if err != nil {
			panic(err)
		}
		if told {
			frame.Write(z.EncodeAll([]byte(text), nil))
		} else {
			io.WriteString(z, text)
			z.Close()
		}
		out.Write([]byte{0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0})
		out.Write(binary.LittleEndian.AppendUint32(nil, uint32(frame.Len())))
		out.Write(frame.Bytes())
	}
	return out.String()
}

// byFrames and inRow unpack zstd.
func byFrames(packed string) (string, error) {
	x, err := NewText(io.NopCloser(strings.NewReader(packed)), Unpacking{Work: make(chan struct{}, 4), Ahead: 3})
	if err != nil {
		return "", err
	}
	defer x.Close()
	return allOf(x)
}

func inRow(packed string) (string, error) {
	x, err := NewText(io.NopCloser(strings.NewReader(packed)), Unpacking{})
	if err != nil {
		return "", err
	}
	defer x.Close()
	return allOf(x)
}

// Frames that are unpacked beside one another have the text, and the error, of those that are unpacked in a row: whole
// ones, those that are cut, and those with a bit that is another.
func TestFrames(t *testing.T) {
	text := reads(1, 400_000)
	r := rand.New(rand.NewPCG(1, 9+testenv.FirstSeed()))
	texts := []string{text[:100], text[:300_000], "", text[5000:200_000], strings.Repeat("A", 400_000), text[:7]}
	few := []string{text[:4000], "", text[200:700]}
	noise := make([]byte, mostFrame+1000)
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	for name, c := range map[string]struct{ packed, text string }{
		"many":           {strings.Repeat(framesOf(true, texts...), 9), strings.Repeat(strings.Join(texts, ""), 9)},
		"untold":         {strings.Repeat(framesOf(false, texts...), 9), strings.Repeat(strings.Join(texts, ""), 9)},
		"without others": {framesOf(true, text)[12:] + framesOf(false, text)[12:], text + text},
		"long":           {framesOf(true, text, string(noise), text), text + string(noise) + text},
		"much text": {framesOf(true, text, strings.Repeat("ACGT", mostFrameText/4+1), text),
			text + strings.Repeat("ACGT", mostFrameText/4+1) + text},
		"skipped alone": {framesOf(true, "")[:12], ""},
	} {
		got, err := byFrames(c.packed)
		if err != nil || got != c.text || PackingOf([]byte(c.packed)) != "zstd" {
			t.Errorf("%s: %d bytes, %v, want %d", name, len(got), err, len(c.text))
		}
	}
	for _, packed := range []string{framesOf(true, few...), framesOf(false, few...), framesOf(true, few[0])[12:]} {
		for i := range 300 {
			damaged := []byte(packed)
			if i%3 == 0 {
				damaged = damaged[:r.IntN(len(damaged))]
			} else {
				damaged[r.IntN(min(len(damaged), 1<<(i%13+1)))] ^= 1 << r.IntN(8)
			}
			want, wantErr := inRow(string(damaged))
			got, err := byFrames(string(damaged))
			if got != want || fmt.Sprint(err) != fmt.Sprint(wantErr) {
				t.Fatalf("%d, damaged: %d bytes, %v, in a row %d, %v", i, len(got), err, len(want), wantErr)
			}
		}
	}
}

// Who ends early leaves no goroutine, and a panic is an error.
func TestFramesEnd(t *testing.T) {
	packed := strings.Repeat(framesOf(true, reads(1, 900_000)), 9)
	before := runtime.NumGoroutine()
	for _, n := range []int64{0, 1, 2_000_000} {
		x, err := NewText(io.NopCloser(strings.NewReader(packed)), Unpacking{Work: make(chan struct{}, 4), Ahead: 2})
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.CopyN(io.Discard, x, n); got != n || err != nil {
			t.Error(got, err)
		}
		x.Close()
	}
	for wait := 0; runtime.NumGoroutine() > before; wait++ {
		if wait == 500 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
	defer func() { crash.Plant = nil }()
	crash.Plant = func() { panic("planted") }
	var of *crash.Error
	if _, err := byFrames(packed); !errors.As(err, &of) {
		t.Errorf("a panic: %v", err)
	}
}
