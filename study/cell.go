package study

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/train"
)

// Cell is one run of a sweep: a point with a seed. Open fills what depends on the data.
type Cell struct {
	Settings []Setting
	Seed     uint64

	// What is trained, on what: set by Open. Hashes are hexadecimal.
	Provenance
	Cost   Cost
	Params int // of the model

	overrides []string
	spec      *Spec
	resolved  *config.Resolved
}

// Provenance is what makes two runs the same run, and so the parts of an identity.
type Provenance struct {
	ConfigHash    string `json:"config_hash"`    // of every setting that can change a weight, seeds included
	DataHash      string `json:"data_hash"`      // of the training documents
	TokenizerHash string `json:"tokenizer_hash"` //
	ValHash       string `json:"val_hash"`       // of the validation store; empty without one
	ValRows       int64  `json:"val_rows"`       // that the losses are over
	Code          string `json:"code"`           // revision of the program
}

// Key is the identity but for the code: SHA-256, hexadecimal.
func (p *Provenance) Key() string {
	h := sha256.New()
	fmt.Fprintf(h, "refrain cell 1\nconfig %s\ndata %s\ntokenizer %s\nval %s %d\n", p.ConfigHash, p.DataHash, p.TokenizerHash, p.ValHash, p.ValRows)
	return hex.EncodeToString(h.Sum(nil))
}

// Identity is the SHA-256, hexadecimal, of everything that decides the result of a run:
// settings and seeds, documents, tokenizer, validation rows, and code. Threads, devices,
// folders and what is logged or saved are no part of it.
func (p *Provenance) Identity() string {
	h := sha256.New()
	fmt.Fprintf(h, "%s\ncode %s\n", p.Key(), p.Code)
	return hex.EncodeToString(h.Sum(nil))
}

// Name is the name of the run's folder and record: the first digits of the key, which all
// revisions share, and of the identity.
func (p *Provenance) Name() string { return p.Key()[:16] + "-" + p.Identity()[:8] }

// Cost is what a cell will take, known without training it.
type Cost struct {
	Steps       int64   `json:"steps"`
	Tokens      int64   `json:"tokens"`
	Batch       int     `json:"batch,omitempty"` // rows a step; 0 in records from before it was kept
	FLOPs       float64 `json:"flops"`           // of the steps and the evaluations
	Memory      int64   `json:"memory_bytes"`    // while it trains
	CoreSeconds float64 `json:"core_seconds"`    // estimated; see Rate
}

// Label words the settings: train.epochs=8 optim.lr=0.01, or "base" for none.
func (c *Cell) Label() string { return label(c.Settings) }

func label(settings []Setting) string {
	var parts []string
	for _, s := range settings {
		parts = append(parts, s.String())
	}
	if len(parts) == 0 {
		return "base"
	}
	return strings.Join(parts, " ")
}

// setup joins the cell with its data, for that many threads; 0 leaves them as they are.
func (c *Cell) setup(threads int) (*run.Setup, error) {
	r := c.resolved
	isSet := func(o string) bool { return strings.HasPrefix(o, "train.threads=") }
	if threads > 0 && !slices.ContainsFunc(c.overrides, isSet) {
		n := max(1, threads/r.Config.Train.Devices)
		var err error
		if r, err = config.Parse(c.spec.baseName, c.spec.baseText, append(slices.Clone(c.overrides), fmt.Sprintf("train.threads=%d", n))); err != nil {
			return nil, err
		}
	}
	return run.NewSetup(&r.Config, r)
}

// open joins the cell with its data, fills provenance and cost, and lets go of it.
func (c *Cell) open() (err error) {
	s, err := c.setup(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	c.Provenance = Provenance{ConfigHash: s.ConfigHash(), DataHash: s.DataHash, TokenizerHash: s.TokHash, Code: run.CodeVersion()}
	if s.Set != nil {
		fp := s.Val.Fingerprint()
		c.ValHash, c.ValRows = hex.EncodeToString(fp[:]), s.Set.Rows()
	}
	o := &s.Options
	fp, err := train.Footprint(o)
	if err != nil {
		return err
	}
	mem, err := s.NeedMemory(o, s.Config.Eval.Batch)
	if err != nil {
		return err
	}
	c.Params = o.Model.Layout().Total
	step := fp.Cost.FLOPs * float64(o.Devices)
	c.Cost = Cost{Steps: o.Steps, Batch: o.Batch, Tokens: o.Steps * int64(o.Batch) * int64(o.T), FLOPs: step * float64(o.Steps), Memory: mem.Total()}
	if s.Set != nil {
		every := s.Config.Eval.Every
		if every == 0 {
			every = max(1, o.Steps/20) // as a run does
		}
		evals := (o.Steps + every - 1) / every
		// A forward pass is a third of a step.
		c.Cost.FLOPs += step / 3 * float64(evals*s.Set.Rows()) / float64(o.Batch)
	}
	return nil
}

// Open joins cells with their data and estimates their cost. Two cells that are the same
// run are an error that names both. rate is in FLOP/s of one core; see Rate.
func Open(cells []*Cell, rate float64) error {
	var errs []error
	first := map[string]*Cell{}
	seen := map[string]bool{}
	for _, c := range cells {
		if err := c.open(); err != nil {
			// What is wrong with the data is wrong in every cell; once is enough.
			if !seen[err.Error()] {
				seen[err.Error()] = true
				errs = append(errs, fmt.Errorf("cell %s seed %d: %w", c.Label(), c.Seed, err))
			}
			continue
		}
		if rate > 0 {
			c.Cost.CoreSeconds = c.Cost.FLOPs / rate
		}
		if other, dup := first[c.Key()]; dup {
			errs = append(errs, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("two cells are the same run: %q seed %d (%s) and %q seed %d (%s): what differs cannot change a weight; keep one",
				other.Label(), other.Seed, other.place(), c.Label(), c.Seed, c.place())})
			continue
		}
		first[c.Key()] = c
	}
	return errors.Join(errs...)
}

// place is where the cell's settings stand in the file of the sweep.
func (c *Cell) place() string {
	if len(c.Settings) == 0 {
		return c.spec.Path
	}
	last := c.Settings[len(c.Settings)-1]
	return fmt.Sprintf("%s:%d:%d", c.spec.Path, last.line, last.col)
}

// assumedShare is the share of the measured peak that a step is taken to reach before
// any cell has told.
const assumedShare = 0.5

// Rate is the speed for estimates, in FLOP/s of one core: the median of the finished
// records, or half of the peak measured now where there are none. The second takes about
// 50 ms. from says which it is.
func Rate(records []*Record, c *Cell) (rate float64, from string, err error) {
	var rates []float64
	for _, r := range records {
		if r.Status == Done && r.CoreSeconds > 0 && r.Cost.FLOPs > 0 {
			rates = append(rates, r.Cost.FLOPs/r.CoreSeconds)
		}
	}
	if n := len(rates); n > 0 {
		slices.Sort(rates)
		return rates[n/2], fmt.Sprintf("the median of %d finished cells", n), nil
	}
	s, err := c.setup(0)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	peak := run.MeasurePeak(1, s.Options.Policy)
	if peak <= 0 || math.IsInf(peak, 0) {
		return 0, "", errors.New("the peak of this machine could not be measured")
	}
	return peak * assumedShare, fmt.Sprintf("%.0f %% of the peak measured now", 100*assumedShare), nil
}
