package corpus

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"slices"

	"refrain/stages/repack"
)

// Choice says which documents of a folder are taken.
type Choice struct {
	Bytes int64  // as soon as they hold this much, no more is read
	Most  int    // bytes of a document; see Read
	Least int    // shorter documents are left out
	Seed  uint64 // of the order in which files are tried
}

// Chosen are documents without copies and near copies, in an order of their own seed.
type Chosen struct {
	Docs       []Doc
	Bytes      int64
	Files      int // that were tried
	Short      int // left out: too short, generated or binary
	Copies     int
	NearCopies int
}

// Choose reads files of root in an order of the choice's seed until there is enough. It
// fails when the folder does not hold that much.
func Choose(ctx context.Context, root string, c Choice) (*Chosen, error) {
	names, err := List(ctx, root)
	if err != nil {
		return nil, err
	}
	var sieve Sieve
	out := &Chosen{}
	order := repack.NewPRP(uint64(len(names)), repack.NewKey("corpus files", c.Seed, 0))
	for i := range uint64(len(names)) {
		if out.Bytes >= c.Bytes {
			break
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		name := names[order.At(i)]
		b, err := Read(root, name, c.Most)
		if err != nil {
			return nil, err
		}
		out.Files++
		if len(b) < c.Least {
			out.Short++
			continue
		}
		if sieve.Keep(b) {
			out.Docs = append(out.Docs, Doc{name, b})
			out.Bytes += int64(len(b))
		}
	}
	out.Copies, out.NearCopies = sieve.Copies, sieve.NearCopies
	if out.Bytes < c.Bytes {
		return nil, fmt.Errorf("%s holds %d bytes of usable text in %d of %d files (%d are too short, generated or binary, %d copies, %d near copies); %d bytes are needed",
			root, out.Bytes, len(out.Docs), out.Files, out.Short, out.Copies, out.NearCopies, c.Bytes)
	}
	return out, nil
}

// Split deals documents out to parts of at least so many bytes each, in the order of a
// hash of their texts and the seed; what is left is the last part. So which part a
// document is in does not depend on its name or on which others there are, but for those
// at a border. It fails when nothing is left.
func Split(docs []Doc, bytes []int64, seed uint64) ([][]Doc, error) {
	type dealt struct {
		hash uint64
		doc  Doc
	}
	var list []dealt
	for _, d := range docs {
		h := sha256.New()
		fmt.Fprintf(h, "corpus split %d\n", seed)
		h.Write(d.Text)
		list = append(list, dealt{binary.LittleEndian.Uint64(h.Sum(nil)), d})
	}
	slices.SortStableFunc(list, func(a, b dealt) int { return cmp.Compare(a.hash, b.hash) })
	parts := make([][]Doc, len(bytes)+1)
	at := 0
	for i, want := range bytes {
		for have := int64(0); have < want && at < len(list); at++ {
			parts[i] = append(parts[i], list[at].doc)
			have += int64(len(list[at].doc.Text))
		}
	}
	for ; at < len(list); at++ {
		parts[len(bytes)] = append(parts[len(bytes)], list[at].doc)
	}
	if len(parts[len(bytes)]) == 0 {
		return nil, fmt.Errorf("%d documents are too few for %d parts and a rest", len(docs), len(bytes))
	}
	return parts, nil
}
