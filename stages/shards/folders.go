package shards

import (
	"context"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// folders opens inputs and keeps the folders last used open, since inputs of one
// folder follow each other and every element of a path costs a system call. The zero
// value is ready; close it after use. One goroutine uses it.
type folders struct {
	root *os.Root // the folder that was walked
	name string
	sub  *os.Root // one below it
	path string   // of sub below root, with slashes
	dir  *os.File // sub again, where look needs it

	head, buf []byte // scratch of classify and digestFile
	room      *room  // for hold
}

func (f *folders) close() {
	f.leave()
	if f.root != nil {
		f.root.Close()
		f.root = nil
	}
}

// leave closes the folder below the one that was walked.
func (f *folders) leave() {
	if f.dir != nil {
		f.dir.Close()
		f.dir = nil
	}
	if f.sub != nil {
		f.sub.Close()
		f.sub = nil
	}
}

// lookSlowly is look in the way of open.
func (f *folders) lookSlowly(in *Input) (io.ReadSeekCloser, int64, error) {
	file, err := f.open(in)
	if err != nil {
		return nil, 0, err
	}
	st, err := stateOf(in, file)
	if err != nil {
		file.Close()
		return nil, 0, err
	}
	return file, st.size, nil
}

// open opens an input, below its folder when it was met in a walk, so that a
// link swapped in later cannot lead elsewhere.
func (f *folders) open(in *Input) (*os.File, error) {
	file, err := f.raw(in)
	if err != nil {
		return nil, fmt.Errorf("shards: %s: %w; check that it is there and readable", in.Path, err)
	}
	return file, nil
}

func (f *folders) raw(in *Input) (*os.File, error) {
	switch {
	case in.stdin:
		return os.Stdin, nil
	case in.root == "":
		return os.Open(in.Path)
	}
	if err := f.enter(in.root); err != nil {
		return nil, err
	}
	if sub, base := f.below(in.Rel); sub != nil {
		if file, err := sub.Open(base); err == nil {
			return file, nil
		}
		// A link may lead out of this folder and stay in the one that was walked;
		// and the error should name the whole path.
	}
	return f.root.Open(filepath.FromSlash(in.Rel))
}

// stat is the state of the file a walked input names, links followed.
func (f *folders) stat(in *Input) (fs.FileInfo, error) {
	if err := f.enter(in.root); err != nil {
		return nil, err
	}
	if sub, base := f.below(in.Rel); sub != nil {
		if info, err := sub.Stat(base); err == nil {
			return info, nil
		}
	}
	return f.root.Stat(filepath.FromSlash(in.Rel))
}

// enter opens the walked folder.
func (f *folders) enter(name string) error {
	if f.root != nil && f.name == name {
		return nil
	}
	f.close()
	root, err := os.OpenRoot(name)
	if err != nil {
		return err
	}
	f.root, f.name = root, name
	return nil
}

// below opens the folder that holds rel, or gives nil where that cannot be done or is
// the walked folder itself.
func (f *folders) below(rel string) (sub *os.Root, base string) {
	i := strings.LastIndexByte(rel, '/')
	if i < 0 {
		return nil, ""
	}
	dir := rel[:i]
	if f.sub == nil || f.path != dir {
		f.leave()
		sub, err := f.root.OpenRoot(filepath.FromSlash(dir))
		if err != nil {
			return nil, ""
		}
		f.sub, f.path = sub, dir
	}
	return f.sub, rel[i+1:]
}

// inputRun is how many inputs a goroutine takes at a time: enough that most of them lie
// in one folder, and that little is left over at the end.
const inputRun = 32

// crowd is a goroutine for each core that looks at inputs, each with folders of its own.
// The error that counts is the one of the first input that has one, however the work was
// shared.
type crowd struct {
	runs chan inputs
	wait sync.WaitGroup

	mu    sync.Mutex
	where int // the input with the first error
	first error
}

// inputs are up to inputRun inputs: numbers from on, as many as look is to be called for.
type inputs struct {
	from, n int
	look    func(at *folders, k int) error // k counts from 0 in the run
}

func newCrowd() *crowd {
	n := runtime.GOMAXPROCS(0)
	c := &crowd{runs: make(chan inputs, n)}
	for range n {
		c.wait.Go(func() {
			var at folders
			defer at.close()
			for r := range c.runs {
				// The runs come in order, so every input before one with an error is
				// being looked at; those behind it need not be.
				for k := 0; k < r.n && !c.past(r.from+k); k++ {
					if err := r.look(&at, k); err != nil {
						c.failed(r.from+k, err)
					}
				}
			}
		})
	}
	return c
}

// past says whether an input before i has an error.
func (c *crowd) past(i int) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.first != nil && c.where < i
}

func (c *crowd) failed(i int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first == nil || i < c.where {
		c.where, c.first = i, err
	}
}

// end blocks until all runs have been looked at.
func (c *crowd) end() error {
	close(c.runs)
	c.wait.Wait()
	return c.first
}

// eachInput calls f with the numbers of n inputs on all cores and returns when all have
// ended.
func eachInput(ctx context.Context, n int, f func(at *folders, i int) error) error {
	c := newCrowd()
	for from := 0; from < n && !c.past(from); from += inputRun {
		c.runs <- inputs{from, min(inputRun, n-from), func(at *folders, k int) error {
			if err := context.Cause(ctx); err != nil {
				return err
			}
			return f(at, from+k)
		}}
	}
	return c.end()
}
