package pipelinetest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"refrain/pipeline"
)

func inputs() []int { return []int{0, 1, 2, 3, 4, 5, 6, 7} }

func wantDoubled(got []int) error {
	want := inputs()
	for i := range want {
		want[i] *= 2
	}
	if !slices.Equal(got, want) {
		return fmt.Errorf("got %v, want %v", got, want)
	}
	return nil
}

func double(_ context.Context, a int) (int, error) { return 2 * a, nil }

func TestMapConforms(t *testing.T) {
	Run(t, Case[int, int]{
		New:    func() pipeline.Stage[int, int] { return pipeline.Map(double) },
		Inputs: inputs, Want: wantDoubled,
	})
}

func TestOrderedConforms(t *testing.T) {
	Run(t, Case[int, int]{
		New:    func() pipeline.Stage[int, int] { return pipeline.Ordered(3, double) },
		Inputs: inputs, Want: wantDoubled,
	})
}

// Ordered with buffers of a pool: all come home after every run.
func TestPooledConforms(t *testing.T) {
	const workers = 2
	pool, err := pipeline.NewPool(pipeline.Window(workers)+3, func(int) (*int, error) { return new(int), nil })
	if err != nil {
		t.Fatal(err)
	}
	Run(t, Case[int, *int]{
		New: func() pipeline.Stage[int, *int] {
			return pipeline.Ordered(workers, func(ctx context.Context, a int) (*int, error) {
				b, err := pool.Get(ctx)
				if err != nil {
					return nil, err
				}
				*b = 2 * a
				return b, nil
			})
		},
		Inputs: inputs,
		Want: func(got []*int) error {
			var v []int
			for _, b := range got {
				v = append(v, *b)
			}
			return wantDoubled(v)
		},
		Release: pool.Put,
		Keep:    func(b *int) *int { c := *b; return &c },
		Done: func(error) error {
			if pool.Len() != pool.Cap() {
				return fmt.Errorf("%d of %d buffers are home", pool.Len(), pool.Cap())
			}
			return nil
		},
	})
}

type counting struct{ n int }

func (c counting) Run(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[int]) error {
	for i := 0; i != c.n; i++ {
		if err := out.Send(ctx, i); err != nil {
			return fmt.Errorf("counting at %d: %w", i, err)
		}
	}
	return nil
}

func TestSourceConforms(t *testing.T) {
	for _, n := range []int{8, -1} {
		c := SourceCase[int]{
			New: func() pipeline.Stage[struct{}, int] { return counting{n} },
			Want: func(got []int) error {
				if !slices.Equal(got, inputs()) {
					return fmt.Errorf("got %v", got)
				}
				return nil
			},
		}
		if n < 0 {
			c.Take = 8
		}
		RunSource(t, c)
	}
}

func TestSinkConforms(t *testing.T) {
	var sum, n int
	RunSink(t, SinkCase[int]{
		New: func() pipeline.Stage[int, struct{}] {
			sum, n = 0, 0
			return pipeline.StageFunc[int, struct{}](func(ctx context.Context, in pipeline.In[int], _ pipeline.Out[struct{}]) error {
				for v, err := range pipeline.Each(ctx, in) {
					if err != nil {
						return err
					}
					sum += v
					n++
				}
				return nil
			})
		},
		Inputs: inputs,
		Done: func(received int, eof bool, err error) error {
			if n != received {
				return fmt.Errorf("added %d of %d items", n, received)
			}
			if eof && n > 0 && sum != 28 {
				return fmt.Errorf("sum %d", sum)
			}
			return nil
		},
	})
}

type stageFunc = pipeline.StageFunc[int, int]

