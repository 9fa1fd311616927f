package run

import (
	"context"

	"refrain/internal/fsx"
)

// LatestOf is what a resume loads, without the run around it.
func LatestOf(ctx context.Context, s *Setup, fs fsx.FS, dir, runID string) (*Resume, error) {
	return s.checkpoints(fs, dir, runID).Latest(ctx)
}
