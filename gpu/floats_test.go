package gpu_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"refrain/gpu"
	"refrain/gpu/host"
)

// gate is an op that waits for its channel.
type gate struct{ open chan struct{} }

func (g *gate) Name() string                       { return "gate" }
func (g *gate) Access() (reads, writes []gpu.Span) { return nil, nil }
func (g *gate) Cost() gpu.Cost                     { return gpu.Cost{} }
func (g *gate) BindHost(gpu.Host) func()           { return func() { <-g.open } }
func (g *gate) Launch(gpu.Launcher) error          { return errors.New("not for CUDA") }

// TestUploadFloatsOutlivesItsContext: pinned memory is not freed under a copy that
// was enqueued before the caller lost interest.
func TestUploadFloatsOutlivesItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, err := host.New(host.Config{Threads: 1}).Open(0)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		g := &gate{make(chan struct{})}
		op, err := d.Bind(g, nil)
		if err != nil {
			t.Fatal(err)
		}
		q, err := d.NewQueue("q")
		if err != nil {
			t.Fatal(err)
		}
		dst, err := d.Alloc(12, "dst")
		if err != nil {
			t.Fatal(err)
		}
		if err := q.Do(op); err != nil {
			t.Fatal(err)
		}
		if err := gpu.UploadFloats(t.Context(), d, q, dst, []float32{1, 2}); err == nil {
			t.Error("two floats for twelve bytes")
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		lost := errors.New("lost interest")
		done := make(chan error, 1)
		go func() { done <- gpu.UploadFloats(ctx, d, q, dst, []float32{1, 2, 3}) }()
		synctest.Wait()
		cancel(lost)
		synctest.Wait()
		select {
		case err := <-done:
			t.Fatalf("returned while the copy is under way: %v", err)
		default:
		}
		close(g.open)
		if err := <-done; !errors.Is(err, lost) {
			t.Error(err)
		}
		p, err := d.AllocPinned(12)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Free()
		if err := errors.Join(q.Download(p, 0, dst), q.Sync(t.Context())); err != nil {
			t.Fatal(err)
		}
		if got := gpu.BytesToFloat32s(p.Bytes()[:12]); got[0] != 1 || got[2] != 3 {
			t.Errorf("%v arrived", got)
		}
	})
}
