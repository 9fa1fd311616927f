package report

import (
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
)

// folder writes a run folder with these lines of metrics and log.
func folder(t *testing.T, metrics, log string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{run.RunFile: `{"id":"1"}`, run.MetricsFile: metrics, run.LogFile: log} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// A run that was killed after step 3 and resumed after step 2, with a line that
// the kill cut short.
const metrics = `{"type":"step","step":1,"epoch":0.5,"loss":4,"tok_s":10,"wait":0.9,"chain":"a"}
{"type":"step","step":2,"epoch":1,"loss":2,"tok_s":100,"wait":0.01,"chain":"b"}
{"type":"eval","step":2,"loss":5,"tokens":7}
{"type":"step","step":3,"epoch":1.5,"loss":9,"tok_s":100,"wait":0.5,"chain":"x"}
{"type":"step","st
{"type":"step","step":3,"epoch":1.5,"loss":1,"tok_s":20,"wait":0.8,"chain":"c"}
{"type":"step","step":4,"epoch":2,"loss":3,"tok_s":120,"wait":0.02,"chain":"d"}
{"type":"eval","step":4,"loss":6,"tokens":7}
{"type":"step","step":5,"epoch":2.5,"loss":2,"chain":"e"}
{"type":"eval","step":5,"loss":7,"tokens":7}
`

const logLines = `{"msg":"started","step":0}
{"msg":"evaluated","step":2}
{"msg":"started","step":2}
`

func TestLoadKeepsWhatWasDoneLast(t *testing.T) {
	r, err := Load(folder(t, metrics, logLines))
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Steps) != 5 || r.Steps[2].Loss != 1 || r.Chain != "e" {
		t.Errorf("steps %+v, chain %s", r.Steps, r.Chain)
	}
	// Starts take time in which the device waits; they are not the run's speed.
	if tok, wait := r.Speed(); tok != 120 || wait != 0.02 {
		t.Errorf("speed %v, wait %v", tok, wait)
	}
	// The last evaluation comes one step after the one before, and is held against
	// two steps all the same.
	epochs, gaps := r.Gaps()
	if !slices.Equal(epochs, []float64{1, 2, 2.5}) || !slices.Equal(gaps, []float64{5 - 3, 6 - 2, 7 - 2.5}) {
		t.Errorf("gaps %v at %v", gaps, epochs)
	}
	if v, ok := r.FinalVal(); !ok || v != 7 {
		t.Errorf("final loss %v, %v", v, ok)
	}
}

func TestWholeTicks(t *testing.T) {
	for _, c := range []struct {
		lo, hi float64
		want   string
	}{
		{0.5, 4, "1 2 3 4"},
		{0.5, 16, "2 4 6 8 10 12 14 16"},
		{1, 32, "5 10 15 20 25 30"},
		{0.1, 1000, "100 200 300 400 500 600 700 800 900 1000"},
	} {
		var got []string
		for _, k := range wholeTicks(c.lo, c.hi, 10) {
			got = append(got, k.Label)
			if k.Value != math.Round(k.Value) {
				t.Errorf("a tick at %v", k.Value)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("ticks from %g to %g: %s, want %s", c.lo, c.hi, s, c.want)
		}
	}
}

func TestPageNamesEverySeriesOutsideItsFigure(t *testing.T) {
	r, err := Load(folder(t, metrics, logLines))
	if err != nil {
		t.Fatal(err)
	}
	r.Name = `a<b`
	p := &Page{Title: "T", Runs: []*Run{r}}
	path := filepath.Join(t.TempDir(), "report.html")
	if err := p.Write(path); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	html := string(b)
	if n := strings.Count(html, `<i class="s0 line"></i>a&lt;b</span>`); n != 3 {
		t.Errorf("%d legends name the run, want one for each of 3 figures", n)
	}
	if strings.Contains(html, "a<b") || strings.Contains(html, "ZgotmplZ") {
		t.Error("a name or a colour is not escaped as it should be")
	}
}
