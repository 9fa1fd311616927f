package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// wellKnown are methods whose name says all there is to say.
var wellKnown = []string{"String", "Error", "Unwrap", "Is", "Len", "Less", "Swap",
	"MarshalJSON", "UnmarshalJSON", "Format", "GoString", "Close", "Read", "Write"}

// vagueNames are words that say nothing about what a package is for.
var vagueNames = []string{"util", "utils", "common", "helper", "helpers", "manager", "misc", "base", "shared"}

// checkDocs complains about exported names without a comment.
func checkDocs(f *file) []string {
	if f.generated || f.ast.Name.Name == "main" {
		return nil
	}
	var bad []string
	complain := func(n ast.Node, what, name string) {
		bad = append(bad, fmt.Sprintf("%s: exported %s %s has no comment; say what it is, when it blocks, who owns the arguments", f.at(n), what, name))
	}
	// A comment also stands for the functions that follow without an empty line.
	documentedTo := -1
	for _, d := range f.ast.Decls {
		line, end := f.fset.Position(d.Pos()).Line, f.fset.Position(d.End()).Line
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Doc != nil || line == documentedTo+1 {
				documentedTo = end
				continue
			}
			if !d.Name.IsExported() {
				continue
			}
			if d.Recv != nil && (!token.IsExported(receiver(d)) || slices.Contains(wellKnown, d.Name.Name)) {
				continue
			}
			complain(d, "function", funcName(d))
		case *ast.GenDecl:
			for _, s := range d.Specs {
				switch s := s.(type) {
				case *ast.TypeSpec:
					if s.Name.IsExported() && s.Doc == nil && d.Doc == nil && s.Comment == nil {
						complain(s, "type", s.Name.Name)
					}
				case *ast.ValueSpec:
					// One comment may stand for a group.
					if s.Doc != nil || s.Comment != nil || d.Doc != nil {
						continue
					}
					for _, n := range s.Names {
						if n.IsExported() {
							complain(s, d.Tok.String(), n.Name)
						}
					}
				}
			}
		}
	}
	return bad
}

// checkNames complains about a package whose name says nothing.
func checkNames(f *file) []string {
	if slices.Contains(vagueNames, path.Base(f.room)) || slices.Contains(vagueNames, f.ast.Name.Name) {
		return []string{fmt.Sprintf("%s: package %s: name it after what it does", f.rel, f.ast.Name.Name)}
	}
	return nil
}

// checkASCII complains about comments that are not plain ASCII.
func checkASCII(f *file) []string {
	for _, g := range f.ast.Comments {
		for _, c := range g.List {
			for _, r := range c.Text {
				if r > 127 {
					return []string{fmt.Sprintf("%s: a comment with %q; write plain ASCII", f.at(c), r)}
				}
			}
		}
	}
	return nil
}

// magic is a constant that is written to files so that they can be told apart.
type magic struct{ place, name, text string }

// foreignMagics belong to formats of other projects, whose own standards
// describe them.
var foreignMagics = []string{"1f 8b", "28 b5 2f fd", "PAR1", "ARROW1"}

// magics finds constants and variables called ...magic... with a literal value.
func magics(f *file) []magic {
	var out []magic
	for _, d := range f.ast.Decls {
		g, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, s := range g.Specs {
			vs, ok := s.(*ast.ValueSpec)
			if !ok {
				continue
			}
			for i, n := range vs.Names {
				if !strings.Contains(strings.ToLower(n.Name), "magic") || i >= len(vs.Values) {
					continue
				}
				ast.Inspect(vs.Values[i], func(x ast.Node) bool {
					lit, ok := x.(*ast.BasicLit)
					if !ok {
						return true
					}
					text := lit.Value
					if s, err := strconv.Unquote(text); err == nil {
						text = s
					}
					text = strings.TrimRight(text, "\x00")
					// "\x1f\x8b" is written as hex in documents.
					if strings.ContainsFunc(text, func(r rune) bool { return r < 32 || r > 126 }) {
						text = fmt.Sprintf("% x", text)
					}
					out = append(out, magic{f.at(n), n.Name, text})
					return true
				})
			}
		}
	}
	return out
}

