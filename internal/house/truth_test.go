package house

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	truthFile = regexp.MustCompile("^`([a-z0-9_/]+_test\\.go)`")
	truthRow  = regexp.MustCompile(`^\| (N\d+|I-\d+) \| `)
	truthName = regexp.MustCompile(`^(Test[A-Za-z0-9]+)\b`)
)

// checkTruth lists ids without a row and tests that do not exist. src returns
// the text of a test file.
func checkTruth(page string, src func(rel string) (string, error)) []string {
	var bad []string
	rows := map[string]string{}
	for line := range strings.Lines(page) {
		if m := truthRow.FindStringSubmatch(line); m != nil {
			if rows[m[1]] != "" {
				bad = append(bad, fmt.Sprintf("docs/truth.md: two rows for %s", m[1]))
			}
			rows[m[1]] = line
		}
		file, text := "", ""
		for i := range line {
			if m := truthFile.FindStringSubmatch(line[i:]); m != nil {
				file = m[1]
				var err error
				if text, err = src(file); err != nil {
					bad = append(bad, fmt.Sprintf("docs/truth.md: %v", err))
				}
			}
			m := truthName.FindStringSubmatch(line[i:])
			if m == nil || i > 0 && line[i-1] != ' ' {
				continue
			}
			if !strings.Contains(text, "func "+m[1]+"(t *testing.T)") {
				bad = append(bad, fmt.Sprintf("docs/truth.md: %q has no %s", file, m[1]))
			}
		}
	}
	for _, s := range []struct {
		form string
		n    int
	}{{"N%d", 20}, {"I-%02d", 30}} {
		for i := range s.n {
			id := fmt.Sprintf(s.form, i+1)
			if r := rows[id]; !strings.Contains(r, "Test") && !strings.Contains(r, "does not apply") {
				bad = append(bad, fmt.Sprintf("docs/truth.md: %s has no test and no reason", id))
			}
		}
	}
	return bad
}

// TestTruth: every numerical claim and every incident of docs/truth.md is held
// by tests that exist.
func TestTruth(t *testing.T) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "docs", "truth.md"))
	if err != nil {
		t.Fatal(err)
	}
	bad := checkTruth(string(page), func(rel string) (string, error) {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(rel)))
		return string(b), err
	})
	report(t, bad)
}

func TestTruthRules(t *testing.T) {
	src := func(string) (string, error) { return "func TestA(t *testing.T) {", nil }
	var page strings.Builder
	for i := range 20 {
		fmt.Fprintf(&page, "| N%d | x | `a/b_test.go` TestA |\n", i+1)
	}
	for i := range 30 {
		fmt.Fprintf(&page, "| I-%02d | x | `a/b_test.go` TestA |\n", i+1)
	}
	expect(t, checkTruth(page.String(), src))
	expect(t, checkTruth(strings.Replace(page.String(), "| N7 |", "| X7 |", 1), src), "N7 has no test")
	expect(t, checkTruth(strings.Replace(page.String(), "TestA", "TestB", 1), src), `"a/b_test.go" has no TestB`)
	expect(t, checkTruth(strings.Replace(page.String(), "TestA", "TestA, TestC", 1), src), "has no TestC")
	expect(t, checkTruth(page.String()+"| N1 | y | `a/b_test.go` TestA |\n", src), "two rows for N1")
}
