package fsx

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Op names a kind of call, for the rules of Fault.
type Op uint8

// The calls that Fault sees. Lock and Seek pass through unseen.
const (
	OpOpen  Op = iota + 1 // OpenFile
	OpRead                // Read, ReadAt
	OpWrite               // Write, WriteAt
	OpSync
	OpTruncate
	OpClose
	OpMkdir
	OpRename // matched by either name
	OpRemove
	OpReadDir
	OpStat // of FS and of File
	OpSyncDir
)

func (o Op) String() string {
	names := [...]string{"", "open", "read", "write", "sync", "truncate", "close", "mkdir", "rename", "remove", "readdir", "stat", "syncdir"}
	if int(o) < len(names) && o > 0 {
		return names[o]
	}
	return fmt.Sprintf("Op(%d)", uint8(o))
}

// Changes reports whether the call changes what is on the disk or in the cache.
func (o Op) Changes() bool {
	switch o {
	case OpRead, OpReadDir, OpStat, OpClose:
		return false
	}
	return true
}

// Call is one call as Fault saw it.
type Call struct {
	N    int // counted from 1 over all calls
	Op   Op
	Name string
	New  string // the second name of a rename
}

// Rule makes chosen calls fail or wait.
type Rule struct {
	Ops       []Op   // which calls; empty means every one
	Glob      string // filepath.Match pattern of the base name; empty means every name
	Nth       int    // the first matching call that is hit, from 1; 0 means 1
	Permanent bool   // every matching call from Nth on, instead of that one alone
	Err       error  // what the call returns, wrapped in a *fs.PathError; nil lets it through
	Short     bool   // a write first writes half of its bytes; without Err it then returns io.ErrShortWrite
	Delay     time.Duration
}

// Fault passes calls to an FS and lets rules break them. A call that fails by a
// rule does not reach the FS, with three exceptions that real disks teach: a short
// write writes half, a failed Close closes, and after a failed Sync of a file
// every later Sync of that name reports success without syncing, as kernels
// that dropped the pages do. Safe for concurrent use.
type Fault struct {
	fsys FS

	mu    sync.Mutex
	rules []ruleState
	calls int
	fired int
	dirty map[string]bool // names whose pages a failed Sync dropped
	after func(Call)
}

type ruleState struct {
	Rule
	seen int
}

// NewFault wraps fsys.
func NewFault(fsys FS, rules ...Rule) *Fault {
	f := &Fault{fsys: fsys, dirty: map[string]bool{}}
	f.SetRules(rules...)
	return f
}

// SetRules replaces all rules and starts their counts anew; none mends the disk.
func (f *Fault) SetRules(rules ...Rule) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rules = nil
	for _, r := range rules {
		f.rules = append(f.rules, ruleState{Rule: r})
	}
}

// After makes fn be called after every call that reached the FS, in the caller's
// goroutine and without a lock held.
func (f *Fault) After(fn func(Call)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.after = fn
}

// Calls returns how many calls were seen.
func (f *Fault) Calls() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls
}

// Fired returns how many calls failed by a rule.
func (f *Fault) Fired() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.fired
}

// enter counts a call and finds what the rules want of it.
func (f *Fault) enter(op Op, name, newName string) (c Call, short bool, err error) {
	var delay time.Duration
	f.mu.Lock()
	f.calls++
	c = Call{N: f.calls, Op: op, Name: name, New: newName}
	for i := range f.rules {
		r := &f.rules[i]
		if len(r.Ops) > 0 && !slices.Contains(r.Ops, op) || !matches(r.Glob, name, newName) {
			continue
		}
		r.seen++
		nth := max(r.Nth, 1)
		if r.seen < nth || r.seen > nth && !r.Permanent {
			continue
		}
		delay += r.Delay
		if r.Short && op == OpWrite {
			short = true
			err = io.ErrShortWrite
		}
		if r.Err != nil {
			err = pathErr(op.String(), name, r.Err)
		}
		if err != nil {
			f.fired++
			break
		}
	}
	f.mu.Unlock()
	if delay > 0 {
		time.Sleep(delay)
	}
	return c, short, err
}

func matches(glob string, names ...string) bool {
	if glob == "" {
		return true
	}
	for _, n := range names {
		if n == "" {
			continue
		}
		if ok, err := filepath.Match(glob, filepath.Base(n)); ok && err == nil {
			return true
		}
	}
	return false
}

// leave reports a call that reached the FS.
func (f *Fault) leave(c Call) {
	f.mu.Lock()
	fn := f.after
	f.mu.Unlock()
	if fn != nil {
		fn(c)
	}
}

