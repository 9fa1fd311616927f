// Command gen writes the AVX2+FMA kernels of package asm.
//
// Run it in this folder:
//
//	go run . -out ../avx2_amd64.s -stubs ../avx2_amd64.go -pkg asm   # what go generate does
//	go run . -check ..                                               # compare, write nothing
//
// It is a module of its own so that the generator's dependencies stay out of
// the product. The output is committed.
package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/mmcloughlin/avo/build"
)

// outputs are the names of the generated files, relative to the package folder.
var outputs = []struct{ flag, name string }{
	{"-out", "avx2_amd64.s"},
	{"-stubs", "avx2_amd64.go"},
}

func main() {
	if len(os.Args) == 3 && os.Args[1] == "-check" {
		if err := check(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, "gen:", err)
			os.Exit(1)
		}
		return
	}
	ConstraintExpr("!purego")
	tile()
	packRows(6)
	packRows(16)
	packCols16()
	packCols6()
	fmaPeak()
	dot()
	dot3()
	sumSq()
	maximum()
	expSum()
	scale()
	scaleMul()
	add()
	axpy()
	rope()
	swiglu()
	swigluBwd()
	rmsBwd()
	dSoftmax()
	adamW()
	Generate()
}

// check regenerates into a temporary folder and compares with the files in dir.
func check(dir string) error {
	tmp, err := os.MkdirTemp("", "asmgen")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	args := []string{"-pkg", "asm"}
	for _, o := range outputs {
		args = append(args, o.flag, filepath.Join(tmp, o.name))
	}
	if out, err := exec.Command(self, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("regenerating: %v\n%s", err, out)
	}
	var stale []string
	for _, o := range outputs {
		want, err := os.ReadFile(filepath.Join(tmp, o.name))
		if err != nil {
			return err
		}
		got, err := os.ReadFile(filepath.Join(dir, o.name))
		if err != nil {
			return err
		}
		if !bytes.Equal(withoutHeader(got), withoutHeader(want)) {
			stale = append(stale, o.name)
		}
	}
	if stale != nil {
		return fmt.Errorf("%s differ from what the generator writes; run go generate ./kernels/asm", strings.Join(stale, ", "))
	}
	fmt.Println("kernels/asm: generated files are up to date")
	return nil
}

// withoutHeader drops the first line, which holds the command line.
func withoutHeader(b []byte) []byte {
	_, rest, _ := bytes.Cut(b, []byte("\n"))
	return rest
}
