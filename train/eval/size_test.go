package eval_test

import (
	"strings"
	"testing"

	"refrain/train/eval"
)

// TestAbsurdBatchIsAnError: more rows than a buffer can hold are an error, not a panic.
func TestAbsurdBatchIsAnError(t *testing.T) {
	c := eval.Config{Model: tiny(), B: 1 << 20, T: 1 << 12}
	c.Model.MaxT = 1 << 12
	if _, _, err := eval.Footprint(c); err == nil || !strings.Contains(err.Error(), "1048576 rows of 4096 tokens") {
		t.Errorf("%v", err)
	}
	c.B = 8
	if _, _, err := eval.Footprint(c); err != nil {
		t.Error(err)
	}
	c.Model.Vocab = 1 << 28
	if _, _, err := eval.Footprint(c); err == nil || !strings.Contains(err.Error(), "parameters") {
		t.Errorf("%v", err)
	}
}
