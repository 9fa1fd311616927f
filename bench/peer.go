package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
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
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
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

// startProgram starts a program that answers as a Peer does and reads its first
// answer.
func startProgram(ctx context.Context, dir, script, program string, args ...string) (*Peer, error) {
	p := &Peer{cmd: exec.CommandContext(ctx, program, args...)}
	p.cmd.Env = peerEnv(dir)
	p.cmd.Stderr = os.Stderr
	var err error
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.out = bufio.NewScanner(out)
	p.out.Buffer(nil, 1<<20)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	if err := p.read(&p.About); err != nil {
		return nil, errors.Join(fmt.Errorf("peer %s: %w", script, err), p.Close())
	}
	return p, nil
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

// Ask sends a request and reads the answer into v.
func (p *Peer) Ask(request, v any) error {
	b, err := json.Marshal(request)
	if err != nil {
		return err
	}
	if _, err := p.in.Write(append(b, '\n')); err != nil {
		return err
	}
	return p.read(v)
}

// Close ends the peer.
func (p *Peer) Close() error {
	p.in.Close()
	return p.cmd.Wait()
}
