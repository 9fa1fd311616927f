package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/study"
	"refrain/study/chain"
	"refrain/study/distill"
	"refrain/study/ensemble"
	"refrain/study/fit"
	"refrain/study/frontier"
	"refrain/study/generate"
)

// Records are what a page is made from, in the order in which they were named.
type Records struct {
	runs       []*Run // named, or found in a folder of runs
	cells      []*cellRecord
	files      []*file
	registries map[string]bool // that were read
}

// cellRecord is a record of a registry, with its run folder where there is one.
type cellRecord struct {
	*study.Record
	registry string
	run      *Run
}

// folder is the run's.
func (c *cellRecord) folder() string { return filepath.Join(c.registry, c.Run) }

// file is a record that a command printed (docs/formats/records.md), decoded by its kind:
// one of the pointers is set.
type file struct {
	path string
	head struct {
		Kind    string   `json:"kind"`
		Version int      `json:"version"`
		Code    string   `json:"code"`
		Command []string `json:"command"`
	}
	fit       *fitRecord
	limit     *fit.Limit
	ensemble  *ensemble.Report
	ensembles *groupsRecord
	sweep     *sweepRecord
	ablation  *study.Ablation
	batch     *study.BatchStudy
	distill   *distill.Report
	chain     *chainRecord
	frontier  *frontier.Report
	behind    map[string]Source // what the folders of the frontier's runs say, where they are
	plan      *frontier.Advice
	choices   *ensemble.ChoiceReport
	generate  *generate.Result
	micro     *microRecord
}

// chainRecord is what `refrain study chain` prints.
type chainRecord struct {
	Members     []chain.Member   `json:"members"`
	Weight      float64          `json:"weight"`
	Temperature float64          `json:"temperature"`
	TopK        int              `json:"top_k"`
	Ensemble    *ensemble.Report `json:"ensemble"`
}

// microRecord is what `refrain study micro` found. Its package writes a page of its own with
// this one, so its types are not known here.
type microRecord struct {
	Form    string `json:"form"`
	Answers []struct {
		ID       string `json:"id"`
		Title    string `json:"title"`
		Corpus   string `json:"corpus"`
		Question string `json:"question"`
		Text     string `json:"text"`
		Effects  []struct {
			Name string `json:"name"`
			study.Contrast
		} `json:"effects"`
		Notes  []string `json:"notes"`
		Tables []struct {
			Title   string     `json:"title"`
			Caption string     `json:"caption"`
			Head    []string   `json:"head"`
			Rows    [][]string `json:"rows"`
		} `json:"tables"`
	} `json:"answers"`
}

// fitRecord is the law of `refrain fit --xy`.
type fitRecord struct {
	fit.Result
	Efficiency *float64 `json:"efficiency"`
	Undefined  string   `json:"undefined"`
}

// groupsRecord is the ranking of `refrain ensemble --group`.
type groupsRecord struct {
	Logit   []ensemble.Ranked           `json:"logit"`
	Prob    []ensemble.Ranked           `json:"prob"`
	Reports map[string]*ensemble.Report `json:"reports"`
}

// maxRecordBytes bounds a file; a large sweep has a few megabytes.
const maxRecordBytes = 256 << 20

// Read reads what the paths name: run folders, folders of run folders, registries of
// sweeps, and files with records. Nothing is changed and no lock is taken. Everything that
// is wrong is told at once, each with its path.
func Read(paths []string) (*Records, error) {
	r := &Records{registries: map[string]bool{}}
	var errs []error
	for _, p := range paths {
		if err := r.path(p); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", p, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, &run.Error{Code: run.ExitUsage, Err: err}
	}
	return r, nil
}

func (r *Records) path(p string) error {
	st, err := os.Stat(p)
	if errors.Is(err, fs.ErrNotExist) {
		return errors.New("there is no such file or folder; name run folders, registries of sweeps, or files with records")
	}
	if err != nil {
		return err
	}
	if !st.IsDir() {
		return r.file(p)
	}
	found, err := run.FindRuns(p)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return r.registry(p)
	}
	for _, dir := range found {
		x, err := Load(dir)
		if err != nil {
			return err
		}
		r.runs = append(r.runs, x)
	}
	return nil
}