func TestDocs(t *testing.T)  { eachFile(t, checkDocs) }
func TestNames(t *testing.T) { eachFile(t, checkNames) }

func TestASCIIComments(t *testing.T) {
	var bad []string
	for _, f := range load(t).files {
		bad = append(bad, checkASCII(f)...)
	}
	report(t, bad)
}

// TestPackageComments wants one package comment in every package.
func TestPackageComments(t *testing.T) {
	has := map[string]bool{}
	load(t).product(func(f *file) { has[f.room] = has[f.room] || f.ast.Doc != nil })
	var bad []string
	for room, ok := range has {
		if !ok {
			bad = append(bad, room+" has no package comment; say what the room is for and what it knows nothing about")
		}
	}
	report(t, bad)
}

// TestMagics wants every file mark described in docs/formats.
func TestMagics(t *testing.T) {
	tr := load(t)
	var all strings.Builder
	for rel, text := range tr.texts {
		if strings.HasPrefix(rel, "docs/formats/") && strings.HasSuffix(rel, ".md") {
			all.Write(text)
		}
	}
	var bad []string
	tr.product(func(f *file) {
		for _, m := range magics(f) {
			if slices.Contains(foreignMagics, m.text) {
				continue
			}
			if !strings.Contains(strings.ToLower(all.String()), strings.ToLower(m.text)) {
				bad = append(bad, fmt.Sprintf("%s: the file mark %s (%s) is not described in docs/formats/*.md; add it to the page of its format", m.place, m.name, m.text))
			}
		}
	})
	report(t, bad)
}

// TestNoMachinePaths wants the repository to speak only of itself: no folder of
// somebody's machine in code, comments or documents.
func TestNoMachinePaths(t *testing.T) {
	tr := load(t)
	var marks []string
	for _, w := range []string{"work", "root", "tmp"} {
		marks = append(marks, "/"+w+"/") // in pieces, so that this file passes
	}
	var bad []string
	scan := func(rel string, text []byte) {
		for i, line := range strings.Split(string(text), "\n") {
			for _, m := range marks {
				at := strings.Index(line, m)
				// A path component in the middle (a/tmp/b) is no machine path.
				if at >= 0 && (at == 0 || !isPathByte(line[at-1])) {
					bad = append(bad, fmt.Sprintf("%s:%d: an absolute path of a machine (%s); use a relative one or a temporary folder", rel, i+1, m))
				}
			}
		}
	}
	for _, f := range tr.files {
		scan(f.rel, f.src)
	}
	for rel, text := range tr.texts {
		scan(rel, text)
	}
	report(t, bad)
}

func isPathByte(c byte) bool {
	return c == '.' || c == '_' || c == '-' || c == '}' || c == ')' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func TestDocRules(t *testing.T) {
	f := mustParse(t, "a/a.go", `package a
func Bad() {}
// Good does it.
func Good() {}
func (t T) Sibling() {}

func (t T) String() string { return "" }
func (t T) Bad() {}
func (t hidden) Fine() {}
// T is a type.
type T struct{}
const (
	A = 1
	B = 2 // B is two.
)
// Group of two.
var (
	C = 1
	D = 2
)
`)
	expect(t, checkDocs(f), "a/a.go:13: exported const A", "a/a.go:2: exported function Bad", "a/a.go:8: exported function T.Bad")
	expect(t, checkNames(mustParse(t, "a/util/x.go", "package util")), "name it after what it does")
	expect(t, checkASCII(mustParse(t, "a/a.go", "package a\n// \u00b5s\n")), "a/a.go:2: a comment with")
	m := magics(mustParse(t, "a/a.go", "package a\nconst fileMagic = \"RF\\x01N\\x00\"\nvar otherMagic = []byte{0x1f}\nvar plain = 3\n"))
	if len(m) != 2 || m[0].text != "52 46 01 4e" || m[1].text != "0x1f" {
		t.Errorf("magics: %+v", m)
	}
}