// do runs a call that has no half-way state.
func (f *Fault) do(op Op, name, newName string, call func() error) error {
	c, _, err := f.enter(op, name, newName)
	if err != nil {
		return err
	}
	err = call()
	f.leave(c)
	return err
}

// OpenFile implements FS.
func (f *Fault) OpenFile(name string, flag int, perm fs.FileMode) (File, error) {
	var file File
	err := f.do(OpOpen, name, "", func() (err error) {
		file, err = f.fsys.OpenFile(name, flag, perm)
		return err
	})
	if err != nil {
		return nil, err
	}
	if flag&os.O_EXCL != 0 {
		f.mu.Lock()
		delete(f.dirty, name) // a new file under the name of one that is gone
		f.mu.Unlock()
	}
	return &faultFile{File: file, f: f}, nil
}

// Mkdir implements FS.
func (f *Fault) Mkdir(name string, perm fs.FileMode) error {
	return f.do(OpMkdir, name, "", func() error { return f.fsys.Mkdir(name, perm) })
}

// Rename implements FS.
func (f *Fault) Rename(oldname, newname string) error {
	return f.do(OpRename, oldname, newname, func() error { return f.fsys.Rename(oldname, newname) })
}

// Remove implements FS.
func (f *Fault) Remove(name string) error {
	return f.do(OpRemove, name, "", func() error { return f.fsys.Remove(name) })
}

// ReadDir implements FS.
func (f *Fault) ReadDir(name string) (entries []fs.DirEntry, err error) {
	err = f.do(OpReadDir, name, "", func() (err error) {
		entries, err = f.fsys.ReadDir(name)
		return err
	})
	return entries, err
}

// Stat implements FS.
func (f *Fault) Stat(name string) (info fs.FileInfo, err error) {
	err = f.do(OpStat, name, "", func() (err error) {
		info, err = f.fsys.Stat(name)
		return err
	})
	return info, err
}

// SyncDir implements FS.
func (f *Fault) SyncDir(name string) error {
	return f.do(OpSyncDir, name, "", func() error { return f.fsys.SyncDir(name) })
}

// Lock implements FS.
func (f *Fault) Lock(name string) (io.Closer, error) { return f.fsys.Lock(name) }

// faultFile is an open file under rules. Name, Seek come from the file below.
type faultFile struct {
	File
	f *Fault
}

func (x *faultFile) Read(p []byte) (n int, err error) {
	err = x.f.do(OpRead, x.Name(), "", func() (err error) {
		n, err = x.File.Read(p)
		return err
	})
	return n, err
}

func (x *faultFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = x.f.do(OpRead, x.Name(), "", func() (err error) {
		n, err = x.File.ReadAt(p, off)
		return err
	})
	return n, err
}

func (x *faultFile) Write(p []byte) (int, error) {
	return x.write(p, x.File.Write)
}

func (x *faultFile) WriteAt(p []byte, off int64) (int, error) {
	return x.write(p, func(p []byte) (int, error) { return x.File.WriteAt(p, off) })
}

func (x *faultFile) write(p []byte, write func([]byte) (int, error)) (int, error) {
	c, short, err := x.f.enter(OpWrite, x.Name(), "")
	if err == nil {
		n, err := write(p)
		x.f.leave(c)
		return n, err
	}
	if !short {
		return 0, err
	}
	n, werr := write(p[:len(p)/2])
	x.f.leave(c)
	if werr != nil {
		return n, werr
	}
	return n, err
}

func (x *faultFile) Sync() error {
	c, _, err := x.f.enter(OpSync, x.Name(), "")
	x.f.mu.Lock()
	if err != nil {
		x.f.dirty[x.Name()] = true
	}
	dropped := x.f.dirty[x.Name()]
	x.f.mu.Unlock()
	if err != nil || dropped {
		return err
	}
	err = x.File.Sync()
	x.f.leave(c)
	return err
}

func (x *faultFile) Truncate(size int64) error {
	return x.f.do(OpTruncate, x.Name(), "", func() error { return x.File.Truncate(size) })
}

func (x *faultFile) Stat() (info fs.FileInfo, err error) {
	err = x.f.do(OpStat, x.Name(), "", func() (err error) {
		info, err = x.File.Stat()
		return err
	})
	return info, err
}

func (x *faultFile) Close() error {
	c, _, err := x.f.enter(OpClose, x.Name(), "")
	if err != nil {
		x.File.Close() // the descriptor is gone either way; the rule's error is reported
		return err
	}
	err = x.File.Close()
	x.f.leave(c)
	return err
}
