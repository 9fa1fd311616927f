package ensemble

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"

	"gonum.org/v1/gonum/stat"

	"refrain/internal/par"
	"refrain/internal/run"
	"refrain/store"
	"refrain/study/fit"
	"refrain/train/eval"
)

// Request is an ensemble on the disk and what to find out about it.
type Request struct {
	Members     []string // run folders, of which the newest good checkpoint counts, checkpoints, or names of run.Expand
	Overrides   []string // key=value, over the configurations of all runs
	Val         string   // validation store; "" is that of the runs
	FitOn       string   // store to fit weights on; "" fits none
	AllowCopies bool
	Chain       bool // members taught each other in a row: that their teachers differ is no surprise
	Soup        bool
	EMA         *float64 // decay; nil leaves it out
	Rows        int64    // evaluate this many rows only; 0 is all
	Threads     int      // 0 is one a processor
	Subsets     int      // as in Options
	Memory      int64    // as in Options
	Resamples   int      // for intervals of the laws
	Seed        uint64   // of the resamples
}

// Mean is a loss, and what it gains over the best member alone: positive is better. The
// errors are over documents, paired for the gain, and nil with fewer than two documents.
type Mean struct {
	Loss       float64  `json:"loss"`
	StdErr     *float64 `json:"stderr_over_documents"`
	Gain       float64  `json:"gain"`
	GainStdErr *float64 `json:"gain_stderr"`
}

// MemberReport is one member alone.
type MemberReport struct {
	Path      string  `json:"path"` // of its checkpoint
	Step      int64   `json:"step"`
	InitSeed  uint64  `json:"init_seed"`
	OrderSeed uint64  `json:"order_seed"`
	RunID     string  `json:"run_id"`
	Config    string  `json:"config_hash"`
	DataHash  string  `json:"data_hash"`
	Params    int     `json:"params"`
	Loss      float64 `json:"loss"`
}

// CurvePoint is the ensemble of the first K members.
type CurvePoint struct {
	K     int  `json:"k"`
	Logit Mean `json:"logit"`
	Prob  Mean `json:"prob"`
}

// Spread is what a loss does over all subsets of one size.
type Spread struct {
	Mean float64 `json:"mean"`
	Min  float64 `json:"min"`
	Max  float64 `json:"max"`
	SD   float64 `json:"sd"` // of the subsets, which share members and are not independent
}

// SubsetSpread is the spread over the subsets of K members.
type SubsetSpread struct {
	K       int    `json:"k"`
	Subsets int    `json:"subsets"`
	Logit   Spread `json:"logit"`
	Prob    Spread `json:"prob"`
}

// Learned is the ensemble with fitted weights, on the validation documents. Its gain over
// the plain mean is paired.
type Learned struct {
	Weighting
	Store          string   `json:"store"`
	Mean           Mean     `json:"mean"`
	OverPlain      float64  `json:"gain_over_plain"`
	OverPlainError *float64 `json:"gain_over_plain_stderr"`
}

// Report is what is known about an ensemble. Losses are nats a token.
type Report struct {
	Store    string         `json:"store"`
	DataHash string         `json:"data_hash"`
	Seq      int            `json:"seq"`
	DocMask  bool           `json:"doc_mask"`
	Rows     int64          `json:"rows"`
	Tokens   int64          `json:"tokens"`
	Docs     int            `json:"documents"`
	Members  []MemberReport `json:"members"`
	Varies   string         `json:"seeds_differ_in"` // init, order, init and order, or nothing
	Best     int            `json:"best_member"`     // index of the best single
	Curve    []CurvePoint   `json:"curve"`
	Subsets  []SubsetSpread `json:"subsets"` // null for too many members
	// The laws are null below three members.
	LogitLaw *Asymptote `json:"logit_law"`
	ProbLaw  *Asymptote `json:"prob_law"`
	Learned  *Learned   `json:"learned_weights"` // null unless asked for
	Soup     *Mean      `json:"weight_average"`  // null unless asked for
	EMA      *Mean      `json:"weight_ema"`      // null unless asked for
	Warnings []string   `json:"warnings"`

	ModelBytes  int64 `json:"model_bytes"`  // of the largest member with its activations, all that is held of models
	LogitBytes  int64 `json:"logit_bytes"`  // held for a block
	BlockRows   int64 `json:"block_rows"`   // rows of a block
	MemberLoads int64 `json:"member_loads"` // checkpoints read
}

