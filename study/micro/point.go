// Package micro asks what repeated-data pretraining does at a scale of minutes: a fixed
// program of small runs on real text, whose answers carry effect sizes and intervals,
// whatever they are. The questions are those of Kim et al. 2025 and of the work after it:
// epochs, weight decay, size, ensembles, the order of the data, the batch, tied and decayed
// embeddings, distillation, and what a number of devices and a deadline buy.
//
// What is trained and measured is a pure function of the program and of the results so
// far, and what is found is one of the results alone, so the same command goes on after any
// stop and a report can be made again from the records without a model.
package micro

import (
	"fmt"
	"strconv"
	"strings"

	"refrain/study"
)

// Point is a recipe on one pool of one corpus. With a seed it is one model.
type Point struct {
	Corpus string  `json:"corpus"`
	Pool   int     `json:"pool"` // from 1
	Size   string  `json:"size"`
	Order  string  `json:"order"`
	Batch  int     `json:"batch"` // rows
	Epochs int     `json:"epochs"`
	LR     float64 `json:"lr"`
	Decay  float64 `json:"decay"`           // of hidden matrices and an untied head
	Embed  float64 `json:"embedding_decay"` // of an untied embedding, or of the matrix that is both
	Tied   bool    `json:"tied"`
	TiedLR float64 `json:"tied_lr"` // of a matrix that is both, as a multiple of LR; 0 when untied
	// Text names generated documents, of which Fraction of the rows are; epochs count
	// passes over the others.
	Text     string  `json:"text,omitempty"`
	Fraction float64 `json:"fraction,omitempty"`
}

// Label words the recipe without corpus and pool.
func (p Point) Label() string {
	s := fmt.Sprintf("%s %s B%d e%d lr %g decay %g", p.Size, p.Order, p.Batch, p.Epochs, p.LR, p.Decay)
	if p.Embed > 0 {
		s += fmt.Sprintf(" embedding %g", p.Embed)
	}
	if p.Tied {
		s += fmt.Sprintf(" tied at %g x lr", p.TiedLR)
	}
	if p.Text != "" {
		s += fmt.Sprintf(" with %g %% of %s", 100*p.Fraction, p.Text)
	}
	return s
}

// in is the same recipe on another pool.
func (p Point) in(pool int) Point {
	p.Pool = pool
	return p
}

// size is the shape of a model.
type size struct {
	Name                     string
	Layers, Dim, Heads, Hide int
}

func (s size) settings() string {
	return fmt.Sprintf("model.layers=%d model.dim=%d model.heads=%d model.ffn=%d", s.Layers, s.Dim, s.Heads, s.Hide)
}

// settings are the keys of the configuration that the point sets, always the same ones in
// the same order, so that one point is one cell.
// text is the store of the point's generated documents.
func (p Point) settings(sizes []size, pools int, text string) ([]study.Setting, error) {
	var list []string
	for _, s := range sizes {
		if s.Name == p.Size {
			list = strings.Fields(s.settings())
		}
	}
	if list == nil {
		return nil, fmt.Errorf("micro: there is no size %q", p.Size)
	}
	g := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	list = append(list,
		fmt.Sprintf("data.pool=%d/%d", p.Pool, pools), "data.mode="+p.Order, fmt.Sprintf("train.batch=%d", p.Batch),
		fmt.Sprintf("train.epochs=%d", p.Epochs), "optim.lr="+g(p.LR), "optim.weight_decay="+g(p.Decay))
	if p.Tied {
		list = append(list, "model.tie=true", "optim.tied_decay="+g(p.Embed), "optim.lr_mul.tied="+g(p.TiedLR))
	} else {
		list = append(list, "optim.embedding_decay="+g(p.Embed))
	}
	if p.Text != "" {
		list = append(list, "data.synthetic.store="+text, "data.synthetic.fraction="+g(p.Fraction))
	}
	var out []study.Setting
	for _, x := range list {
		k, v, _ := strings.Cut(x, "=")
		out = append(out, study.Setting{Key: k, Value: v})
	}
	return out, nil
}
