package ensemble

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"gonum.org/v1/gonum/stat"

	"refrain/internal/fsx"
	"refrain/internal/par"
	"refrain/internal/run"
	"refrain/store"
	"refrain/study/choices"
)

// ChoiceFile is what was found on one file of multiple-choice items.
type ChoiceFile struct {
	File  string `json:"file"`
	Items int    `json:"items"`
	Rows  int    `json:"rows"` // choices of all items
	// Cut counts choices whose context was cut on the left, because the text is longer than
	// the model.
	Cut     int              `json:"cut"`
	Members []choices.Result `json:"members"` // each alone
	Logit   *choices.Result  `json:"logit"`   // of the mean logits, all members; null for one
	Prob    *choices.Result  `json:"prob"`    // of the mean probabilities, all members; null for one
}

// ChoiceMember is a member of a ChoiceReport.
type ChoiceMember struct {
	Path string `json:"path"` // of its checkpoint
	Step int64  `json:"step"`
	Source
}

// ChoiceReport is how members and their ensemble do on multiple-choice items.
type ChoiceReport struct {
	Members []ChoiceMember `json:"members"`
	Start   string         `json:"start"` // what stands before a text: bos, eos or nothing
	Limit   int            `json:"limit"` // positions of a row at most
	Files   []ChoiceFile   `json:"files"`
	// Means are over files, each counting once: of the members alone, and of the ensemble.
	Means []choices.Means `json:"means"`
	Logit *choices.Means  `json:"logit"`
	Prob  *choices.Means  `json:"prob"`
	// Results are those of the one member, or of the mean logits, by the file's name without
	// its ending, with the names of lm-evaluation-harness: "acc,none", "acc_stderr,none" ...
	Results  map[string]map[string]float64 `json:"results"`
	Warnings []string                      `json:"warnings"`
}

// MeasureChoices scores the members of r, and from two on their ensemble, on files of
// multiple-choice items. Of r it reads Members, Overrides, AllowCopies, Threads and Memory.
// It blocks for a forward pass of every member over all choices.
func MeasureChoices(ctx context.Context, r Request, files []string) (rep *ChoiceReport, err error) {
	list, err := openAll(ctx, r)
	if err != nil {
		return nil, err
	}
	first := list[0]
	if first.m.Tokenizer == nil {
		return nil, dataError("%s has no tokenizer.json, so text cannot be scored", first.m.Path)
	}
	rep = &ChoiceReport{Limit: first.m.Config.MaxT, Results: map[string]map[string]float64{}, Warnings: []string{}}
	for _, o := range list {
		rep.Limit = min(rep.Limit, o.m.Config.MaxT)
		if a, b := first.conf.Data, o.conf.Data; a.DocMask != b.DocMask || a.ResetPositions != b.ResetPositions {
			return nil, dataError("data.doc_mask or data.reset_positions differ between %s and %s; score them one by one, or give both as key=value", first.path, o.path)
		}
		rep.Members = append(rep.Members, ChoiceMember{Path: o.m.Path, Step: o.m.Step, Source: o.source()})
	}
	start, word, err := startOf(first)
	if err != nil {
		return nil, err
	}
	rep.Start = word
	devs, err := run.OpenDevices(1, r.Threads, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, devs.Close()) }()
	threads := r.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	pool := par.New(threads)
	defer pool.Close()
	o := Options{Device: devs[0], Pool: pool, Memory: r.Memory}
	for _, path := range files {
		f, err := measureFile(ctx, o, list, path, start, rep.Limit)
		if err != nil {
			return nil, err
		}
		if f.Cut > 0 {
			rep.Warnings = append(rep.Warnings, fmt.Sprintf("%s: the context of %d of %d choices is cut on the left to fit into %d positions", path, f.Cut, f.Rows, rep.Limit))
		}
		if err := rep.add(f); err != nil {
			return nil, err
		}
	}
	rep.average()
	return rep, nil
}

// startOf finds the token that stood before a document in training. The stores of the run
// say it; where they have gone, it is the end of the document before, which is the default
// of a store, or the tokenizer's beginning of a text.
func startOf(o *opened) (choices.Start, string, error) {
	for _, dir := range []string{o.conf.Data.Store, o.conf.Data.Val} {
		m, err := store.ReadManifest(fsx.OS{}, dir)
		if err != nil {
			continue // it has gone; the next says the same
		}
		switch b := m.Boundary; {
		case b.BOS != nil:
			return choices.Start{ID: *b.BOS}, "bos", nil
		case b.EOS != nil:
			return choices.Start{ID: *b.EOS, Before: true}, "eos", nil
		}
	}
	if id, ok := o.m.Tokenizer.EOS(); ok {
		return choices.Start{ID: id, Before: true}, "eos", nil
	}
	if id, ok := o.m.Tokenizer.BOS(); ok {
		return choices.Start{ID: id}, "bos", nil
	}
	return choices.Start{}, "", dataError("the tokenizer of %s has no token for the beginning or the end of a text", o.path)
}

