package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
)

// onThePage saves what a command printed as a record and wants a section of the report made
// of it and of more paths. Twice the report has the same bytes.
func onThePage(t *testing.T, section, kind string, v any, more ...string) {
	t.Helper()
	text, err := (&app{args: []string{"command", "of", kind}}).recordText(kind, v)
	dir := t.TempDir()
	file := filepath.Join(dir, "record.json")
	if err == nil {
		err = os.WriteFile(file, text, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	var pages [2][]byte
	for i, name := range []string{"a.html", "b.html"} {
		page := filepath.Join(dir, name)
		if code, _, msg := cli("", append([]string{"report", file, "-o", page}, more...)...); code != 0 {
			t.Errorf("report of a record of %s: exit %d: %s", kind, code, msg)
			return
		}
		if pages[i], err = os.ReadFile(page); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(pages[0], pages[1]) {
		t.Errorf("two reports of one record of %s differ", kind)
	}
	for _, want := range []string{"<h2>" + section + "</h2>", "refrain command of " + kind} {
		if !bytes.Contains(pages[0], []byte(want)) {
			t.Errorf("the report of a record of %s has no %q", kind, want)
		}
	}
}

// TestReportRefuses: bad input of the report, with its exit codes.
func TestReportRefuses(t *testing.T) {
	dir := t.TempDir()
	t.Chdir(dir)
	for name, text := range map[string]string{
		"damaged.json": `{"kind":"fit","version":1,"points":[{"x":0,"loss":3},{"x":1,"loss":2}],"broken":true}`,
		"kind.json":    `{"kind":"else","version":1}`, "none.json": `{"a":1}`, "text.json": "text", "later.json": `{"kind":"fit","version":2}`,
		"good.json": `{"kind":"fit","version":1,"points":[{"x":1,"loss":3},{"x":2,"loss":2},{"x":3,"loss":1.9}],"A":1,"alpha":1,"E":1.8}`,
	} {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir("empty", 0o755); err != nil {
		t.Fatal(err)
	}
	for want, x := range map[string]struct {
		code int
		line string
	}{
		"no place on a logarithmic axis":           {run.ExitData, "report damaged.json -o p.html"},
		`kind.json: a record of the kind "else"`:   {run.ExitUsage, "report good.json kind.json -o p.html"},
		"none.json: it has no kind":                {run.ExitUsage, "report none.json -o p.html"},
		"text.json: no record":                     {run.ExitUsage, "report text.json -o p.html"},
		"a record of version 2":                    {run.ExitUsage, "report later.json -o p.html"},
		"gone.json: there is no such file":         {run.ExitUsage, "report gone.json -o p.html"},
		"empty: neither a run folder":              {run.ExitUsage, "report empty -o p.html"},
		"good.json is a file, so there is no fold": {run.ExitUsage, "report good.json"},
	} {
		code, _, msg := cli("", words(x.line)...)
		if code != x.code || !strings.Contains(msg, want) {
			t.Errorf("%s: exit %d, want %d with %q: %s", x.line, code, x.code, want, msg)
		}
		if _, err := os.Stat("p.html"); err == nil {
			t.Fatalf("%s left a page", x.line)
		}
	}
	if code, out, msg := cli("", words("report good.json -o p.html")...); code != 0 || out != "p.html\n" {
		t.Errorf("exit %d: %s%s", code, out, msg)
	}
}
