package shards

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// Input is one file to read, or one that was met and left out.
type Input struct {
	Path        string // as the user named it, for messages
	Rel         string // slash path below the folder, or the base name: Doc.Source, the same on every machine
	Kind        Kind   // empty for a pipe: decided when its bytes arrive
	Compression string // "", "gz" or "zst"
	Size        int64  // bytes on disk, -1 for a pipe
	Skip        Reason // why the file is not read; empty for one that is
	Arg         int    // which argument of Discover it belongs to

	// Options overrides the source's options for this input. Nil means none.
	// SkipBudget, Duplicate and Child of an override are not used: they concern the
	// whole source.
	Options *Options

	root   string // folder that was walked; the file is opened below it only
	stdin  bool
	walked bool // met while walking, not named by the user

	seen *state // when it was first read whole; nil before
	held *held  // its hash, known from reading, and perhaps its content
}

// Discover expands files, folders, glob patterns and "-" (standard input) into
// the list of inputs: arguments in the order given, files of one argument in
// the byte order of their slash paths. Files and folders whose names start with
// a dot, binary files, special files and unselected ones met on the way are in
// the list with Skip set, so that they can be counted. It looks at the first
// bytes of every file and reads nothing else; standard input is not touched.
//
// It fails on a missing path (naming close ones), an argument that yields
// nothing to read, a path named twice, a symbolic link that leaves its folder,
// and a file that cannot be what its name says.
func Discover(inputs []string, o Options) ([]Input, error) { return discover(inputs, o, nil) }

// DiscoverHeld is Discover, which meanwhile reads plain text files whole and keeps
// their content, as long as it all fits into limit bytes. Digest and a Source then take
// it from memory: a folder of small files is opened once instead of three times, on all
// cores. What comes out is the same, except that a file written to afterwards counts as
// it was. Only files up to 16 KB are kept. The memory is free when the inputs are.
func DiscoverHeld(inputs []string, o Options, limit int64) ([]Input, error) {
	var r room
	r.left.Store(limit)
	return discover(inputs, o, &r)
}

func discover(inputs []string, o Options, r *room) ([]Input, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	if len(inputs) == 0 {
		return nil, errors.New("shards: no inputs given; name files, folders, patterns or - for standard input")
	}
	var all []Input
	seen := make(map[string]bool)
	for i, arg := range inputs {
		found, err := discoverOne(arg, o, r)
		if err != nil {
			return nil, err
		}
		usable := 0
		for j := range found {
			found[j].Arg = i
			in := found[j]
			key := filepath.Clean(in.Path)
			if in.stdin {
				key = "-"
			}
			if seen[key] && in.Skip == "" {
				return nil, fmt.Errorf("shards: %s is named twice by data.inputs; name it once", in.Path)
			}
			seen[key] = true
			if in.Skip == "" {
				usable++
			}
		}
		if usable == 0 {
			return nil, fmt.Errorf("shards: %s: nothing to read there%s", arg, leftOut(found))
		}
		all = append(all, found...)
	}
	return all, nil
}

// leftOut says why an argument yielded nothing.
func leftOut(found []Input) string {
	var r Report
	for _, in := range found {
		r.count(in.Skip, in.Path)
	}
	if len(r.Skipped) == 0 {
		return " (it is empty)"
	}
	var parts []string
	for _, c := range r.Skipped {
		parts = append(parts, fmt.Sprintf("%d %s, first %s", c.Count, c.Reason, c.Places[0]))
	}
	return " (left out: " + strings.Join(parts, "; ") + ")"
}

func discoverOne(arg string, o Options, r *room) ([]Input, error) {
	if arg == "-" {
		return []Input{{Path: "-", Rel: "-", Kind: o.Kind, Size: -1, stdin: true}}, nil
	}
	if arg == "" {
		return nil, errors.New("shards: an input is an empty string; write . for the current folder")
	}
	st, err := os.Stat(arg)
	switch {
	case err == nil && st.IsDir():
		return walk(arg, "", o, r)
	case err == nil:
		in := Input{Path: arg, Rel: filepath.Base(arg), Size: st.Size()}
		if !st.Mode().IsRegular() {
			in.Size, in.Kind = -1, o.Kind
			return []Input{in}, nil
		}
		if err := in.classify(&folders{room: r}, o); err != nil {
			return nil, err
		}
		return []Input{in}, nil
	case hasMeta(arg): // whatever the error: Windows calls a name with * or ? invalid, not missing
		base, pattern := splitGlob(arg)
		if st, err := os.Stat(base); err != nil || !st.IsDir() {
			return nil, fmt.Errorf("shards: pattern %s: no folder %s; %s", arg, base, hint(nearPaths(base)))
		}
		found, err := walk(base, pattern, o, r)
		if err == nil && len(found) == 0 {
			err = fmt.Errorf("shards: pattern %s matches no file; %s", arg, hint(nearPaths(arg)))
		}
		return found, err
	case errors.Is(err, fs.ErrNotExist):
		msg := fmt.Sprintf("shards: %s: no such file or folder", arg)
		if h := hint(nearPaths(arg)); h != "" {
			msg += "; " + h
		}
		return nil, errors.New(msg)
	default:
		return nil, fmt.Errorf("shards: %w; check that the path is readable", err)
	}
}

// nearPaths lists existing paths that look like p, from the deepest folder of
// p that exists.
func nearPaths(p string) []string {
	p = filepath.Clean(p)
	for {
		dir, base := filepath.Dir(p), filepath.Base(p)
		entries, err := os.ReadDir(dir)
		if err == nil {
			var names []string
			for _, e := range entries {
				names = append(names, e.Name())
			}
			near := nearest(base, names)
			for i := range near {
				near[i] = filepath.Join(dir, near[i])
			}
			return near
		}
		if dir == p {
			return nil
		}
		p = dir
	}
}

