package fsx

import (
	"bytes"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// memFile is an open file of a Mem. Like a system's descriptor it keeps its
// node when the name is removed or renamed.
type memFile struct {
	m    *Mem
	n    *node
	name string
	flag int

	posMu  sync.Mutex // guards pos and closed; taken before m.mu
	pos    int64
	closed bool
}

func (f *memFile) Name() string { return f.name }

// use runs op with both locks held, unless the file is closed.
func (f *memFile) use(opName string, op func() error) error {
	f.posMu.Lock()
	defer f.posMu.Unlock()
	if f.closed {
		return pathErr(opName, f.name, fs.ErrClosed)
	}
	f.m.mu.Lock()
	defer f.m.mu.Unlock()
	if err := op(); err != nil {
		if err == io.EOF {
			return err // readers compare it with ==
		}
		return pathErr(opName, f.name, err)
	}
	return nil
}

func (f *memFile) writable() bool { return f.flag&(os.O_WRONLY|os.O_RDWR) != 0 }
func (f *memFile) readable() bool { return f.flag&os.O_WRONLY == 0 }

func (f *memFile) Read(p []byte) (n int, err error) {
	err = f.use("read", func() (err error) {
		n, err = f.readAt(p, f.pos)
		f.pos += int64(n)
		if n > 0 {
			return nil
		}
		return err
	})
	return n, err
}

func (f *memFile) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.use("read", func() (err error) {
		n, err = f.readAt(p, off)
		return err
	})
	return n, err
}

func (f *memFile) readAt(p []byte, off int64) (int, error) {
	switch {
	case !f.readable():
		return 0, fs.ErrPermission
	case f.n.dir || off < 0:
		return 0, fs.ErrInvalid
	case len(p) == 0:
		return 0, nil
	case off >= int64(len(f.n.data)):
		return 0, io.EOF
	}
	n := copy(p, f.n.data[off:])
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(p []byte) (n int, err error) {
	err = f.use("write", func() error {
		if f.flag&os.O_APPEND != 0 {
			f.pos = int64(len(f.n.data))
		}
		if err := f.writeAt(p, f.pos); err != nil {
			return err
		}
		n = len(p)
		f.pos += int64(n)
		return nil
	})
	return n, err
}

func (f *memFile) WriteAt(p []byte, off int64) (n int, err error) {
	err = f.use("write", func() error {
		if err := f.writeAt(p, off); err != nil {
			return err
		}
		n = len(p)
		return nil
	})
	return n, err
}

func (f *memFile) writeAt(p []byte, off int64) error {
	if !f.writable() {
		return fs.ErrPermission
	}
	if f.n.dir || off < 0 {
		return fs.ErrInvalid
	}
	if end := off + int64(len(p)); end > int64(len(f.n.data)) {
		f.n.data = append(f.n.data, make([]byte, end-int64(len(f.n.data)))...)
	}
	copy(f.n.data[off:], p)
	return nil
}

func (f *memFile) Seek(offset int64, whence int) (int64, error) {
	var pos int64
	err := f.use("seek", func() error {
		switch whence {
		case io.SeekStart:
			pos = offset
		case io.SeekCurrent:
			pos = f.pos + offset
		case io.SeekEnd:
			pos = int64(len(f.n.data)) + offset
		default:
			return fs.ErrInvalid
		}
		if pos < 0 {
			return fs.ErrInvalid
		}
		f.pos = pos
		return nil
	})
	if err != nil {
		return 0, err
	}
	return pos, nil
}

func (f *memFile) Truncate(size int64) error {
	return f.use("truncate", func() error {
		switch {
		case !f.writable():
			return fs.ErrPermission
		case f.n.dir || size < 0:
			return fs.ErrInvalid
		case size <= int64(len(f.n.data)):
			f.n.data = f.n.data[:size:size]
		default:
			f.n.data = append(f.n.data, make([]byte, size-int64(len(f.n.data)))...)
		}
		return nil
	})
}

func (f *memFile) Sync() error {
	return f.use("sync", func() error {
		f.n.syncedData = bytes.Clone(f.n.data)
		return nil
	})
}

func (f *memFile) Stat() (info fs.FileInfo, err error) {
	err = f.use("stat", func() error {
		info = infoOf(filepath.Base(f.name), f.n)
		return nil
	})
	return info, err
}

func (f *memFile) Close() error {
	f.posMu.Lock()
	defer f.posMu.Unlock()
	if f.closed {
		return pathErr("close", f.name, fs.ErrClosed)
	}
	f.closed = true
	return nil
}
