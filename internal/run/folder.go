package run

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"refrain/internal/fsx"
	"refrain/internal/run/config"
)

// Names inside a run folder; docs/formats/run.md describes them.
const (
	RunFile     = "run.json"
	ConfigFile  = "config.yaml"
	PlanFile    = "plan.json"
	MetricsFile = "metrics.jsonl"
	LogFile     = "log.jsonl"
	ExitFile    = "exit.json"
	CkptDir     = "ckpt"
	EvalDir     = "eval"
	ProfDir     = "prof"
	ReportFile  = "report.html"
	MembersFile = "members.json"
	lockFile    = "lock"
)

// Info is run.json: what the run is, written once.
type Info struct {
	ID            string    `json:"id"`
	Created       time.Time `json:"created"`
	ConfigHash    string    `json:"config_hash"`
	DataHash      string    `json:"data_hash"`
	TokenizerHash string    `json:"tokenizer_hash"`
	TeachersHash  string    `json:"teachers_hash,omitempty"` // of the weights that were learned from
	Code          string    `json:"code"`                    // version control revision, "+dirty" when modified
	Go            string    `json:"go"`
	OS            string    `json:"os"`
	Arch          string    `json:"arch"`
	CPU           string    `json:"cpu"`
	Precision     string    `json:"precision"`           // of activations: f32 or bf16
	BaseHash      string    `json:"base_hash,omitempty"` // of the weights that the run started from; none for new ones
	Args          []string  `json:"args"`
}

// Exit is exit.json: how the last start of the run ended. There is none while
// the run goes on, nor after a kill.
type Exit struct {
	Status string    `json:"status"` // done, stopped, failed
	Code   int       `json:"code"`
	Reason string    `json:"reason,omitempty"`
	Next   string    `json:"next,omitempty"` // what to do to go on
	Step   int64     `json:"step"`
	At     time.Time `json:"at"`
}

// Folder is a run folder that this process holds the lock of.
type Folder struct {
	Dir  string
	Info Info
	New  bool // the folder had no run in it

	fs   fsx.FS
	lock io.Closer
	mu   sync.Mutex
	log  fsx.File // metrics.jsonl, append only
}

// OpenFolder creates dir, or opens it if it holds a run, and takes its lock. A
// folder that holds something else is refused.
func OpenFolder(dir string) (*Folder, error) {
	fs := fsx.OS{}
	if err := fsx.MkdirAll(fs, dir, fsx.DirPerm); err != nil {
		return nil, &Error{ExitDisk, fmt.Errorf("run folder %s: %w", dir, err)}
	}
	lock, err := fs.Lock(filepath.Join(dir, lockFile))
	if err != nil {
		if taken := new(fsx.LockedError); errors.As(err, &taken) {
			return nil, usage(fmt.Errorf("run folder %s: %w", dir, err))
		}
		return nil, &Error{ExitDisk, fmt.Errorf("run folder %s: %w", dir, err)}
	}
	f := &Folder{Dir: dir, fs: fs, lock: lock}
	if err := f.read(); err != nil {
		return nil, errors.Join(err, lock.Close())
	}
	return f, nil
}

func (f *Folder) read() error {
	b, err := fsx.ReadFile(f.fs, f.Path(RunFile), 1<<20)
	if errors.Is(err, os.ErrNotExist) {
		entries, err := f.fs.ReadDir(f.Dir)
		if err != nil {
			return err
		}
		for _, e := range entries {
			// The second is what a start leaves that was killed right here.
			if e.Name() != lockFile && e.Name() != ".tmp-"+RunFile {
				return usage(fmt.Errorf("%s holds %s and is not a run folder; choose another --out", f.Dir, e.Name()))
			}
		}
		f.New = true
		return nil
	}
	if err != nil {
		return err
	}
	if err := json.Unmarshal(b, &f.Info); err != nil {
		return usage(fmt.Errorf("%s is damaged (%w); put a copy of it back, or choose another --out", f.Path(RunFile), err))
	}
	return nil
}

// Path joins names to the folder.
func (f *Folder) Path(names ...string) string {
	return filepath.Join(append([]string{f.Dir}, names...)...)
}

// Begin writes what a new run is. It is called once, before anything else is
// written to the folder: run.json comes first, since it makes the folder one.
func (f *Folder) Begin(s *Setup, args []string) error {
	var id [8]byte
	if _, err := rand.Read(id[:]); err != nil {
		return err
	}
	f.Info = Info{
		ID: hex.EncodeToString(id[:]), Created: time.Now().UTC(),
		ConfigHash: s.ConfigHash(), DataHash: s.DataHash, TokenizerHash: s.TokHash, TeachersHash: s.TeachersHash,
		Code: CodeVersion(), Go: runtime.Version(), OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: CPUName(), Precision: s.Options.Policy.String(), Args: args,
	}
	if s.Base != nil {
		f.Info.BaseHash = s.Base.Hash
	}
	if err := f.WriteJSON(RunFile, f.Info); err != nil {
		return err
	}
	return f.writeConfig(s, true)
}

// writeConfig writes the resolved configuration, always or when the start that
// should have done so was killed before it did.
func (f *Folder) writeConfig(s *Setup, always bool) error {
	if s.Resolved == nil {
		return nil
	}
	if !always {
		there, err := fsx.Exists(f.fs, f.Path(ConfigFile))
		if err != nil || there {
			return err
		}
	}
	return fsx.WriteFileAtomic(f.fs, f.Path(ConfigFile), s.Resolved.YAML())
}

