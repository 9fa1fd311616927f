package study

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"refrain/internal/fsx"
	"refrain/internal/run"
)

// Names inside a registry; docs/formats/sweep.md describes them.
const (
	runsDir    = "runs"
	recordsDir = "cells"
	lockName   = "lock"
)

// Registry is a folder with a run folder for every cell that was begun and a record for
// every one that ended. A run folder is resumed until its record is there, and never
// after, so a kill at any moment loses no cell and trains none twice. One process holds a
// registry at a time. Close it.
type Registry struct {
	Dir string

	fs      fsx.FS
	lock    io.Closer
	records []*Record // in the order of their names
}

// OpenRegistry makes the folder dir, or opens it, takes its lock and reads its records.
// Another process that has it is an error with the code of usage, and so are records that
// are damaged or there twice. fsys nil is the operating system.
func OpenRegistry(dir string, fsys fsx.FS) (*Registry, error) {
	g, err := openRegistry(dir, fsys)
	if err != nil {
		return nil, err
	}
	lock, err := g.fs.Lock(g.path(lockName))
	if err != nil {
		code := run.ExitDisk
		if taken := new(fsx.LockedError); errors.As(err, &taken) {
			code = run.ExitUsage
		}
		return nil, &run.Error{Code: code, Err: fmt.Errorf("registry %s: another sweep has it: %w", dir, err)}
	}
	g.lock = lock
	if err := g.read(); err != nil {
		return nil, errors.Join(err, g.Close())
	}
	return g, nil
}

// JoinRegistry is OpenRegistry without the lock, for processes that train one cell each,
// such as the tasks of an array job: the lock of a run folder keeps two of them from the
// same cell, and records have names of their own.
func JoinRegistry(dir string) (*Registry, error) {
	g, err := openRegistry(dir, nil)
	if err != nil {
		return nil, err
	}
	return g, g.read()
}

func (g *Registry) read() (err error) {
	g.records, err = readRecords(g.fs, g.Dir)
	return err
}

// openRegistry makes the folders.
func openRegistry(dir string, fsys fsx.FS) (*Registry, error) {
	if fsys == nil {
		fsys = fsx.OS{}
	}
	g := &Registry{Dir: dir, fs: fsys}
	for _, d := range []string{dir, g.path(runsDir), g.path(recordsDir)} {
		if err := fsx.MkdirAll(fsys, d, fsx.DirPerm); err != nil {
			return nil, &run.Error{Code: run.ExitDisk, Err: fmt.Errorf("registry %s: %w", dir, err)}
		}
	}
	return g, nil
}

// ReadRegistry reads the records in dir without taking the lock, for dry runs and reports;
// a sweep may go on meanwhile. A folder that is not there has none.
func ReadRegistry(dir string) ([]*Record, error) {
	list, err := readRecords(fsx.OS{}, dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return list, err
}

// Close gives the lock back, if it has it.
func (g *Registry) Close() error {
	if g.lock == nil {
		return nil
	}
	return g.lock.Close()
}

func (g *Registry) path(names ...string) string {
	return filepath.Join(append([]string{g.Dir}, names...)...)
}

// maxRecordBytes bounds a record; one is about 2 kB.
const maxRecordBytes = 1 << 20

func readRecords(fsys fsx.FS, dir string) ([]*Record, error) {
	entries, err := fsys.ReadDir(filepath.Join(dir, recordsDir))
	if err != nil {
		return nil, err
	}
	var out []*Record
	var errs []error
	byIdentity := map[string]string{}
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".json")
		if !ok || strings.HasPrefix(e.Name(), ".") {
			continue // a file that was being written when the process ended
		}
		path := filepath.Join(dir, recordsDir, e.Name())
		b, err := fsx.ReadFile(fsys, path, maxRecordBytes)
		if err != nil {
			return nil, err
		}
		r, err := decodeRecord(b)
		if err == nil {
			if first, dup := byIdentity[r.Identity]; dup {
				err = fmt.Errorf("a second record of the run that %s is of; keep one of the two files", first)
			} else {
				byIdentity[r.Identity] = path
				err = r.check(name)
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("record %s: %w", path, err))
			continue
		}
		out = append(out, r)
	}
	if len(errs) > 0 {
		return nil, &run.Error{Code: run.ExitUsage, Err: errors.Join(errs...)}
	}
	return out, nil
}

