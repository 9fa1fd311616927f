// Command images compiles the kernels for real GPUs with the pinned compiler of make
// cuda-toolchain. Run it in kernels:
//
//	go run ./_images -nvcc NVCC         # writes ptx/kernels.fatbin and ptx/kernels.sum
//	go run ./_images -nvcc NVCC -check  # compiles and compares, and writes nothing
//
// The sum file names compiler, sources and what each kernel takes on each architecture;
// a kernel that spills registers is an error.
package main

import (
	"bytes"
	"crypto/sha256"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// architectures get machine code; the oldest one's PTX is for GPUs that come later.
var architectures = []string{"80", "86", "89", "90a", "100a"}

const fatbin, sumFile = "ptx/kernels.fatbin", "ptx/kernels.sum"

func main() {
	nvcc := flag.String("nvcc", "nvcc", "the compiler")
	check := flag.Bool("check", false, "compare instead of writing")
	flag.Parse()
	if err := run(*nvcc, *check); err != nil {
		fmt.Fprintln(os.Stderr, "images:", err)
		os.Exit(1)
	}
}

func run(nvcc string, check bool) error {
	tmp, err := os.MkdirTemp("", "images")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	image := filepath.Join(tmp, "kernels.fatbin")
	version, err := exec.Command(nvcc, "--version").Output()
	if err != nil {
		return fmt.Errorf("%s: %w; make cuda-toolchain installs it", nvcc, err)
	}
	release := regexp.MustCompile(`V[0-9.]+`).FindString(string(version))
	args := []string{"-std=c++17", "-O3", "-fmad=false", "-fatbin", "-Xfatbin", "-compress-all", "-Xptxas", "-v", "-o", image, "all.cu"}
	for _, a := range architectures {
		args = append(args, "-gencode", "arch=compute_"+a+",code=sm_"+a)
	}
	args = append(args, "-gencode", "arch=compute_80,code=compute_80")
	log, err := exec.Command(nvcc, args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%v\n%s", err, log)
	}
	table, err := resources(string(log))
	if err != nil {
		return err
	}
	sources, err := digests()
	if err != nil {
		return err
	}
	sum := "compiler nvcc " + release + "\n" + sources + table
	if check {
		old, err := os.ReadFile(sumFile)
		if err != nil {
			return err
		}
		if string(old) != sum {
			return fmt.Errorf("kernels/%s is not what the sources and %s give; run make kernels", sumFile, release)
		}
		return nil
	}
	b, err := os.ReadFile(image)
	if err != nil {
		return err
	}
	sum256 := sha256.Sum256(b)
	if err := os.WriteFile(fatbin, b, 0o644); err != nil {
		return err
	}
	fmt.Printf("%s: %d bytes, sha256 %x\n", fatbin, len(b), sum256)
	return os.WriteFile(sumFile, []byte(sum), 0o644)
}

// digests names the sources with their hashes, as the test of package ptx does.
func digests() (string, error) {
	var files []string
	for _, p := range []string{"*.cu", "*.cuh"} {
		f, err := filepath.Glob(p)
		if err != nil {
			return "", err
		}
		files = append(files, f...)
	}
	slices.Sort(files)
	all, err := os.ReadFile("all.cu")
	if err != nil {
		return "", err
	}
	var b strings.Builder
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		if strings.HasSuffix(f, ".cu") && f != "all.cu" && !bytes.Contains(all, []byte("\""+f+"\"")) {
			return "", fmt.Errorf("all.cu does not include %s", f)
		}
		fmt.Fprintf(&b, "source %s %x\n", f, sha256.Sum256(text))
	}
	return b.String(), nil
}

var (
	entryLine = regexp.MustCompile(`Compiling entry function '(\w+)' for '(\w+)'`)
	spillLine = regexp.MustCompile(`(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads`)
	usedLine  = regexp.MustCompile(`Used (\d+) registers`)
)

// resources turns the assembler's log into a table.
func resources(log string) (string, error) {
	var rows, spills []string
	var name, arch string
	for line := range strings.Lines(log) {
		if m := entryLine.FindStringSubmatch(line); m != nil {
			name, arch = m[1], m[2]
		}
		if m := spillLine.FindStringSubmatch(line); m != nil && (m[2] != "0" || m[3] != "0") {
			spills = append(spills, fmt.Sprintf("%s on %s: %s", name, arch, strings.TrimSpace(line)))
		}
		if m := usedLine.FindStringSubmatch(line); m != nil && name != "" {
			rows = append(rows, fmt.Sprintf("kernel %s %s registers %s\n", arch, name, m[1]))
			name = ""
		}
	}
	if len(spills) > 0 {
		return "", fmt.Errorf("registers are spilled:\n%s", strings.Join(spills, "\n"))
	}
	if len(rows) == 0 {
		return "", fmt.Errorf("the assembler's log names no kernel:\n%s", log)
	}
	slices.Sort(rows)
	return strings.Join(rows, ""), nil
}
