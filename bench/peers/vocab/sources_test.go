package vocab

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// goSources cuts 10 MB of the Go tree into documents of about 8 KB, at newlines.
func goSources(tb testing.TB) (docs [][]byte, total int64) {
	tb.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		tb.Skipf("no Go sources: %v", err)
	}
	var text []byte
	err = filepath.WalkDir(filepath.Join(strings.TrimSpace(string(root)), "src"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		if len(text) >= 10_000_000 {
			return fs.SkipAll
		}
		b, err := os.ReadFile(path)
		text = append(text, b...)
		return err
	})
	if err != nil || len(text) == 0 {
		tb.Skipf("no Go sources: %v", err)
	}
	total = int64(len(text))
	for len(text) > 0 {
		n := min(len(text), 8000)
		if k := bytes.IndexByte(text[n:], '\n'); k >= 0 {
			n += k + 1
		} else {
			n = len(text)
		}
		docs = append(docs, text[:n])
		text = text[n:]
	}
	return docs, total
}
