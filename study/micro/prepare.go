package micro

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/stages/tokens"
	"refrain/store"
	"refrain/study/corpus"
	"refrain/tokenize"
)

// GoCorpus is the name of the corpus that needs no folder: the sources of the Go
// installation.
const GoCorpus = "go"

// Names of the stores of a corpus, and of its splits.
const (
	trainStore = "train"
	valStore   = "val"  // recipes are chosen on it
	testStore  = "test" // what is reported is measured on it
	fitStore   = "fit"  // weights of ensemble members are fitted on it
	corpusFile = "corpus.json"
)

// seeds of the choice of files and of the splits.
const (
	chooseSeed = 1
	splitSeed  = 1
)

// prepared is what corpusFile holds.
type prepared struct {
	Corpus
	Made string `json:"made"` // how: a folder made in another way is refused
}

// corpusName is the name of a corpus that was asked for as a folder or a name.
func corpusName(arg string) (name, dir string, err error) {
	if arg == "" || arg == GoCorpus {
		return GoCorpus, "", nil
	}
	if fi, err := os.Stat(arg); err != nil || !fi.IsDir() {
		hint := "a corpus is the word go or a folder of text files"
		if arg == "prose" {
			hint = "make the folder with: sh bench/corpora/prose.sh FOLDER"
		}
		return "", "", fmt.Errorf("there is no folder %s; %s", arg, hint)
	}
	abs, err := filepath.Abs(arg)
	if err != nil {
		return "", "", err
	}
	name = strings.Map(func(c rune) rune {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' {
			return c
		}
		return '-'
	}, filepath.Base(abs))
	if name == GoCorpus {
		name += "-folder"
	}
	return name, arg, nil
}

// prepare makes the stores of a corpus in dir, or finds them there; text that has changed
// since is not looked at again.
func (w *work) prepare(ctx context.Context, arg string) (*Corpus, error) {
	name, folder, err := corpusName(arg)
	if err != nil {
		return nil, &run.Error{Code: run.ExitUsage, Err: err}
	}
	t := &w.form.text
	made := fmt.Sprintf("vocab %d seq %d unique %d pools %d most %d splits %d %d %d of %d seeds %d %d", t.vocab, t.seq, t.unique, t.pools, t.most, t.val, t.test, t.fit, t.bytes, chooseSeed, splitSeed)
	dir := w.path(corporaDir, name)
	file := filepath.Join(dir, corpusFile)
	if there, err := fsx.Exists(fsx.OS{}, file); err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: err}
	} else if there {
		b, err := fsx.ReadFile(fsx.OS{}, file, maxResultsBytes)
		if err != nil {
			return nil, &run.Error{Code: run.ExitDisk, Err: err}
		}
		var p prepared
		if err := json.Unmarshal(b, &p); err != nil {
			return nil, &run.Error{Code: run.ExitData, Err: fmt.Errorf("%s: %w; delete the folder %s, and it is made again", file, err, dir)}
		}
		if p.Made != made {
			return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s was made by another version of the study (%s; this one makes %s): choose another -o", dir, p.Made, made)}
		}
		return &p.Corpus, nil
	}
	c, err := w.makeCorpus(ctx, name, folder, dir)
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(prepared{*c, made})
	if err != nil {
		return nil, err
	}
	if err := fsx.WriteFileAtomic(fsx.OS{}, file, append(b, '\n')); err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: err}
	}
	return c, nil
}

func (w *work) makeCorpus(ctx context.Context, name, folder, dir string) (*Corpus, error) {
	t := &w.form.text
	root, what, err := corpus.Find(ctx, folder, "--corpus")
	if err != nil {
		return nil, &run.Error{Code: run.ExitUsage, Err: err}
	}
	chosen, err := corpus.Choose(ctx, root, corpus.Choice{Bytes: t.bytes, Most: t.most, Least: leastBytes, Seed: chooseSeed})
	if err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: err}
	}
	parts, err := corpus.Split(chosen.Docs, []int64{t.val, t.test, t.fit}, splitSeed)
	if err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: err}
	}
	c := &Corpus{
		Name: name, What: what, Digest: corpus.Digest(chosen.Docs), Files: chosen.Files, Short: chosen.Short, Copies: chosen.Copies, NearCopies: chosen.NearCopies,
		Pools: t.pools, Unique: t.unique, Vocab: t.vocab,
	}
	w.o.Say("corpus     %s: %d documents of %d files (%d copies and %d near copies left out, %d too short, generated or binary)", what, len(chosen.Docs), c.Files, c.Copies, c.NearCopies, c.Short)
	train := parts[len(parts)-1]
	tok, err := tokenize.Train(ctx, tokenize.TrainConfig{Vocab: t.vocab, Workers: runtime.GOMAXPROCS(0)}, func(yield func([]byte, error) bool) {
		for _, d := range train {
			if !yield(d.Text, nil) {
				return
			}
		}
	})
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	for i, part := range []string{valStore, testStore, fitStore, trainStore} {
		m, err := makeStore(ctx, filepath.Join(dir, part), parts[i], tok)
		if err != nil {
			return nil, fmt.Errorf("store %s: %w", part, err)
		}
		c.Splits = append(c.Splits, Part{part, int64(m.Documents), m.Tokens})
	}
	if err := c.checkPools(filepath.Join(dir, trainStore), t); err != nil {
		return nil, err
	}
	c.TestTokens, err = scored(filepath.Join(dir, testStore), t.seq)
	return c, err
}

// leastBytes is below what a document has to say.
const leastBytes = 200

func makeStore(ctx context.Context, out string, docs []corpus.Doc, tok *tokenize.Tokenizer) (*store.Manifest, error) {
	r, err := tokens.Prepare(ctx, tokens.PrepareConfig{
		Out: out, Source: corpus.Source(docs), Tokenizer: tok, Workers: runtime.GOMAXPROCS(0), CacheBytes: 4 << 20,
		Fingerprint: func(context.Context) (tokens.Fingerprint, error) {
			return tokens.Fingerprint{Digest: corpus.Digest(docs)}, nil
		},
	})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(out, "tokenizer.json")
	if there, err := fsx.Exists(fsx.OS{}, path); there || err != nil {
		return r.Store, err
	}
	var b bytes.Buffer
	if err := tok.WriteJSON(&b); err != nil {
		return nil, err
	}
	return r.Store, fsx.WriteFileAtomic(fsx.OS{}, path, b.Bytes())
}

// checkPools makes sure that every pool has the tokens that are trained on.
func (c *Corpus) checkPools(dir string, t *text) (err error) {
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if s.NumTokens() < t.unique*int64(t.pools) {
		return &run.Error{Code: run.ExitData, Err: fmt.Errorf("the training documents of %s have %d tokens; %d pools of %d need %d", c.What, s.NumTokens(), t.pools, t.unique, t.unique*int64(t.pools))}
	}
	return nil
}

// scored counts the targets of every document of a store of validation rows.
func scored(dir string, seq int) (list []int64, err error) {
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	set, err := run.NewValSet(s, seq, 0)
	if err != nil {
		return nil, err
	}
	list = make([]int64, set.NumDocs())
	in, targets, starts := make([]int32, seq), make([]int32, seq), make([]byte, (seq+7)/8)
	for row := range set.Rows() {
		if _, err := set.ReadRow(row, in, targets, starts); err != nil {
			return nil, err
		}
		set.Docs(row, func(doc, from, to int) {
			for _, x := range targets[from:to] {
				if x >= 0 {
					list[doc]++
				}
			}
		})
	}
	return list, nil
}
