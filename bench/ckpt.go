package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"refrain/internal/fsx"
	"refrain/model"
	"refrain/train/ckpt"
)

// CkptConfig measures saving and loading of a checkpoint against a plain copy of
// the same bytes.
type CkptConfig struct {
	Model  model.Config
	Name   string // of the model, for the lines
	Rounds int
	Dir    string // an empty folder; each checkpoint is removed after its round
}

// Ckpt returns two lines: save against writing the same bytes to one file and
// syncing it, and load, which verifies every hash, against reading that file.
// Figures are medians; of-copy is the ratio inside a round.
func Ckpt(ctx context.Context, c CkptConfig, emit func(Line)) error {
	snap, bytes, err := ckptOf(c.Model)
	if err != nil {
		return err
	}
	var save, load []time.Duration
	var saveRatio, loadRatio []float64
	plain := filepath.Join(c.Dir, "plain")
	for round := range c.Rounds {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		snap.Step = int64(round + 1)
		t0 := time.Now()
		saved, err := ckpt.Save(ctx, fsx.OS{}, c.Dir, snap, ckpt.SaveOptions{})
		a := time.Since(t0)
		if err != nil {
			return err
		}
		t0 = time.Now()
		if err := writePlain(plain, snap); err != nil {
			return err
		}
		b := time.Since(t0)
		t0 = time.Now()
		l, err := ckpt.Load(ctx, fsx.OS{}, saved.Path, ckpt.LoadOptions{})
		d := time.Since(t0)
		if err != nil {
			return err
		}
		if len(l.Model) != len(snap.Model) || len(l.Optim) != len(snap.Optim) {
			return fmt.Errorf("bench: %d and %d tensors came back of %d and %d", len(l.Model), len(l.Optim), len(snap.Model), len(snap.Optim))
		}
		t0 = time.Now()
		raw, err := os.ReadFile(plain)
		e := time.Since(t0)
		if err == nil && int64(len(raw)) != bytes {
			err = fmt.Errorf("bench: the plain copy has %d bytes, not %d", len(raw), bytes)
		}
		if err = errors.Join(err, os.RemoveAll(saved.Path), os.Remove(plain)); err != nil {
			return err
		}
		save, load = append(save, a), append(load, d)
		saveRatio, loadRatio = append(saveRatio, b.Seconds()/a.Seconds()), append(loadRatio, e.Seconds()/d.Seconds())
	}
	line := func(what string, t []time.Duration, ratio []float64) {
		m := median(t)
		lo, mid, hi := Quartiles(ratio)
		emit(Line{Name: fmt.Sprintf("Ckpt/preset=%s/%s", c.Name, what), Threads: 1, N: c.Rounds, PerOp: m,
			Metrics: []Metric{{float64(bytes) / m.Seconds() / 1e6, "MB/s"}, {mid, "of-copy"}, {lo, "of-copy-q1"}, {hi, "of-copy-q3"}, {float64(bytes) / 1e6, "MB"}}})
	}
	line("save", save, saveRatio)
	line("load", load, loadRatio)
	return nil
}

// ckptOf is the state of a model at its start: weights and two moments, which are
// not zero, so that no file system stores holes.
func ckptOf(m model.Config) (s *ckpt.Snapshot, bytes int64, err error) {
	if err := m.Validate(); err != nil {
		return nil, 0, err
	}
	n := m.Layout().Total
	s = &ckpt.Snapshot{Identity: ckpt.Identity{RunID: "bench"}, State: map[string]int{"seed": 1}, ModelConfig: []byte("{}")}
	tensor := func(name string) ckpt.Tensor {
		data := make([]byte, 4*n)
		for i := range data {
			data[i] = byte(i*7+i>>9) & 0x3f // finite as floats, since no exponent is all ones
		}
		bytes += int64(len(data))
		return ckpt.Tensor{TensorInfo: ckpt.TensorInfo{Name: name, DType: "F32", Shape: []int{int(n)}}, Data: data}
	}
	s.Model = []ckpt.Tensor{tensor("model.weight")}
	s.Optim = []ckpt.Tensor{tensor("m.model.weight"), tensor("v.model.weight")}
	return s, bytes, nil
}

// writePlain writes the tensors to one file and syncs it.
func writePlain(path string, s *ckpt.Snapshot) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	for _, set := range [][]ckpt.Tensor{s.Model, s.Optim} {
		for _, t := range set {
			if _, err := f.Write(t.Data); err != nil {
				return errors.Join(err, f.Close())
			}
		}
	}
	return errors.Join(f.Sync(), f.Close())
}
