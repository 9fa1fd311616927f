package house

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "refrain"

// file is one parsed Go file.
type file struct {
	rel       string // slash path from the root of the repository
	room      string // its folder; "." for the root
	test      bool
	generated bool
	nested    bool // belongs to another module of this repository (generators, peers)
	src       []byte
	fset      *token.FileSet
	ast       *ast.File
}

// at words the place of a node.
func (f *file) at(n ast.Node) string {
	return fmt.Sprintf("%s:%d", f.rel, f.fset.Position(n.Pos()).Line)
}

// parseFile parses src as the file rel.
func parseFile(rel string, src []byte) (*file, error) {
	f := &file{rel: rel, room: path.Dir(rel), src: src, fset: token.NewFileSet(), test: strings.HasSuffix(rel, "_test.go")}
	var err error
	if f.ast, err = parser.ParseFile(f.fset, rel, src, parser.ParseComments); err != nil {
		return nil, err
	}
	f.generated = ast.IsGenerated(f.ast)
	return f, nil
}

// root returns the folder of go.mod.
func root() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		text, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && bytes.HasPrefix(text, []byte("module "+module+"\n")) {
			return dir, nil
		}
		up := filepath.Dir(dir)
		if up == dir {
			return "", errors.New("no go.mod of module " + module + " above the working directory")
		}
		dir = up
	}
}

// tree is every Go file of the repository, in the order of their paths.
type tree struct {
	root  string
	files []*file
	texts map[string][]byte // other text files: documents, scripts, assembly
}

var loadTree = sync.OnceValues(func() (*tree, error) {
	dir, err := root()
	if err != nil {
		return nil, err
	}
	t := &tree{root: dir, texts: map[string][]byte{}}
	err = filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // a temporary file of someone's editor
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		name := d.Name()
		if d.IsDir() {
			if name == ".git" || name == ".env" || name == ".cuda" || name == "testdata" || name == "node_modules" || rel == "bin" {
				return fs.SkipDir
			}
			return nil
		}
		return t.add(p, rel)
	})
	return t, err
})

// add reads one file.
func (t *tree) add(p, rel string) error {
	switch path.Ext(rel) {
	case ".go":
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		f, err := parseFile(rel, src)
		if err != nil {
			return err
		}
		f.nested = t.inOtherModule(rel)
		t.files = append(t.files, f)
	case ".md", ".s", ".sh", ".py", ".yaml", ".yml", ".mod", "", ".txt", ".cu", ".h", ".cpp":
		st, err := os.Lstat(p)
		if err != nil || !st.Mode().IsRegular() || st.Size() > 4<<20 {
			return err
		}
		src, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		if !bytes.Contains(src, []byte{0}) { // not a binary
			t.texts[rel] = src
		}
	}
	return nil
}

// inOtherModule reports whether a folder between the file and the root is
// skipped by the go command or has a go.mod of its own.
func (t *tree) inOtherModule(rel string) bool {
	for dir := path.Dir(rel); dir != "."; dir = path.Dir(dir) {
		base := path.Base(dir)
		if strings.HasPrefix(base, "_") || strings.HasPrefix(base, ".") {
			return true
		}
		if _, err := os.Stat(filepath.Join(t.root, filepath.FromSlash(dir), "go.mod")); err == nil {
			return true
		}
	}
	return false
}

// load returns the tree or fails the test.
func load(t *testing.T) *tree {
	t.Helper()
	tr, err := loadTree()
	if err != nil {
		t.Fatal(err)
	}
	if len(tr.files) < 10 {
		t.Fatalf("only %d Go files found below %s; is the walk broken?", len(tr.files), tr.root)
	}
	return tr
}

// product calls visit for the files of the main module that are not tests.
func (t *tree) product(visit func(f *file)) {
	for _, f := range t.files {
		if !f.test && !f.nested {
			visit(f)
		}
	}
}

// report fails t with every complaint, sorted.
func report(t *testing.T, complaints []string) {
	t.Helper()
	slices.Sort(complaints)
	for _, c := range complaints {
		t.Error(c)
	}
}

// under reports whether room is dir or lies below it.
func under(room, dir string) bool { return room == dir || strings.HasPrefix(room, dir+"/") }

// mustParse parses a snippet for the tests of the rules themselves.
func mustParse(t *testing.T, rel, src string) *file {
	t.Helper()
	f, err := parseFile(rel, []byte(src))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// expect fails t unless the complaints are as many as want and each holds its
// text, in order.
func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	slices.Sort(got)
	ok := len(got) == len(want)
	for i := 0; ok && i < len(want); i++ {
		ok = strings.Contains(got[i], want[i])
	}
	if !ok {
		t.Errorf("complaints:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