// measureFile scores one file.
func measureFile(ctx context.Context, o Options, list []*opened, path string, start choices.Start, limit int) (*ChoiceFile, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("choices: %w", err)}
	}
	items, err := choices.Read(f, path)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, dataError("%w", err)
	}
	enc := list[0].m.Tokenizer.NewEncoder(1 << 20)
	var ids []uint32
	rows, err := choices.Encode(path, items, func(text []byte) []uint32 {
		ids = enc.Append(ids[:0], text)
		return ids
	}, start, limit)
	if err != nil {
		return nil, dataError("%w", err)
	}
	var members []Member
	for _, x := range list {
		members = append(members, x.Member)
	}
	c := list[0].conf.Data
	logp, err := ScoreRows(ctx, o, members, rows, c.DocMask, c.ResetPositions)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := &ChoiceFile{File: filepath.Base(path), Items: len(items), Rows: rows.Len(), Cut: rows.Cut}
	for _, x := range logp.Members {
		out.Members = append(out.Members, rows.Score(x))
	}
	if len(list) > 1 {
		l, p := rows.Score(logp.Logit), rows.Score(logp.Prob)
		out.Logit, out.Prob = &l, &p
	}
	return out, nil
}

// RowScores are log probabilities of the choices, in the order of rows: nats.
type RowScores struct {
	Members     [][]float64 // each member alone
	Logit, Prob []float64   // of the mean logits and the mean probabilities of all
}

// ScoreRows computes the log probability of every choice. Rows of like length are passed
// together; the members are loaded once for every length.
func ScoreRows(ctx context.Context, o Options, members []Member, rows *choices.Rows, docMask, resetPositions bool) (*RowScores, error) {
	out := &RowScores{Logit: make([]float64, rows.Len()), Prob: make([]float64, rows.Len())}
	for range members {
		out.Members = append(out.Members, make([]float64, rows.Len()))
	}
	if o.Memory == 0 {
		o.Memory = DefaultMemory
	}
	for _, b := range rows.Buckets() {
		// A pass leaves its logits twice, on the device and in pinned memory.
		pass := 8 * int64(b.T) * int64(members[0].Model.Vocab)
		o.Rows = int(max(1, min(16, b.Rows(), o.Memory/(4*pass))))
		l, err := Evaluate(ctx, o, members, Data{
			Set: b, NumDocs: int(b.Rows()), T: b.T, DocMask: docMask, ResetPositions: resetPositions,
			Docs: func(row int64, at func(doc, from, to int)) { at(int(row), 0, b.T) },
		})
		if err != nil {
			return nil, err
		}
		last := len(members) - 1
		for g := range b.Rows() {
			at := b.Index(g)
			for k, s := range l.Singles {
				out.Members[k][at] = -s.Docs[g].Sum
			}
			out.Logit[at], out.Prob[at] = -l.Logit[last].Docs[g].Sum, -l.Prob[last].Docs[g].Sum
		}
	}
	return out, nil
}

// add takes the results of a file.
func (r *ChoiceReport) add(f *ChoiceFile) error {
	name := strings.TrimSuffix(f.File, filepath.Ext(f.File))
	if r.Results[name] != nil {
		return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("two files are called %s; rename one, their results would have one name", name)}
	}
	x := f.Logit
	if x == nil {
		x = &f.Members[0]
	}
	by := map[string]float64{}
	for _, m := range []struct {
		name string
		a    choices.Accuracy
	}{{"acc", x.Acc}, {"acc_norm", x.Norm}, {"acc_bytes", x.Bytes}} {
		by[m.name+",none"] = m.a.Acc
		if m.a.StdErr != nil {
			by[m.name+"_stderr,none"] = *m.a.StdErr
		}
	}
	r.Results[name] = by
	r.Files = append(r.Files, *f)
	return nil
}

// average takes means over files.
func (r *ChoiceReport) average() {
	mean := func(of func(f *ChoiceFile) *choices.Result) *choices.Means {
		var acc, norm, bytes []float64
		for i := range r.Files {
			x := of(&r.Files[i])
			if x == nil {
				return nil
			}
			acc, norm, bytes = append(acc, x.Acc.Acc), append(norm, x.Norm.Acc), append(bytes, x.Bytes.Acc)
		}
		return &choices.Means{Acc: stat.Mean(acc, nil), Norm: stat.Mean(norm, nil), Bytes: stat.Mean(bytes, nil)}
	}
	for k := range r.Members {
		r.Means = append(r.Means, *mean(func(f *ChoiceFile) *choices.Result { return &f.Members[k] }))
	}
	r.Logit = mean(func(f *ChoiceFile) *choices.Result { return f.Logit })
	r.Prob = mean(func(f *ChoiceFile) *choices.Result { return f.Prob })
}
