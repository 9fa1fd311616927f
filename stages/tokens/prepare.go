package tokens

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"refrain/internal/fsx"
	"refrain/pipeline"
	"refrain/stages/item"
	"refrain/store"
	"refrain/tokenize"
)

// ValDir and TokenizerName are what Prepare puts into the folder beside the
// training documents.
const (
	ValDir        = "val"
	TokenizerName = "tokenizer.json"
)

// Progress is how far an ingest has come. Rates are the caller's, who has a clock.
type Progress struct {
	Docs   int64 // read, whether kept or not
	Bytes  int64 // text
	Tokens int64 // written, boundary ids included
}

// PrepareConfig describes an ingest. Out, Source and Tokenizer are required.
type PrepareConfig struct {
	Out       string
	Source    pipeline.Stage[struct{}, *item.Docs]
	Tokenizer *tokenize.Tokenizer
	// Boundary is used when not nil; otherwise DefaultBoundary.
	Boundary *store.Boundary
	Val      Val
	Workers  int // encoders; at least 1. The bytes written do not depend on it
	// CacheBytes is the size of each encoder's word cache.
	CacheBytes int

	// Fingerprint, when not nil, says what the inputs hold. With it, an ingest whose
	// store is there already, made from the same inputs by the same tokenizer and
	// policies, does nothing. It is asked before anything else when Out is there, and
	// otherwise after the source has ended, which by then may know the answer.
	Fingerprint func(context.Context) (Fingerprint, error)
	// Policies, such as what happens to invalid UTF-8, are written to the manifest and
	// take part in the key.
	Policies map[string]string
	// Counts, when not nil, is asked after the source has ended what it left out,
	// by reason.
	Counts func() map[string]int64

	// Progress, when not nil, is called after every block on the goroutine that
	// writes. It must be quick.
	Progress func(Progress)
	// FS is where the store is written; nil is the operating system's.
	FS fsx.FS
}

// Fingerprint identifies the content of the inputs.
type Fingerprint struct {
	Digest string        // "" when it cannot be known: the store is then never found again
	Inputs []store.Input // for the manifest
}

// Result is what an ingest made or found.
type Result struct {
	Store  *store.Manifest
	Val    *store.Manifest // nil without validation documents
	Cached bool            // the store was there already
	Stats  []pipeline.StageStats
}

func (c *PrepareConfig) fill() error {
	var errs []error
	if c.Out == "" || c.Source == nil || c.Tokenizer == nil {
		errs = append(errs, errors.New("prepare needs an output folder, a source and a tokenizer"))
	}
	if c.Workers < 1 {
		errs = append(errs, fmt.Errorf("prepare with %d workers; use at least 1", c.Workers))
	}
	errs = append(errs, c.Val.validate())
	if t := c.Tokenizer; t != nil {
		if n := t.MissingBytes(); n > 0 {
			errs = append(errs, fmt.Errorf("the tokenizer has no token for %d of the 256 bytes and would drop text", n))
		}
		if c.Boundary == nil {
			b, err := DefaultBoundary(t)
			c.Boundary = &b
			errs = append(errs, err)
		}
	}
	if c.FS == nil {
		c.FS = fsx.OS{}
	}
	return errors.Join(errs...)
}

// key is the SHA-256 of everything that decides the bytes of the store, "" when
// the inputs have no digest, beside what is known of the inputs.
func (c *PrepareConfig) key(ctx context.Context) (string, Fingerprint, error) {
	if c.Fingerprint == nil {
		return "", Fingerprint{}, nil
	}
	fp, err := c.Fingerprint(ctx)
	if err != nil || fp.Digest == "" {
		return "", fp, err
	}
	hash := c.Tokenizer.Hash()
	b, err := json.Marshal(struct {
		Version   int               `json:"version"`
		Inputs    string            `json:"inputs"`
		Tokenizer string            `json:"tokenizer"`
		Boundary  store.Boundary    `json:"boundary"`
		Val       string            `json:"val"`
		Policies  map[string]string `json:"policies"`
	}{1, fp.Digest, hex.EncodeToString(hash[:]), *c.Boundary, c.Val.String(), c.Policies})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), fp, err
}

