package ckpt

import (
	"bytes"
	"errors"
	"flag"
	"os"
	"os/exec"
	"reflect"
	"syscall"
	"testing"

	"refrain/internal/fsx"
)

// TestFileSizeLimit saves in a child process that the kernel forbids to write
// files above a limit: a real short write on a real disk, no simulation.
func TestFileSizeLimit(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a process")
	}
	dir := t.TempDir()
	mustSave(t, fsx.OS{}, dir, 10)
	// The child's own report is its exit status; its lines help when it fails.
	cmd := exec.Command(os.Args[0], "-test.run=^TestFileSizeLimitChild$", "-test.v", dir)
	if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestFileSizeLimitChild")) {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := files(t, fsx.OS{}, dir); !reflect.DeepEqual(got, []string{"latest", oldest}) {
		t.Fatalf("the folder holds %v", got)
	}
	mustSave(t, fsx.OS{}, dir, 20)
	l, r, err := LoadLatest(t.Context(), fsx.OS{}, dir, LoadOptions{})
	if err != nil || l.Manifest.Step != 20 || len(r.Skipped) > 0 {
		t.Errorf("%v, %v", r, err)
	}
}

// TestFileSizeLimitChild is the child of TestFileSizeLimit.
func TestFileSizeLimitChild(t *testing.T) {
	if flag.NArg() != 1 {
		t.Skip("runs only as a child of TestFileSizeLimit")
	}
	dir := flag.Arg(0)
	limit := syscall.Rlimit{Cur: 4096, Max: 1 << 30} // a file of the snapshot has 9 KiB
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &limit); err != nil {
		t.Fatal(err)
	}
	_, err := Save(t.Context(), fsx.OS{}, dir, snap(20), SaveOptions{})
	if !errors.Is(err, syscall.EFBIG) {
		t.Fatalf("got %v, want EFBIG", err)
	}
	l, _, err := LoadLatest(t.Context(), fsx.OS{}, dir, LoadOptions{})
	if err != nil || l.Manifest.Step != 10 {
		t.Fatalf("the older checkpoint: %v", err)
	}
}
