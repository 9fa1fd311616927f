// Package corpus finds the text that studies read when nobody names another, and makes
// of it what they train and report on: documents without copies or near copies, in parts
// that share none.
package corpus

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"

	"refrain/pipeline"
	"refrain/stages/item"
)

// Doc is one text.
type Doc struct {
	Name string // of its file, relative to the folder read, with slashes
	Text []byte
}

// Find names the folder to read: dir, or for "" the source tree of the Go installation,
// which everybody who can type "go run" has. what is one line about it. flag is how a
// user names a folder, for the error when there is none.
func Find(ctx context.Context, dir, flag string) (root, what string, err error) {
	if dir != "" {
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			return "", "", fmt.Errorf("%s %s is not a folder that can be read", flag, dir)
		}
		return dir, "text files of " + filepath.Base(dir), nil
	}
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOVERSION").Output()
	if err == nil {
		if f := strings.Fields(string(out)); len(f) == 2 {
			root = filepath.Join(f[0], "src")
			if fi, err := os.Stat(root); err == nil && fi.IsDir() {
				return root, "the Go source tree of " + f[1], nil
			}
		}
	}
	return "", "", fmt.Errorf("the text to read is the Go source tree, and there is none here (asked: go env GOROOT); name a folder of text files with %s DIR", flag)
}

// List returns the files below root that may be documents, in byte order. In a tree with
// Go files it takes those, without what belongs to tests or was copied in.
func List(ctx context.Context, root string) ([]string, error) {
	var goFiles, others []string
	root, err := filepath.EvalSymlinks(root) // a walk does not enter a link
	if err != nil {
		return nil, err
	}
	err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case e.IsDir() && path != root && (e.Name() == "testdata" || e.Name() == "vendor" || strings.HasPrefix(e.Name(), ".")):
			return filepath.SkipDir
		case !e.Type().IsRegular() || strings.HasPrefix(e.Name(), "."):
			return nil
		}
		rel, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if strings.HasSuffix(rel, ".go") {
			goFiles = append(goFiles, rel)
		} else {
			others = append(others, rel)
		}
		return nil
	})
	names := goFiles
	if len(names) == 0 {
		names = others
	}
	slices.Sort(names)
	if err == nil && len(names) == 0 {
		err = fmt.Errorf("%s holds no text files", root)
	}
	return names, err
}

// Read reads one of the files of List and returns the part of it that is used: nothing of
// generated or binary files, no licence header, at most most bytes up to a line end.
func Read(root, name string, most int) ([]byte, error) {
	b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	return clean(b, most), nil
}

func clean(b []byte, most int) []byte {
	head := b[:min(len(b), 1024)]
	if !utf8.Valid(b) || bytes.IndexByte(b, 0) >= 0 || bytes.Contains(head, []byte("Code generated ")) {
		return nil
	}
	for bytes.HasPrefix(b, []byte("// ")) { // the copyright lines at the top
		_, rest, ok := bytes.Cut(b, []byte("\n"))
		if !ok {
			return nil
		}
		b = rest
	}
	b = bytes.TrimLeft(b, "\r\n")
	if len(b) > most {
		b = b[:bytes.LastIndexByte(b[:most], '\n')+1]
	}
	return b
}

// blockBytes is how much text goes to an ingest at once.
const blockBytes = 256 << 10

// Source gives documents to an ingest, in their order.
func Source(docs []Doc) pipeline.Stage[struct{}, *item.Docs] {
	return pipeline.StageFunc[struct{}, *item.Docs](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*item.Docs]) error {
		if len(docs) == 0 {
			return errors.New("there are no documents")
		}
		block := &item.Docs{}
		for i, d := range docs {
			block.Docs = append(block.Docs, item.Doc{ID: uint64(i), Source: d.Name, Text: d.Text})
			block.Bytes += int64(len(d.Text))
			if block.Bytes < blockBytes && i < len(docs)-1 {
				continue
			}
			if err := out.Send(ctx, block); err != nil {
				return err
			}
			block = &item.Docs{Seq: block.Seq + 1}
		}
		return nil
	})
}

// Digest identifies documents and their order; hexadecimal.
func Digest(docs []Doc) string {
	h := sha256.New()
	for _, d := range docs {
		fmt.Fprintf(h, "%s %d\n", d.Name, len(d.Text))
		h.Write(d.Text)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