// Measure evaluates the ensemble of r. It opens a device for itself, blocks until all is
// measured, and writes nothing.
func Measure(ctx context.Context, r Request) (rep *Report, err error) {
	list, err := openAll(ctx, r)
	if err != nil {
		return nil, err
	}
	warnings, err := sameSettings(list, r)
	if err != nil {
		return nil, err
	}
	b, done, err := open(r, list)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, done()) }()
	b.rep.Warnings = append(b.rep.Warnings, warnings...)
	if r.FitOn != "" {
		s, fitData, more, err := openFit(r, b.val, list)
		if err != nil {
			return nil, fmt.Errorf("store to fit on: %w", err)
		}
		b.rep.Warnings = append(b.rep.Warnings, more...)
		w, err := FitWeights(ctx, b.o, b.members, fitData)
		if err = errors.Join(err, s.Close()); err != nil {
			return nil, err
		}
		b.rep.Learned, b.o.Weights = &Learned{Weighting: *w, Store: r.FitOn}, w.Weights
	}
	return b.measure(ctx)
}

// open joins members with the rows they are measured on and a device. done ends both.
func open(r Request, list []*opened) (b *measurement, done func() error, err error) {
	dir := r.Val
	if dir == "" {
		dir = list[0].conf.Data.Val
	}
	val, data, err := openData(dir, r.Rows, list[0])
	if err != nil {
		return nil, nil, fmt.Errorf("validation store: %w", err)
	}
	devs, err := run.OpenDevices(1, r.Threads, false)
	if err != nil {
		return nil, nil, errors.Join(err, val.Close())
	}
	threads := r.Threads
	if threads == 0 {
		threads = runtime.GOMAXPROCS(0)
	}
	pool := par.New(threads)
	done = func() error {
		pool.Close()
		return errors.Join(devs.Close(), val.Close())
	}
	b = &measurement{r: r, list: list, data: data, val: val, o: Options{Device: devs[0], Pool: pool, Memory: r.Memory, Subsets: r.Subsets}}
	if b.o.Memory == 0 {
		b.o.Memory = DefaultMemory
	}
	for _, o := range list {
		b.members = append(b.members, o.Member)
	}
	// A pass leaves its logits twice, on the device and in pinned memory.
	pass := 8 * int64(data.T) * int64(list[0].m.Config.Vocab)
	b.o.Rows = int(max(1, min(int64(list[0].conf.Eval.Batch), data.Set.Rows(), b.o.Memory/(4*pass))))
	fp := val.Fingerprint()
	b.rep = &Report{Store: dir, DataHash: hashText(fp), Seq: data.T, DocMask: data.DocMask, Varies: seedsOf(list), Warnings: []string{}}
	return b, done, nil
}

// measurement holds what an ensemble is measured with.
type measurement struct {
	r       Request
	list    []*opened
	members []Member
	data    Data
	o       Options
	val     *store.Store
	rep     *Report
	best    *Tally
}

