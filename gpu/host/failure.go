package host

import (
	"errors"
	"fmt"
	"runtime/debug"

	"refrain/gpu"
	"refrain/internal/par"
)

// Failure is what killed a device: a kernel or a copy that panicked. Every
// later call on the device and its queues returns it.
type Failure struct {
	Device int    // ordinal
	Queue  string // label
	Op     string // name of the kernel, or of the copy
	Value  any    // what it panicked with
	Stack  []byte // of the goroutine that panicked
}

func newFailure(q *queue, t *task, v any) *Failure {
	f := &Failure{Device: q.d.ordinal, Queue: q.label, Op: t.name, Value: v, Stack: debug.Stack()}
	if t.op != nil {
		f.Op = t.op.name
	}
	// The panic of a worker was carried here; its own stack tells more.
	if err, ok := v.(error); ok {
		if p := (*par.Panic)(nil); errors.As(err, &p) && p.Stack != nil {
			f.Value, f.Stack = p.Value, p.Stack
		}
	}
	return f
}

// Error names device, queue and op, and ends with the stack: such a failure is
// a mistake in the program, and there is no second chance to see where.
func (f *Failure) Error() string {
	return fmt.Sprintf("host: device %d queue %s: %s panicked: %v\n%s", f.Device, f.Queue, f.Op, f.Value, f.Stack)
}

// Is makes every Failure a gpu.ErrDevice.
func (f *Failure) Is(target error) bool { return target == gpu.ErrDevice }

// Unwrap returns the value of the panic if that is an error.
func (f *Failure) Unwrap() error {
	err, _ := f.Value.(error)
	return err
}
