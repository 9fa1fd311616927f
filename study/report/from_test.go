package report

import (
	"bytes"
	"encoding/csv"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// pageOf reads paths inside dir and makes their page.
func pageOf(t *testing.T, dir string, names ...string) (*Page, []byte) {
	t.Helper()
	t.Chdir(dir)
	r, err := Read(names)
	if err != nil {
		t.Fatal(err)
	}
	p := From(r, "A page")
	b, err := p.HTML()
	if err != nil {
		t.Fatal(err)
	}
	return p, b
}

// figure finds one by its title.
func (p *Page) figure(t *testing.T, title string) *Figure {
	t.Helper()
	var titles []string
	for _, s := range append(p.runSections(), p.Sections...) {
		for _, f := range s.Figures {
			if f.Title == title {
				return f
			}
			titles = append(titles, f.Title)
		}
	}
	t.Fatalf("no figure %q among %q", title, titles)
	return nil
}

func (p *Page) said() string {
	var b strings.Builder
	for _, s := range p.Result {
		b.WriteString(s.Text + "\n")
	}
	return b.String()
}

// TestRow38EveryNumberHasProvenance (E row 38): a page is made from records alone, twice
// with equal bytes; its figures have the numbers of the records; every row of every CSV
// names rows of the provenance that have configuration, seed, data, code and run.
func TestRow38EveryNumberHasProvenance(t *testing.T) {
	dir := t.TempDir()
	sweepOf(t, filepath.Join(dir, "sweep"), true, grid())
	p, first := pageOf(t, dir, "sweep")
	// Weights and whatever else a folder has do not matter, nor does the time of the files.
	runs, err := filepath.Glob(filepath.Join(dir, "sweep", "runs", "*"))
	if err != nil || len(runs) != len(grid()) {
		t.Fatalf("%d run folders, %v", len(runs), err)
	}
	write(t, runs[0], map[string]any{"ckpt/step-000000040/model.safetensors": "weights"})
	if _, again := pageOf(t, dir, "sweep"); !bytes.Equal(first, again) {
		t.Error("a second page of the same records has other bytes")
	}

	// The lowest point of the valley with this decay is at 4*(1+0.1) = 4.4 epochs.
	f := p.figure(t, "Validation loss over epochs")
	i := slices.IndexFunc(f.Series, func(s Series) bool { return s.Name == "mode=repack weight_decay=0.1" })
	if i < 0 {
		t.Fatalf("no series of the usual recipe in %+v", f.Legend())
	}
	s := f.Series[i]
	if !slices.Equal(s.X, []float64{1, 2, 4, 8, 16}) {
		t.Fatalf("epochs %v", s.X)
	}
	for k, epochs := range s.X {
		var want float64
		for seed := range 3 {
			r := usual()
			r.epochs, r.seed = epochs, uint64(seed)
			want += r.loss() / 3
		}
		if math.Abs(s.Y[k]-want) > 1e-12 || math.Abs(s.Err[k]-0.001*math.Sqrt(epochs)) > 1e-12 {
			t.Errorf("%g epochs: %v +- %v, want %v +- %v", epochs, s.Y[k], s.Err[k], want, 0.001*math.Sqrt(epochs))
		}
	}
	sources := p.Sources.list
	if len(sources) != len(grid()) {
		t.Errorf("%d rows of provenance for %d runs", len(sources), len(grid()))
	}
	for _, r := range sources {
		if r.Config == "" || r.Data == "" || r.Tokenizer == "" || r.Code == "" || r.Seed == "" || r.Where == "" {
			t.Errorf("row %+v lacks something", r)
		}
		if !bytes.Contains(first, []byte(r.Config)) || !bytes.Contains(first, []byte(r.Where)) {
			t.Errorf("row %d is not on the page", r.No)
		}
	}
	for _, sec := range append(p.runSections(), p.Sections...) {
		for _, f := range sec.Figures {
			rows, err := csv.NewReader(strings.NewReader(f.CSV())).ReadAll()
			if err != nil {
				t.Fatal(err)
			}
			at := slices.Index(rows[0], "provenance")
			if at < 0 {
				t.Errorf("the CSV of %s has no provenance", f.Title)
				continue
			}
			for _, row := range rows[1:] {
				checkRef(t, f.Title, row[at], len(sources))
			}
		}
		for _, table := range sec.Tables {
			if len(table.Refs) != len(table.Rows) {
				t.Errorf("section %s: a table with %d rows has %d references", sec.Title, len(table.Rows), len(table.Refs))
			}
			for _, ref := range table.Refs {
				checkRef(t, sec.Title, ref, len(sources))
			}
		}
	}
	if !bytes.Contains(first, []byte("refrain sweep &#39;made up.yaml&#39;")) {
		t.Error("no command to make the records again")
	}
	// Five hundredths of the squared distance in octaves from 4.4 epochs, and the seeds.
	few, best := recipe{epochs: 1, decay: 0.1, batch: 8, dim: 64, tokens: 65536, mode: "repack", seed: 1}, usual()
	best.seed = 1
	want := fmt.Sprintf("lowest inside what was tried, at epochs = 4 with mode=repack weight_decay=0.1: at 1 it is %.4f +- 0.0006 (3 seeds) higher", few.loss()-best.loss())
	if text := p.said(); !strings.Contains(text, want) {
		t.Errorf("no %q in %s", want, text)
	}
}

// checkRef wants a reference to rows that are there.
func checkRef(t *testing.T, where, ref string, rows int) {
	t.Helper()
	for _, part := range strings.Split(ref, ", ") {
		from, to, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(from)
		b := a
		if isRange && err == nil {
			b, err = strconv.Atoi(to)
		}
		if err != nil || a < 1 || b < a || b > rows {
			t.Errorf("%s: reference %q", where, ref)
			return
		}
	}
}

// TestRow39Figures (E row 39): loss over epochs, batch, parameters and unique tokens, and
// the heat map, with the laws that made the losses; the page looks right and asks for
// nothing.
func TestRow39Figures(t *testing.T) {
	dir := t.TempDir()
	sweepOf(t, filepath.Join(dir, "grid"), true, grid())
	sweepOf(t, filepath.Join(dir, "ladders"), false, ladders())
	p, b := pageOf(t, dir, "grid", "ladders")

	heat := p.figure(t, "Validation loss by epochs and weight decay, tokens=65536 dim=64").Heat
	if !slices.Equal(heat.Cols, []string{"0.1", "0.8", "3.2"}) || !slices.Equal(heat.Rows, []string{"1", "2", "4", "8", "16"}) {
		t.Errorf("heat map of %q by %q", heat.Rows, heat.Cols)
	}
	lo, _ := heat.bounds()
	if best := bestOf(p.groupsFor(t)); math.Abs(best.mean-lo) > 1e-12 {
		t.Errorf("the lowest of the heat map is %v, of all recipes %v", lo, best.mean)
	}
	batch := p.figure(t, "Validation loss over batch, tokens=65536 dim=64")
	i := slices.IndexFunc(batch.Series, func(s Series) bool { return s.Name == "mode=repack weight_decay=0.1 epochs=4" })
	if i < 0 || !slices.Equal(batch.Series[i].X, []float64{2, 4, 8, 16, 32}) || slices.Index(batch.Series[i].Y, slices.Min(batch.Series[i].Y)) != 2 {
		t.Errorf("batch: %+v", batch.Series)
	}
	for _, name := range []string{"Loss over parameters, tokens=65536", "Loss over unique tokens, dim=64"} {
		f := p.figure(t, name)
		if len(f.Series) != 3 {
			t.Errorf("%s: %d series, want points, law and end", name, len(f.Series))
		}
	}
	// Over parameters the made-up losses of the usual recipe end at this.
	r := usual()
	end := r.loss() - 3/math.Pow(float64(r.params())/1e3, 0.8)
	if text := p.said(); !strings.Contains(text, fmt.Sprintf("Over parameters, tokens=65536 the loss would end at %.2f", end)) {
		t.Errorf("want an end at %.4f: %s", end, text)
	}
	effects := ""
	for _, s := range p.Sections {
		if s.Title == "Effects of settings" {
			effects = fmt.Sprint(s.Tables[0].Rows)
		}
	}
	if !strings.Contains(effects, "data.mode=repack fixed -0.0300 0.0000 45 45 of 45") {
		t.Errorf("effects %s", effects)
	}
	path := filepath.Join(pageDir(t), "records.html")
	if err := os.WriteFile(path, b, 0o644); err != nil {
		t.Fatal(err)
	}
	openBrowser(t).looksRight(path)
}

// groupsFor are the recipes of the page's only validation set.
func (p *Page) groupsFor(t *testing.T) []*group {
	t.Helper()
	r, err := Read([]string{"grid", "ladders"})
	if err != nil {
		t.Fatal(err)
	}
	b := &builder{r: r, page: &Page{}}
	b.gather()
	if len(b.sets) != 1 {
		t.Fatalf("%d sets", len(b.sets))
	}
	var tuned []*group
	for _, g := range b.sets[0].groups {
		if g.first.tokens == 65536 && g.first.params == float64(usual().params()) {
			tuned = append(tuned, g)
		}
	}
	return tuned
}

// TestTrouble: cells that did not end well, records of other validation documents and of
// other code are told of and do not enter means.
func TestTrouble(t *testing.T) {
	dir := t.TempDir()
	bad := usual()
	bad.seed, bad.status = 2, "nan"
	recipes := []recipe{usual(), usual(), bad}
	recipes[1].seed = 1
	one := usual()
	one.epochs = 8
	sweepOf(t, filepath.Join(dir, "sweep"), false, append(recipes, one))
	p, b := pageOf(t, dir, "sweep")
	var all []string
	for _, w := range p.Warnings {
		all = append(all, w.Text)
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{"has no validation loss (nan: the loss of step 7 is NaN)", "1 recipe(s) have one seed"} {
		if !strings.Contains(text, want) {
			t.Errorf("no warning %q in\n%s", want, text)
		}
	}
	if !bytes.Contains(b, []byte("seed 2 nan")) {
		t.Error("the table of recipes does not name the seed in trouble")
	}
	if strings.Contains(p.said(), "epochs=4") {
		t.Errorf("a recipe with a seed in trouble is called the best: %s", p.said())
	}
}
