package ckpt

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"refrain/internal/fsx"
)

// maxStep is the largest step that a folder name can hold.
const maxStep = 999_999_999_999_999_999

// Names in the checkpoint folder. Steps are written with nine digits so that they
// sort for people, and read as numbers of any width, so that nothing depends on it.
const (
	stepPrefix  = "step-"
	tmpPrefix   = ".tmp-"
	trashPrefix = ".trash-"
	latestFile  = "latest"
)

var (
	stepName  = regexp.MustCompile(`^step-([0-9]{1,18})$`)
	badName   = regexp.MustCompile(`^step-[0-9]{1,18}\.bad(-[0-9]+)?$`)
	tmpName   = regexp.MustCompile(`^\.tmp-(step-[0-9]{1,18}|latest)$`)
	trashName = regexp.MustCompile(`^\.trash-step-[0-9]{1,18}$`)
)

// NameOf is the folder name of the checkpoint of a step.
func NameOf(step int64) string { return fmt.Sprintf("%s%09d", stepPrefix, step) }

// Entry is a checkpoint folder by its name; nothing is known yet of its content.
type Entry struct {
	Name string
	Path string
	Step int64
}

// List returns the checkpoint folders in dir by ascending step, numerically. It
// does not look inside them, and leaves out those set aside as bad. A missing dir
// is an empty one.
func List(fsys fsx.FS, dir string) ([]Entry, error) {
	s, err := scan(fsys, dir)
	if err != nil {
		return nil, err
	}
	return s.steps, nil
}

// scanned is what a checkpoint folder contains, by name.
type scanned struct {
	steps  []Entry  // ascending
	bad    []string // set aside
	tmps   []string // of an attempt that did not end
	trash  []string // of a deletion that did not end
	latest bool
}

func scan(fsys fsx.FS, dir string) (scanned, error) {
	var s scanned
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	for _, e := range entries {
		name := e.Name()
		switch {
		case stepName.MatchString(name):
			step, err := strconv.ParseInt(stepName.FindStringSubmatch(name)[1], 10, 64)
			if err != nil {
				return s, fmt.Errorf("checkpoint folder %s: %w", name, err)
			}
			s.steps = append(s.steps, Entry{Name: name, Path: filepath.Join(dir, name), Step: step})
		case badName.MatchString(name):
			s.bad = append(s.bad, name)
		case tmpName.MatchString(name):
			s.tmps = append(s.tmps, name)
		case trashName.MatchString(name):
			s.trash = append(s.trash, name)
		case name == latestFile:
			s.latest = true
		}
	}
	slices.SortFunc(s.steps, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Step, b.Step), cmp.Compare(a.Name, b.Name))
	})
	return s, nil
}

// Policy says which checkpoints Retain keeps.
type Policy struct {
	// Keep is how many of the newest good ones stay; at least 2, so that one can
	// go bad later and the run still has another.
	Keep int
	// Every, when positive, also keeps each step that is a multiple of it.
	Every int64
	// Pinned, when not nil, says which steps stay whatever their age.
	Pinned func(step int64) bool
	// RunID, when set, leaves other runs' checkpoints alone: neither counted nor
	// deleted.
	RunID string
	// VerifyHash reads every byte of a checkpoint before it counts as good.
	// Without it the manifest and the file sizes are looked at.
	VerifyHash bool
}

// Retain deletes the good checkpoints in dir that the policy does not keep, and
// returns their names. One that is not proven good is neither counted nor deleted.
// Each goes by a durable rename to ".trash-" first, so that a crash never leaves
// half of one under its own name; leftovers of earlier deletions are removed
// too. On an error what is listed as removed is gone and the rest is whole.
func Retain(ctx context.Context, fsys fsx.FS, dir string, p Policy) (removed []string, err error) {
	if p.Keep < 2 {
		return nil, fmt.Errorf("retention keeps %d checkpoints, the least is 2", p.Keep)
	}
	s, err := scan(fsys, dir)
	if err != nil {
		return nil, err
	}
	for _, name := range s.trash {
		if err := fsx.RemoveAll(fsys, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("remove leftover %s: %w", name, err)
		}
	}
	good := 0
	for _, e := range slices.Backward(s.steps) {
		if err := ctx.Err(); err != nil {
			return removed, err
		}
		if !isGood(ctx, fsys, e, p) {
			continue
		}
		good++
		if good <= p.Keep || p.Every > 0 && e.Step%p.Every == 0 || p.Pinned != nil && p.Pinned(e.Step) {
			continue
		}
		if err := discard(fsys, dir, e.Name); err != nil {
			return removed, fmt.Errorf("remove checkpoint %s: %w", e.Name, err)
		}
		removed = append(removed, e.Name)
	}
	return removed, nil
}

// isGood errs on the side of keeping: any doubt, also one from a failed read,
// means that the checkpoint does not count.
func isGood(ctx context.Context, fsys fsx.FS, e Entry, p Policy) bool {
	m, err := quickCheck(fsys, e.Path, e.Step)
	if err != nil || p.RunID != "" && m.RunID != p.RunID {
		return false
	}
	if p.VerifyHash {
		_, err = Verify(ctx, fsys, e.Path)
	}
	return err == nil
}

// discard deletes a whole checkpoint.
func discard(fsys fsx.FS, dir, name string) error {
	trash := filepath.Join(dir, trashPrefix+name)
	if err := fsx.RemoveAll(fsys, trash); err != nil {
		return err
	}
	if err := fsys.Rename(filepath.Join(dir, name), trash); err != nil {
		return err
	}
	if err := fsys.SyncDir(dir); err != nil {
		return err
	}
	return fsx.RemoveAll(fsys, trash)
}

// setAside renames a damaged checkpoint to name.bad, or name.bad-2 and so on when
// that is taken, and returns the new name.
func setAside(fsys fsx.FS, dir, name string) (string, error) {
	for i := 1; ; i++ {
		aside := name + ".bad"
		if i > 1 {
			aside = fmt.Sprintf("%s.bad-%d", name, i)
		}
		taken, err := fsx.Exists(fsys, filepath.Join(dir, aside))
		if err != nil {
			return "", err
		}
		if taken {
			continue
		}
		if err := fsys.Rename(filepath.Join(dir, name), filepath.Join(dir, aside)); err != nil {
			return "", err
		}
		return aside, fsys.SyncDir(dir)
	}
}