// Prepare runs source, encoders and writers in one pipeline and leaves the folder
// c.Out: the training store, tokenizer.json, and the store val when c.Val asks for
// documents. It appears whole, by one rename, or not at all. When c.Out is there
// already, Prepare returns it if its key is the same and an error wrapping
// fs.ErrExist otherwise.
//
// It blocks until the ingest ends, fails, or ctx is done.
func Prepare(ctx context.Context, c PrepareConfig) (*Result, error) {
	if err := c.fill(); err != nil {
		return nil, err
	}
	if r, err := c.cached(ctx); r != nil || err != nil {
		return r, err
	}
	out := filepath.Clean(c.Out)
	tmp, lock, err := store.Partial(c.FS, out)
	if err != nil {
		return nil, err
	}
	r, err := c.fillFolder(ctx, tmp)
	if err != nil {
		if rmErr := store.AbandonPartial(c.FS, tmp, lock); rmErr != nil {
			err = fmt.Errorf("%w (and its unfinished folder stays: %v)", err, rmErr)
		}
		return nil, err
	}
	if err := store.CommitPartial(c.FS, tmp, out, lock); err != nil {
		return nil, err
	}
	return r, nil
}

// cached returns the store at c.Out when it is the one that is asked for.
func (c *PrepareConfig) cached(ctx context.Context) (*Result, error) {
	taken, err := fsx.Exists(c.FS, c.Out)
	if err != nil || !taken {
		return nil, err
	}
	key, _, err := c.key(ctx)
	if err != nil {
		return nil, err
	}
	exists := func(why string) error {
		return fmt.Errorf("%s: %w and %s; remove it or choose another folder", c.Out, fs.ErrExist, why)
	}
	m, err := store.ReadManifest(c.FS, c.Out)
	if err != nil {
		return nil, exists(fmt.Sprintf("is no store that can be used (%v)", err))
	}
	if key == "" || m.Key != key {
		return nil, exists("was made from other inputs, another tokenizer or other policies")
	}
	r := &Result{Store: m, Cached: true}
	if c.Val.some() {
		if r.Val, err = store.ReadManifest(c.FS, filepath.Join(c.Out, ValDir)); err != nil {
			return nil, exists(fmt.Sprintf("its validation store cannot be used (%v)", err))
		}
	}
	return r, nil
}

// fillFolder writes everything into tmp.
func (c *PrepareConfig) fillFolder(ctx context.Context, tmp string) (*Result, error) {
	hash := c.Tokenizer.Hash()
	meta := func(side string) store.Meta {
		policies := map[string]string{"validation": c.Val.String(), "documents": side}
		for k, v := range c.Policies {
			policies[k] = v
		}
		return store.Meta{
			Vocab: c.Tokenizer.VocabSize(), TokenizerHash: hex.EncodeToString(hash[:]), Boundary: *c.Boundary,
			Policies: policies,
		}
	}
	s := &splitter{val: c.Val, room: maxHeld, countText: c.textBytes}
	var err error
	if s.trainTo, err = store.NewWriter(c.FS, tmp, meta("training")); err != nil {
		return nil, err
	}
	defer s.trainTo.Abort() // closes an open shard; the folder is the caller's
	if c.Val.some() {
		valDir := filepath.Join(tmp, ValDir)
		if err := c.FS.Mkdir(valDir, fsx.DirPerm); err != nil {
			return nil, err
		}
		if s.valTo, err = store.NewWriter(c.FS, valDir, meta("validation")); err != nil {
			return nil, err
		}
		defer s.valTo.Abort()
	}
	w := &writing{c: c, split: s, width: store.DTypeFor(c.Tokenizer.VocabSize()).Size(), used: pipeline.NewSpare(window(c.Workers)+blocksPerWorker*c.Workers, maxSpare)}
	stats, err := w.run(ctx)
	if err != nil {
		return nil, err
	}
	key, fp, err := c.key(ctx)
	if err != nil {
		return nil, err
	}
	for _, to := range []*store.Writer{s.trainTo, s.valTo} {
		if to != nil {
			to.Meta().Key, to.Meta().Inputs = key, fp.Inputs
		}
	}
	counts := map[string]int64{"no_text": w.empty}
	if c.Counts != nil {
		for k, n := range c.Counts() {
			counts[k] += n
		}
	}
	r := &Result{Stats: stats}
	s.trainTo.Meta().Counts, s.trainTo.Meta().TextBytes = counts, w.progress.Bytes-s.valBytes
	if s.valTo != nil {
		s.valTo.Meta().Counts, s.valTo.Meta().TextBytes = counts, s.valBytes
		if r.Val, err = s.valTo.Close(ctx); err != nil {
			return nil, err
		}
	}
	var tok bytes.Buffer
	if err := c.Tokenizer.WriteJSON(&tok); err != nil {
		return nil, err
	}
	if err := fsx.WriteFile(c.FS, filepath.Join(tmp, TokenizerName), tok.Bytes()); err != nil {
		return nil, err
	}
	// The training manifest comes last: until then the folder is not a store.
	r.Store, err = s.trainTo.Close(ctx)
	return r, err
}

