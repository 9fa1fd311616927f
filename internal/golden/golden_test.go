package golden

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func runCase(t *testing.T, c Case) string {
	switch c.Name {
	case "echo":
		return strings.Join(c.Args, " ")
	case "upper":
		return strings.ToUpper(c.Input)
	case "nothing":
		return ""
	}
	t.Fatalf("line %d: unknown command %s", c.Line, c.Name)
	return ""
}

func TestScript(t *testing.T) {
	Script(t, "testdata/upper.script", runCase)
}

func TestParseRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"cmd\nin":         "1: the command has no ruler",
		"cmd\n\n----\nx":  "2: empty line before the ruler",
		"# c\n  \n----\n": "2: a line of blanks",
	} {
		_, err := parse(text)
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("parse(%q) = %v, want %q", text, err, want)
		}
	}
}

func TestDiff(t *testing.T) {
	for _, c := range []struct{ want, got, diff string }{
		{"a", "a", ""},
		{"a\nb\nc", "a\nx\nc", "- b\n+ x\n"},
		{"a\nb\nc\nd", "a\nc\ne\nd", "- b\n  c\n+ e\n"},
		{"", "a", "- \n+ a\n"},
		{"a\nb", "b", "- a\n"},
		{strings.Repeat("x\n", 3000), strings.Repeat("y\n", 3000), "- x\n+ y\n"},
	} {
		if d := Diff(c.want, c.got); d != c.diff {
			t.Errorf("Diff(%.20q, %.20q) = %q, want %q", c.want, c.got, d, c.diff)
		}
	}
}

// recorder stands for a test that is expected to fail.
type recorder struct {
	testing.TB
	failed bool
}

func (r *recorder) Helper()                        {}
func (r *recorder) Errorf(format string, a ...any) { r.failed = true }

func TestFileFails(t *testing.T) {
	if *update {
		t.Skip("with -update every file is right")
	}
	path := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(path, []byte("one\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	r := &recorder{TB: t}
	File(r, path, []byte("one\n"))
	if r.failed {
		t.Error("equal texts failed")
	}
	File(r, path, []byte("two\n"))
	if !r.failed {
		t.Error("different texts passed")
	}
}
