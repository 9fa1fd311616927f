package micro

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"refrain/internal/fsx"
	"refrain/internal/par"
	"refrain/internal/run"
	"refrain/store"
	"refrain/study/ensemble"
	"refrain/study/generate"
)

// cached returns what the file of that name holds, or what make gives, which it then
// keeps there: a measurement is made once whatever happens.
func cached[T any](path string, make func() (*T, error)) (*T, error) {
	there, err := fsx.Exists(fsx.OS{}, path)
	if err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: err}
	}
	if there {
		v := new(T)
		b, err := fsx.ReadFile(fsx.OS{}, path, maxResultsBytes)
		if err == nil {
			err = json.Unmarshal(b, v)
		}
		if err != nil {
			return nil, &run.Error{Code: run.ExitData, Err: fmt.Errorf("measurement %s: %w; delete it, and it is made again", path, err)}
		}
		return v, nil
	}
	v, err := make()
	if err != nil {
		return nil, err
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if err := fsx.WriteFileAtomic(fsx.OS{}, path, append(b, '\n')); err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: err}
	}
	return v, nil
}

// measured is an ensemble without its point.
type measured struct {
	Val      []float64   `json:"val"`
	Logit    [][]float64 `json:"logit"`
	Prob     [][]float64 `json:"prob"`
	Weights  []float64   `json:"weights"`
	Weighted []float64   `json:"weighted"`
}

// ensembleOf measures an ensemble. Members that did not train well make one without
// losses.
func (w *work) ensembleOf(ctx context.Context, e wantEnsemble, threads int) (*Ensemble, error) {
	out := &Ensemble{Point: e.Point}
	h := sha256.New()
	fmt.Fprintf(h, "micro ensemble 1 weights %v\n", e.Weights)
	var members []*Model
	for seed := range uint64(e.Members) {
		m := w.r.model(e.Point, seed)
		if !m.well() {
			return out, nil
		}
		members = append(members, m)
		out.Seeds = append(out.Seeds, seed)
		fmt.Fprintf(h, "%s\n", m.Run)
	}
	v, err := cached(w.path(ensemblesDir, fmt.Sprintf("%x.json", h.Sum(nil)[:12])), func() (*measured, error) {
		w.o.Say("ensemble   %d members of %s on pool %d of %s", e.Members, e.Label(), e.Pool, e.Corpus)
		return w.measure(ctx, members, e.Weights, threads)
	})
	if err != nil {
		return nil, err
	}
	out.Val, out.Logit, out.Prob, out.Weights, out.Weighted = v.Val, v.Logit, v.Prob, v.Weights, v.Weighted
	return out, nil
}

func (w *work) measure(ctx context.Context, members []*Model, weights bool, threads int) (v *measured, err error) {
	devs, err := run.OpenDevices(1, threads, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, devs.Close()) }()
	pool := par.New(threads)
	defer pool.Close()
	o := ensemble.Options{Device: devs[0], Pool: pool, Rows: evalRows}
	var list []ensemble.Member
	for _, m := range members {
		x, err := w.member(ctx, m)
		if err != nil {
			return nil, err
		}
		list = append(list, x)
	}
	on := func(split string, o ensemble.Options) (*ensemble.Losses, error) {
		var l *ensemble.Losses
		err := w.withData(members[0].Corpus, split, func(d ensemble.Data) (err error) {
			l, err = ensemble.Evaluate(ctx, o, list, d)
			return err
		})
		return l, err
	}
	l, err := on(valStore, o)
	if err != nil {
		return nil, err
	}
	v = &measured{}
	for _, t := range l.Logit {
		v.Val = append(v.Val, t.Loss)
	}
	if weights {
		err := w.withData(members[0].Corpus, fitStore, func(d ensemble.Data) error {
			f, err := ensemble.FitWeights(ctx, o, list, d)
			if err == nil {
				v.Weights, o.Weights = f.Weights, f.Weights
			}
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	if l, err = on(testStore, o); err != nil {
		return nil, err
	}
	for k := range l.Logit {
		v.Logit, v.Prob = append(v.Logit, docsOf(l.Logit[k])), append(v.Prob, docsOf(l.Prob[k]))
	}
	if weights {
		v.Weighted = docsOf(l.Weighted)
	}
	return v, nil
}

func docsOf(t *ensemble.Tally) []float64 {
	var docs []float64
	for _, d := range t.Docs {
		docs = append(docs, rounded(d.Sum))
	}
	return docs
}

// member reads a model. It is small and stays in memory.
func (w *work) member(ctx context.Context, m *Model) (ensemble.Member, error) {
	dir := w.runDir(m)
	x, err := run.LoadModel(ctx, dir)
	if err != nil {
		return ensemble.Member{}, err
	}
	s, err := run.OpenRun(dir, []string{"data.val=" + w.store(m.Corpus, valStore), "data.store=" + w.store(m.Corpus, trainStore)})
	if err != nil {
		return ensemble.Member{}, err
	}
	policy := s.Options.Policy
	weights := x.Weights
	return ensemble.Member{Name: dir, Model: x.Config, Policy: policy, Weights: func(context.Context) ([]float32, error) { return weights, nil }}, s.Close()
}

// textSeed is that of generated documents.
const textSeed = 1

// write makes a store of generated documents, or finds it there.
func (w *work) write(ctx context.Context, x wantText) (*Text, error) {
	r := generate.Request{
		Out: w.store(x.Corpus, x.Name), Mode: generate.Pool, Tokens: x.Tokens, Temperature: 1, Seed: textSeed, Threads: w.threads(), Reuse: true,
		Overrides: []string{"data.store=" + w.store(x.Corpus, trainStore), "data.val=" + w.store(x.Corpus, valStore)},
		Progress: func(documents, tokens int64) {
			w.o.Tick("[%5.0fs] %d of %d tokens in %d documents", time.Since(w.start).Seconds(), tokens, x.Tokens, documents)
		},
	}
	t := &Text{Corpus: x.Corpus, Name: x.Name, Recipe: x.Teacher.Label(), Teachers: []string{}}
	if x.Members == 1 {
		r.Mode = generate.Single
	}
	for seed := range uint64(x.Members) {
		m := w.r.model(x.Teacher, seed)
		if !m.well() {
			return nil, fmt.Errorf("%s seed %d did not train well and cannot teach", x.Teacher.Label(), seed)
		}
		r.Runs = append(r.Runs, w.runDir(m))
		t.Teachers = append(t.Teachers, m.Run)
	}
	w.o.Say("generate   %d tokens by %d models of %s", x.Tokens, x.Members, x.Teacher.Label())
	out, err := generate.Run(ctx, r)
	if err != nil {
		return nil, fmt.Errorf("text of %d models: %w", x.Members, err)
	}
	t.Documents, t.Tokens, t.Fingerprint = out.Documents, out.Tokens, out.Fingerprint
	return t, nil
}

// withData gives f the rows of a split.
func (w *work) withData(name, split string, f func(ensemble.Data) error) error {
	s, err := store.Open(w.store(name, split), store.OpenOptions{})
	if err != nil {
		return err
	}
	set, err := run.NewValSet(s, w.form.text.seq, 0)
	if err == nil {
		err = f(ensemble.Data{Set: set, Docs: set.Docs, NumDocs: set.NumDocs(), T: w.form.text.seq, DocMask: true})
	}
	return errors.Join(err, s.Close())
}

// store is the folder of a store of a corpus, and runDir that of a run.
func (w *work) store(name, split string) string { return w.path(corporaDir, name, split) }

func (w *work) runDir(m *Model) string { return filepath.Join(w.path(registryDir), m.Run) }
