// Package generate draws documents from trained models, many at a time: from one model,
// from the mean of several models' logits, or pooled over several models, as in the
// distillation of Kim et al. 2025 (section 6). It writes them as a token store.
//
// Document i is a pure function of the models, the rule, the temperature, the seed and i: it
// draws from a random stream of its own. How many documents are worked on at a time, in which
// order they end, threads and devices change no token.
//
//	r, err := generate.Run(ctx, generate.Request{Runs: runs, Mode: generate.Pool, Out: "synthetic", Tokens: 1e7, Temperature: 1})
package generate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"refrain/gpu"
	"refrain/model"
	"refrain/store"
)

// Mode says from what a token is drawn.
type Mode string

// The modes.
const (
	Single  Mode = "single"  // one model
	Average Mode = "average" // the mean of the logits of all models
	Pool    Mode = "pool"    // document i from model i mod K
)

// DefaultSlots is how many documents are worked on at a time unless something else is asked for.
const DefaultSlots = 48

// Teacher is a model that generates.
type Teacher struct {
	Name  string // in errors, and the source of the documents it writes alone
	Model model.Config
	// Weights returns the parameters in the layout of Model. It is called once a device.
	Weights func(ctx context.Context) ([]float32, error)
}

// Rule says how a document begins and ends.
type Rule struct {
	Start     uint32 // what the model is shown first
	Written   bool   // Start is the first token of the document
	Seen      bool   // later tokens attend to Start
	Stop      uint32 // what ends the document
	StopKept  bool   // as its last token
	MaxLength int    // tokens of a document, those of its borders included
}

// RuleOf is the rule of documents between these boundary ids, as a model sees them that was
// trained with the given mask. An id that stands before documents begins one. An id that
// stands behind them is what a model has before its eyes where the next document's first
// token is to be predicted; under a mask of documents it belongs to the one before, and
// later tokens do not attend to it.
func RuleOf(b store.Boundary, docMask bool, maxLength int) (Rule, error) {
	r := Rule{MaxLength: maxLength}
	least := 1
	switch {
	case b.BOS != nil:
		r.Start, r.Stop, r.Written, r.Seen, least = *b.BOS, *b.BOS, true, true, 2
		if b.EOS != nil {
			r.Stop, r.StopKept = *b.EOS, true
		}
	case b.EOS != nil:
		r.Start, r.Stop, r.Seen, r.StopKept = *b.EOS, *b.EOS, !docMask, true
	default:
		return r, errors.New("the documents have no boundary ids, so nothing begins or ends one; train on a store that has them")
	}
	if maxLength < least {
		return r, fmt.Errorf("documents of at most %d tokens; %d is the least, with boundary ids", maxLength, least)
	}
	return r, nil
}

// Config is what to generate, and with what. Slots and Devices change no token.
type Config struct {
	Teachers    []Teacher
	Mode        Mode
	Rule        Rule
	Vocab       int // tokens that may be drawn; 0 is all of the models'
	Temperature float64
	Seed        uint64
	Tokens      int64 // end with the first document that makes it so many; 0 sets no end
	Documents   int64 // end with so many documents; 0 sets no end
	Slots       int   // documents at a time, over all devices; 0 is DefaultSlots
	Devices     []gpu.Device
}

// Document is one of the documents, in the order of their numbers.
type Document struct {
	Number  int64
	Teacher int      // index of the one that wrote it; -1 for the mean of several
	IDs     []uint32 // at least one; those who get it may keep it
	Cut     bool     // ended by its length
}

// Stats count what was done. Only Steps, Drawn, Slots and Working depend on how many documents
// were worked on at a time.
type Stats struct {
	Documents int64
	Tokens    int64 // of these documents
	Cut       int64 // documents ended by their length
	Empty     int64 // documents of boundary ids alone
	Steps     int64 // of the devices
	Drawn     int64 // tokens, those of documents included that were not needed in the end
	Slots     int64 // in all steps; Drawn of them had a document
	ByTeacher []Share
	Working   time.Duration // from the first step to the last
}

// Share is what one teacher wrote alone.
type Share struct{ Documents, Tokens int64 }

func (c *Config) check() error {
	switch c.Mode {
	case Single:
		if len(c.Teachers) != 1 {
			return fmt.Errorf("mode single takes one model, and there are %d; choose average or pool", len(c.Teachers))
		}
	case Average, Pool:
		if len(c.Teachers) == 0 {
			return errors.New("there are no models")
		}
	default:
		return fmt.Errorf("mode %q; use single, average or pool", c.Mode)
	}
	first := c.Teachers[0]
	for _, t := range c.Teachers {
		switch {
		case t.Model.Vocab != first.Model.Vocab:
			return fmt.Errorf("%s has a vocabulary of %d and %s one of %d; documents of one store need the same", t.Name, t.Model.Vocab, first.Name, first.Model.Vocab)
		case c.Rule.MaxLength > t.Model.MaxT:
			return fmt.Errorf("documents of up to %d tokens; %s covers %d positions", c.Rule.MaxLength, t.Name, t.Model.MaxT)
		}
	}
	switch {
	case c.Rule.MaxLength < 1:
		return fmt.Errorf("documents of up to %d tokens; 1 is the least", c.Rule.MaxLength)
	case c.Tokens < 0 || c.Documents < 0 || c.Tokens == 0 && c.Documents == 0:
		return fmt.Errorf("%d tokens and %d documents; say with one of them where to end", c.Tokens, c.Documents)
	case c.Slots < 0:
		return fmt.Errorf("%d documents at a time; use 1 or more", c.Slots)
	case len(c.Devices) == 0:
		return errors.New("no device")
	}
	return nil
}

// Documents draws documents and calls emit with each, in the order of their numbers, from 0
// on without a gap, until Tokens or Documents are reached. It blocks until then, and holds on
// every device the models that work there with the caches of their slots. Errors are those of
// the configuration, of a teacher's weights, of emit, and a logit that is not finite.
func Documents(ctx context.Context, c Config, emit func(Document) error) (s Stats, err error) {
	if err := c.check(); err != nil {
		return s, fmt.Errorf("generate: %w", err)
	}
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	b := newBatch(c, emit)
	defer func() {
		for _, u := range b.units {
			err = errors.Join(err, u.close())
		}
	}()
	if err := b.open(ctx); err != nil {
		return s, fmt.Errorf("generate: %w", err)
	}
	start := time.Now()
	if err := b.run(ctx); err != nil {
		return b.stats, fmt.Errorf("generate: %w", err)
	}
	b.stats.Working = time.Since(start)
	return b.stats, nil
}