// registry reads the folder of a sweep. A folder that holds neither runs nor records is a
// mistake.
func (r *Records) registry(p string) error {
	list, err := study.ReadRegistry(p)
	if err != nil {
		return err
	}
	if len(list) == 0 {
		return errors.New("neither a run folder, nor a folder of runs, nor a registry with finished cells")
	}
	return r.add(p, list)
}

func (r *Records) add(registry string, list []*study.Record) error {
	if r.registries[registry] {
		return nil // named twice, or by a record of its sweep too
	}
	r.registries[registry] = true
	for _, x := range list {
		c := &cellRecord{Record: x, registry: registry}
		if _, err := os.Stat(filepath.Join(c.folder(), run.RunFile)); err == nil {
			if c.run, err = Load(c.folder()); err != nil {
				return err
			}
			c.run.Name = x.Label + " seed " + fmt.Sprint(x.Seed)
		}
		r.cells = append(r.cells, c)
	}
	return nil
}

// file reads a record.
func (r *Records) file(p string) error {
	b, err := fsx.ReadFile(fsx.OS{}, p, maxRecordBytes)
	if err != nil {
		return err
	}
	f := &file{path: p}
	if err := json.Unmarshal(b, &f.head); err != nil {
		return fmt.Errorf("no record: %w", err)
	}
	if err := f.decode(b); err != nil {
		return err
	}
	r.files = append(r.files, f)
	if f.frontier != nil {
		f.behind = map[string]Source{}
		for _, x := range f.frontier.Runs {
			for _, folder := range x.From {
				if s, ok := sourceOf(folder); ok {
					f.behind[folder] = s
				}
			}
		}
	}
	// The records of a study's runs are beside it, where its registry is.
	if registry := f.registry(); registry != "" {
		list, err := study.ReadRegistry(registry)
		if err != nil {
			return err
		}
		return r.add(registry, list)
	}
	if f.sweep != nil {
		var cells []*study.Record
		for _, c := range f.sweep.Cells {
			if c != nil { // null: not there yet
				cells = append(cells, c)
			}
		}
		return r.add(f.sweep.Registry, cells)
	}
	return nil
}

// sourceOf is the row of a run folder that stands in the provenance only. ok is false where
// there is no whole one: the record has been carried elsewhere, or the folder removed.
func sourceOf(folder string) (s Source, ok bool) {
	var info run.Info
	b, err := fsx.ReadFile(fsx.OS{}, filepath.Join(folder, run.RunFile), maxRecordBytes)
	if err != nil || json.Unmarshal(b, &info) != nil {
		return s, false
	}
	s = Source{Config: info.ConfigHash, Data: info.DataHash, Tokenizer: info.TokenizerHash, Code: info.Code}
	if b, err = fsx.ReadFile(fsx.OS{}, filepath.Join(folder, run.ConfigFile), maxRecordBytes); err == nil {
		if c, err := config.Parse(folder, b, nil); err == nil {
			s.Seed = seedText(&c.Config)
		}
	}
	return s, true
}

// seedText words the seeds of a run.
func seedText(c *config.Config) string {
	text := fmt.Sprint(c.Train.Seed)
	if d := c.Data.Seed; d != nil && *d != c.Train.Seed {
		text += fmt.Sprintf(", order %d", *d)
	}
	return text
}

// registry is that of a study whose record names runs without their own records.
func (f *file) registry() string {
	switch {
	case f.ablation != nil:
		return f.ablation.Registry
	case f.batch != nil:
		return f.batch.Registry
	}
	return ""
}

