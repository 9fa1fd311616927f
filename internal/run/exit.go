package run

import (
	"context"
	"errors"

	"refrain/gpu"
	"refrain/store"
	"refrain/train"
	"refrain/train/ckpt"
)

// The exit codes of the command line.
const (
	ExitDone        = 0
	ExitFailed      = 1
	ExitUsage       = 2 // bad configuration or command line
	ExitData        = 3 // input refused, or over the skip budget
	ExitNoCkpt      = 4 // no loadable checkpoint in a run that has begun
	ExitDisk        = 5
	ExitNumerics    = 6 // loss or norm not finite
	ExitDevice      = 7
	ExitHang        = 8
	ExitResumable   = 75 // stopped early; the same command with --resume auto goes on
	ExitInterrupted = 130
)

// Error is a failure with the exit code of its class.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// ExitCode is the code of the error's class.
func (e *Error) ExitCode() int { return e.Code }

func usage(err error) error { return &Error{ExitUsage, err} }

// ErrStopped is the result of a run that was asked to stop before its end and
// has saved everything.
var ErrStopped = &Error{ExitResumable, errors.New("stopped before the end; everything is saved, --resume auto goes on")}

// ExitCode returns the exit code for the result of a command.
func ExitCode(err error) int {
	var coded interface{ ExitCode() int }
	var gone *store.GoneError
	switch {
	case err == nil:
		return ExitDone
	case errors.As(err, &coded):
		return coded.ExitCode()
	case errors.Is(err, train.ErrNotFinite):
		return ExitNumerics
	case errors.As(err, &gone):
		return ExitData
	case errors.Is(err, gpu.ErrHang):
		return ExitHang
	case errors.Is(err, gpu.ErrDevice):
		return ExitDevice
	case errors.Is(err, ckpt.ErrNoGood):
		return ExitNoCkpt
	case errors.Is(err, ckpt.ErrOtherRun):
		return ExitUsage
	case errors.Is(err, context.Canceled):
		return ExitInterrupted
	}
	return ExitFailed
}
