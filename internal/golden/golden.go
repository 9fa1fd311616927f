// Package golden holds two kinds of tests that compare text with text kept in
// the tree: whole files (File) and scripts of commands with their output
// (Script). `go test ./some/package -update` rewrites what is kept; the change
// is then read line by line before it is committed. The package is used by
// tests only.
package golden

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "rewrite golden files with what the tests got")

// File fails t unless got equals the content of path. With -update it writes
// the file instead.
func File(t testing.TB, path string, got []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatalf("%v\nrun the test with -update to write it", err)
	}
	if d := Diff(string(want), string(got)); d != "" {
		t.Errorf("%s differs (-want +got); run with -update when the new text is right:\n%s", path, d)
	}
}

// Case is one block of a script.
type Case struct {
	Line  int      // of the command, from 1
	Name  string   // first word of the command
	Args  []string // its other words
	Input string   // lines between the command and the ruler
}

// Script runs every block of the file at path and compares what run returns
// with the block's output. A block is a command line, optional input lines, a
// ruler of four dashes, output lines, and an empty line:
//
//	load optim.lr=2
//	train:
//	  epochs: 1
//	----
//	1 problem
//
// Lines before a block that start with # are comments. Neither input nor output
// may hold an empty line: it ends the block. With -update the file is rewritten
// with the outputs that run gave.
func Script(t *testing.T, path string, run func(t *testing.T, c Case) string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parse(string(text))
	if err != nil {
		t.Fatalf("%s:%v", path, err)
	}
	if len(blocks) == 0 {
		t.Fatalf("%s holds no block", path)
	}
	var out strings.Builder
	for _, b := range blocks {
		got := strings.TrimRight(run(t, b.c), "\n")
		if strings.Contains(got, "\n\n") {
			t.Fatalf("%s:%d: the output holds an empty line, which ends a block", path, b.c.Line)
		}
		if !*update {
			if d := Diff(b.want, got); d != "" {
				t.Errorf("%s:%d: %s (-want +got):\n%s", path, b.c.Line, b.head, d)
			}
			continue
		}
		out.WriteString(b.comments + b.head + "\n")
		if b.c.Input != "" {
			out.WriteString(b.c.Input + "\n")
		}
		out.WriteString("----\n")
		if got != "" {
			out.WriteString(got + "\n")
		}
		out.WriteString("\n")
	}
	if *update {
		if err := os.WriteFile(path, []byte(strings.TrimRight(out.String(), "\n")+"\n"), 0o666); err != nil {
			t.Fatal(err)
		}
	}
}

// block is a Case with what stands around it.
type block struct {
	c        Case
	comments string // with newlines
	head     string // the command line
	want     string
}

// parse splits a script into blocks.
func parse(text string) ([]block, error) {
	var blocks []block
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for i := 0; i < len(lines); {
		var b block
		for i < len(lines) && (lines[i] == "" || strings.HasPrefix(lines[i], "#")) {
			b.comments += lines[i] + "\n"
			i++
		}
		b.comments = strings.TrimLeft(b.comments, "\n")
		if i == len(lines) {
			break
		}
		b.head = lines[i]
		b.c.Line = i + 1
		words := strings.Fields(b.head)
		if len(words) == 0 {
			return nil, fmt.Errorf("%d: a line of blanks where a command should stand", i+1)
		}
		b.c.Name, b.c.Args = words[0], words[1:]
		i++
		start := i
		for i < len(lines) && lines[i] != "----" {
			if lines[i] == "" {
				return nil, fmt.Errorf("%d: empty line before the ruler ---- of the command at line %d", i+1, b.c.Line)
			}
			i++
		}
		if i == len(lines) {
			return nil, fmt.Errorf("%d: the command has no ruler ----", b.c.Line)
		}
		b.c.Input = strings.Join(lines[start:i], "\n")
		i++
		start = i
		for i < len(lines) && lines[i] != "" {
			i++
		}
		b.want = strings.Join(lines[start:i], "\n")
		blocks = append(blocks, b)
	}
	return blocks, nil
}

// Diff returns the lines in which two texts differ, with - for want and + for
// got, or "" when they are equal. It finds a longest common subsequence, so it
// is meant for texts of up to a few thousand lines; beyond that it shows the
// first difference only.
func Diff(want, got string) string {
	if want == got {
		return ""
	}
	a, b := strings.Split(want, "\n"), strings.Split(got, "\n")
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	const most = 2000
	if len(a) > most || len(b) > most {
		a, b = a[:min(1, len(a))], b[:min(1, len(b))]
	}
	// common[i][j] is the length of the best match of a[i:] with b[j:].
	common := make([][]int, len(a)+1)
	for i := range common {
		common[i] = make([]int, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	var out strings.Builder
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			fmt.Fprintf(&out, "  %s\n", a[i])
			i++
			j++
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			fmt.Fprintf(&out, "- %s\n", a[i])
			i++
		default:
			fmt.Fprintf(&out, "+ %s\n", b[j])
			j++
		}
	}
	return out.String()
}
