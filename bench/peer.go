package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

// Quartiles returns the first quartile, the median and the third quartile of
// at least one value, by linear interpolation between order statistics.
func Quartiles(v []float64) (q1, q2, q3 float64) {
	v = slices.Clone(v)
	slices.Sort(v)
	at := func(p float64) float64 {
		x := p * float64(len(v)-1)
		i := int(x)
		if i+1 >= len(v) {
			return v[len(v)-1]
		}
		return v[i] + (x-float64(i))*(v[i+1]-v[i])
	}
	return at(0.25), at(0.5), at(0.75)
}

// Peer is another program that answers one measurement a request, so that its
// rounds and ours alternate: it reads a line of JSON and writes one.
type Peer struct {
	cmd  *exec.Cmd
	kill context.CancelFunc
	in   io.WriteCloser
	out  *bufio.Scanner
	last *lastLine // of what it wrote to the error output
	// About is what it says of itself: versions, threads, libraries.
	About json.RawMessage
}

// StartPeer starts DIR/script with the Python of DIR/.env, which
// DIR/install.sh makes. It waits until the peer is ready, which may take a
// minute where the peer compiles first.
func StartPeer(ctx context.Context, dir, script string, args ...string) (*Peer, error) {
	return StartPeerIn(ctx, dir, "", script, args...)
}

// StartPeerIn is StartPeer with the Python of another environment of
// DIR/install.sh: DIR/.env/ENV, or the base where env is empty.
func StartPeerIn(ctx context.Context, dir, env, script string, args ...string) (*Peer, error) {
	python := filepath.Join(peerFolder(dir, env), "bin", "python")
	if _, err := os.Stat(python); err != nil {
		return nil, notInstalled(dir, env, python)
	}
	path := filepath.Join(dir, script)
	if _, err := os.Stat(path); err != nil {
		return nil, fmt.Errorf("peer script %s: %w", path, err)
	}
	return startProgram(ctx, dir, script, python, append([]string{path}, args...)...)
}

// peerFolder is where install.sh puts an environment.
func peerFolder(dir, env string) string {
	if env == "" {
		return filepath.Join(dir, ".env")
	}
	return filepath.Join(dir, ".env", env)
}

func notInstalled(dir, env, missing string) error {
	install := filepath.Join(dir, "install.sh")
	if env == "" {
		return fmt.Errorf("the pinned peers are not installed (no %s); run: sh %s", missing, install)
	}
	return fmt.Errorf("not installed (no %s); run: sh %s %s", missing, install, env)
}

// Lost is told why a peer has no row, when it fails between measurements; they go on
// without it. Where it is nil, they end with the reason.
type Lost func(peer string, reason error)

// lose returns nil when the measurement goes on. The end of ctx, which ends peers as
// well, is no fault of theirs.
func (l Lost) lose(ctx context.Context, peer string, reason error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if l == nil {
		return fmt.Errorf("peer %s: %w", peer, reason)
	}
	l(peer, reason)
	return nil
}

const (
	startLimit = 10 * time.Minute // a peer that compiles first takes one
	closeLimit = 10 * time.Second // to end by itself when its input ends
)

// startProgram starts a program that answers as a Peer does and reads its first
// answer.
func startProgram(ctx context.Context, dir, script, program string, args ...string) (*Peer, error) {
	ctx, kill := context.WithCancel(ctx)
	p := &Peer{cmd: exec.CommandContext(ctx, program, args...), kill: kill, last: &lastLine{to: os.Stderr}}
	p.cmd.Env = peerEnv(dir)
	p.cmd.Stderr = p.last
	p.cmd.WaitDelay = time.Second // for children of its own that keep the error output
	if err := p.start(); err != nil {
		kill()
		return nil, fmt.Errorf("peer %s: %w", script, err)
	}
	late := time.AfterFunc(startLimit, kill)
	err := p.read(&p.About)
	if err == nil && late.Stop() {
		return p, nil
	}
	if err == nil {
		err = fmt.Errorf("it took more than %v to start", startLimit)
	}
	late.Stop()
	return nil, fmt.Errorf("peer %s: %w", script, p.reason(err))
}

func (p *Peer) start() (err error) {
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 1<<20)
	return p.cmd.Start()
}

// reason closes a peer that failed with err, and says in one line what is known: how it
// ended, and the last it wrote, which for Python names the exception.
func (p *Peer) reason(err error) error {
	if closeErr := p.Close(); closeErr != nil {
		err = fmt.Errorf("%w (%v)", err, closeErr)
	}
	if line := p.last.line(); line != "" {
		err = fmt.Errorf("%w: %s", err, line)
	}
	return err
}

// lastLine passes on what is written and keeps the last line that is not empty.
type lastLine struct {
	to io.Writer

	mu   sync.Mutex
	tail []byte
}

// lastLineMost is how much of a line is kept.
const lastLineMost = 4 << 10

func (l *lastLine) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.tail = append(l.tail, b...)
	l.tail = l.tail[max(0, len(l.tail)-lastLineMost):]
	l.mu.Unlock()
	return l.to.Write(b)
}

func (l *lastLine) line() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	text := bytes.TrimRight(l.tail, " \r\n")
	return string(bytes.TrimSpace(text[bytes.LastIndexByte(text, '\n')+1:]))
}

// peerEnv is the environment of a peer: what tunes or cripples its libraries
// from outside is removed, and jemalloc is preloaded where it is installed, as
// its users would.
func peerEnv(dir string) (env []string) {
	for _, e := range os.Environ() {
		drop := false
		for _, name := range []string{"OPENBLAS_CORETYPE=", "OPENBLAS_L2_SIZE=", "OMP_", "MKL_", "LD_PRELOAD="} {
			drop = drop || len(e) >= len(name) && e[:len(name)] == name
		}
		if !drop {
			env = append(env, e)
		}
	}
	if lib, err := os.ReadFile(filepath.Join(dir, ".env", "jemalloc")); err == nil {
		env = append(env, "LD_PRELOAD="+string(lib))
	}
	return env
}

func (p *Peer) read(v any) error {
	if !p.out.Scan() {
		return errors.Join(errors.New("it ended without an answer"), p.out.Err())
	}
	if err := json.Unmarshal(p.out.Bytes(), v); err != nil {
		return fmt.Errorf("it answered %q: %w", p.out.Text(), err)
	}
	return nil
}

// Ask sends a request and reads the answer into v. After an error the peer is of no
// more use.
func (p *Peer) Ask(request, v any) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return p.reason(errors.New("it ended before it was asked"))
	}
	if err := p.read(v); err != nil {
		return p.reason(err)
	}
	return nil
}

// Close ends the peer: by the end of its input, or, where that does not help, by a
// signal. A second call does nothing.
func (p *Peer) Close() error {
	p.in.Close()
	if p.cmd.ProcessState != nil {
		return nil
	}
	late := time.AfterFunc(closeLimit, p.kill)
	defer p.kill()
	defer late.Stop()
	return p.cmd.Wait()
}
