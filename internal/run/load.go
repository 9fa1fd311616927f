package run

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"refrain/internal/fsx"
	"refrain/internal/run/config"
	"refrain/model"
	"refrain/tokenize"
	"refrain/train/ckpt"
)

// Model is a trained model read from a checkpoint or any Hugging Face folder
// that a checkpoint is.
type Model struct {
	Config    model.Config
	HF        model.HF
	Weights   []float32
	Tokenizer *tokenize.Tokenizer // nil when the folder has none
	Path      string
	Step      int64
	Manifest  *ckpt.Manifest
	Report    *ckpt.Report // nil when one folder was named
}

// LoadModel reads the newest good checkpoint of the run folder path, or the
// checkpoint that path is or, as RUN@STEP or RUN@MEMBER, stands for; see Expand.
func LoadModel(ctx context.Context, path string) (*Model, error) {
	return loadModel(ctx, path, ckpt.LoadOptions{})
}

func loadModel(ctx context.Context, path string, o ckpt.LoadOptions) (*Model, error) {
	list, err := Expand([]string{path})
	if err != nil {
		return nil, err
	}
	if len(list) != 1 {
		return nil, usage(fmt.Errorf("%s stands for %d models; name one, such as %s", path, len(list), list[len(list)-1]))
	}
	path = list[0]
	fs := fsx.OS{}
	var l *ckpt.Loaded
	var report *ckpt.Report
	if _, statErr := os.Stat(filepath.Join(path, ckpt.ManifestFile)); statErr == nil {
		l, err = ckpt.Load(ctx, fs, path, o)
	} else if _, statErr := os.Stat(filepath.Join(path, RunFile)); statErr == nil {
		l, report, err = ckpt.LoadLatest(ctx, fs, filepath.Join(path, CkptDir), o)
		if errors.Is(err, ckpt.ErrNone) {
			err = &Error{ExitNoCkpt, err}
		}
	} else {
		return nil, usage(fmt.Errorf("%s is neither a run folder (no %s) nor a checkpoint (no %s)", path, RunFile, ckpt.ManifestFile))
	}
	if err != nil {
		return nil, err
	}
	m := &Model{Path: l.Path, Step: l.Manifest.Step, Manifest: l.Manifest, Report: report}
	if m.Config, m.HF, err = model.ParseHFConfig(l.ModelConfig); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Path, err)
	}
	if m.Weights, err = weightsOf(m.Config, l); err != nil {
		return nil, err
	}
	if l.Tokenizer != nil {
		if m.Tokenizer, err = tokenize.Load(bytes.NewReader(l.Tokenizer)); err != nil {
			return nil, fmt.Errorf("%s: tokenizer.json: %w", l.Path, err)
		}
	}
	return m, nil
}

// ReadWeights reads the weights of m from its folder again and returns them; m keeps what
// it has. It is an error when the folder has gone or holds other weights by now, as
// where a run that still trains has removed an old checkpoint.
func ReadWeights(ctx context.Context, m *Model) ([]float32, error) {
	l, err := ckpt.Load(ctx, fsx.OS{}, m.Path, ckpt.LoadOptions{ModelOnly: true})
	if err != nil {
		return nil, err
	}
	if l.Manifest.WeightsHash() != m.Manifest.WeightsHash() {
		return nil, fmt.Errorf("%s holds other weights than when it was opened; let its run end first", m.Path)
	}
	return weightsOf(m.Config, l)
}

func weightsOf(c model.Config, l *ckpt.Loaded) ([]float32, error) {
	lay := c.Layout()
	w := make([]float32, lay.Total)
	if err := ckpt.Gather(infos(lay, ""), floatBytes(w), l.Model); err != nil {
		return nil, fmt.Errorf("%s: %w", l.Path, err)
	}
	return w, nil
}

// OpenRun reads the resolved configuration of a run folder and joins it with
// its data again, to evaluate with: synthetic rows and teachers are for training only,
// and may have gone.
func OpenRun(path string, overrides []string) (*Setup, error) {
	if _, err := os.Stat(filepath.Join(path, RunFile)); err != nil {
		return nil, usage(fmt.Errorf("%s is not a run folder (no %s)", path, RunFile))
	}
	r, err := config.Load(filepath.Join(path, ConfigFile), overrides)
	if err != nil {
		return nil, err
	}
	WithoutTraining(&r.Config)
	return NewSetup(&r.Config, r)
}

// WithoutTraining takes from c what only training reads beside the documents: a model that
// has been trained does not need what it started and learned from.
func WithoutTraining(c *config.Config) {
	c.Data.Synthetic, c.Distill.Teachers, c.Model.From = config.Mixed{}, nil, ""
}
