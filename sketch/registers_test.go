package sketch

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
)

// Registers that get texts one by one are those of the sketch on a device, and estimate the same.
func TestRegistersAreTheDevices(t *testing.T) {
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	for _, precision := range []int{4, 14, 18} {
		const seed = 77
		h, err := NewHyperLogLog[string](d, HyperLogLogOptions{Precision: precision, Seed: seed})
		if err != nil {
			t.Skip(err)
		}
		defer h.Close()
		own, texts := make(Registers, 1<<precision), []string{""}
		for i := range 5000 {
			texts = append(texts, fmt.Sprint("text ", i))
		}
		if err := h.Add(texts); err != nil {
			t.Fatal(err)
		}
		for _, text := range texts {
			i, rank := own.Place([]byte(text), seed)
			own[i] = max(own[i], rank)
		}
		registers, err := h.s.download()
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(registers, own) {
			t.Errorf("precision %d: other registers", precision)
		}
		if want, err := h.Estimate(); err != nil || want != own.Estimate() {
			t.Errorf("precision %d: %v, want %v, %v", precision, own.Estimate(), want, err)
		}
		if err := own.Check(); err != nil {
			t.Error(err)
		}
		union := make(Registers, 1<<precision)
		if err := union.Merge(own); err != nil || !bytes.Equal(union, own) {
			t.Errorf("a union with nothing is another: %v", err)
		}
	}
}

func TestRegistersThatAreNone(t *testing.T) {
	for _, r := range []Registers{nil, make(Registers, 8), make(Registers, 100), bytes.Repeat([]byte{62}, 1<<4), make(Registers, 1<<19)} {
		if r.Check() == nil {
			t.Errorf("%d registers are taken", len(r))
		}
	}
	for what, call := range map[string]func(){"Place": func() { Registers(nil).Place(nil, 1) },
		"Estimate": func() { make(Registers, 100).Estimate() }} {
		func() {
			defer func() {
				if err, is := recover().(error); !is || !strings.Contains(err.Error(), "want a power of two") {
					t.Errorf("%s of registers that are none panics with %v", what, err)
				}
			}()
			call()
		}()
	}
	if make(Registers, 16).Merge(make(Registers, 32)) == nil {
		t.Error("registers of two precisions are merged")
	}
	empty, full := make(Registers, 16), Registers(bytes.Repeat([]byte{61}, 16))
	if full.Check() != nil || empty.Estimate() != 0 || !(full.Estimate() > math.Ldexp(1, 60)) {
		t.Errorf("the least and the most are %v and %v", empty.Estimate(), full.Estimate())
	}
}