// textBytes is the length of the text behind packed ids: boundary ids have none.
func (c *PrepareConfig) textBytes(packed []byte) int64 {
	size := store.DTypeFor(c.Tokenizer.VocabSize()).Size()
	if c.Boundary.BOS != nil {
		packed = packed[size:]
	}
	if c.Boundary.EOS != nil {
		packed = packed[:len(packed)-size]
	}
	var n int64
	for id := range store.Unpack(packed, c.Tokenizer.VocabSize()) {
		b, _ := c.Tokenizer.TokenBytes(id)
		n += int64(len(b))
	}
	return n
}

// writing is the last stage.
type writing struct {
	c        *PrepareConfig
	split    *splitter
	used     *pipeline.Spare
	width    int // bytes of an id
	progress Progress
	empty    int64
}

// Blocks hold 64 KiB of text or more, little enough that their ids stay in the caches
// between encoder and writer; these bounds keep the workers fed and the
// memory of both links below 100 MB whatever a block holds.
const (
	blocksPerWorker = 8
	linkBytes       = 48 << 20
)

func (w *writing) run(ctx context.Context) ([]pipeline.StageStats, error) {
	p := pipeline.New()
	link := pipeline.LinkConfig{Items: blocksPerWorker * w.c.Workers, Bytes: linkBytes}
	docs := pipeline.Source(p, "shards", link, w.c.Source)
	toks := pipeline.Then(p, "tokens", docs, link,
		encodeWith(w.c.Tokenizer, *w.c.Boundary, w.c.Workers, w.c.CacheBytes, w.used))
	pipeline.Sink(p, "store", toks, pipeline.StageFunc[*item.Tokens, struct{}](w.write))
	if err := p.Run(ctx); err != nil {
		return nil, err
	}
	return p.Stats(), w.split.finish()
}

func (w *writing) write(ctx context.Context, in pipeline.In[*item.Tokens], _ pipeline.Out[struct{}]) error {
	for t, err := range pipeline.Each(ctx, in) {
		if err != nil {
			return err
		}
		from := 0
		for i, end := range t.Ends {
			d := document{id: t.DocIDs[i], source: t.Sources[i], hash: t.Hashes[i], ids: t.IDs[from:end]}
			from = end
			w.progress.Docs++
			if len(d.ids) == 0 {
				w.empty++
				continue
			}
			pipeline.AtIndex(ctx, d.source+", document", int64(d.id))
			if err := w.split.add(d); err != nil {
				return err
			}
		}
		w.progress.Bytes += t.Bytes
		w.progress.Tokens += int64(len(t.IDs) / w.width)
		w.used.Put(t.IDs) // nothing written refers to them
		if w.c.Progress != nil {
			w.c.Progress(w.progress)
		}
	}
	return nil
}
