package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"
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
