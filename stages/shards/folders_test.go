package shards

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
)

// TestEachInput: every input once, and the first error in order whoever finds one
// first.
func TestEachInput(t *testing.T) {
	for _, n := range []int{0, 1, inputRun, inputRun + 1, 20 * inputRun} {
		seen := make([]atomic.Int32, n)
		if err := eachInput(t.Context(), n, func(_ *folders, i int) error {
			seen[i].Add(1)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for i := range seen {
			if got := seen[i].Load(); got != 1 {
				t.Fatalf("%d inputs: number %d was seen %d times", n, i, got)
			}
		}
	}
	for range 50 {
		const n, bad = 20 * inputRun, 3*inputRun + 5
		err := eachInput(t.Context(), n, func(_ *folders, i int) error {
			if i < bad {
				runtime.Gosched() // the later error is found first
				return nil
			}
			return fmt.Errorf("input %d", i)
		})
		if err == nil || err.Error() != fmt.Sprintf("input %d", bad) {
			t.Fatalf("error %v, want that of input %d", err, bad)
		}
	}
	stop := errors.New("stop")
	ctx, cancel := context.WithCancelCause(t.Context())
	var calls atomic.Int32
	err := eachInput(ctx, 1000, func(*folders, int) error {
		calls.Add(1)
		cancel(stop)
		return nil
	})
	if !errors.Is(err, stop) || calls.Load() > int32(runtime.GOMAXPROCS(0)) {
		t.Errorf("after a stop: error %v, %d calls", err, calls.Load())
	}
}

// TestFoldersLinks: a link that leaves its folder but not the one that was walked is
// followed, one that leaves both is not, though the folder is held open; and folders
// that were held do not hide others.
func TestFoldersLinks(t *testing.T) {
	d := t.TempDir()
	put(t, d, "in/a/x.txt", []byte("ax"))
	put(t, d, "in/b/x.txt", []byte("bx"))
	put(t, d, "in/x.txt", []byte("x"))
	put(t, d, "out.txt", []byte("outside"))
	for link, to := range map[string]string{"in/a/up.txt": "../b/x.txt", "in/a/away.txt": "../../out.txt"} {
		if err := os.Symlink(filepath.FromSlash(to), filepath.Join(d, filepath.FromSlash(link))); err != nil {
			t.Skipf("no symbolic links here: %v", err)
		}
	}
	var at folders
	defer at.close()
	var got []string
	for _, rel := range []string{"a/x.txt", "a/up.txt", "b/x.txt", "x.txt", "a/x.txt", "a/away.txt", "none/x.txt", "b/x.txt"} {
		in := &Input{Path: rel, Rel: rel, root: filepath.Join(d, "in")}
		info, statErr := at.stat(in)
		f, err := at.open(in)
		if (err == nil) != (statErr == nil) {
			t.Fatalf("%s: open says %v, stat %v", rel, err, statErr)
		}
		if err != nil {
			got = append(got, "-")
			continue
		}
		b := make([]byte, info.Size())
		_, err = f.Read(b)
		f.Close()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(b))
	}
	if want := []string{"ax", "bx", "bx", "x", "ax", "-", "-", "bx"}; !slices.Equal(got, want) {
		t.Errorf("read %q, want %q", got, want)
	}
}
