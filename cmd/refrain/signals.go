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
	graceful bool
	stop     chan struct{}
	cancel   context.CancelFunc
}

// Graceful makes the first signal close the returned channel instead of
// cancelling the context. A second signal always ends the process at once.
func (s *signals) Graceful() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.graceful = true
	return s.stop
}

func (s *signals) first(w io.Writer, sig os.Signal) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.graceful {
		s.cancel()
		return
	}
	fmt.Fprintf(w, "refrain: %v: finishing the step and saving; once more to end at once\n", sig)
	close(s.stop)
}

// withSignals handles SIGINT and SIGTERM until cancel is called.
func withSignals(ctx context.Context, w io.Writer) (context.Context, *signals, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	s := &signals{stop: make(chan struct{}), cancel: cancel}
	ch := make(chan os.Signal, 2)
	signal.Notify(ch, os.Interrupt, syscall.SIGTERM)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case sig := <-ch:
			s.first(w, sig)
		case <-ctx.Done():
			return
		}
		select {
		case <-ch:
			os.Exit(run.ExitInterrupted)
		case <-ctx.Done():
		}
	}()
	return ctx, s, func() {
		signal.Stop(ch)
		cancel()
		<-done
	}
}
