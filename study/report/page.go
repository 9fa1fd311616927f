package report

import (
	"bytes"
	_ "embed"
	"encoding/base64"
	"fmt"
	"html"
	"html/template"
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
	Refs           []string // of every row, into the provenance; nil: none
}

// add appends a row with its reference.
func (t *Table) add(ref string, row ...string) {
	t.Rows, t.Refs = append(t.Rows, row), append(t.Refs, ref)
}

// Section is a part of the page under a heading of its own.
type Section struct {
	Title   string
	Text    []string
	Figures []*Figure
	Tables  []Table
}

// Statement is a sentence with what it rests on.
type Statement struct {
	Text string
	Ref  string // into the provenance, as Sources.Ref writes it; empty: none
}

// Page is a report. The fields down to Group are what an author fills; From fills the
// others from records.
type Page struct {
	Title    string
	Findings []string // one sentence each, the result of it all
	Facts    [][2]string
	Runs     []*Run
	Tables   []Table // before the sections
	Commands []string
	Notes    []string
	// Group gives the name under which the curves of several runs share a colour;
	// nil means every run its own.
	Group func(*Run) string

	Result   []Statement // the result in a paragraph
	Sections []Section
	Warnings []Statement
	Sources  Sources
}

// view is what the template sees.
type view struct {
	*Page
	Sections    []sectionView
	Sources     []Source
	SourcesCSV  string
	SourcesLink template.URL
	Contents    []entry
	Configs     []configView
	Hues        []int
}

type entry struct{ ID, Title string }

type sectionView struct {
	entry
	Text    []string
	Figures []figureView
	Tables  []Table
}

type figureView struct {
	*Figure
	SVG template.HTML
}

type configView struct{ Name, Text string }

// Write renders the page to path, whole or not at all. The same page gives the same bytes.
func (p *Page) Write(path string) error {
	b, err := p.HTML()
	if err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return fsx.WriteFileAtomic(fsx.OS{}, path, b)
}

// HTML renders the page.
func (p *Page) HTML() ([]byte, error) {
	t, err := template.New("report").Funcs(template.FuncMap{"links": links, "short": short}).Parse(pageHTML)
	if err != nil {
		return nil, err
	}
	v := view{Page: p}
	for i := range numHues {
		v.Hues = append(v.Hues, i)
	}
	if len(p.Runs) > 0 {
		sections, err := sectionViews(p.runSections())
		if err != nil {
			return nil, err
		}
		v.Sections = sections
	}
	more, err := sectionViews(p.Sections)
	if err != nil {
		return nil, err
	}
	v.Sections = append(v.Sections, more...)
	for i := range v.Sections {
		v.Sections[i].ID = fmt.Sprintf("s%d", i+1)
		v.Contents = append(v.Contents, v.Sections[i].entry)
	}
	if len(p.Warnings) > 0 {
		v.Contents = append(v.Contents, entry{"warnings", "Warnings"})
	}
	v.Contents = append(v.Contents, entry{"provenance", "Provenance"})
	if len(p.Commands) > 0 {
		v.Contents = append(v.Contents, entry{"commands", "Commands"})
	}
	v.Sources, v.SourcesCSV = p.Sources.list, p.Sources.csv()
	v.SourcesLink = template.URL("data:text/csv;base64," + base64.StdEncoding.EncodeToString([]byte(v.SourcesCSV)))
	for _, r := range p.Runs {
		if r.Config != "" {
			v.Configs = append(v.Configs, configView{r.Name, r.Config})
		}
	}
	var b bytes.Buffer
	if err := t.Execute(&b, v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

func sectionViews(sections []Section) (out []sectionView, err error) {
	for _, s := range sections {
		v := sectionView{entry: entry{Title: s.Title}, Text: s.Text, Tables: s.Tables}
		for _, f := range s.Figures {
			svg, err := f.SVG()
			if err != nil {
				return nil, err
			}
			v.Figures = append(v.Figures, figureView{f, svg})
		}
		out = append(out, v)
	}
	return out, nil
}

// links makes every number of a reference one to its row of the provenance: 3, 5-7.
func links(ref string) template.HTML {
	if ref == "" {
		return ""
	}
	var b strings.Builder
	for i, part := range strings.Split(ref, ", ") {
		if i > 0 {
			b.WriteString(", ")
		}
		first, _, _ := strings.Cut(part, "-")
		fmt.Fprintf(&b, `<a href="#p%s">%s</a>`, html.EscapeString(first), html.EscapeString(part))
	}
	return template.HTML(b.String())
}

// short is the beginning of a hash, or of the revision of the program with its mark.
func short(hash string) string {
	rest := ""
	if base, ok := strings.CutSuffix(hash, "+dirty"); ok {
		hash, rest = base, "+dirty"
	}
	return hash[:min(10, len(hash))] + rest
}

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
		if c := commandLine(r.Info.Args); c != "" && !slices.Contains(commands, c) {
			commands = append(commands, c)
		}
	}
	return facts, commands
}

// commandLine joins arguments so that a shell reads them as they were.
func commandLine(args []string) string {
	var out []string
	for _, a := range args {
		if a == "" || strings.ContainsAny(a, " \t\n\"'\\$`*?[]{}()<>|&;#~!") {
			a = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
		}
		out = append(out, a)
	}
	return strings.Join(out, " ")
}
