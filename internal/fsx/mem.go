package fsx

import (
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Mem is a file system in memory that remembers what was synced. It is strict:
// a new name survives a power cut only after SyncDir of its folder, and bytes only
// after Sync of the file, which is all that POSIX promises. Crash makes the image
// that a power cut would leave. Mem is safe for concurrent use; times are zero, so
// that nothing depends on a clock.
type Mem struct {
	mu    sync.Mutex
	root  *node
	locks map[string]bool
}

// node is a file or a folder: an inode, without its name.
type node struct {
	dir bool
	// Of a folder: the names now, and as of the last SyncDir.
	names, syncedNames map[string]*node
	// Of a file: the bytes now, and as of the last Sync.
	data, syncedData []byte
}

func newDir() *node {
	return &node{dir: true, names: map[string]*node{}, syncedNames: map[string]*node{}}
}

// NewMem returns an empty file system whose root folder exists.
func NewMem() *Mem {
	return &Mem{root: newDir(), locks: map[string]bool{}}
}

// parts splits a path into names. "/a/b", "a/b" and "./a//b" are the same.
func parts(name string) ([]string, error) {
	clean := path.Clean("/" + filepath.ToSlash(name))
	if slices.Contains(strings.Split(filepath.ToSlash(name), "/"), "..") {
		return nil, fs.ErrInvalid
	}
	if clean == "/" {
		return nil, nil
	}
	return strings.Split(clean[1:], "/"), nil
}

// find walks to name. The caller holds mu.
func (m *Mem) find(name string) (*node, error) {
	ps, err := parts(name)
	if err != nil {
		return nil, err
	}
	n := m.root
	for _, p := range ps {
		if !n.dir {
			return nil, syscall.ENOTDIR
		}
		if n = n.names[p]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// parent finds the folder that holds name, and name's last part in it. The
// caller holds mu.
func (m *Mem) parent(name string) (*node, string, error) {
	ps, err := parts(name)
	if err != nil {
		return nil, "", err
	}
	if len(ps) == 0 {
		return nil, "", fs.ErrInvalid
	}
	last := len(ps) - 1
	dir, err := m.find(path.Join(ps[:last]...))
	if err != nil {
		return nil, "", err
	}
	if !dir.dir {
		return nil, "", syscall.ENOTDIR
	}
	return dir, ps[last], nil
}

func pathErr(op, name string, err error) error {
	return &fs.PathError{Op: op, Path: name, Err: err}
}

// OpenFile implements FS.
func (m *Mem) OpenFile(name string, flag int, _ fs.FileMode) (File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.openNode(name, flag)
	if err != nil {
		return nil, pathErr("open", name, err)
	}
	return &memFile{m: m, n: n, name: name, flag: flag}, nil
}

func (m *Mem) openNode(name string, flag int) (*node, error) {
	writing := flag&(os.O_WRONLY|os.O_RDWR) != 0
	n, err := m.find(name)
	if err == nil {
		switch {
		case flag&os.O_CREATE != 0 && flag&os.O_EXCL != 0:
			return nil, fs.ErrExist
		case n.dir && writing:
			return nil, syscall.EISDIR
		}
		if writing && flag&os.O_TRUNC != 0 {
			n.data = nil
		}
		return n, nil
	}
	if err != fs.ErrNotExist || flag&os.O_CREATE == 0 {
		return nil, err
	}
	dir, base, err := m.parent(name)
	if err != nil {
		return nil, err
	}
	n = &node{}
	dir.names[base] = n
	return n, nil
}

// Mkdir implements FS.
func (m *Mem) Mkdir(name string, _ fs.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return pathErr("mkdir", name, err)
	}
	if dir.names[base] != nil {
		return pathErr("mkdir", name, fs.ErrExist)
	}
	dir.names[base] = newDir()
	return nil
}

// Rename implements FS. Both names change in memory at once, but a crash may keep
// either, both or neither until their folders are synced: harsher than a file
// system with a journal, which never loses both.
func (m *Mem) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.rename(oldname, newname); err != nil {
		return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
	}
	return nil
}

func (m *Mem) rename(oldname, newname string) error {
	from, oldBase, err := m.parent(oldname)
	if err != nil {
		return err
	}
	to, newBase, err := m.parent(newname)
	if err != nil {
		return err
	}
	n := from.names[oldBase]
	if n == nil {
		return fs.ErrNotExist
	}
	if have := to.names[newBase]; have != nil && have != n {
		switch {
		case have.dir:
			return fs.ErrExist
		case n.dir:
			return syscall.ENOTDIR
		}
	}
	if n.dir && contains(n, to) {
		return fs.ErrInvalid
	}
	delete(from.names, oldBase)
	to.names[newBase] = n
	return nil
}

// contains reports whether folder below is top or lies somewhere under it.
func contains(top, below *node) bool {
	if top == below {
		return true
	}
	for _, n := range top.names {
		if n.dir && contains(n, below) {
			return true
		}
	}
	return false
}

// Remove implements FS.
func (m *Mem) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.parent(name)
	if err != nil {
		return pathErr("remove", name, err)
	}
	n := dir.names[base]
	switch {
	case n == nil:
		return pathErr("remove", name, fs.ErrNotExist)
	case n.dir && len(n.names) > 0:
		return pathErr("remove", name, syscall.ENOTEMPTY)
	}
	delete(dir.names, base)
	return nil
}

