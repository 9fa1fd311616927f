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

// writeMembers writes members.json, which lists all cycles of the run, whether they are over
// or not, so that it needs no change later. It does nothing in a run without cycles.
func (f *Folder) writeMembers(s *Setup) error {
	ends := s.Options.Optim.Cycles.Ends(s.Options.Steps)
	if len(ends) == 0 {
		return nil
	}
	var list []Member
	for i, step := range ends {
		list = append(list, Member{Name: fmt.Sprintf("cycle-%d", i+1), Step: step, Path: CkptDir + "/" + ckpt.NameOf(step)})
	}
	return f.WriteJSON(MembersFile, list)
}

// Members returns the members of a run folder whose cycles are over, in the order of their
// steps. It is an error when there are none, and when the checkpoint of one is not there
// though the run has gone on: a disk that was full, or a folder that was taken away.
func Members(dir string) ([]Member, error) {
	b, err := fsx.ReadFile(fsx.OS{}, filepath.Join(dir, MembersFile), 64<<20)
	if errors.Is(err, os.ErrNotExist) {
		return nil, usage(fmt.Errorf("%s has no members (no %s): train it with optim.schedule=cyclic, or name a step", dir, MembersFile))
	}
	if err != nil {
		return nil, &Error{ExitDisk, err}
	}
	var all []Member
	if err := json.Unmarshal(b, &all); err != nil {
		return nil, &Error{ExitData, fmt.Errorf("%s: %w", filepath.Join(dir, MembersFile), err)}
	}
	if len(all) == 0 {
		return nil, &Error{ExitData, fmt.Errorf("%s lists no cycles", filepath.Join(dir, MembersFile))}
	}
	there, err := ckpt.List(fsx.OS{}, filepath.Join(dir, CkptDir))
	if err != nil {
		return nil, &Error{ExitDisk, err}
	}
	steps := map[int64]bool{}
	newest := int64(-1)
	for _, e := range there {
		steps[e.Step] = true
		newest = max(newest, e.Step)
	}
	var list []Member
	for _, m := range all {
		if steps[m.Step] {
			list = append(list, m)
		} else if m.Step <= newest {
			return nil, &Error{ExitData, fmt.Errorf("%s: the checkpoint of %s, %s, is not there, though the run went on to step %d: log.jsonl says whether it was written; name the others by their steps, such as %s@%d", dir, m.Name, m.Path, newest, dir, newest)}
		}
	}
	if len(list) == 0 {
		return nil, usage(fmt.Errorf("no cycle of %s is over yet; the first ends with step %d", dir, all[0].Step))
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
