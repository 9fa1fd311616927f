package report

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/study"
)

// withKind marshals v with the head of a record.
func withKind(t *testing.T, kind string, v any) string {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(`{"kind":%q,"version":1,"code":"0123456789abcdef","command":["refrain","study",%q],%s`, kind, kind, b[1:])
}

// TestStudiesOnThePage: cells and effects of an ablation, endpoints and shapes of a batch
// study, each with its contrast and the rows of its runs; without the registry the rows are
// of the file.
func TestStudiesOnThePage(t *testing.T) {
	dir := t.TempDir()
	sweepOf(t, filepath.Join(dir, "sweep"), false, grid())
	records, err := study.ReadRegistry(filepath.Join(dir, "sweep"))
	if err != nil {
		t.Fatal(err)
	}
	contrast := &study.Contrast{Difference: -0.25, Pairs: 3, StdErrSeeds: new(float64), StdErrDocuments: new(float64), Interval: &[2]float64{-0.3, -0.2}, Clear: true}
	*contrast.StdErrSeeds, *contrast.StdErrDocuments = 0.0123, 0.0234
	arm := func(label string, i int, c *study.Contrast) *study.Arm {
		loss := 3 + 0.1*float64(i)
		return &study.Arm{Label: label, Loss: &loss, Losses: []float64{loss}, Runs: []string{records[i].Run}, Contrast: c}
	}
	ablation := withKind(t, "ablation", &study.Ablation{
		Registry: "sweep", Store: "test", DataHash: "d", Tokens: 77, Base: "worse", Arms: []*study.Arm{arm("worse", 1, nil), arm("better", 0, contrast)},
		Effects: []study.Effect{{Axis: "a", Level: "better", Base: "worse", At: "there", Contrast: contrast}}, Warnings: []string{"a warning of the study"},
	})
	batch := withKind(t, "batch", &study.BatchStudy{
		Registry: "sweep", Store: "test", DataHash: "d", Reference: "8",
		Pools: []study.PoolResult{{Pool: "data.pool=1/2", Shape: study.UShaped, Endpoints: []study.Endpoint{
			{Batch: "4", Arm: arm("small", 2, contrast), Train: contrast.StdErrSeeds}, {Batch: "8", Arm: arm("right", 1, nil)},
		}}},
	})
	write(t, dir, map[string]any{"a.json": ablation, "b.json": batch, "alone.json": strings.Replace(ablation, `"sweep"`, `"elsewhere"`, 1)})
	p, page := pageOf(t, dir, "a.json", "b.json")
	for _, want := range []string{"The best cell of the ablation, better, is at 3.0000, -0.2500 from worse, which is clear.", "on pool data.pool=1/2 is u-shaped around batch 8"} {
		if !strings.Contains(p.said(), want) {
			t.Errorf("there is no %q in\n%s", want, p.said())
		}
	}
	if len(p.Sources.list) != len(grid()) || !strings.Contains(string(page), "a warning of the study") {
		t.Errorf("%d rows of provenance", len(p.Sources.list))
	}
	row := func(section, first string) []string {
		for _, s := range p.Sections {
			for _, tab := range s.Tables {
				for i, r := range tab.Rows {
					if s.Title == section && r[0] == first {
						checkRef(t, section, tab.Refs[i], len(p.Sources.list))
						return r
					}
				}
			}
		}
		t.Fatalf("section %s has no row %s", section, first)
		return nil
	}
	if r := row("Ablation", "better"); len(r) != 9 || !slices.Contains(r, "-0.3000 to -0.2000") || !slices.Contains(r, "0.0123") {
		t.Errorf("%q", r)
	}
	if r := row("Batch study", "data.pool=1/2"); r[1] != "4" || !slices.Contains(r, "3.2000") {
		t.Errorf("%q", r)
	}
	if f := p.figure(t, "Loss over the batch, each tuned for itself"); len(f.Series) != 2 || !slices.Equal(f.Series[0].X, []float64{4, 8}) || len(f.Series[1].X) != 1 {
		t.Errorf("%+v", f.Series)
	}
	if p, _ := pageOf(t, dir, "alone.json"); len(p.Sources.list) != 1 || p.Sources.list[0].Where != "alone.json" {
		t.Errorf("without the registry: %+v", p.Sources.list)
	}
	for kind, want := range map[string]string{"ablation": "no arms", "batch": "no pools"} {
		write(t, dir, map[string]any{"empty.json": withKind(t, kind, struct{ A int }{})})
		if _, err := Read([]string{"empty.json"}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("an empty record: %v, want %s", err, want)
		}
	}
}
