package run_test

import (
	"path/filepath"
	"testing"

	"refrain/internal/run"
)

// TestOwnBits: only checkpoints that say so come from kernels that rounded in their
// own way; those of today have nothing to say about their kernels.
func TestOwnBits(t *testing.T) {
	d := newDamaged(t)
	for field, want := range map[string]bool{`"bits": "purego"`: true, `"bits": "assembly"`: false, `"unknown": 1`: false} {
		r, err := run.LatestWith(t.Context(), d.s, d.mem, filepath.Join(d.out, run.CkptDir), runID(t, d.out), field)
		if err != nil || r.OwnBits != want || r.Step != 9 {
			t.Errorf("%s: %+v, %v; expected OwnBits %t", field, r, err, want)
		}
	}
}