// decode reads the keys of the kind.
func (f *file) decode(b []byte) error {
	if f.head.Kind == "" {
		return errors.New("it has no kind; records are what the commands of this program print with --json (docs/formats/records.md)")
	}
	if f.head.Version != 1 {
		return fmt.Errorf("a record of version %d; this program reads 1", f.head.Version)
	}
	read := func(v any) error {
		if err := json.Unmarshal(b, v); err != nil {
			return fmt.Errorf("record of the kind %s: %w", f.head.Kind, err)
		}
		return nil
	}
	lacks := func(missing bool, what string) error {
		if missing {
			return fmt.Errorf("record of the kind %s: it has no %s; print it again with this program", f.head.Kind, what)
		}
		return nil
	}
	switch f.head.Kind {
	case "fit":
		f.fit = &fitRecord{}
		return errors.Join(read(f.fit), lacks(len(f.fit.Points) == 0, "points"))
	case "limit":
		f.limit = &fit.Limit{}
		return errors.Join(read(f.limit), lacks(len(f.limit.ByN) == 0 || len(f.limit.Joint.Points) == 0, "laws with their points"))
	case "ensemble":
		f.ensemble = &ensemble.Report{}
		return errors.Join(read(f.ensemble), lacks(!whole(f.ensemble), "curve over members"))
	case "ensembles":
		f.ensembles = &groupsRecord{}
		err := errors.Join(read(f.ensembles), lacks(len(f.ensembles.Logit) == 0, "places"))
		for _, name := range slices.Sorted(maps.Keys(f.ensembles.Reports)) {
			err = errors.Join(err, lacks(!whole(f.ensembles.Reports[name]), "curve over members of "+name))
		}
		return err
	case "sweep":
		f.sweep = &sweepRecord{}
		return errors.Join(read(f.sweep), lacks(f.sweep.Registry == "", "registry"))
	case "ablation":
		f.ablation = &study.Ablation{}
		return errors.Join(read(f.ablation), lacks(len(f.ablation.Arms) == 0, "arms"))
	case "batch":
		f.batch = &study.BatchStudy{}
		return errors.Join(read(f.batch), lacks(len(f.batch.Pools) == 0, "pools"))
	}
	return f.decodeMore(read, lacks)
}

// whole says that a report of an ensemble has what the page draws.
func whole(r *ensemble.Report) bool { return r != nil && len(r.Curve) > 0 && len(r.Members) > 0 }

// decodeMore reads the kinds about models that were measured, written with or planned for.
func (f *file) decodeMore(read func(any) error, lacks func(bool, string) error) error {
	switch f.head.Kind {
	case "distill":
		f.distill = &distill.Report{}
		return errors.Join(read(f.distill), lacks(len(f.distill.Members) == 0 || f.distill.Student.Run == "", "student and teachers"))
	case "chain":
		f.chain = &chainRecord{}
		return errors.Join(read(f.chain), lacks(len(f.chain.Members) == 0, "members"), lacks(f.chain.Ensemble != nil && !whole(f.chain.Ensemble), "curve over members"))
	case "frontier":
		f.frontier = &frontier.Report{}
		err := errors.Join(read(f.frontier), lacks(len(f.frontier.Runs) == 0 || len(f.frontier.Models) == 0, "runs and models"))
		for i := range f.frontier.Models {
			err = errors.Join(err, lacks(f.frontier.Models[i].Frontier == nil, "frontier of every model"))
		}
		return err
	case "plan-frontier":
		f.plan = &frontier.Advice{}
		return errors.Join(read(f.plan), lacks(f.plan.GPUs == 0, "number of GPUs"))
	case "choices":
		f.choices = &ensemble.ChoiceReport{}
		err := errors.Join(read(f.choices), lacks(len(f.choices.Files) == 0 || len(f.choices.Members) == 0, "files and members"))
		for _, x := range f.choices.Files {
			err = errors.Join(err, lacks(len(x.Members) != len(f.choices.Members), "result of every member on "+x.File))
		}
		return err
	case "generate":
		f.generate = &generate.Result{}
		return errors.Join(read(f.generate), lacks(f.generate.Generated == nil, "teachers"))
	case "micro":
		f.micro = &microRecord{}
		return errors.Join(read(f.micro), lacks(len(f.micro.Answers) == 0, "answers"))
	case "micro-records":
		return errors.New("the records of a study at micro scale; refrain study micro --records makes their page, and its findings.json has a place on this one")
	}
	return fmt.Errorf("a record of the kind %q, which has no place on the page", f.head.Kind)
}
