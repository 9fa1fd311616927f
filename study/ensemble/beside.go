package ensemble

import (
	"context"
	"errors"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/model"
)

// Model is a model that was measured.
type Model struct {
	Path  string // as it was named
	Ckpt  string // folder of its checkpoint
	Step  int64
	Tally *Tally
	Source
}

// Source is what a model was trained with.
type Source struct {
	InitSeed  uint64 `json:"init_seed"`
	OrderSeed uint64 `json:"order_seed"`
	Config    string `json:"config_hash"`
	DataHash  string `json:"data_hash"`
}

func (o *opened) source() Source {
	return Source{o.conf.Train.Seed, *o.conf.Data.Seed, o.m.Manifest.ConfigHash, o.m.Manifest.DataHash}
}

// Together are an ensemble and other models over the same rows.
type Together struct {
	Store    string // of the rows
	DataHash string
	Seq      int
	DocMask  bool
	Rows     int64
	Tokens   int64
	Docs     int // with targets

	Members  []Model
	Ensemble *Tally // the mean of all members' logits
	Others   []Model
	Warnings []string // what the members differ in beside seeds
}

// Beside measures the members of r and, alone, the models that others names, on the same
// rows, so that losses can be compared document by document. Tokenizer, vocabulary, rows
// and masks of all must agree. A model that is one of the members is not read again. It
// opens a device for itself, blocks for a pass of every model, and writes nothing.
func Beside(ctx context.Context, r Request, others []string) (_ *Together, err error) {
	list, alone, warnings, err := openBeside(ctx, r, others)
	if err != nil {
		return nil, err
	}
	b, done, err := open(r, list)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	l, err := Evaluate(ctx, b.o, b.members, b.data)
	if err != nil {
		return nil, err
	}
	t := &Together{
		Store: b.rep.Store, DataHash: b.rep.DataHash, Seq: b.data.T, DocMask: b.data.DocMask,
		Ensemble: l.Logit[len(list)-1], Warnings: warnings,
	}
	if t.Rows, t.Tokens = t.Ensemble.Rows, t.Ensemble.Tokens; t.Tokens == 0 {
		return nil, dataError("%s has no targets to score", t.Store)
	}
	_, t.Docs = run.StdErr(t.Ensemble.Docs)
	named := func(o *opened, tally *Tally) Model { return Model{o.path, o.m.Path, o.m.Step, tally, o.source()} }
	for i, o := range list {
		t.Members = append(t.Members, named(o, l.Singles[i]))
	}
	for _, o := range alone {
		tally, err := b.single(ctx, o, list, l)
		if err != nil {
			return nil, err
		}
		t.Others = append(t.Others, named(o, tally))
	}
	return t, nil
}

// Ready reports what Beside would complain about, before the last of the models is trained
// with the configuration planned.
func Ready(ctx context.Context, r Request, others []string, planned *config.Config) error {
	list, _, _, err := openBeside(ctx, r, others)
	if err != nil {
		return err
	}
	first := list[0]
	_, err = sameSettings([]*opened{first, {path: "the run that is to be trained", m: first.m, conf: planned}}, r)
	return err
}

// openBeside opens what Beside measures.
func openBeside(ctx context.Context, r Request, others []string) (list, alone []*opened, warnings []string, err error) {
	list, err = openAll(ctx, r)
	if err != nil {
		return nil, nil, nil, err
	}
	warnings, err = sameSettings(list, r)
	if err != nil {
		return nil, nil, nil, err
	}
	first := list[0]
	for _, path := range others {
		o, err := openMember(ctx, path, r.Overrides)
		if err != nil {
			return nil, nil, nil, err
		}
		if o.conf == nil {
			o.conf = first.conf
		}
		if err := together(first, o); err != nil {
			return nil, nil, nil, err
		}
		if _, err := sameSettings([]*opened{first, o}, r); err != nil {
			return nil, nil, nil, err
		}
		if o.Policy, err = model.PolicyOf(o.conf.Train.Precision); err != nil {
			return nil, nil, nil, err
		}
		alone = append(alone, o)
	}
	return list, alone, warnings, nil
}

// single measures o alone, unless it is one of the members.
func (b *measurement) single(ctx context.Context, o *opened, list []*opened, l *Losses) (*Tally, error) {
	for i, m := range list {
		if m.m.Manifest.WeightsHash() == o.m.Manifest.WeightsHash() && m.Policy == o.Policy {
			return l.Singles[i], nil
		}
	}
	x, err := Evaluate(ctx, b.o, []Member{o.Member}, b.data)
	if err != nil {
		return nil, err
	}
	return x.Singles[0], nil
}
