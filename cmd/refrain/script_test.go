package main

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"refrain/internal/golden"
)

// scrubs replace what differs from run to run or from machine to machine: times
// and speeds, what the processor is, and the last digits of sums that its vector
// width decides.
var scrubs = []struct {
	re *regexp.Regexp
	to string
}{
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s|m\d+s)\b`), "TIME"},
	{regexp.MustCompile(`\b[\d.]+(e[+-]\d+)? (MB/s|GFLOP/s)`), "SPEED"},
	{regexp.MustCompile(`[\d.]+[kMGT]? tok/s`), "SPEED"},
	{regexp.MustCompile(`peak [\d.]+ %  wait [\d.]+ %`), "SHARES"},
	{regexp.MustCompile(`waited [\d.]+ %`), "waited SHARE"},
	{regexp.MustCompile(`loss \d+\.\d+( \([+-][\d.]+\))?( \+- [\d.]+)?`), "loss N"},
	{regexp.MustCompile(`\|g\| [\d.]+`), "|g| N"},
	{regexp.MustCompile(`chain [0-9a-f]{16,}`), "chain HASH"},
	{regexp.MustCompile(`run (id|has) "[0-9a-f]{16}"`), `run $1 "ID"`},
	{regexp.MustCompile(`(check "|data hash |data.store \S+ has )[0-9a-f]{12,16}`), "${1}HASH"},
	{regexp.MustCompile(`\d+ bytes, the manifest says \d+: the file`), "N bytes, the manifest says M: the file"},
	{regexp.MustCompile(`(?m)^machine .*$`), "machine HERE"},
	{regexp.MustCompile(`(?m)^(runs/.*  )[\d.]+[kM]?  +\d{4}-\d\d-\d\d \d\d:\d\d$`), "${1}SPEED  DATE"},
	{regexp.MustCompile(`(?m)^(run +status .* tok/s) +created$`), "$1  created"},
	{regexp.MustCompile(`\bid [0-9a-f]{16}\b`), "id ID"},
	{regexp.MustCompile(`(?m)^  created .*$`), "  created HERE AND NOW"},
	{regexp.MustCompile(`\b\d\.\d{4}( \([+-]\d\.\d{4}\))?(  |\n)`), "N$2"},
	{regexp.MustCompile(`chains are [0-9a-f]+`), "chains are HASH"},
	{regexp.MustCompile(`(?m)^        .* for the whole run, with  (.*)\n(        .* of it free\n)*`), "        SIZE for the whole run on a machine of SIZE\n"},
	{regexp.MustCompile(`at \d+ % of the peak measured now`), "at SHARE of the peak measured now"},
}

// cli runs one command in this process and returns its exit code and outputs.
func cli(stdin string, args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = execute(args, strings.NewReader(stdin), &out, &err)
	return code, out.String(), err.String()
}

// words splits a command line as a shell does with single quotes and blanks.
func words(line string) []string {
	var out []string
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		if rest, ok := strings.CutPrefix(line, "'"); ok {
			w, rest, _ := strings.Cut(rest, "'")
			out, line = append(out, w), rest
			continue
		}
		w, rest, _ := strings.Cut(line, " ")
		out, line = append(out, w), rest
	}
	return out
}

// show joins what a command printed: errors marked with !, empty lines with ~.
func show(code int, stdout, stderr string) string {
	var b strings.Builder
	line := func(mark, s string) {
		for l := range strings.Lines(s) {
			l = strings.TrimRight(l, "\n")
			if strings.TrimSpace(mark+l) == "" {
				l = "~"
			}
			b.WriteString(mark + strings.TrimRight(l, " ") + "\n")
		}
	}
	line("", stdout)
	line("! ", stderr)
	if code != 0 {
		fmt.Fprintf(&b, "exit %d\n", code)
	}
	text := b.String()
	for _, s := range scrubs {
		text = s.re.ReplaceAllString(text, s.to)
	}
	return sortEvents(text)
}

