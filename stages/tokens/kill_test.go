package tokens

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"refrain/store"
)

// TestKillChild is the process that TestKilledIngest kills; alone it does nothing.
func TestKillChild(t *testing.T) {
	if flag.NArg() != 1 {
		t.Skip("only as a child of TestKilledIngest")
	}
	c := config(t, trained(t), flag.Arg(0), makeTexts(40))
	c.Val = Val{Share: 0.2}
	c.Progress = func(p Progress) { fmt.Println("block", p.Docs) }
	prepare(t, c)
	fmt.Println("done")
}

// R36: an ingest killed at any block leaves nothing that opens and nothing that is
// in the way of the next one, whose bytes are those of an undisturbed ingest.
func TestKilledIngest(t *testing.T) {
	whole := filepath.Join(t.TempDir(), "s")
	c := config(t, trained(t), whole, makeTexts(40))
	c.Val = Val{Share: 0.2}
	prepare(t, c)
	want := tree(t, whole)
	for _, after := range []int{1, 4, 9, 10} {
		dir := filepath.Join(t.TempDir(), "s")
		cmd := exec.Command(os.Args[0], "-test.run=^TestKillChild$", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(out)
		for range after {
			if !lines.Scan() {
				t.Fatalf("the child ended before line %d", after)
			}
		}
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = cmd.Wait() // killed, or just done: both are meant

		if _, err := os.Stat(dir); err == nil {
			// The child was quick: then the store is whole.
			if err := store.Verify(t.Context(), dir, nil); err != nil {
				t.Errorf("killed after line %d: %v", after, err)
			}
		} else if !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		if s, err := store.Open(dir+store.PartialSuffix, store.OpenOptions{}); err == nil {
			s.Close()
			t.Errorf("killed after line %d: the unfinished folder opens", after)
		}
		c := config(t, trained(t), dir, makeTexts(40))
		c.Val = Val{Share: 0.2}
		prepare(t, c)
		got := tree(t, dir)
		delete(got, ".lock") // stays when the kill came right after the rename
		for name, data := range want {
			if got[name] != data || len(got) != len(want) {
				t.Errorf("killed after line %d: %s differs afterwards (%d files, want %d)", after, name, len(got), len(want))
			}
		}
	}
}