// ReadDir implements FS.
func (m *Mem) ReadDir(name string) ([]fs.DirEntry, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return nil, pathErr("readdir", name, err)
	}
	if !n.dir {
		return nil, pathErr("readdir", name, syscall.ENOTDIR)
	}
	var out []fs.DirEntry
	for _, base := range sortedNames(n.names) {
		out = append(out, fs.FileInfoToDirEntry(infoOf(base, n.names[base])))
	}
	return out, nil
}

func sortedNames(names map[string]*node) []string {
	out := make([]string, 0, len(names))
	for base := range names {
		out = append(out, base)
	}
	slices.Sort(out)
	return out
}

// Stat implements FS.
func (m *Mem) Stat(name string) (fs.FileInfo, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return nil, pathErr("stat", name, err)
	}
	return infoOf(filepath.Base(name), n), nil
}

// SyncDir implements FS.
func (m *Mem) SyncDir(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n, err := m.find(name)
	if err != nil {
		return pathErr("syncdir", name, err)
	}
	if !n.dir {
		return pathErr("syncdir", name, syscall.ENOTDIR)
	}
	n.syncedNames = make(map[string]*node, len(n.names))
	for base, child := range n.names {
		n.syncedNames[base] = child
	}
	return nil
}

// Lock implements FS among the users of this Mem.
func (m *Mem) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, err := m.openNode(name, os.O_RDWR|os.O_CREATE); err != nil {
		return nil, pathErr("lock", name, err)
	}
	ps, err := parts(name)
	if err != nil {
		return nil, pathErr("lock", name, err)
	}
	key := path.Join(ps...)
	if m.locks[key] {
		return nil, &LockedError{Name: name}
	}
	m.locks[key] = true
	return &memLock{m: m, key: key}, nil
}

type memLock struct {
	m   *Mem
	key string
}

func (l *memLock) Close() error {
	l.m.mu.Lock()
	defer l.m.mu.Unlock()
	if l.key == "" {
		return fs.ErrClosed
	}
	delete(l.m.locks, l.key)
	l.key = ""
	return nil
}

// memInfo implements fs.FileInfo.
type memInfo struct {
	name string
	size int64
	dir  bool
}

func infoOf(base string, n *node) memInfo {
	return memInfo{name: base, size: int64(len(n.data)), dir: n.dir}
}

func (i memInfo) Name() string       { return i.name }
func (i memInfo) Size() int64        { return i.size }
func (i memInfo) IsDir() bool        { return i.dir }
func (i memInfo) ModTime() time.Time { return time.Time{} }
func (i memInfo) Sys() any           { return nil }
func (i memInfo) Mode() fs.FileMode {
	if i.dir {
		return fs.ModeDir | DirPerm
	}
	return FilePerm
}

// String lists the whole tree with sizes, for messages of tests.
func (m *Mem) String() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var b strings.Builder
	var walk func(n *node, at string)
	walk = func(n *node, at string) {
		for _, base := range sortedNames(n.names) {
			child := n.names[base]
			if child.dir {
				fmt.Fprintf(&b, "%s/%s/\n", at, base)
				walk(child, at+"/"+base)
			} else {
				fmt.Fprintf(&b, "%s/%s %d bytes\n", at, base, len(child.data))
			}
		}
	}
	walk(m.root, "")
	return b.String()
}
