// Command embedded has the kernels of its table compiled in. It runs on machines that have neither a C++ compiler nor a
// folder to keep kernels in, such as an image of nothing but this program and the C library.
//
//	go generate ./examples/embedded && go build ./examples/embedded
package main

import (
	"embed"
	"fmt"
	"log"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
)

//go:generate go run ../../cmd/warpmap compile --device cpu --arch amd64 --table warpcore --key-bytes 8 --value-bytes 4 --out kernels

//go:embed kernels
var kernels embed.FS

func main() {
	d, err := warpmap.Open("cpu", device.WithKernels(kernels), device.WithCache(""))
	if err != nil {
		log.Fatal(err)
	}
	defer d.Close()
	m, err := warpmap.New[uint64, uint32](d, warpmap.WarpCore, warpmap.Options{Capacity: 1000})
	if err != nil {
		log.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert([]uint64{7, 8, 9}, []uint32{70, 80, 90}); err != nil {
		log.Fatal(err)
	}
	values, found := make([]uint32, 2), make([]bool, 2)
	if err := m.Find([]uint64{8, 10}, values, found); err != nil {
		log.Fatal(err)
	}
	fmt.Println(values, found)
}
