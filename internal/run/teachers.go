package run

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"runtime"

	"refrain/train"
	"refrain/train/ckpt"
)

// openTeachers reads the checkpoints that distill.teachers names, far enough to know what
// they are, and lets their weights go until a trainer asks for them. The teachers' weights
// are part of what the run learns from, and so of DataHash.
func (s *Setup) openTeachers(ctx context.Context) error {
	d := &s.Config.Distill
	if len(d.Teachers) == 0 {
		return nil
	}
	o := &train.Distill{Weight: d.Weight, Temperature: d.Temperature, TopK: d.TopK}
	h := sha256.New()
	h.Write([]byte("refrain teachers 1\n"))
	paths, err := Expand(d.Teachers)
	if err != nil {
		return fmt.Errorf("distill.teachers: %w", err)
	}
	for _, path := range paths {
		m, err := loadModel(ctx, path, ckpt.LoadOptions{ModelOnly: true})
		if err != nil {
			return fmt.Errorf("distill.teachers: %s: %w", path, err)
		}
		m.Weights = nil
		runtime.GC() // the checkpoint lay in memory whole
		bad := func(format string, args ...any) error {
			return &Error{ExitData, fmt.Errorf("distill.teachers: %s: %w", path, fmt.Errorf(format, args...))}
		}
		if m.Report != nil && len(m.Report.Skipped) > 0 {
			return bad("%v; this would be an older model than was trained: restore it, or name the checkpoint %s if that is meant", m.Report, m.Path)
		}
		if a, b := m.Manifest.TokenizerHash, s.TokHash; a != b {
			return bad("it was trained with another tokenizer (hash %.12s) than data.store has (%.12s); teacher and student must predict the same tokens", a, b)
		}
		if a, b := m.Config.Vocab, s.Options.Model.Vocab; a != b {
			return bad("its vocabulary is %d and the student's %d; set model.vocab=%d", a, b, a)
		}
		if a, b := m.Config.MaxT, s.Options.T; a < b {
			return bad("it covers %d positions, and the rows have %d; use data.seq=%d or less", a, b, a)
		}
		c := m.Config
		fmt.Fprintf(h, "%s %d %d %d %d %d %d %d %g %g %v%v\n", m.Manifest.WeightsHash(), c.Vocab, c.Layers, c.Dim, c.Heads, c.KVHeads, c.C(), c.FFN, c.RopeTheta, c.NormEps, c.Tie, c.RopeScaling)
		o.Teachers = append(o.Teachers, train.Teacher{Name: path, Model: m.Config, Weights: func(ctx context.Context) ([]float32, error) {
			return ReadWeights(ctx, m)
		}})
	}
	s.TeachersHash = hex.EncodeToString(h.Sum(nil))
	all := withTeachers(s.DataHash, s.TeachersHash)
	s.DataHash = hex.EncodeToString(all[:])
	s.Options.Distill = o
	if err := o.Validate(&s.Options); err != nil {
		return usage(err)
	}
	return nil
}

// teachersText says what a run learns from beside the tokens, or "".
func (s *Setup) teachersText() string {
	d := s.Options.Distill
	if d == nil {
		return ""
	}
	kept := ""
	if d.TopK > 0 {
		kept = fmt.Sprintf(", %d likeliest tokens", d.TopK)
	}
	return fmt.Sprintf("distill %d teacher(s)  weight %g  temperature %g%s  hash %.8s", len(d.Teachers), d.Weight, d.Temperature, kept, s.TeachersHash)
}
