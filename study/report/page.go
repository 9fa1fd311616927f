package report

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"math"
	"slices"
	"strings"

	"refrain/internal/fsx"
)

//go:embed page.html
var pageHTML string

// Table is rows of text under a heading; the first column is the row's name.
type Table struct {
	Title, Caption string
	Head           []string
	Rows           [][]string
}

// Page is a report. Load fills Runs; the rest is what its author adds.
type Page struct {
	Title    string
	Findings []string // one sentence each, the result of it all
	Facts    [][2]string
	Runs     []*Run
	Tables   []Table // before the table of runs
	Commands []string
	Notes    []string
	// Group gives the name under which the curves of several runs share a colour;
	// nil means every run its own.
	Group func(*Run) string
}

// view is what the template sees.
type view struct {
	*Page
	Figures []figureView
	RunRows Table
	Configs []configView
}

type figureView struct {
	*Figure
	SVG template.HTML
}

type configView struct{ Name, Text string }

// Write renders the page to path, whole or not at all.
func (p *Page) Write(path string) error {
	t, err := template.New("report").Parse(pageHTML)
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	v := view{Page: p, RunRows: p.runTable()}
	for _, f := range p.figures() {
		svg, err := f.SVG()
		if err != nil {
			return fmt.Errorf("report: %w", err)
		}
		v.Figures = append(v.Figures, figureView{f, svg})
	}
	for _, r := range p.Runs {
		if r.Config != "" {
			v.Configs = append(v.Configs, configView{r.Name, r.Config})
		}
	}
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return fsx.WriteFileAtomic(fsx.OS{}, path, b.Bytes())
}

// hues numbers the groups in order of appearance.
func (p *Page) hues() func(*Run) (name string, hue int, first bool) {
	var names []string
	return func(r *Run) (string, int, bool) {
		name := r.Name
		if p.Group != nil {
			name = p.Group(r)
		}
		if i := slices.Index(names, name); i >= 0 {
			return name, i, false
		}
		names = append(names, name)
		return name, len(names) - 1, true
	}
}

func (p *Page) figures() []*Figure {
	val := &Figure{Title: "Validation loss", XLabel: "epochs", YLabel: "nats a token", EpochMarks: true,
		Caption: "Mean loss over all tokens of the validation store, a fixed set of documents that no run has read."}
	tr := &Figure{Title: "Training loss", XLabel: "epochs", YLabel: "nats a token", EpochMarks: true,
		Caption: "Mean over the steps of each epoch. With repeated data it falls long after the validation loss has turned."}
	gap := &Figure{Title: "Gap between validation and training", XLabel: "epochs", YLabel: "nats a token", EpochMarks: true,
		Caption: "Validation loss minus the mean training loss of the steps before it, as many as lie between evaluations. Where it grows, the model learns its training data by heart."}
	hue := p.hues()
	for _, r := range p.Runs {
		name, h, first := hue(r)
		label := r.Name
		if p.Group != nil && !first {
			label = name + " (again)"
		} else if p.Group != nil {
			label = name
		}
		ex, ey := r.EpochMeans()
		s := Series{Name: label, Hue: h, Dash: !first}
		v := s
		for _, e := range r.Evals {
			v.X, v.Y = append(v.X, e.Epoch), append(v.Y, e.Loss)
		}
		if len(v.X) > 0 {
			val.Series = append(val.Series, v)
		}
		s.X, s.Y = ex, ey
		if len(s.X) > 0 {
			tr.Series = append(tr.Series, s)
		}
		g := Series{Name: label, Hue: h, Dash: !first}
		g.X, g.Y = r.Gaps()
		if len(g.X) > 0 {
			gap.Series = append(gap.Series, g)
		}
	}
	var out []*Figure
	for _, f := range []*Figure{val, tr, gap} {
		if len(f.Series) > 0 {
			out = append(out, f)
		}
	}
	return out
}

func (p *Page) runTable() Table {
	t := Table{Title: "Runs", Head: []string{"run", "steps", "epochs", "train loss", "val loss", "tok/s", "wait", "status", "config", "data", "chain"},
		Caption: "Train loss is the mean over the last epoch. Speed is the median of the logged steps; wait is the largest logged share of time in which the device had nothing to do, the first line after a start left out. Hashes are shortened."}
	for _, r := range p.Runs {
		row := []string{r.Name, "0", "", "", "", "", "", "unfinished", short(r.Info.ConfigHash), short(r.Info.DataHash), short(r.Chain)}
		if n := len(r.Steps); n > 0 {
			row[1], row[2] = fmt.Sprint(r.Steps[n-1].Step), fmt.Sprintf("%.4g", r.Steps[n-1].Epoch)
			if _, loss := r.EpochMeans(); len(loss) > 0 {
				row[3] = fmt.Sprintf("%.4f", loss[len(loss)-1])
			}
			tok, wait := r.Speed()
			row[5], row[6] = fmt.Sprintf("%.0f", tok), fmt.Sprintf("%.2f %%", 100*wait)
		}
		if v, ok := r.FinalVal(); ok && !math.IsNaN(v) {
			row[4] = fmt.Sprintf("%.4f", v)
		}
		if r.Exit != nil {
			row[7] = r.Exit.Status
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func short(hash string) string { return hash[:min(10, len(hash))] }

// Provenance lists what the runs share: machine, code, and the commands that
// made them.
func Provenance(runs []*Run) (facts [][2]string, commands []string) {
	if len(runs) == 0 {
		return nil, nil
	}
	same := func(label string, get func(*Run) string) {
		v := get(runs[0])
		for _, r := range runs[1:] {
			if get(r) != v {
				v = "differs between runs"
			}
		}
		if v != "" {
			facts = append(facts, [2]string{label, v})
		}
	}
	same("processor", func(r *Run) string { return r.Info.CPU })
	same("system", func(r *Run) string { return r.Info.OS + "/" + r.Info.Arch })
	same("Go", func(r *Run) string { return r.Info.Go })
	same("code version", func(r *Run) string { return r.Info.Code })
	same("data hash", func(r *Run) string { return r.Info.DataHash })
	same("tokenizer hash", func(r *Run) string { return r.Info.TokenizerHash })
	for _, r := range runs {
		if len(r.Info.Args) > 0 {
			commands = append(commands, strings.Join(r.Info.Args, " "))
		}
	}
	return facts, commands
}