// splitGlob cuts an argument into the folder before its first pattern element
// and the slash pattern below it.
func splitGlob(arg string) (base, pattern string) {
	volume := filepath.VolumeName(arg) // empty outside Windows
	slash := filepath.ToSlash(arg[len(volume):])
	parts := strings.Split(slash, "/")
	i := 0
	for i < len(parts) && !hasMeta(parts[i]) {
		i++
	}
	base = strings.Join(parts[:i], "/")
	if base == "" {
		base = "."
		if strings.HasPrefix(slash, "/") {
			base = "/"
		}
	}
	return volume + filepath.FromSlash(base), strings.Join(parts[i:], "/")
}

// walk lists the files below folder. With a pattern, only files that match it,
// or lie in a folder that does, are met at all.
func walk(folder, pattern string, o Options, r *room) ([]Input, error) {
	c := newCrowd()
	var out []*Input
	var types []fs.FileMode // what the folder says of each
	met := 0                // of out, that were handed on
	meet := func() {
		ins, types := out[met:len(out):len(out)], types[met:]
		c.runs <- inputs{met, len(ins), func(at *folders, k int) error {
			if ins[k].Skip != "" {
				return nil
			}
			at.room = r
			return ins[k].meet(at, types[k], o)
		}}
		met = len(out)
	}
	// Names are listed without care for links swapped in meanwhile, which saves a call for
	// every file; files are opened with it.
	err := fs.WalkDir(os.DirFS(folder), ".", func(rel string, d fs.DirEntry, err error) error {
		if err != nil && rel == "." {
			return fmt.Errorf("shards: %w; check that the folder is readable", err)
		}
		if err != nil {
			return fmt.Errorf("shards: %s: %w; make it readable or leave it out with data.exclude", shown(folder, rel), err)
		}
		if rel == "." {
			return nil
		}
		named, inside := selects(pattern, rel)
		if !named && !inside {
			return nil
		}
		if d.IsDir() && !strings.HasPrefix(d.Name(), ".") {
			return nil
		}
		if len(out)-met == inputRun {
			meet()
			if c.past(len(out)) {
				return fs.SkipAll
			}
		}
		in := &Input{Path: shown(folder, rel), Rel: rel, root: folder, walked: !named}
		out, types = append(out, in), append(types, d.Type())
		switch {
		case strings.HasPrefix(d.Name(), "."):
			in.Skip = HiddenFile
			if d.IsDir() {
				return fs.SkipDir
			}
		case !selected(rel, o):
			in.Skip = Unselected
		}
		return nil
	})
	meet()
	// What is wrong with a file comes before whatever ended the walk behind it.
	if metErr := c.end(); metErr != nil {
		err = metErr
	}
	if err != nil {
		return nil, err
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Rel < out[j].Rel })
	found := make([]Input, len(out))
	for i, in := range out {
		found[i] = *in
	}
	leaveCompanions(found)
	return found, nil
}

// shown is the path of a walked file as the user would write it.
func shown(folder, rel string) string { return filepath.Join(folder, filepath.FromSlash(rel)) }

// selects says whether a glob argument names rel itself or a folder above it.
// An empty pattern is a plain folder argument.
func selects(pattern, rel string) (named, inside bool) {
	if pattern == "" {
		return false, true
	}
	p := strings.Split(pattern, "/")
	parts := strings.Split(rel, "/")
	if matchParts(p, parts) {
		return true, false
	}
	for i := 1; i < len(parts); i++ {
		if matchParts(p, parts[:i]) {
			return false, true
		}
	}
	return false, false
}

func selected(rel string, o Options) bool {
	ok := len(o.Include) == 0
	for _, p := range o.Include {
		ok = ok || match(p, rel)
	}
	for _, p := range o.Exclude {
		ok = ok && !match(p, rel)
	}
	return ok
}

// meet fills in what a walked directory entry of type t is; 0 is a regular file.
func (in *Input) meet(at *folders, t fs.FileMode, o Options) error {
	if t == 0 {
		return in.classify(at, o)
	}
	st, err := at.stat(in)
	if err != nil {
		if t&fs.ModeSymlink != 0 {
			return fmt.Errorf("shards: %s: a symbolic link that leaves its folder or leads nowhere is not followed (%v); copy the file in, name it as an input of its own, or leave it out with data.exclude", in.Path, err)
		}
		return fmt.Errorf("shards: %s: %w", in.Path, err)
	}
	in.Size = st.Size()
	switch {
	case st.IsDir():
		in.Skip = LinkedFolder
		return nil
	case !st.Mode().IsRegular():
		in.Skip = SpecialFile
		return nil
	}
	return in.classify(at, o)
}

// companions are files that dataset tools put beside shards; they are not text
// to learn from when a shard lies in the same folder.
var companions = map[string]bool{
	"dataset_info.json": true, "dataset_dict.json": true, "state.json": true,
	"README.md": true, "LICENSE": true, "LICENSE.txt": true,
	"_SUCCESS": true, "_metadata": true, "_common_metadata": true,
}

// leaveCompanions marks companion files of folders that hold shards.
func leaveCompanions(ins []Input) {
	shardDirs := make(map[string]bool)
	for _, in := range ins {
		if in.Skip == "" && in.Kind != KindText {
			shardDirs[path.Dir(in.Rel)] = true
		}
	}
	for i := range ins {
		in := &ins[i]
		if in.Skip == "" && in.walked && in.Kind == KindText && companions[path.Base(in.Rel)] && shardDirs[path.Dir(in.Rel)] {
			in.Skip = Companion
		}
	}
}
