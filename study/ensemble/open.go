package ensemble

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/model"
	"refrain/store"
)

// opened is a member with its place on the disk.
type opened struct {
	Member
	path string // as it was given
	m    *run.Model
	conf *config.Config // of its run; nil for a checkpoint outside of one
}

// openMember finds the checkpoint of path, verifies all of it, and lets its weights go.
func openMember(ctx context.Context, path string, overrides []string) (*opened, error) {
	m, err := run.Open(ctx, path, overrides)
	if err != nil {
		return nil, fmt.Errorf("member %s: %w", path, err)
	}
	o := &opened{path: path, m: m.Model, conf: m.Conf}
	o.Member = Member{Name: path, Model: m.Config, Weights: func(ctx context.Context) ([]float32, error) {
		w, err := run.ReadWeights(ctx, m.Model)
		if err != nil {
			return nil, fmt.Errorf("member %s: %w", path, err)
		}
		return w, nil
	}}
	return o, nil
}

// openAll opens the members and checks that they belong together.
func openAll(ctx context.Context, r Request) ([]*opened, error) {
	if len(r.Members) == 0 {
		return nil, errors.New("ensemble: there are no members")
	}
	paths, err := run.Expand(r.Members)
	if err != nil {
		return nil, err
	}
	var list []*opened
	for _, path := range paths {
		o, err := openMember(ctx, path, r.Overrides)
		if err != nil {
			return nil, err
		}
		list = append(list, o)
	}
	first := list[0]
	for i, o := range list[1:] {
		if err := together(first, o); err != nil {
			return nil, err
		}
		for _, before := range list[:i+1] {
			if !r.AllowCopies && o.m.Manifest.WeightsHash() == before.m.Manifest.WeightsHash() {
				return nil, dataError("%s has the weights of %s, bit for bit: a copy adds nothing to an ensemble; leave it out, or allow copies", o.path, before.path)
			}
		}
	}
	settings := first.conf
	for _, o := range list {
		if settings == nil {
			settings = o.conf
		}
	}
	if settings == nil {
		return nil, dataError("no member is in a run folder, so there are no settings to evaluate with; name one run, or a checkpoint in RUN/%s", run.CkptDir)
	}
	for _, o := range list {
		conf := o.conf
		if conf == nil {
			conf = settings
		}
		var err error
		if o.Policy, err = model.PolicyOf(conf.Train.Precision); err != nil {
			return nil, fmt.Errorf("member %s: train.precision: %w", o.path, err)
		}
		o.conf = conf
	}
	return list, nil
}

// together refuses members that do not predict the same tokens.
func together(a, b *opened) error {
	if x, y := a.m.Manifest.TokenizerHash, b.m.Manifest.TokenizerHash; x != y {
		return dataError("%s was trained with another tokenizer (hash %.12s) than %s (%.12s); the members of an ensemble need the same", b.path, y, a.path, x)
	}
	if x, y := a.m.Config.Vocab, b.m.Config.Vocab; x != y {
		return dataError("%s has a vocabulary of %d and %s one of %d; the members of an ensemble need the same", b.path, y, a.path, x)
	}
	return nil
}

func dataError(format string, args ...any) error {
	return &run.Error{Code: run.ExitData, Err: fmt.Errorf(format, args...)}
}

// sameSettings refuses members whose rows would differ, and returns what else than seeds
// differs, as a warning.
func sameSettings(list []*opened, r Request) (warnings []string, err error) {
	first := list[0]
	for _, o := range list[1:] {
		for _, c := range config.Diff(first.conf, o.conf) {
			switch c.Key {
			case "data.seq", "data.doc_mask", "data.reset_positions":
				return nil, dataError("%s is %s in %s and %s in %s, so their losses are of different rows; evaluate all of them with %s=...", c.Key, c.A, first.path, c.B, o.path, c.Key)
			case "train.seed", "data.seed", "train.precision":
			case "data.val":
				if r.Val == "" {
					if err := sameStore(first, o); err != nil {
						return nil, err
					}
				}
			default:
				// Members of a chain differ in their teachers on purpose.
				if c.Weights && !(r.Chain && strings.HasPrefix(c.Key, "distill.")) {
					warnings = append(warnings, fmt.Sprintf("%s differs in more than seeds from %s: %s is %s instead of %s", o.path, first.path, c.Key, c.B, c.A))
				}
			}
		}
		// Members of one run are of different steps on purpose.
		if x, y := first.m.Step, o.m.Step; x != y && r.EMA == nil && first.m.Manifest.RunID != o.m.Manifest.RunID {
			warnings = append(warnings, fmt.Sprintf("%s is of step %d and %s of step %d", o.path, y, first.path, x))
		}
		taught := len(first.conf.Distill.Teachers)+len(o.conf.Distill.Teachers) > 0
		if x, y := first.m.Manifest.DataHash, o.m.Manifest.DataHash; x != y && !(r.Chain && taught) {
			what := "on other documents than"
			if taught {
				what = "with other teachers, or on other documents, than"
			}
			warnings = append(warnings, fmt.Sprintf("%s was trained %s %s", o.path, what, first.path))
		}
	}
	return append(warnings, ofOneRun(list, r)...), nil
}