// sortEvents sorts lines of steps, evaluations and saves: these stages go on
// beside each other, so the order of their lines is not fixed.
func sortEvents(text string) string {
	lines := strings.Split(text, "\n")
	event := regexp.MustCompile(`^(step|eval|save) +\d+`)
	for i := 0; i < len(lines); i++ {
		j := i
		for j < len(lines) && event.MatchString(lines[j]) {
			j++
		}
		slices.Sort(lines[i:j])
		i = max(i, j)
	}
	return strings.Join(lines, "\n")
}

// TestScripts runs the scripts of testdata, each in an empty folder. Commands are
//
//	refrain ARGS     with the lines below it as standard input
//	file NAME        writes the lines below it
//	gzip NAME        compresses a file to NAME.gz and removes it
//	corpus DIR N     writes N small text files
//	flip NAME OFFSET changes one bit of a file; an offset below 0 counts from its end
//	cut NAME BYTES   cuts so many bytes off the end of a file
//	copy FROM TO     copies a file or a folder
//	remove NAME      removes a file or a folder
//	list DIR         prints the names in a folder
func TestScripts(t *testing.T) {
	scripts, err := filepath.Glob("testdata/*.script")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("no scripts (%v)", err)
	}
	for _, s := range scripts {
		abs, err := filepath.Abs(s)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(strings.TrimSuffix(filepath.Base(s), ".script"), func(t *testing.T) {
			t.Chdir(t.TempDir())
			golden.Script(t, abs, scriptCommand)
		})
	}
}

func scriptCommand(t *testing.T, c golden.Case) string {
	t.Helper()
	args := words(strings.Join(c.Args, " "))
	input := c.Input
	if input != "" {
		input += "\n"
	}
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatalf("line %d: %v", c.Line, err)
		}
	}
	switch c.Name {
	case "refrain":
		return show(cli(input, args...))
	case "file":
		check(os.MkdirAll(filepath.Dir(args[0]), 0o755))
		check(os.WriteFile(args[0], []byte(input), 0o644))
	case "gzip":
		b, err := os.ReadFile(args[0])
		check(err)
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, err = w.Write(b)
		check(err)
		check(w.Close())
		check(os.WriteFile(args[0]+".gz", z.Bytes(), 0o644))
		check(os.Remove(args[0]))
	case "corpus":
		check(writeCorpus(args[0], args[1]))
	case "flip":
		var at int64
		_, err := fmt.Sscan(args[1], &at)
		check(err)
		b, err := os.ReadFile(args[0])
		check(err)
		if at < 0 {
			at += int64(len(b))
		}
		b[at] ^= 1
		check(os.WriteFile(args[0], b, 0o644))
	case "cut":
		var n int64
		_, err := fmt.Sscan(args[1], &n)
		check(err)
		info, err := os.Stat(args[0])
		check(err)
		check(os.Truncate(args[0], info.Size()-n))
	case "copy":
		info, err := os.Stat(args[0])
		check(err)
		if info.IsDir() {
			check(os.CopyFS(args[1], os.DirFS(args[0])))
			break
		}
		b, err := os.ReadFile(args[0])
		check(err)
		check(os.WriteFile(args[1], b, 0o644))
	case "remove":
		check(os.RemoveAll(args[0]))
	case "list":
		entries, err := os.ReadDir(args[0])
		check(err)
		var names []string
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return strings.Join(names, " ")
	default:
		t.Fatalf("line %d: unknown command %s", c.Line, c.Name)
	}
	return ""
}

// writeCorpus writes n text files of a few sentences each, all different.
func writeCorpus(dir, count string) error {
	var n int
	if _, err := fmt.Sscan(count, &n); err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	nouns := []string{"river", "stone", "garden", "window", "letter", "morning", "bridge", "lantern"}
	verbs := []string{"carries", "follows", "remembers", "turns", "opens", "answers"}
	for i := range n {
		var b strings.Builder
		for j := range 6 + i%5 {
			x := i*31 + j*17
			fmt.Fprintf(&b, "The %s %s the %s number %d.\n", nouns[x%8], verbs[x/3%6], nouns[(x/5+j)%8], x%97)
		}
		if err := os.WriteFile(filepath.Join(dir, fmt.Sprintf("%03d.txt", i)), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
