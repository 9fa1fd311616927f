package micro

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/study/report"
)

// Names of the small files.
const (
	RecordsFile  = "records.json"
	FindingsFile = "findings.json"
	ReportFile   = "report.html"
)

// findingsKind is what FindingsFile says it is.
const findingsKind = "micro"

// Findings are what FindingsFile holds.
type Findings struct {
	Kind    string    `json:"kind"`
	Version int       `json:"version"`
	Code    string    `json:"code"`
	Command []string  `json:"command"`
	Form    string    `json:"form"`
	Answers []*Answer `json:"answers"`
}

// Write answers the questions from results and leaves records, findings and report in dir,
// each whole or not at all. Equal results make equal files, byte for byte.
func (f *Form) Write(r *Results, dir string) (answers []*Answer, files []string, err error) {
	records, err := r.Encode()
	if err != nil {
		return nil, nil, err
	}
	answers = f.Answers(r)
	found, err := json.MarshalIndent(Findings{findingsKind, resultsVersion, r.Code, r.Command, r.Form, answers}, "", " ")
	if err != nil {
		return nil, nil, err
	}
	disk := func(err error) error { return &run.Error{Code: run.ExitDisk, Err: err} }
	if err := fsx.MkdirAll(fsx.OS{}, dir, fsx.DirPerm); err != nil {
		return nil, nil, disk(err)
	}
	for _, x := range []struct {
		name string
		text []byte
	}{{RecordsFile, records}, {FindingsFile, append(found, '\n')}} {
		path := filepath.Join(dir, x.name)
		if err := fsx.WriteFileAtomic(fsx.OS{}, path, x.text); err != nil {
			return nil, nil, disk(err)
		}
		files = append(files, path)
	}
	path := filepath.Join(dir, ReportFile)
	if err := f.page(r, answers).Write(path); err != nil {
		return nil, nil, disk(err)
	}
	return answers, append(files, path), nil
}

// page is the report.
func (f *Form) page(r *Results, answers []*Answer) *report.Page {
	p := &report.Page{Title: "Repeated data at micro scale", Commands: []string{strings.Join(r.Command, " ")}, Facts: facts(r)}
	number := map[string]int{} // row of the provenance by name of a run
	for _, m := range r.Models {
		number[m.Run] = p.Sources.Add(m.Run, report.Source{
			What: fmt.Sprintf("%s pool %d: %s", m.Corpus, m.Pool, m.Label()), Seed: fmt.Sprint(m.Seed),
			Config: m.ConfigHash, Data: m.DataHash, Tokenizer: m.TokenizerHash, Code: m.Code, Where: m.Run,
		})
		if !m.well() {
			p.Warnings = append(p.Warnings, report.Statement{Text: fmt.Sprintf("%s pool %d seed %d is %s: %s.", m.Label(), m.Pool, m.Seed, m.Status, m.Reason), Ref: report.Ref(number[m.Run])})
		}
	}
	intervals := 0
	for i, a := range answers {
		where := ""
		if i > 0 && a.Corpus != answers[0].Corpus {
			where = " on " + a.Corpus
		}
		p.Findings = append(p.Findings, fmt.Sprintf("(%s) %s%s. %s", a.ID, a.Title, where, a.Text))
		s := report.Section{Title: fmt.Sprintf("(%s) %s%s", a.ID, a.Title, where), Text: append([]string{a.Question, a.Text}, a.Notes...), Figures: a.figures}
		if len(a.Effects) > 0 {
			s.Tables = append(s.Tables, effectTable(a.Effects))
		}
		for _, t := range a.Tables {
			s.Tables = append(s.Tables, t.page(number))
		}
		p.Sections = append(p.Sections, s)
		intervals += len(a.Effects)
	}
	p.Notes = []string{
		"Recipes were chosen by the loss on one split of the documents and are reported on another, which had no say in the choice. The run with the first seed on the first pool had; those with other seeds and on other pools had not.",
		"A difference is over the same documents, seeds and pools. Its interval joins the standard error over documents with that over runs (95 %, Student's distribution).",
		"Shown means that the intervals that the expectation needs lie on its side and that all pools agree; not shown is no evidence of absence.",
		fmt.Sprintf("There are %d intervals here. Where there is no difference at all, one in twenty leaves out 0.", intervals),
	}
	return p
}

// facts say what was read, by what.
func facts(r *Results) (list [][2]string) {
	for _, c := range r.Corpora {
		var splits []string
		for _, s := range c.Splits {
			splits = append(splits, fmt.Sprintf("%s %d documents, %d tokens", s.Name, s.Docs, s.Tokens))
		}
		list = append(list,
			[2]string{"corpus " + c.Name, fmt.Sprintf("%s: %d files tried, %d copies and %d near copies left out; digest %.16s", c.What, c.Files, c.Copies, c.NearCopies, c.Digest)},
			[2]string{"splits of " + c.Name, fmt.Sprintf("%s; %d pools, %d tokens of each are trained on; vocabulary %d", strings.Join(splits, "; "), c.Pools, c.Unique, c.Vocab)})
	}
	seconds := 0.0
	for _, m := range r.Models {
		seconds += m.CoreSeconds
	}
	return append(list,
		[2]string{"runs", fmt.Sprintf("%d, %.0f core-seconds", len(r.Models), seconds)}, [2]string{"processor", r.CPU}, [2]string{"system", r.System},
		[2]string{"Go", r.Go}, [2]string{"code version", r.Code}, [2]string{"form", r.Form})
}

// page is the table with its runs as rows of the provenance.
func (t *Table) page(number map[string]int) report.Table {
	out := report.Table{Title: t.Title, Caption: t.Caption, Head: t.Head, Rows: t.Rows}
	for i := range t.Runs {
		var rows []int
		for _, name := range t.Runs[i] {
			rows = append(rows, number[name])
		}
		out.Refs = append(out.Refs, report.Ref(rows...))
	}
	if slices.Contains(out.Refs, "") { // a row of no run has nothing to point at
		out.Refs = nil
	}
	return out
}

func effectTable(list []Effect) report.Table {
	t := report.Table{Title: "Differences", Head: []string{"first minus second", "nats a token", "95 % interval", "error over documents", "error over runs", "pairs", "by pool"},
		Caption: "Of test losses; above zero the second is better."}
	for _, e := range list {
		row := []string{e.Name, fmt.Sprintf("%+.4f", e.Difference), "", known(e.StdErrDocuments), known(e.StdErrSeeds), fmt.Sprint(e.Pairs), pools(e)}
		if e.Interval != nil {
			row[2] = fmt.Sprintf("%+.4f to %+.4f", e.Interval[0], e.Interval[1])
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func known(x *float64) string {
	if x == nil {
		return ""
	}
	return fmt.Sprintf("%.4f", *x)
}

// pools words the difference on each.
func pools(e Effect) string {
	var list []string
	for _, p := range e.ByPool {
		list = append(list, fmt.Sprintf("%+.4f", p.Diff))
	}
	return strings.Join(list, "  ")
}