// ofOneRun warns where members are checkpoints of one run: they are no draws of one recipe,
// and what more of them would give is not what a law over their number says.
func ofOneRun(list []*opened, r Request) (warnings []string) {
	for i, o := range list {
		for _, before := range list[:i] {
			if r.EMA == nil && o.m.Manifest.RunID != "" && o.m.Manifest.RunID == before.m.Manifest.RunID {
				return []string{fmt.Sprintf("%s and %s are of one run: later members are better for having learned longer, so the K-curve depends on their order, and its asymptote says nothing about more members", before.m.Path, o.m.Path)}
			}
		}
	}
	return nil
}

// sameStore refuses validation stores that differ.
func sameStore(a, b *opened) error {
	var prints [2][32]byte
	for i, o := range []*opened{a, b} {
		s, err := store.Open(o.conf.Data.Val, store.OpenOptions{})
		if err != nil {
			return dataError("data.val of %s: %w", o.path, err)
		}
		prints[i] = s.Fingerprint()
		if err := s.Close(); err != nil {
			return err
		}
	}
	if prints[0] != prints[1] {
		return dataError("%s validates on %s and %s on %s, which are different documents; name one store for all", a.path, a.conf.Data.Val, b.path, b.conf.Data.Val)
	}
	return nil
}

// openData opens a store that the members can be evaluated on.
func openData(dir string, rows int64, first *opened) (*store.Store, Data, error) {
	s, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		return nil, Data{}, dataError("%w", err)
	}
	fail := func(format string, args ...any) (*store.Store, Data, error) {
		return nil, Data{}, errors.Join(dataError(format, args...), s.Close())
	}
	if x, y := s.Manifest().TokenizerHash, first.m.Manifest.TokenizerHash; x != y {
		return fail("%s was made with another tokenizer (hash %.12s) than the members (%.12s)", dir, x, y)
	}
	if v := first.m.Config.Vocab; s.Vocab() > v {
		return fail("%s has ids up to %d, and the members a vocabulary of %d", dir, s.Vocab()-1, v)
	}
	c := first.conf
	set, err := run.NewValSet(s, c.Data.Seq, rows)
	if err != nil {
		return fail("%s: %w", dir, err)
	}
	return s, Data{Set: set, Docs: set.Docs, NumDocs: set.NumDocs(), T: c.Data.Seq, DocMask: c.Data.DocMask, ResetPositions: c.Data.ResetPositions}, nil
}

// openFit opens the store that weights are fitted on, which may share no document with
// the validation store nor with what a member was trained on. A training store that has
// gone is a warning: it cannot be compared with.
func openFit(r Request, val *store.Store, list []*opened) (*store.Store, Data, []string, error) {
	s, d, err := openData(r.FitOn, 0, list[0])
	if err != nil {
		return nil, d, nil, err
	}
	warnings, err := apart(s, r, val, list)
	if err != nil {
		return nil, d, nil, errors.Join(err, s.Close())
	}
	return s, d, warnings, nil
}

// apart refuses documents to fit on that were seen before.
func apart(s *store.Store, r Request, val *store.Store, list []*opened) (warnings []string, err error) {
	if both := Shared(s, val); both != "" {
		return nil, dataError("the weights would be fitted on documents of the validation: %s; fit on documents of their own", both)
	}
	seen := map[string]bool{}
	for _, o := range list {
		if seen[o.m.Manifest.DataHash] {
			continue
		}
		seen[o.m.Manifest.DataHash] = true
		c := *o.conf
		run.WithoutTraining(&c)
		c.Data.Val = ""
		t, err := run.NewSetup(&c, nil)
		if err != nil {
			warnings = append(warnings, fmt.Sprintf("what %s was trained on cannot be compared with %s: %v", o.path, r.FitOn, err))
			continue
		}
		both := Shared(s, t.Corpus)
		if err := t.Close(); err != nil {
			return nil, err
		}
		if both != "" {
			return nil, dataError("the weights would be fitted on documents that %s was trained on: %s; fit on documents of their own", o.path, both)
		}
	}
	return warnings, nil
}

// seedsOf says in what members differ by their seeds: init, order, or both.
func seedsOf(list []*opened) (varies string) {
	var words []string
	for _, s := range []struct {
		word string
		of   func(c *config.Config) uint64
	}{{"init", func(c *config.Config) uint64 { return c.Train.Seed }}, {"order", func(c *config.Config) uint64 { return *c.Data.Seed }}} {
		for _, o := range list[1:] {
			if s.of(o.conf) != s.of(list[0].conf) {
				words = append(words, s.word)
				break
			}
		}
	}
	return strings.Join(words, " and ")
}

func hashText(b [32]byte) string { return hex.EncodeToString(b[:]) }
