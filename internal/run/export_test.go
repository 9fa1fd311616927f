package run

import (
	"context"

	"refrain/internal/fsx"
)

// LatestOf is what a resume loads, without the run around it.
func LatestOf(ctx context.Context, s *Setup, fs fsx.FS, dir, runID string) (*Resume, error) {
	return s.checkpoints(fs, dir, runID).Latest(ctx)
}

// HashBase is the hash of the weights of b.
func HashBase(ctx context.Context, b *BaseModel) (string, error) { return b.read(ctx, nil) }
