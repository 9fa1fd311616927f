package report

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
)

// everyFigure has each kind of drawing and many series.
func everyFigure() []*Figure {
	lines := &Figure{Title: "Lines, bars & marks", XLabel: "epochs", YLabel: "nats a token", EpochMarks: true, Caption: "Several series with bars."}
	for h := range 9 {
		s := Series{Name: []string{"repack", "fixed optim.weight_decay=1.6 model.tie=true", "a<b"}[h%3], Hue: h, Marks: h%2 == 0, Dash: h >= numHues}
		for x := range 32 {
			s.Add(float64(x+1), 3+0.01*float64(h)+1/float64(x+1), 0.02*float64(h%2), "1")
		}
		lines.Series = append(lines.Series, s)
	}
	logs := &Figure{Title: "Powers", XLabel: "tokens of training data, in millions", YLabel: "loss", LogX: true}
	s := Series{Name: "measured", NoLine: true}
	for k := range 8 {
		s.Add(math.Pow(2, float64(k))*65536, 4+math.Pow(0.5, float64(k)), 0.1, "2")
	}
	logs.Series = []Series{s}
	one := &Figure{Title: "One point", XLabel: "members", YLabel: "loss", LogX: true, Series: []Series{{Name: "alone", X: []float64{4}, Y: []float64{-12345.678}}}}
	heat := &Figure{Title: "Heat", XLabel: "weight decay", YLabel: "epochs", Heat: &Heat{Cols: []string{"0.1", "0.2", "0.4", "0.8", "1.6", "3.2", "6.4"}, Rows: []string{"1", "4", "16", "64"}}}
	for j := range heat.Heat.Rows {
		var row []float64
		for i := range heat.Heat.Cols {
			row = append(row, 3.2+0.1*math.Abs(float64(i-j-1)))
		}
		heat.Heat.Value = append(heat.Heat.Value, row)
	}
	heat.Heat.Value[0][0] = math.NaN()
	wide := &Figure{Title: "Many columns", XLabel: "weight decay", YLabel: "batch", Heat: &Heat{Rows: []string{"8"}, Value: [][]float64{{}}}}
	for i := range 24 {
		wide.Heat.Cols = append(wide.Heat.Cols, number(math.Pow(2, float64(i-12))))
		wide.Heat.Value[0] = append(wide.Heat.Value[0], 3+float64(i))
	}
	return []*Figure{lines, logs, one, heat, wide}
}

// TestFiguresLookRight: every kind of drawing is whole and legible on a phone and on a
// screen, light and dark.
func TestFiguresLookRight(t *testing.T) {
	b := openBrowser(t)
	p := &Page{Title: "Every figure", Sections: []Section{{Title: "Figures", Figures: everyFigure()}}}
	path := filepath.Join(pageDir(t), "figures.html")
	if err := p.Write(path); err != nil {
		t.Fatal(err)
	}
	b.looksRight(path)
}

// pageDir is where a test writes its pages.
func pageDir(t *testing.T) string {
	t.Helper()
	if *keepDir == "" {
		return t.TempDir()
	}
	dir, err := filepath.Abs(*keepDir)
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestGivenPages looks at the pages that -pages names, such as one of a study that took
// hours.
func TestGivenPages(t *testing.T) {
	if *givenPages == "" {
		t.Skip("no page was given with -pages")
	}
	b := openBrowser(t)
	for _, p := range strings.Split(*givenPages, ",") {
		path, err := filepath.Abs(p)
		if err != nil {
			t.Fatal(err)
		}
		b.looksRight(path)
	}
}
