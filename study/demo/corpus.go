package demo

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
	"refrain/stages/repack"
)

// maxChars is where a file is cut, at the last line end before it: many
// documents of like size say more about their order than a few huge ones.
const maxChars = 6000

// corpus is the text of the demonstration.
type corpus struct {
	Root  string // folder the files are from
	What  string // one line about it
	Docs  []doc
	Bytes int64
}

type doc struct {
	name string // relative to Root, with slashes
	text []byte
}

// findCorpus names the folder to read: dir, or the source tree of the Go
// installation, which everybody who can type "go run" has.
func findCorpus(ctx context.Context, dir string) (root, what string, err error) {
	if dir != "" {
		if fi, err := os.Stat(dir); err != nil || !fi.IsDir() {
			return "", "", fmt.Errorf("--corpus %s is not a folder that can be read", dir)
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
	return "", "", errors.New("the demo reads the Go source tree, and there is none here (asked: go env GOROOT); name a folder of text files with --corpus DIR")
}

// readCorpus chooses files of root in an order of its own seed until they hold
// at least want bytes, cut at maxChars, without exact duplicates. In a tree
// with Go files it takes those, without tests' data and generated code.
func readCorpus(ctx context.Context, root, what string, want int64) (*corpus, error) {
	names, err := listFiles(ctx, root)
	if err != nil {
		return nil, err
	}
	if len(names) == 0 {
		return nil, fmt.Errorf("%s holds no text files", root)
	}
	c := &corpus{Root: root, What: what}
	seen := map[[32]byte]bool{}
	order := repack.NewPRP(uint64(len(names)), repack.NewKey("demo files", 1, 0))
	for i := range uint64(len(names)) {
		if c.Bytes >= want {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := names[order.At(i)]
		b, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
		if err != nil {
			return nil, err
		}
		text := prepare(b)
		h := sha256.Sum256(text)
		if len(text) < 200 || seen[h] {
			continue
		}
		seen[h] = true
		c.Docs = append(c.Docs, doc{name, text})
		c.Bytes += int64(len(text))
	}
	if c.Bytes < want {
		return nil, fmt.Errorf("%s holds %d bytes of usable text in %d files; the demo needs %d", root, c.Bytes, len(c.Docs), want)
	}
	return c, nil
}

// listFiles returns the candidates below root, in byte order.
func listFiles(ctx context.Context, root string) ([]string, error) {
	var goFiles, others []string
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
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
	return names, err
}

// prepare returns the part of a file that is used: nothing of generated or
// binary files, no licence header, at most maxChars bytes up to a line end.
func prepare(b []byte) []byte {
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
	if len(b) > maxChars {
		b = b[:bytes.LastIndexByte(b[:maxChars], '\n')+1]
	}
	return b
}

// source gives the documents to an ingest.
func (c *corpus) source() pipeline.Stage[struct{}, *item.Docs] {
	return pipeline.StageFunc[struct{}, *item.Docs](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*item.Docs]) error {
		block := &item.Docs{}
		for i, d := range c.Docs {
			block.Docs = append(block.Docs, item.Doc{ID: uint64(i), Source: d.name, Text: d.text})
			block.Bytes += int64(len(d.text))
			if block.Bytes < 256<<10 && i < len(c.Docs)-1 {
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

// digest identifies the chosen text.
func (c *corpus) digest() string {
	h := sha256.New()
	for _, d := range c.Docs {
		fmt.Fprintf(h, "%s %d\n", d.name, len(d.text))
		h.Write(d.text)
	}
	return fmt.Sprintf("%x", h.Sum(nil))
}
