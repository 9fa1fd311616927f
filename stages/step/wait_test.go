package step

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/pipeline"
	"refrain/stages/item"
	"refrain/train"
)

// stepTime is what a step of the slow trainer takes on the device.
const stepTime = 100 * time.Millisecond

// slow is a trainer whose steps sleep on the device, and which is one step
// ahead of it, as a Trainer is.
type slow struct {
	q    gpu.Queue
	op   gpu.Bound
	done [2]gpu.Event
	fill time.Duration // until the first batch
	fake
}

func (s *slow) Step(ctx context.Context, b *item.DeviceBatch) (res train.StepResult, ok bool, err error) {
	if s.steps++; s.steps == 1 {
		s.fill = s.q.Idle()
	}
	err = errors.Join(s.q.Wait(b.Ready[0]), s.q.Do(s.op), s.q.Record(b.Free[0]), s.q.Record(s.done[s.steps%2]))
	b.Release()
	if err != nil || s.steps == 1 {
		return res, false, err
	}
	return resultOf(s.steps - 1), true, s.done[(s.steps-1)%2].Sync(ctx)
}

func (s *slow) Flush(ctx context.Context) (train.StepResult, bool, error) {
	return resultOf(s.steps), true, s.done[s.steps%2].Sync(ctx)
}

// nap is a kernel that takes stepTime.
type nap struct{}

func (nap) Name() string              { return "nap" }
func (nap) Access() (r, w []gpu.Span) { return nil, nil }
func (nap) Cost() gpu.Cost            { return gpu.Cost{} }
func (nap) Launch(gpu.Launcher) error { return errors.New("not for CUDA") }
func (nap) BindHost(gpu.Host) func()  { return func() { time.Sleep(stepTime) } }

// slowRows takes a while for every row: that of wait for the window.
type slowRows struct {
	item.RowReader
	wait func(g int64) time.Duration
	mu   sync.Mutex
	rows int64
}

func (r *slowRows) ReadRow(g int64, tokens, targets []int32, starts []byte) (int, error) {
	time.Sleep(r.wait(g))
	r.mu.Lock()
	r.rows++
	r.mu.Unlock()
	return r.RowReader.ReadRow(g, tokens, targets, starts)
}

// TestDeviceWait is the mechanism behind the bar for device wait and for the gap
// at an epoch boundary, in virtual time: with rows that come faster than the
// device uses them it never waits after its first step, whatever a boundary costs
// within the slack of ring and slots, and when rows are slow the numbers say how
// much was lost and to whom.
func TestDeviceWait(t *testing.T) {
	const steps, rowsN = 60, 4
	boundary := func(perEpoch int64, cost, usual time.Duration) func(int64) time.Duration {
		return func(g int64) time.Duration {
			if g > 0 && g%perEpoch == 0 {
				return cost
			}
			return usual
		}
	}
	for _, c := range []struct {
		name string
		wait func(perEpoch int64) func(g int64) time.Duration
		idle time.Duration // after the first step
		slow string        // the bottleneck
	}{
		{"rows a little faster than steps", func(int64) func(int64) time.Duration {
			return func(int64) time.Duration { return stepTime * 9 / 10 / rowsN }
		}, 0, "step"},
		{"a boundary that costs four steps", func(n int64) func(int64) time.Duration {
			return boundary(n, 4*stepTime, stepTime/10/rowsN)
		}, 0, "step"},
		{"rows half as fast as steps", func(int64) func(int64) time.Duration {
			return func(int64) time.Duration { return 2 * stepTime / rowsN }
		}, (steps - 1) * stepTime, "batch"},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := options(1)
				o.Steps = steps
				d, err := host.New(host.Config{Threads: 1}).Open(0)
				if err != nil {
					t.Fatal(err)
				}
				var slots []gpu.Span
				for range o.Slots {
					s, err := d.Alloc(item.Layout{N: o.Batch, T: o.T}.Bytes(), "slot")
					if err != nil {
						t.Fatal(err)
					}
					slots = append(slots, s)
				}
				tr := &slow{}
				tr.q, err = d.NewQueue("math")
				for i := range tr.done {
					var e error
					tr.done[i], e = d.NewEvent()
					err = errors.Join(err, e)
				}
				op, e := d.Bind(nap{}, nil)
				if tr.op = op; errors.Join(err, e) != nil {
					t.Fatal(err, e)
				}
				ch := chainOf(t, &o, newCorpus(20), []gpu.Device{d}, func(_, s int) gpu.Span { return slots[s] })
				w := ch.stream.WindowsPerEpoch()
				if epochs := steps * rowsN / w; epochs < 3 {
					t.Fatalf("%d epochs; the test needs some boundaries", epochs)
				}
				var idle time.Duration
				rows := &slowRows{RowReader: ch.stream, wait: c.wait(w)}
				start := time.Now()
				p, err := ch.run(t.Context(), &o, New(tr, Config{Steps: o.Steps}), func(item.RowReader) item.RowReader { return rows }, func(r Result) {
					if r.Step == steps {
						idle = tr.q.Idle() - tr.fill
					}
				})
				if err != nil {
					t.Fatal(err)
				}
				if idle != c.idle {
					t.Errorf("the device waited %v after its first step, want %v", idle, c.idle)
				}
				if total, want := time.Since(start), tr.fill+steps*stepTime+c.idle; total != want {
					t.Errorf("the run took %v, want %v: first rows %v, then steps", total, want, tr.fill)
				}
				if b, _ := pipeline.Bottleneck(p.Stats()); b != c.slow {
					t.Errorf("the bottleneck is said to be %q, want %q", b, c.slow)
				}
				// The loader works ahead of the step by ring, slots and links, no more.
				if rows.rows != steps*rowsN {
					t.Errorf("%d rows were read, want %d", rows.rows, steps*rowsN)
				}
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
