package demo

import (
	"context"
	"crypto/sha256"
	"fmt"

	"refrain/stages/repack"
	"refrain/study/corpus"
)

// maxChars is where a file is cut, at the last line end before it: many
// documents of like size say more about their order than a few huge ones.
const maxChars = 6000

// text is what the demonstration reads.
type text struct {
	Root  string // folder the files are from
	What  string // one line about it
	Docs  []corpus.Doc
	Bytes int64
}

// readCorpus chooses files of root in an order of its own seed until they hold
// at least want bytes, cut at maxChars, without exact duplicates.
func readCorpus(ctx context.Context, root, what string, want int64) (*text, error) {
	names, err := corpus.List(ctx, root)
	if err != nil {
		return nil, err
	}
	c := &text{Root: root, What: what}
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
		b, err := corpus.Read(root, name, maxChars)
		if err != nil {
			return nil, err
		}
		h := sha256.Sum256(b)
		if len(b) < 200 || seen[h] {
			continue
		}
		seen[h] = true
		c.Docs = append(c.Docs, corpus.Doc{Name: name, Text: b})
		c.Bytes += int64(len(b))
	}
	if c.Bytes < want {
		return nil, fmt.Errorf("%s holds %d bytes of usable text in %d files; the demo needs %d", root, c.Bytes, len(c.Docs), want)
	}
	return c, nil
}