func (b *measurement) measure(ctx context.Context) (*Report, error) {
	l, err := Evaluate(ctx, b.o, b.members, b.data)
	if err != nil {
		return nil, err
	}
	rep := b.rep
	first := l.Singles[0]
	if first.Tokens == 0 {
		return nil, dataError("%s has no targets to score", rep.Store)
	}
	rep.Rows, rep.Tokens = first.Rows, first.Tokens
	_, rep.Docs = run.StdErr(first.Docs)
	rep.BlockRows, rep.LogitBytes = l.BlockRows, l.HeldBytes
	rep.MemberLoads = int64(len(b.members)) * ((first.Rows + l.BlockRows - 1) / l.BlockRows)
	for i, o := range b.list {
		t := l.Singles[i]
		if t.Loss < l.Singles[rep.Best].Loss {
			rep.Best = i
		}
		rep.Members = append(rep.Members, MemberReport{
			Path: o.m.Path, Step: o.m.Step, InitSeed: o.conf.Train.Seed, OrderSeed: *o.conf.Data.Seed,
			RunID: o.m.Manifest.RunID, Config: o.m.Manifest.ConfigHash, DataHash: o.m.Manifest.DataHash, Params: o.m.Config.Layout().Total, Loss: t.Loss,
		})
		device, pinned, err := eval.LogitsFootprint(eval.Config{Model: o.Model, B: b.o.Rows, T: b.data.T, DocMask: b.data.DocMask, ResetPositions: b.data.ResetPositions, Policy: o.Policy})
		if err != nil {
			return nil, err
		}
		rep.ModelBytes = max(rep.ModelBytes, device+pinned)
	}
	b.best = l.Singles[rep.Best]
	for k := range l.Logit {
		rep.Curve = append(rep.Curve, CurvePoint{K: k + 1, Logit: b.mean(l.Logit[k]), Prob: b.mean(l.Prob[k])})
	}
	rep.Subsets = spreads(l.Subsets, len(b.members))
	if rep.Learned != nil {
		rep.Learned.Mean = b.mean(l.Weighted)
		diff, se := Difference(l.Logit[len(b.members)-1], l.Weighted)
		rep.Learned.OverPlain, rep.Learned.OverPlainError = -diff, known(se)
	}
	if err := b.laws(l); err != nil {
		return nil, err
	}
	return rep, b.averages(ctx)
}

// known is x, or nil where it is not a number.
func known(x float64) *float64 {
	if math.IsNaN(x) {
		return nil
	}
	return &x
}

func (b *measurement) mean(t *Tally) Mean {
	diff, se := Difference(b.best, t)
	return Mean{Loss: t.Loss, StdErr: known(t.StdErr()), Gain: 0 - diff, GainStdErr: known(se)}
}

func (b *measurement) laws(l *Losses) (err error) {
	if len(b.members) < 3 {
		return nil
	}
	o := fit.Options{Resamples: b.r.Resamples, Seed: b.r.Seed}
	if b.rep.LogitLaw, err = Law(l.Logit, o); err != nil {
		return err
	}
	b.rep.ProbLaw, err = Law(l.Prob, o)
	return err
}

// averages measures the models that are averages of weights.
func (b *measurement) averages(ctx context.Context) error {
	one := func(m Member, err error) (*Mean, error) {
		if err != nil {
			return nil, err
		}
		o := b.o
		o.Weights = nil
		l, err := Evaluate(ctx, o, []Member{m}, b.data)
		if err != nil {
			return nil, err
		}
		mean := b.mean(l.Singles[0])
		return &mean, nil
	}
	var err error
	if b.r.Soup {
		if b.rep.Soup, err = one(Soup(ctx, b.members)); err != nil {
			return err
		}
	}
	if b.r.EMA != nil {
		b.rep.EMA, err = one(EMA(ctx, b.members, *b.r.EMA))
	}
	return err
}

// spreads joins the subsets of each size.
func spreads(subsets []Subset, members int) (list []SubsetSpread) {
	if subsets == nil {
		return nil
	}
	for k := 1; k <= members; k++ {
		var logit, prob []float64
		for _, s := range subsets {
			if len(s.Members) == k {
				logit, prob = append(logit, s.Logit.Loss), append(prob, s.Prob.Loss)
			}
		}
		list = append(list, SubsetSpread{K: k, Subsets: len(logit), Logit: spread(logit), Prob: spread(prob)})
	}
	return list
}

func spread(x []float64) Spread {
	s := Spread{Mean: x[0], Min: slices.Min(x), Max: slices.Max(x)}
	if len(x) > 1 {
		s.Mean, s.SD = stat.MeanStdDev(x, nil)
	}
	return s
}

// Curves are the curves over members of a report, by both means, under a name.
func (r *Report) Curves(name string) (logit, prob Curve) {
	logit.Name, prob.Name = name, name
	for _, p := range r.Curve {
		logit.Points = append(logit.Points, fit.Point{X: float64(p.K), Loss: p.Logit.Loss})
		prob.Points = append(prob.Points, fit.Point{X: float64(p.K), Loss: p.Prob.Loss})
	}
	return logit, prob
}
