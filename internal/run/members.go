package run

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"refrain/internal/fsx"
	"refrain/train/ckpt"
)

// Member is a checkpoint that a run with a cyclic schedule keeps: the model at the end of
// a cycle.
type Member struct {
	Name string `json:"name"` // cycle-1, cycle-2, ...
	Step int64  `json:"step"`
	Path string `json:"path"` // of the checkpoint, inside the run folder, with slashes
}

// endsCycle reports whether a cycle of the schedule is over after a step.
func (s *Setup) endsCycle(step int64) bool {
	return s.Options.Optim.Cycles.EndsAt(step, s.Options.Steps)
}

// writeMembers writes members.json: the cycles whose checkpoints are there. It does
// nothing in a run without cycles.
func (f *Folder) writeMembers(s *Setup) error {
	ends := s.Options.Optim.Cycles.Ends(s.Options.Steps)
	if len(ends) == 0 {
		return nil
	}
	list := []Member{}
	for i, step := range ends {
		m := Member{Name: fmt.Sprintf("cycle-%d", i+1), Step: step, Path: CkptDir + "/" + ckpt.NameOf(step)}
		there, err := fsx.Exists(f.fs, f.Path(filepath.FromSlash(m.Path)))
		if err != nil {
			return err
		}
		if there {
			list = append(list, m)
		}
	}
	return f.WriteJSON(MembersFile, list)
}

// Members reads the members of a run folder, in the order of their steps. A run that
// has none is an error that says why.
func Members(dir string) ([]Member, error) {
	b, err := fsx.ReadFile(fsx.OS{}, filepath.Join(dir, MembersFile), 64<<20)
	if errors.Is(err, os.ErrNotExist) {
		return nil, usage(fmt.Errorf("%s has no members (no %s): train it with optim.schedule=cyclic, or name a step", dir, MembersFile))
	}
	if err != nil {
		return nil, &Error{ExitDisk, err}
	}
	var list []Member
	if err := json.Unmarshal(b, &list); err != nil {
		return nil, &Error{ExitData, fmt.Errorf("%s: %w", filepath.Join(dir, MembersFile), err)}
	}
	if len(list) == 0 {
		return nil, usage(fmt.Errorf("no cycle of %s is over yet", dir))
	}
	return list, nil
}

// Expand turns the names of models into paths that LoadModel takes: RUN@cycles stands for
// all members of a run, RUN@cycle-2 for one, RUN@120 for the checkpoint of a step. Other
// names, and those of what exists, stay as they are.
func Expand(names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		dir, what, err := splitName(name)
		if err != nil {
			return nil, err
		}
		if what == "" {
			out = append(out, name)
			continue
		}
		if step, err := strconv.ParseInt(what, 10, 64); err == nil && step >= 0 {
			out = append(out, filepath.Join(dir, CkptDir, ckpt.NameOf(step)))
			continue
		}
		list, err := Members(dir)
		if err != nil {
			return nil, err
		}
		found := false
		for _, m := range list {
			if what == "cycles" || what == m.Name {
				found = true
				out = append(out, filepath.Join(dir, filepath.FromSlash(m.Path)))
			}
		}
		if !found {
			return nil, usage(fmt.Errorf("%s: the run has no member %q; it has cycle-1 to %s, cycles for all of them, or give a step", name, what, list[len(list)-1].Name))
		}
	}
	return out, nil
}

// splitName takes RUN@WHAT apart. what is empty where the name is that of something that
// exists, or where no run folder stands before the sign.
func splitName(name string) (dir, what string, err error) {
	i := strings.LastIndexByte(name, '@')
	if i <= 0 || i == len(name)-1 {
		return name, "", nil
	}
	if there, err := fsx.Exists(fsx.OS{}, name); there || err != nil {
		return name, "", err
	}
	dir, what = name[:i], name[i+1:]
	if there, err := fsx.Exists(fsx.OS{}, filepath.Join(dir, RunFile)); !there || err != nil {
		return name, "", err
	}
	return dir, what, nil
}
