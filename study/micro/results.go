package micro

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"slices"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/study"
)

// Kind is what the file of results says it is.
const Kind = "micro-records"

// resultsVersion is written and understood.
const resultsVersion = 1

// Results are the records of a study: all that its findings and its report are made of.
type Results struct {
	Kind    string   `json:"kind"`
	Version int      `json:"version"`
	Code    string   `json:"code"`    // revision of the program
	Command []string `json:"command"` // that makes them again
	Form    string   `json:"form"`    // name of the program
	Go      string   `json:"go"`
	System  string   `json:"system"`
	CPU     string   `json:"cpu"`
	Cores   int      `json:"cores"`

	Corpora   []Corpus    `json:"corpora"`
	Models    []*Model    `json:"models"`    // by point and seed
	Ensembles []*Ensemble `json:"ensembles"` // by point
	Texts     []*Text     `json:"texts"`     // by corpus and name
}

// Text is a store of documents that models generated.
type Text struct {
	Corpus      string   `json:"corpus"`
	Name        string   `json:"name"`
	Teachers    []string `json:"teachers"` // runs, each of which wrote an equal share
	Recipe      string   `json:"recipe"`   // of the teachers
	Documents   int64    `json:"documents"`
	Tokens      int64    `json:"tokens"`
	Fingerprint string   `json:"fingerprint"`
}

// Corpus says what was read and how it was split.
type Corpus struct {
	Name       string `json:"name"`
	What       string `json:"what"`
	Digest     string `json:"digest"` // of the documents taken, hexadecimal
	Files      int    `json:"files"`  // that were tried
	Short      int    `json:"short"`  // left out: too short, generated or binary
	Copies     int    `json:"copies"`
	NearCopies int    `json:"near_copies"`
	Pools      int    `json:"pools"` // that the training documents are dealt to
	Unique     int64  `json:"unique_tokens"`
	Vocab      int    `json:"vocab"`
	Splits     []Part `json:"splits"`
	// TestTokens are the scored tokens of every document of the test split, in the order
	// in which losses are listed.
	TestTokens []int64 `json:"test_tokens"`
}

// Part is one of the splits of a corpus.
type Part struct {
	Name   string `json:"name"`
	Docs   int64  `json:"documents"`
	Tokens int64  `json:"tokens"`
}

// Model is one run. Losses are nats a token.
type Model struct {
	Point
	Seed uint64 `json:"seed"`
	Run  string `json:"run"` // name of its folder in the registry
	study.Provenance
	Status      study.Status `json:"status"`
	Reason      string       `json:"reason,omitempty"`
	Params      int          `json:"params"`
	Steps       int64        `json:"steps"`
	Train       *float64     `json:"train"` // mean over the steps of the last epoch
	Val         *float64     `json:"val"`   // on the split that recipes are chosen on
	Test        []float64    `json:"test"`  // nats of each document of the split that is reported; null for a model that was only tried
	Seconds     float64      `json:"seconds"`
	CoreSeconds float64      `json:"core_seconds"`
}

// Ensemble is what the models of one point predict together. Entry k of a list is of the
// models with the first k+1 seeds.
type Ensemble struct {
	Point
	Seeds []uint64  `json:"seeds"`
	Val   []float64 `json:"val"` // loss of the mean logits on the split for choices
	// Nats of each document of the test split.
	Logit [][]float64 `json:"logit"`
	Prob  [][]float64 `json:"prob"`
	// Weights were fitted on a split of their own; null where that was not asked for.
	Weights  []float64 `json:"weights"`
	Weighted []float64 `json:"weighted"` // nats of each test document with them
}

// Results keep documents' sums to this many parts of a nat, which is far below what a mean
// over them is printed with.
const sumParts = 1000

func rounded(x float64) float64 { return math.Round(x*sumParts) / sumParts }

// corpus returns the corpus of that name, or nil.
func (r *Results) corpus(name string) *Corpus {
	for i := range r.Corpora {
		if r.Corpora[i].Name == name {
			return &r.Corpora[i]
		}
	}
	return nil
}

// model returns the run of a point with a seed, or nil.
func (r *Results) model(p Point, seed uint64) *Model {
	for _, m := range r.Models {
		if m.Point == p && m.Seed == seed {
			return m
		}
	}
	return nil
}

// ensemble returns the one of a point, or nil.
func (r *Results) ensemble(p Point) *Ensemble {
	for _, e := range r.Ensembles {
		if e.Point == p {
			return e
		}
	}
	return nil
}

// text returns the generated documents of that name, or nil.
func (r *Results) text(corpus, name string) *Text {
	for _, x := range r.Texts {
		if x.Corpus == corpus && x.Name == name {
			return x
		}
	}
	return nil
}

// well says that the model may be compared with others.
func (m *Model) well() bool { return m != nil && m.Status == study.Done && m.Val != nil }