// Kept returns r with what "auto" left to this program decided as it was when
// the run in the folder dir began, so that a resume computes as before on any
// machine. What r says outright stays, and so does all of it when there is no
// run, or none that can be read.
func Kept(r *config.Resolved, dir string) *config.Resolved {
	if _, err := os.Stat(filepath.Join(dir, RunFile)); err != nil {
		return r
	}
	old, err := config.Load(filepath.Join(dir, ConfigFile), nil)
	if err != nil {
		return r // fits tells what is wrong with the folder
	}
	return r.Keep(old)
}

// fits complains when s is not what the run in the folder was begun with. The
// checkpoints would be refused all the same, by their hashes; this says why.
func (f *Folder) fits(s *Setup) error {
	const advice = "put that back, or choose another --out"
	base := ""
	if s.Base != nil {
		base = s.Base.Hash
	}
	if f.Info.BaseHash != base {
		word := func(h string) string {
			if h == "" {
				return "new weights"
			}
			return fmt.Sprintf("the weights %.12s", h)
		}
		return usage(fmt.Errorf("the run in %s started from %s; model.from = %q has %s: %s", f.Dir, word(f.Info.BaseHash), s.Config.Model.From, word(base), advice))
	}
	if f.Info.ConfigHash != s.ConfigHash() {
		var changed []string
		if old, err := config.Load(f.Path(ConfigFile), nil); err == nil {
			for _, c := range config.Diff(&old.Config, s.Config) {
				if c.Weights {
					changed = append(changed, fmt.Sprintf("%s was %s and is now %s", c.Key, c.A, c.B))
				}
			}
		}
		if len(changed) == 0 {
			changed = []string{fmt.Sprintf("config hash %.12s, now %.12s", f.Info.ConfigHash, s.ConfigHash())}
		}
		return usage(fmt.Errorf("the run in %s was begun with other settings: %s; %s", f.Dir, strings.Join(changed, ", "), advice))
	}
	if a, b := f.Info.TeachersHash, s.TeachersHash; a != b {
		name := func(hash string) string {
			if hash == "" {
				return "none"
			}
			return fmt.Sprintf("%.12s", hash)
		}
		return usage(fmt.Errorf("the run in %s was begun with other teachers (hash of their weights %s; distill.teachers are %s): %s", f.Dir, name(a), name(b), advice))
	}
	for _, h := range []struct{ what, old, now string }{
		{"another tokenizer (hash", f.Info.TokenizerHash, s.TokHash},
		{"other documents (data hash", f.Info.DataHash, s.DataHash},
	} {
		if h.old != h.now {
			return usage(fmt.Errorf("the run in %s was begun with %s %.12s; data.store %s has %.12s): %s", f.Dir, h.what, h.old, s.Config.Data.Store, h.now, advice))
		}
	}
	return nil
}

// forget removes a file for good: exit.json of the start before, so that a run
// that goes on, or is killed, does not look like one that ended.
func (f *Folder) forget(name string) error {
	switch err := f.fs.Remove(f.Path(name)); {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	}
	return f.fs.SyncDir(f.Dir)
}

// WriteJSON writes v to a file of the folder, whole or not at all.
func (f *Folder) WriteJSON(name string, v any) error {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	return fsx.WriteFileAtomic(f.fs, f.Path(name), append(b, '\n'))
}

// Append writes one line to metrics.jsonl. It is safe for concurrent use. A
// line cut short by a kill is ended first, so that no line is lost after it.
func (f *Folder) Append(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.log == nil {
		if err := f.openLog(); err != nil {
			return err
		}
	}
	_, err = f.log.Write(append(b, '\n'))
	return err
}

// Sync makes the lines written so far durable. Lines may be written meanwhile.
func (f *Folder) Sync() error {
	f.mu.Lock()
	log := f.log
	f.mu.Unlock()
	if log == nil {
		return nil
	}
	return log.Sync()
}

// openLog opens metrics.jsonl and ends its last line if a kill cut that short.
func (f *Folder) openLog() error {
	log, err := f.fs.OpenFile(f.Path(MetricsFile), os.O_RDWR|os.O_CREATE|os.O_APPEND, fsx.FilePerm)
	if err != nil {
		return err
	}
	if err := errors.Join(endLine(log), f.fs.SyncDir(f.Dir)); err != nil {
		return errors.Join(err, log.Close())
	}
	f.log = log
	return nil
}

func endLine(log fsx.File) error {
	st, err := log.Stat()
	if err != nil || st.Size() == 0 {
		return err
	}
	var last [1]byte
	if _, err := log.ReadAt(last[:], st.Size()-1); err != nil || last[0] == '\n' {
		return err
	}
	_, err = log.Write([]byte("\n"))
	return err
}

// Close ends the log and gives the lock back.
func (f *Folder) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	var errs []error
	if f.log != nil {
		errs = append(errs, f.log.Sync(), f.log.Close())
		f.log = nil
	}
	return errors.Join(append(errs, f.lock.Close())...)
}

// CodeVersion is the revision the binary was built from, as far as it knows.
func CodeVersion() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	if rev := Revision(info); rev != "" {
		return rev
	}
	return info.Main.Version
}

// DirtyMark ends a revision whose source was changed.
const DirtyMark = "+dirty"

// Revision is the revision that go build kept in a binary, "" when it kept none.
func Revision(info *debug.BuildInfo) string {
	rev, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			rev = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = DirtyMark
		}
	}
	if rev == "" {
		return ""
	}
	return rev + dirty
}
