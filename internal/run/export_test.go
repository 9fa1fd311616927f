package run

import (
	"bytes"
	"context"

	"refrain/internal/fsx"
	"refrain/train/ckpt"
)

// LatestOf is what a resume loads, without the run around it.
func LatestOf(ctx context.Context, s *Setup, fs fsx.FS, dir, runID string) (*Resume, error) {
	return s.checkpoints(fs, dir, runID).Latest(ctx)
}

// HashBase is the hash of the weights of b.
func HashBase(ctx context.Context, b *BaseModel) (string, error) { return b.read(ctx, nil) }

// LatestWith is LatestOf with a field more in state.json.
func LatestWith(ctx context.Context, s *Setup, fs fsx.FS, dir, runID, field string) (*Resume, error) {
	c := s.checkpoints(fs, dir, runID)
	l, _, err := ckpt.LoadLatest(ctx, fs, dir, ckpt.LoadOptions{Want: c.id})
	if err != nil {
		return nil, err
	}
	l.State = bytes.Replace(l.State, []byte("{"), []byte("{"+field+","), 1)
	return c.resume(l)
}

// EvalDue says after which steps a run of s evaluates, the last one left out.
func EvalDue(s *Setup) func(step int64) bool { return (&runner{s: s}).evalDue() }
