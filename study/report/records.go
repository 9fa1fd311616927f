package report

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/study"
	"refrain/study/ensemble"
	"refrain/study/fit"
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
		return errors.Join(read(f.ensemble), lacks(len(f.ensemble.Curve) == 0 || len(f.ensemble.Members) == 0, "curve over members"))
	case "ensembles":
		f.ensembles = &groupsRecord{}
		return errors.Join(read(f.ensembles), lacks(len(f.ensembles.Logit) == 0, "places"))
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
	return fmt.Errorf("a record of the kind %q, which has no place on the page", f.head.Kind)
}