// sort brings everything into the order of points, so that equal results are equal files.
func (r *Results) sort() {
	order := func(a, b Point) int {
		return cmp.Or(cmp.Compare(a.Corpus, b.Corpus), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Size, b.Size), cmp.Compare(a.Order, b.Order),
			cmp.Compare(a.Batch, b.Batch), cmp.Compare(a.Epochs, b.Epochs), cmp.Compare(a.LR, b.LR), cmp.Compare(a.Decay, b.Decay),
			cmp.Compare(a.Embed, b.Embed), cmp.Compare(a.TiedLR, b.TiedLR), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Fraction, b.Fraction))
	}
	slices.SortFunc(r.Models, func(a, b *Model) int { return cmp.Or(order(a.Point, b.Point), cmp.Compare(a.Seed, b.Seed)) })
	slices.SortFunc(r.Ensembles, func(a, b *Ensemble) int { return order(a.Point, b.Point) })
	slices.SortFunc(r.Texts, func(a, b *Text) int { return cmp.Or(cmp.Compare(a.Corpus, b.Corpus), cmp.Compare(a.Name, b.Name)) })
}

// Encode is the file of results: a line a record, so that a difference between two files
// shows which.
func (r *Results) Encode() ([]byte, error) {
	r.sort()
	head := *r
	head.Models, head.Ensembles, head.Texts = nil, nil, nil
	out, err := json.Marshal(head)
	if err != nil {
		return nil, err
	}
	for _, list := range []struct {
		key string
		n   int
		at  func(i int) any
	}{
		{"models", len(r.Models), func(i int) any { return r.Models[i] }},
		{"ensembles", len(r.Ensembles), func(i int) any { return r.Ensembles[i] }},
		{"texts", len(r.Texts), func(i int) any { return r.Texts[i] }},
	} {
		lines := []byte(`"` + list.key + `":[`)
		for i := range list.n {
			b, err := json.Marshal(list.at(i))
			if err != nil {
				return nil, err
			}
			if i > 0 {
				lines = append(lines, ',')
			}
			lines = append(append(lines, '\n'), b...)
		}
		out = bytes.Replace(out, []byte(`"`+list.key+`":null`), append(lines, ']'), 1)
	}
	return append(out, '\n'), nil
}

// maxResultsBytes bounds a file of results; the longest form makes a few MB.
const maxResultsBytes = 256 << 20

// Load reads a file of results and refuses one that is damaged or that mixes models of
// different data or code, whose losses would not compare.
func Load(path string) (*Results, error) {
	b, err := fsx.ReadFile(fsx.OS{}, path, maxResultsBytes)
	if err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: fmt.Errorf("results: %w", err)}
	}
	r := &Results{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: fmt.Errorf("results %s: %w", path, err)}
	}
	if err := r.check(); err != nil {
		return nil, &run.Error{Code: run.ExitData, Err: fmt.Errorf("results %s: %w", path, err)}
	}
	return r, nil
}

func (r *Results) check() error {
	if r.Kind != Kind || r.Version != resultsVersion {
		return fmt.Errorf("kind %q, version %d; want %q, %d: the records.json that study micro writes", r.Kind, r.Version, Kind, resultsVersion)
	}
	first := map[string]*Model{}
	for _, m := range r.Models {
		c := r.corpus(m.Corpus)
		if c == nil {
			return fmt.Errorf("run %s is of the corpus %q, which is not listed", m.Run, m.Corpus)
		}
		if m.Test != nil && len(m.Test) != len(c.TestTokens) {
			return fmt.Errorf("run %s has losses of %d documents, the corpus %s has %d", m.Run, len(m.Test), c.Name, len(c.TestTokens))
		}
		where := fmt.Sprint(m.Corpus, m.Pool, m.Text, m.Fraction)
		a := first[where]
		if a == nil {
			a = m
			first[where] = m
			for _, o := range r.Models { // of the same corpus in another pool
				if o.Corpus == m.Corpus {
					a = o
					break
				}
			}
		}
		for _, f := range []struct {
			what, a, b string
			skip       bool
		}{
			{"training documents (data_hash) in one pool", a.DataHash, m.DataHash, a.Pool != m.Pool || a.Text != m.Text || a.Fraction != m.Fraction},
			{"tokenizer", a.TokenizerHash, m.TokenizerHash, false},
			{"validation documents", a.ValHash, m.ValHash, false},
			{"code", a.Code, m.Code, false},
		} {
			if !f.skip && f.a != f.b {
				return fmt.Errorf("runs of different %s: %s has %.12s, %s has %.12s; losses of the two do not compare", f.what, a.Run, f.a, m.Run, f.b)
			}
		}
	}
	for _, e := range r.Ensembles {
		c := r.corpus(e.Corpus)
		if c == nil || len(e.Logit) != len(e.Seeds) || len(e.Prob) != len(e.Seeds) {
			return fmt.Errorf("the ensemble %s is damaged", e.Label())
		}
		for _, list := range append(slices.Clone(e.Logit), e.Prob...) {
			if len(list) != len(c.TestTokens) {
				return fmt.Errorf("the ensemble %s has losses of %d documents, the corpus %s has %d", e.Label(), len(list), c.Name, len(c.TestTokens))
			}
		}
	}
	return nil
}
