package study

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/pipeline"
	"refrain/stages/evals"
	"refrain/stages/repack"
	"refrain/store"
	"refrain/study/ensemble"
)

// scoresDir is the folder of a registry with the losses of runs by document.
const scoresDir = "scores"

// Split names documents that finished runs are measured on.
type Split struct {
	Store string // a token store; empty is the validation store of the runs
	Seen  bool   // instead: the documents that each run was trained on
	Rows  int64  // only its first rows; 0 is all of them
}

// Scores are the losses of a finished run on the documents of a split, as its file in the
// registry has them. Two of the same data set and rows have the same documents in the same
// order.
type Scores struct {
	Version  int     `json:"version"` // 1
	Identity string  `json:"identity"`
	Run      string  `json:"run"` // folder, inside the registry
	Store    string  `json:"store"`
	DataHash string  `json:"data_hash"` // of the documents
	Seq      int     `json:"seq"`
	Rows     int64   `json:"rows"`
	Tokens   int64   `json:"tokens"`
	Loss     float64 `json:"loss"` // nats a token

	Docs []evals.DocLoss `json:"-"`
	// Of each document the sum of losses, nats, and the tokens in it.
	Sums   []float64 `json:"sums"`
	Counts []int64   `json:"counts"`
}

// scoresVersion is written and understood.
const scoresVersion = 1

// maxScoresBytes bounds a file of scores: about 25 bytes a document.
const maxScoresBytes = 1 << 28

// Meter measures finished runs of a registry.
type Meter struct {
	Registry *Registry
	Place    func([]*Cell) Placement // how many at a time; nil is one, with one thread
	Stop     <-chan struct{}         // closed: end with run.ErrStopped; nil is never
}

// Score measures runs on a split, one for each of records: nil where a record is nil or
// not done. cells are theirs, in the same order. What is in the registry already is not
// measured again, and needs no checkpoint. How many are measured at a time, and with how
// many threads, changes no bit. Whether a store of its own shares documents with what runs
// were trained on is not looked at; see CheckTest.
func (m *Meter) Score(ctx context.Context, cells []*Cell, records []*Record, split Split) ([]*Scores, error) {
	g := m.Registry
	if err := fsx.MkdirAll(g.fs, g.path(scoresDir), fsx.DirPerm); err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: fmt.Errorf("registry %s: %w", g.Dir, err)}
	}
	p := Placement{Slots: 1, Threads: 1}
	if m.Place != nil && len(cells) > 0 {
		p = m.Place(cells)
	}
	out := make([]*Scores, len(records))
	err := pipeline.Until(ctx, m.Stop, func(ctx context.Context) error {
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(p.Slots)
		for i, r := range records {
			if r == nil || r.Status != Done {
				continue
			}
			group.Go(func() (err error) {
				if err := context.Cause(ctx); err != nil {
					return err
				}
				if out[i], err = g.score(ctx, cells[i], r, split, p.Threads); err != nil {
					return fmt.Errorf("cell %s seed %d on %s: %w", r.Label, r.Seed, split.name(cells[i]), err)
				}
				return nil
			})
		}
		return group.Wait()
	})
	if errors.Is(err, pipeline.ErrStopRequested) {
		err = run.ErrStopped
	}
	return out, err
}

func (s Split) name(c *Cell) string {
	switch {
	case s.Seen:
		return "its training documents"
	case s.Store != "":
		return s.Store
	}
	return c.resolved.Config.Data.Val
}

