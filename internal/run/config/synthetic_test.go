package config

import (
	"strings"
	"testing"
)

// TestRow25Steps: epochs count passes over the real rows, so a share of w takes
// 1/(1-w) as many steps; the numbers are those of the published runs, of 12,800 steps
// in 16 epochs.
func TestRow25Steps(t *testing.T) {
	for _, c := range []struct {
		fraction string
		windows  int64
		want     int64
	}{{"0.5", 51200, 25600}, {"0.75", 51200, 51200}, {"0.9", 51200, 128000}, {"0.95", 51200, 256000}, {"0.9", 51201, 128002}, {"0.123457", 1 << 40, 313_593_180_190}} {
		r := parse(t, "data.synthetic.store=s2", "data.synthetic.fraction="+c.fraction, "train.epochs=16", "train.batch=64")
		got, err := r.Config.Horizon(c.windows)
		if err != nil || got != c.want {
			t.Errorf("fraction %s of %d windows: %d steps, want %d (%v)", c.fraction, c.windows, got, c.want, err)
		}
	}
	// A batch that is larger than the real epoch, but not than the mixed one.
	r := parse(t, "data.synthetic.store=s2", "data.synthetic.fraction=0.75", "train.epochs=2", "train.batch=64")
	if n, err := r.Config.Horizon(16); err != nil || n != 2 {
		t.Errorf("%d steps (%v), want 2", n, err)
	}
	if _, err := r.Config.Horizon(15); err == nil || !strings.Contains(err.Error(), "60 rows with the synthetic ones") {
		t.Errorf("a batch larger than an epoch: %v", err)
	}
	// Steps and tokens are of both kinds of rows.
	r = parse(t, "data.synthetic.store=s2", "data.synthetic.fraction=0.75", "train.epochs=null", "train.steps=7")
	if n, err := r.Config.Horizon(1000); err != nil || n != 7 {
		t.Errorf("%d steps (%v), want 7", n, err)
	}
}

func TestRow25BadFractions(t *testing.T) {
	for _, c := range []struct {
		want      string
		overrides []string
	}{
		{"data.synthetic.fraction is 0", []string{"data.synthetic.store=x"}},
		{"without data.synthetic.store", []string{"data.synthetic.fraction=0.5"}},
		{"out of range", []string{"data.synthetic.store=x", "data.synthetic.fraction=1"}},
		{"out of range", []string{"data.synthetic.store=x", "data.synthetic.fraction=-0.5"}},
		{"more than six decimals", []string{"data.synthetic.store=x", "data.synthetic.fraction=0.3333333"}},
	} {
		_, err := Parse("c.yaml", nil, append(c.overrides, "model.preset=micro-1M", "data.store=s", "train.epochs=2"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.overrides, err, c.want)
		}
	}
	for _, f := range []string{"0.333333", "0.75", "0.1", "0.000001", "0.999999", "0.7"} {
		r := parse(t, "data.synthetic.store=x", "data.synthetic.fraction="+f)
		num, den, ok := r.Config.Data.Synthetic.Share()
		if got := float64(num) / float64(den); !ok || got != r.Config.Data.Synthetic.Fraction {
			t.Errorf("fraction %s is %d/%d", f, num, den)
		}
	}
}

func TestRow26BadDistill(t *testing.T) {
	for _, c := range []struct {
		want      string
		overrides []string
	}{
		{"distill.top_k is set without distill.teachers", []string{"distill.top_k=4"}},
		{"distill.weight is set without distill.teachers", []string{"distill.weight=1"}},
		{"entry 2 is empty", []string{`distill.teachers=[a, ""]`}},
		{"out of range", []string{"distill.teachers=[a]", "distill.weight=0"}},
		{"out of range", []string{"distill.teachers=[a]", "distill.temperature=0"}},
	} {
		_, err := Parse("c.yaml", nil, append(c.overrides, "model.preset=micro-1M", "data.store=s", "train.epochs=2"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.overrides, err, c.want)
		}
	}
}
