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
	// A checkpoint lies in RUN/ckpt/STEP.
	at := filepath.Dir(filepath.Clean(m.Path))
	if _, err := os.Stat(filepath.Join(filepath.Dir(at), RunFile)); err != nil || filepath.Base(at) != CkptDir {
		return o, nil
	}
	o.Run = filepath.Dir(at)
	r, err := config.Load(filepath.Join(o.Run, ConfigFile), overrides)
	if err != nil {
		return nil, err
	}
	o.Conf = &r.Config
	return o, nil
}