// Each broken stage fails the suite for its own reason.
func TestBrokenStagesFail(t *testing.T) {
	forward := func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
		return pipeline.Map(double).Run(ctx, in, out)
	}
	leak := make(chan struct{})
	defer close(leak)
	var runs atomic.Int64
	cases := []struct {
		name, scenario, want string
		stage                stageFunc
	}{
		{"wrong output", "drain", "the output is wrong", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			return pipeline.Map(func(_ context.Context, a int) (int, error) { return a, nil }).Run(ctx, in, out)
		}},
		{"fails", "drain", "Run failed", func(context.Context, pipeline.In[int], pipeline.Out[int]) error {
			return errors.New("boom")
		}},
		{"other output each run", "drain/cap=1/shake=1", "in the whole run it was", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			extra := runs.Add(1) - 1
			return pipeline.Map(func(_ context.Context, a int) (int, error) { return 2*a + int(extra), nil }).Run(ctx, in, out)
		}},
		{"takes failure for the end", "producer fails late/after=3", "its Run returned nil", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			for {
				a, err := in.Recv(ctx)
				if err != nil {
					return nil
				}
				if err := out.Send(ctx, 2*a); err != nil {
					return err
				}
			}
		}},
		{"renames a failure", "producer fails late/after=3", "is reported as", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			if err := forward(ctx, in, out); err != nil {
				return errors.New("something went wrong")
			}
			return nil
		}},
		{"ignores a refused Send", "cancel late/output=3", "Send gave the stage an error", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			for {
				a, err := in.Recv(ctx)
				if err == io.EOF {
					return nil
				}
				if err != nil {
					return err
				}
				if err := out.Send(ctx, 2*a); err != nil {
					return nil
				}
			}
		}},
		{"hides the stop", "consumer stops/after=3", "Run failed", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			if err := forward(ctx, in, out); err != nil {
				return errors.New("cannot write")
			}
			return nil
		}},
		{"ignores the context", "consumer stops/after=3", errHung.Error(), func(_ context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			for {
				a, err := in.Recv(context.Background())
				if err == io.EOF {
					return nil
				}
				for err = out.Send(context.Background(), 2*a); err != nil; {
					time.Sleep(time.Millisecond)
					select {
					case <-leak:
						return err
					default:
					}
				}
			}
		}},
		{"leaks a goroutine", "drain", "left a goroutine", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			go func() { <-leak }()
			return forward(ctx, in, out)
		}},
		{"fails on empty input", "empty input", "Run failed", func(ctx context.Context, in pipeline.In[int], out pipeline.Out[int]) error {
			a, err := in.Recv(ctx)
			if err == io.EOF {
				return errors.New("nothing")
			}
			if err != nil {
				return err
			}
			if err := out.Send(ctx, 2*a); err != nil {
				return err
			}
			return forward(ctx, in, out)
		}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			s := newSuite(Case[int, int]{
				New:    func() pipeline.Stage[int, int] { return c.stage },
				Inputs: inputs, Want: wantDoubled, Limits: Limits{Timeout: 300 * time.Millisecond},
			})
			// Where a cancellation meets the stage depends on the schedule, so the
			// scenario is tried again until it met the place that is wrong.
			var found []string
			for range 20 {
				hit := false
				s.each(func(name string, check func() error) bool {
					if name != "drain" && name != c.scenario {
						return true
					}
					if err := check(); err != nil {
						found = append(found, name+": "+err.Error())
						hit = hit || name == c.scenario && strings.Contains(err.Error(), c.want)
					}
					return len(found) == 0
				})
				if hit {
					return
				}
			}
			t.Errorf("scenario %q did not report %q; found %v", c.scenario, c.want, found)
		})
	}
}

func TestBrokenSinkFails(t *testing.T) {
	s := newSinkSuite(SinkCase[int]{
		New: func() pipeline.Stage[int, struct{}] {
			return pipeline.StageFunc[int, struct{}](func(ctx context.Context, in pipeline.In[int], _ pipeline.Out[struct{}]) error {
				_, err := in.Recv(ctx)
				if err != nil {
					return nil
				}
				return nil
			})
		},
		Inputs: inputs,
		Done: func(received int, eof bool, err error) error {
			if err == nil && !eof {
				return fmt.Errorf("stopped after %d", received)
			}
			return nil
		},
	})
	var found error
	s.each(func(name string, check func() error) bool {
		found = check()
		return found == nil
	})
	if found == nil || !strings.Contains(found.Error(), "stopped after 1") {
		t.Errorf("found %v", found)
	}
}

func TestCuts(t *testing.T) {
	var s suite[int, int]
	for _, c := range []struct {
		n, limit int
		want     []int
	}{
		{0, 5, []int{0}}, {2, 5, []int{0, 1, 2}}, {8, 3, []int{0, 4, 8}}, {8, 9, []int{0, 1, 2, 3, 4, 5, 6, 7, 8}}, {5, 1, []int{0, 5}},
	} {
		if got := s.cuts(c.n, c.limit); !slices.Equal(got, c.want) {
			t.Errorf("cuts(%d, %d) = %v, want %v", c.n, c.limit, got, c.want)
		}
	}
}

// A stage with a side output is tested with a Recorder in its place.
func TestSideOutputConforms(t *testing.T) {
	var side *Recorder[string]
	handed, sideReleased := 0, 0
	Run(t, Case[int, int]{
		New: func() pipeline.Stage[int, int] {
			handed, sideReleased = 0, 0
			side = &Recorder[string]{Release: func(string) { sideReleased++ }}
			return pipeline.Map(func(ctx context.Context, a int) (int, error) {
				handed++
				return 2 * a, side.Send(ctx, fmt.Sprint(a))
			})
		},
		Inputs: inputs, Want: wantDoubled,
		Done: func(err error) error {
			// A refused item is released too: whoever sends has given it away.
			if n := len(side.Sent()); n > handed || sideReleased != handed {
				return fmt.Errorf("%d items handed over, %d recorded, %d released", handed, n, sideReleased)
			}
			return nil
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var r Recorder[int]
	if err := r.Send(ctx, 1); !errors.Is(err, context.Canceled) || len(r.Sent()) != 0 {
		t.Errorf("err = %v, sent %v", err, r.Sent())
	}
}