// CheckTest refuses a test store, before anything is trained, that holds documents which
// cells are trained on or chosen by, or whose tokens are others than theirs. It reads all
// of the store and, of each corpus, the documents of the same lengths. An empty name is no
// store and no error.
func CheckTest(cells []*Cell, dir string) (err error) {
	if dir == "" {
		return nil
	}
	t, err := store.Open(dir, store.OpenOptions{})
	if err != nil {
		return &run.Error{Code: run.ExitData, Err: fmt.Errorf("test store: %w", err)}
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	seen := map[string]bool{}
	for _, c := range cells {
		if seen[c.DataHash] {
			continue
		}
		seen[c.DataHash] = true
		if err := c.apartFrom(t); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cell) apartFrom(t *store.Store) (err error) {
	s, err := c.setup(1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	if err := sameTokens(t, s); err != nil {
		return err
	}
	others := []struct {
		what   string
		corpus repack.Corpus
	}{{"training documents", s.Corpus}}
	if s.Val != nil {
		others = append(others, struct {
			what   string
			corpus repack.Corpus
		}{"validation documents, by which settings are chosen", s.Val})
	}
	for _, o := range others {
		if both := ensemble.Shared(t, o.corpus); both != "" {
			return &run.Error{Code: run.ExitData, Err: fmt.Errorf("the test store holds %s of cell %s: %s; test on documents of their own", o.what, c.Label(), both)}
		}
	}
	return nil
}

// sameTokens refuses a store whose ids mean something else to the runs.
func sameTokens(t *store.Store, s *run.Setup) error {
	if have := t.Manifest().TokenizerHash; have != s.TokHash {
		return &run.Error{Code: run.ExitData, Err: fmt.Errorf("%s was made with another tokenizer (hash %.12s) than what the runs are trained on (%.12s)", t.Dir(), have, s.TokHash)}
	}
	return nil
}

// score measures one run, or reads what was measured before.
func (g *Registry) score(ctx context.Context, c *Cell, r *Record, split Split, threads int) (_ *Scores, err error) {
	s, err := c.setup(threads)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	set, name, hash, err := split.open(s)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, set.close()) }()
	path := g.path(scoresDir, fmt.Sprintf("%s-%.16s-%d.json", r.Name(), hash, set.Rows()))
	want := Scores{
		Version: scoresVersion, Identity: r.Identity, Run: r.Run, Store: name, DataHash: hash, Seq: s.Options.T, Rows: set.Rows(),
	}
	old, err := readScores(g.fs, path, want)
	if err != nil || old != nil {
		return old, err
	}
	m, err := run.LoadModel(ctx, g.path(r.Run))
	if err != nil {
		return nil, err
	}
	if m.Step != r.Steps {
		return nil, &run.Error{Code: run.ExitNoCkpt, Err: fmt.Errorf("%s holds step %d, and the run ended at %d: its last checkpoint is gone; delete the record %s and the folder %s, and the same command trains it again",
			m.Path, m.Step, r.Steps, g.path(recordsDir, r.Name()+".json"), g.path(r.Run))}
	}
	res, docs, err := run.Measure(ctx, s, m, set.ValSet)
	if err != nil {
		return nil, err
	}
	x := want
	x.Tokens, x.Loss, x.Docs = res.Tokens, res.Loss, docs
	if x.Tokens == 0 {
		return nil, &run.Error{Code: run.ExitData, Err: errors.New("there are no targets to score")}
	}
	for _, d := range docs {
		x.Sums, x.Counts = append(x.Sums, d.Sum), append(x.Counts, d.Tokens)
	}
	b, err := json.Marshal(&x)
	if err != nil {
		return nil, err
	}
	if err := fsx.WriteFileAtomic(g.fs, path, append(b, '\n')); err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: err}
	}
	return &x, nil
}

// readScores returns the scores at path, or nil when there are none. A file that is
// damaged or of another run is an error: it was changed by hand.
func readScores(fsys fsx.FS, path string, want Scores) (*Scores, error) {
	b, err := fsx.ReadFile(fsys, path, maxScoresBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, &run.Error{Code: run.ExitDisk, Err: err}
	}
	refuse := func(format string, args ...any) (*Scores, error) {
		return nil, &run.Error{Code: run.ExitData, Err: fmt.Errorf("%s: %s; delete it, and the run is measured again", path, fmt.Sprintf(format, args...))}
	}
	x := &Scores{}
	if err := json.Unmarshal(b, x); err != nil {
		return refuse("%v", err)
	}
	switch {
	case x.Version != scoresVersion:
		return refuse("version %d; this program reads %d", x.Version, scoresVersion)
	case x.Identity != want.Identity || x.DataHash != want.DataHash || x.Rows != want.Rows || x.Seq != want.Seq:
		return refuse("it is of another run or of other documents than its name says")
	case len(x.Sums) != len(x.Counts) || len(x.Sums) == 0:
		return refuse("%d sums and %d counts of documents", len(x.Sums), len(x.Counts))
	}
	for i, sum := range x.Sums {
		x.Docs = append(x.Docs, evals.DocLoss{Sum: sum, Tokens: x.Counts[i]})
	}
	x.Store = want.Store // the folder may have moved
	return x, nil
}

// splitSet is an open split.
type splitSet struct {
	*run.ValSet
	own *store.Store // opened for it; nil when it is the run's
}

func (s *splitSet) close() error {
	if s.own == nil {
		return nil
	}
	return s.own.Close()
}

// open returns the rows of a split for the run that s is of, its name and the hash of its
// documents.
func (s Split) open(r *run.Setup) (set *splitSet, name, hash string, err error) {
	set = &splitSet{}
	var corpus repack.Corpus
	switch {
	case s.Seen:
		corpus, name = r.Corpus, r.Config.Data.Store
	case s.Store == "":
		if r.Val == nil {
			return nil, "", "", &run.Error{Code: run.ExitUsage, Err: errors.New("the runs have no validation store; set data.val")}
		}
		corpus, name = r.Val, r.Config.Data.Val
	default:
		if set.own, err = store.Open(s.Store, store.OpenOptions{}); err != nil {
			return nil, "", "", &run.Error{Code: run.ExitData, Err: err}
		}
		corpus, name = set.own, s.Store
		if err := sameTokens(set.own, r); err != nil {
			return nil, "", "", errors.Join(err, set.close())
		}
	}
	if set.ValSet, err = run.NewValSet(corpus, r.Options.T, s.Rows); err != nil {
		return nil, "", "", errors.Join(&run.Error{Code: run.ExitData, Err: fmt.Errorf("%s: %w", name, err)}, set.close())
	}
	fp := corpus.Fingerprint()
	return set, filepath.ToSlash(name), hex.EncodeToString(fp[:]), nil
}
