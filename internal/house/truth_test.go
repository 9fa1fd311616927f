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
	truthRow  = regexp.MustCompile(`^\| (N\d+|I-\d+|\d+) \| `)
	truthName = regexp.MustCompile(`^(Test[A-Za-z0-9]+)\b`)
)

// checkTests lists tests that a page names and that do not exist, and returns the rows of
// its tables by their ids. src returns the text of a test file.
func checkTests(name, page string, src func(rel string) (string, error)) (rows map[string]string, bad []string) {
	rows = map[string]string{}
	for line := range strings.Lines(page) {
		if m := truthRow.FindStringSubmatch(line); m != nil {
			if rows[m[1]] != "" {
				bad = append(bad, fmt.Sprintf("%s: two rows for %s", name, m[1]))
			}
			rows[m[1]] = line
		}
		file, text := "", ""
		for i := range line {
			if m := truthFile.FindStringSubmatch(line[i:]); m != nil {
				file = m[1]
				var err error
				if text, err = src(file); err != nil {
					bad = append(bad, fmt.Sprintf("%s: %v", name, err))
				}
			}
			m := truthName.FindStringSubmatch(line[i:])
			if m == nil || i > 0 && line[i-1] != ' ' {
				continue
			}
			if !strings.Contains(text, "func "+m[1]+"(t *testing.T)") {
				bad = append(bad, fmt.Sprintf("%s: %q has no %s", name, file, m[1]))
			}
		}
	}
	return rows, bad
}

// checkTruth lists also the ids of docs/truth.md without a row.
func checkTruth(page string, src func(rel string) (string, error)) []string {
	rows, bad := checkTests("docs/truth.md", page, src)
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

// checkStudies lists also the rows of docs/studies.md without a test of their name:
// TestRow07..., or TestRow18And07... for several.
func checkStudies(page string, src func(rel string) (string, error)) []string {
	rows, bad := checkTests("docs/studies.md", page, src)
	for i := range 40 {
		id := fmt.Sprint(i + 1)
		if named := regexp.MustCompile(fmt.Sprintf(`\bTestRow(\d\dAnd)*%02d(And\d\d)*[A-Z]`, i+1)); !named.MatchString(rows[id]) {
			bad = append(bad, fmt.Sprintf("docs/studies.md: row %s has no test TestRow%02d...", id, i+1))
		}
	}
	return bad
}

// TestTruth: every numerical claim and every incident of docs/truth.md is held
// by tests that exist.
func TestTruth(t *testing.T) { checkPage(t, "truth.md", checkTruth) }

// TestStudies: every capability and every bad input of docs/studies.md is held by tests
// that exist, every capability by one of its name.
func TestStudies(t *testing.T) { checkPage(t, "studies.md", checkStudies) }

func checkPage(t *testing.T, name string, check func(page string, src func(rel string) (string, error)) []string) {
	dir, err := root()
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(dir, "docs", name))
	if err != nil {
		t.Fatal(err)
	}
	report(t, check(string(page), func(rel string) (string, error) {
		b, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(rel)))
		return string(b), err
	}))
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

func TestStudiesRules(t *testing.T) {
	var page, tests strings.Builder
	for i := range 40 {
		name := fmt.Sprintf("TestRow%02dWorks", i+1)
		fmt.Fprintf(&page, "| %d | x | `a/b_test.go` %s |\n", i+1, name)
		fmt.Fprintf(&tests, "func %s(t *testing.T) {\n", name)
	}
	tests.WriteString("func TestRow19And20Both(t *testing.T) {\nfunc TestOther(t *testing.T) {\n")
	src := func(string) (string, error) { return tests.String(), nil }
	expect(t, checkStudies(page.String(), src))
	expect(t, checkStudies(strings.Replace(page.String(), "TestRow20Works", "TestRow19And20Both", 1), src))
	expect(t, checkStudies(strings.Replace(page.String(), "TestRow07Works", "TestOther", 1), src), "row 7 has no test TestRow07...")
	expect(t, checkStudies(strings.Replace(page.String(), "| 40 |", "| 41 |", 1), src), "row 40 has no test")
	expect(t, checkStudies(strings.Replace(page.String(), "TestRow02Works", "TestRow02Gone", 1), src), `"a/b_test.go" has no TestRow02Gone`)
}
