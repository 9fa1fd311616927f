package report

import (
	"testing"

	"refrain/study"
)

// TestTokensOfWholeSteps: cells on the same documents have the same number of unique tokens,
// though a run of one epoch ends with the last whole step of it.
func TestTokensOfWholeSteps(t *testing.T) {
	tokens := func(asked string, steps int64) float64 {
		loss := 3.0
		c := &cellRecord{Record: &study.Record{Status: study.Done, Loss: &loss, Val: &loss, Settings: map[string]string{"train.epochs": asked}}}
		c.Cost.Tokens = steps * 8 * 128
		c.run = &Run{Steps: []Step{{Step: steps, Epoch: float64(steps*8) / 156}}}
		return pointOfCell(c, &Sources{}).tokens
	}
	for asked, steps := range map[string]int64{"1": 19, "2": 39, "4": 78} {
		if n := tokens(asked, steps); n != 156*128 {
			t.Errorf("%s epochs: %v unique tokens instead of %d", asked, n, 156*128)
		}
	}
}
