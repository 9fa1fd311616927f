package run

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"refrain/internal/run/config"
)

// Opened is a model that is used together with others: all of its checkpoint has been
// verified, its weights are not held, and the configuration of its run is at hand.
type Opened struct {
	*Model                // without Weights
	Run    string         // folder of its run; "" for a checkpoint outside of one
	Conf   *config.Config // of its run; nil for a checkpoint outside of one
}

// Open finds the checkpoint that path is or stands for, as LoadModel does, verifies all of
// it, and lets its weights go. overrides are read over the configuration of its run. A run
// whose newest checkpoint is damaged is refused: an older model than was trained would be
// taken for the one that was meant.
func Open(ctx context.Context, path string, overrides []string) (*Opened, error) {
	m, err := LoadModel(ctx, path)
	if err != nil {
		return nil, err
	}
	m.Weights = nil
	runtime.GC() // the checkpoint lay in memory whole, with its optimizer
	if m.Report != nil && len(m.Report.Skipped) > 0 {
		return nil, &Error{ExitData, fmt.Errorf("%v; this would be an older model than was trained: restore it, or name the checkpoint %s if that is meant", m.Report, m.Path)}
	}
	o := &Opened{Model: m}
	o.Run, o.Conf, err = ConfigOf(m, overrides)
	return o, err
}

// ConfigOf returns the folder of the run that m is a checkpoint of and its configuration,
// with overrides over it; "" and nil for a checkpoint outside of a run.
func ConfigOf(m *Model, overrides []string) (dir string, c *config.Config, err error) {
	// A checkpoint lies in RUN/ckpt/STEP.
	at := filepath.Dir(filepath.Clean(m.Path))
	dir = filepath.Dir(at)
	if _, err := os.Stat(filepath.Join(dir, RunFile)); err != nil || filepath.Base(at) != CkptDir {
		return "", nil, nil
	}
	r, err := config.Load(filepath.Join(dir, ConfigFile), overrides)
	if err != nil {
		return "", nil, err
	}
	return dir, &r.Config, nil
}
