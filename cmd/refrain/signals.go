package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"refrain/internal/run"
)

// signals is how a command learns that it should end. Commands that can save
// their work watch stop; for the others the first signal cancels the context.
type signals struct {
	mu       sync.Mutex
	ch       chan os.Signal
	graceful bool
	stopped  bool
	stop     chan struct{}
	cancel   context.CancelFunc
}

// Graceful makes the first signal close the returned channel instead of
// cancelling the context. A second signal always ends the process at once.
//
// From now on a reader of the output that goes away ends nothing by itself:
// without this a write to a closed pipe kills the process where it stands.
func (s *signals) Graceful() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graceful = true
	signal.Ignore(syscall.SIGPIPE)
	return s.stop
}

// lost asks for a stop because the terminal or the reader of the output is
// gone. There is nobody to tell, so unlike a signal it may come many times.
func (s *signals) lost() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.stopped {
		s.stopped = true
		close(s.stop)
	}
}

func (s *signals) first(w io.Writer, sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.graceful {
		s.cancel()
		return
	}
	if s.stopped {
		return
	}
	s.stopped = true
	close(s.stop)
	// The terminal may be what went away; then this says nothing to nobody.
	fmt.Fprintf(w, "refrain: %v: finishing the step and saving; once more to end at once\n", sig)
}

// withSignals handles SIGINT, SIGTERM and SIGHUP until cancel is called. The
// hang-up of a terminal is often followed by a second one from the shell, so
// it never counts as the second signal that ends the process.
func withSignals(ctx context.Context, w io.Writer) (context.Context, *signals, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s := &signals{stop: make(chan struct{}), cancel: cancel, ch: make(chan os.Signal, 4)}
	// An interrupt counts even where the shell has it ignored, as for a command in
	// the background of a script: whoever sends one means it.
	signal.Notify(s.ch, os.Interrupt, syscall.SIGTERM)
	if !signal.Ignored(syscall.SIGHUP) { // started by nohup
		signal.Notify(s.ch, syscall.SIGHUP)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for n := 0; ; {
			select {
			case sig := <-s.ch:
				if n++; n == 1 {
					s.first(w, sig)
				} else if sig != syscall.SIGHUP {
					os.Exit(run.ExitInterrupted)
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, s, func() {
		signal.Stop(s.ch)
		signal.Reset(syscall.SIGPIPE)
		cancel()
		<-done
	}
}

// graceful prepares the command for the loss of its terminal and returns the
// channel that is closed when it should finish its step, save and end.
func (a *app) graceful() <-chan struct{} {
	a.out = &lasting{w: a.out, lost: a.signals.lost}
	a.err = &lasting{w: a.err, lost: a.signals.lost}
	return a.signals.Graceful()
}

// lasting is a terminal or pipe that may go away: the first failed write asks
// for a stop, and from then on everything written is dropped, so that a run
// without a reader saves and ends instead of failing.
type lasting struct {
	mu   sync.Mutex
	w    io.Writer
	gone bool
	lost func()
}

// Write never fails.
func (l *lasting) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone {
		return len(b), nil
	}
	if _, err := l.w.Write(b); err != nil {
		l.gone = true
		l.lost()
	}
	return len(b), nil
}