// Records returns what was recorded, in the order of names.
func (g *Registry) Records() []*Record { return g.records }

// Find returns the record that answers for c under the policy of code, or nil. With
// AnyCode and records of several other revisions the choice would be by chance: that is an
// error that names two of them.
func Find(records []*Record, c *Cell, policy CodePolicy) (*Record, error) {
	key := c.Key()
	var other *Record
	for _, r := range records {
		switch {
		case r.Key() != key:
		case r.Code == c.Code:
			return r, nil
		case policy != AnyCode:
		case other != nil:
			return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("cell %s seed %d has two records of other code, %s (%s) and %s (%s); delete one, or use code: same",
				c.Label(), c.Seed, other.Run, other.Code, r.Run, r.Code)}
		default:
			other = r
		}
	}
	return other, nil
}

// Begun returns the run folder for c, inside that of the registry: one that was begun with
// other code and the policy lets go on, or its own.
func (g *Registry) Begun(c *Cell, policy CodePolicy) (string, error) {
	own := filepath.Join(runsDir, c.Name())
	if policy != AnyCode {
		return own, nil
	}
	entries, err := g.fs.ReadDir(g.path(runsDir))
	if err != nil {
		return "", &run.Error{Code: run.ExitDisk, Err: err}
	}
	prefix := c.Key()[:16] + "-"
	var found []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), prefix) {
			found = append(found, filepath.Join(runsDir, e.Name()))
		}
	}
	switch {
	case len(found) == 0 || slices.Contains(found, own):
		return own, nil
	case len(found) > 1:
		return "", &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("cell %s seed %d was begun twice, in %s and %s; delete one, or use code: same", c.Label(), c.Seed, g.path(found[0]), g.path(found[1]))}
	}
	return found[0], nil
}

// Put writes the record of a cell that ended, whole or not at all. It is not safe for
// concurrent use.
func (g *Registry) Put(r *Record) error {
	b, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := fsx.WriteFileAtomic(g.fs, g.path(recordsDir, r.Name()+".json"), append(b, '\n')); err != nil {
		return &run.Error{Code: run.ExitDisk, Err: fmt.Errorf("record of %s seed %d: %w; the run itself is whole, and the same command records it", r.Label, r.Seed, err)}
	}
	at, there := slices.BinarySearchFunc(g.records, r.Name(), func(x *Record, name string) int { return strings.Compare(x.Name(), name) })
	if there {
		g.records[at] = r
	} else {
		g.records = slices.Insert(g.records, at, r)
	}
	return nil
}

// Other is a record that no cell of the sweep asks for, and why.
type Other struct {
	Record string `json:"record"` // name
	Label  string `json:"label"`
	Seed   uint64 `json:"seed"`
	Why    string `json:"why"`
}

// Others lists the records that answer for none of cells, in the order of names.
func Others(records []*Record, cells []*Cell, policy CodePolicy) []Other {
	byKey := map[string]*Cell{}
	for _, c := range cells {
		byKey[c.Key()] = c
	}
	out := []Other{}
	for _, r := range records {
		why := "other settings, or a point that the sweep no longer has"
		if c := byKey[r.Key()]; c != nil {
			if r.Code == c.Code || policy == AnyCode {
				continue
			}
			why = fmt.Sprintf("other code: %s, this is %s (code: any accepts it)", r.Code, c.Code)
		} else if len(cells) > 0 {
			switch c := cells[0]; {
			case r.TokenizerHash != c.TokenizerHash:
				why = "another tokenizer"
			case !slices.ContainsFunc(cells, func(c *Cell) bool { return c.DataHash == r.DataHash }):
				why = fmt.Sprintf("other training documents (data hash %.12s)", r.DataHash)
			case r.ValHash != c.ValHash || r.ValRows != c.ValRows:
				why = "other validation rows"
			}
		}
		out = append(out, Other{r.Name(), r.Label, r.Seed, why})
	}
	return out
}
