package shards

import (
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// look opens a walked input for its first bytes and gives its size. A folder has tens of
// thousands of files, and package os spends more on opening one, for which it asks the
// poller and the file's state, than the kernel does; so a file in a folder that is held
// open is opened by its name alone, no link followed. Whatever else it is goes the way
// of open, with that one's errors.
func (f *folders) look(in *Input) (io.ReadSeekCloser, int64, error) {
	if file, size, ok := f.lookRaw(in); ok {
		return file, size, nil
	}
	return f.lookSlowly(in)
}

func (f *folders) lookRaw(in *Input) (rawFile, int64, bool) {
	if in.root == "" || f.enter(in.root) != nil {
		return 0, 0, false
	}
	sub, base := f.below(in.Rel)
	if sub == nil {
		return 0, 0, false
	}
	if f.dir == nil {
		dir, err := sub.Open(".")
		if err != nil {
			return 0, 0, false
		}
		f.dir = dir
	}
	fd, err := retry(func() (int, error) {
		return unix.Openat(int(f.dir.Fd()), base, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return 0, 0, false
	}
	var st unix.Stat_t
	if unix.Fstat(fd, &st) != nil || st.Mode&unix.S_IFMT != unix.S_IFREG {
		rawFile(fd).Close()
		return 0, 0, false
	}
	return rawFile(fd), st.Size, true
}

// rawFile is the descriptor of a regular file.
type rawFile int

// Read implements io.Reader.
func (f rawFile) Read(p []byte) (int, error) {
	n, err := retry(func() (int, error) { return unix.Read(int(f), p) })
	switch {
	case err != nil:
		return 0, os.NewSyscallError("read", err)
	case n == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return n, nil
}

// Seek implements io.Seeker.
func (f rawFile) Seek(offset int64, whence int) (int64, error) {
	at, err := unix.Seek(int(f), offset, whence)
	return at, os.NewSyscallError("lseek", err)
}

// Close implements io.Closer.
func (f rawFile) Close() error { return os.NewSyscallError("close", unix.Close(int(f))) }

// retry repeats a call that a signal interrupts.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
