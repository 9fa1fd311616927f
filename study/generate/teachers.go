package generate

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/store"
)

// opened is a teacher with its place on the disk.
type opened struct {
	Teacher
	path     string // as it was given
	m        *run.Model
	conf     *config.Config  // of its run; nil for a checkpoint outside of one
	boundary *store.Boundary // of the documents it was trained on; nil when they are not known
	vocab    int             // ids that these documents may hold
	note     string          // why they are not known
}

// openTeacher finds the checkpoint of path, verifies all of it, and lets its weights go.
func openTeacher(ctx context.Context, path string, overrides []string) (*opened, error) {
	m, err := run.Open(ctx, path, overrides)
	if err != nil {
		return nil, fmt.Errorf("teacher %s: %w", path, err)
	}
	o := &opened{path: path, m: m.Model, conf: m.Conf, vocab: m.Config.Vocab}
	o.Name, o.Model = filepath.Base(m.Path), m.Config
	if m.Run != "" {
		dir, err := filepath.Abs(m.Run) // a run may be named "."
		if err != nil {
			return nil, fmt.Errorf("teacher %s: %w", path, err)
		}
		o.Name = filepath.Base(dir)
	}
	o.Weights = func(ctx context.Context) ([]float32, error) {
		w, err := run.ReadWeights(ctx, m.Model)
		if err != nil {
			return nil, fmt.Errorf("teacher %s: %w", path, err)
		}
		return w, nil
	}
	o.findBoundary()
	return o, nil
}

// findBoundary reads from the store that the teacher was trained on what stands around
// documents. Without it, documents are taken to end as they do unless something else was
// asked for, with the tokenizer's end of text.
func (o *opened) findBoundary() {
	if o.m.Tokenizer != nil {
		o.vocab = min(o.vocab, o.m.Tokenizer.VocabSize())
	}
	why := fmt.Sprintf("%s is not in a run folder, so what it was trained on is not known", o.path)
	if o.conf != nil {
		m, err := store.ReadManifest(fsx.OS{}, o.conf.Data.Store)
		if err == nil && m.TokenizerHash == o.m.Manifest.TokenizerHash {
			o.boundary, o.vocab = &m.Boundary, min(o.vocab, m.Vocab)
			return
		}
		why = fmt.Sprintf("what %s was trained on, %s, cannot be read", o.path, o.conf.Data.Store)
		if err == nil {
			why = fmt.Sprintf("%s, which %s was trained on, has another tokenizer by now", o.conf.Data.Store, o.path)
		}
	}
	if o.m.Tokenizer == nil {
		return
	}
	if eos, ok := o.m.Tokenizer.EOS(); ok {
		o.boundary = &store.Boundary{EOS: &eos}
		o.note = why + "; its documents are taken to end with the end-of-text token of its tokenizer"
	}
}

func dataError(format string, args ...any) error {
	return &run.Error{Code: run.ExitData, Err: fmt.Errorf(format, args...)}
}

// openAll opens the teachers and checks that they belong together.
func openAll(ctx context.Context, paths, overrides []string) (list []*opened, notes []string, err error) {
	if len(paths) == 0 {
		return nil, nil, errors.New("generate: no run was named")
	}
	if paths, err = run.Expand(paths); err != nil {
		return nil, nil, err
	}
	names := map[string]int{}
	for _, path := range paths {
		o, err := openTeacher(ctx, path, overrides)
		if err != nil {
			return nil, nil, err
		}
		if len(list) > 0 {
			if err := together(list[0], o); err != nil {
				return nil, nil, err
			}
		}
		for _, before := range list {
			if before.m.Manifest.WeightsHash() == o.m.Manifest.WeightsHash() {
				notes = append(notes, fmt.Sprintf("%s has the weights of %s, bit for bit: a copy adds nothing", o.path, before.path))
			}
		}
		if o.note != "" {
			notes = append(notes, o.note)
		}
		if o.conf == nil {
			notes = append(notes, fmt.Sprintf("%s is taken to be trained with data.doc_mask true, which is the default", o.path))
		}
		// Runs in different folders may have one name.
		if names[o.Name]++; names[o.Name] > 1 {
			o.Name = fmt.Sprintf("%s (%d)", o.Name, names[o.Name])
		}
		list = append(list, o)
	}
	return list, notes, nil
}

func (o *opened) docMask() bool { return o.conf == nil || o.conf.Data.DocMask }

// longest is the longest document that the teacher was trained for: a row, since positions
// beyond it were never seen.
func (o *opened) longest() int {
	if o.conf == nil {
		return o.Model.MaxT
	}
	return min(o.conf.Data.Seq, o.Model.MaxT)
}

// together refuses teachers that do not write documents of one kind.
func together(a, b *opened) error {
	if x, y := a.m.Manifest.TokenizerHash, b.m.Manifest.TokenizerHash; x != y {
		return dataError("%s was trained with another tokenizer (hash %.12s) than %s (%.12s); the teachers of one store need the same", b.path, y, a.path, x)
	}
	if x, y := a.Model.Vocab, b.Model.Vocab; x != y {
		return dataError("%s has a vocabulary of %d and %s one of %d; the teachers of one store need the same", b.path, y, a.path, x)
	}
	if x, y := boundaryText(a.boundary), boundaryText(b.boundary); x != y {
		return dataError("%s was trained on documents with the boundary ids %s, and %s with %s; the teachers of one store need the same", b.path, y, a.path, x)
	}
	if x, y := a.docMask(), b.docMask(); x != y {
		return dataError("data.doc_mask is %t in %s and %t in %s, so they see a document's beginning differently; generate from runs of one kind, or say data.doc_mask=%t for all", y, b.path, x, a.path, x)
	}
	return nil
}

func boundaryText(b *store.Boundary) string {
	text := func(id *uint32) string {
		if id == nil {
			return "none"
		}
		return fmt.Sprint(*id)
	}
	if b == nil {
		return "bos none, eos none"
	}
	return fmt.Sprintf("bos %s, eos %s", text(b.BOS), text(b.EOS))
}
