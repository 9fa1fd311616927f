package batch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/stages/item"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const rowsN, rowsT = 3, 21

// reader is a stream whose row g holds the numbers g, g+1, ... and fails at
// one window.
type reader struct {
	failAt int64
	change func(g int64, tokens, targets []int32)
}

var errRow = errors.New("this window cannot be read")

func (r *reader) ReadRow(g int64, tokens, targets []int32, starts []byte) (int, error) {
	if r.failAt != 0 && g == r.failAt {
		return 0, errRow
	}
	for i := range tokens {
		tokens[i], targets[i] = int32(g)+int32(i), int32(g)+int32(i)+1
	}
	targets[len(targets)-1] = -1
	for i := range starts {
		starts[i] = byte(g) + byte(i)
	}
	if r.change != nil {
		r.change(g, tokens, targets)
	}
	return len(targets) - 1, nil
}

func open(t testing.TB) gpu.Device {
	t.Helper()
	d, err := host.New(host.Config{Threads: 1}).Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

func requests(n int, r item.RowReader) []item.Rows {
	var rows []item.Rows
	for k := range int64(n) {
		rows = append(rows, item.Rows{Batch: k, Cursor: item.Cursor{Window: 100 + k*rowsN, Epoch: 1, Row: k * rowsN}, N: rowsN, Reader: r})
	}
	return rows
}

// sections returns the three parts of a batch.
func sections(b *item.Batch) (tokens, targets []int32, starts []byte) {
	lay, mem := item.Layout{N: b.N, T: b.T}, b.Host.Bytes()
	tokens = gpu.BytesToInt32s(mem[lay.TokensOff():][:b.N*b.T*4])
	targets = gpu.BytesToInt32s(mem[lay.TargetsOff():][:b.N*b.T*4])
	return tokens, targets, mem[lay.StartsOff():][:b.N*lay.StartsRow()]
}

// check holds a batch against what its request asked for.
func check(b *item.Batch, want item.Rows) error {
	tokens, targets, starts := sections(b)
	w, x, s := make([]int32, rowsT), make([]int32, rowsT), make([]byte, (rowsT+7)/8)
	for i := range rowsN {
		n, err := want.Reader.ReadRow(want.Cursor.Window+int64(i), w, x, s)
		if err != nil || n != rowsT-1 {
			return fmt.Errorf("the reference row: %d, %w", n, err)
		}
		if !slices.Equal(tokens[i*rowsT:][:rowsT], w) || !slices.Equal(targets[i*rowsT:][:rowsT], x) || !bytes.Equal(starts[i*len(s):][:len(s)], s) {
			return fmt.Errorf("batch %d row %d differs", want.Batch, i)
		}
	}
	if b.Batch != want.Batch || b.Cursor != want.Cursor || b.Valid != rowsN*(rowsT-1) {
		return fmt.Errorf("batch %d is stamped %d %+v, %d targets", want.Batch, b.Batch, b.Cursor, b.Valid)
	}
	if crc := crc32.Checksum(b.Host.Bytes(), crc32.MakeTable(crc32.Castagnoli)); b.CRC != crc {
		return fmt.Errorf("batch %d has CRC %x, its memory %x", want.Batch, b.CRC, crc)
	}
	return nil
}

func TestConforms(t *testing.T) {
	for _, workers := range []int{1, 3} {
		t.Run(fmt.Sprintf("workers=%d", workers), func(t *testing.T) {
			d := open(t)
			const n = 10
			var s *Stage
			pipelinetest.Run(t, pipelinetest.Case[item.Rows, *item.Batch]{
				New: func() pipeline.Stage[item.Rows, *item.Batch] {
					var err error
					if s, err = New(d, Config{N: rowsN, T: rowsT, Ring: 3, Workers: workers, Vocab: 1000}); err != nil {
						t.Fatal(err)
					}
					return s
				},
				Inputs:  func() []item.Rows { return requests(n, &reader{}) },
				Release: (*item.Batch).Drop,
				Keep: func(b *item.Batch) *item.Batch {
					c := *b
					c.Host = &copied{slices.Clone(b.Host.Bytes())}
					return &c
				},
				Equal: func(a, b *item.Batch) bool {
					return a.Batch == b.Batch && a.CRC == b.CRC && bytes.Equal(a.Host.Bytes(), b.Host.Bytes())
				},
				Want: func(got []*item.Batch) error {
					if len(got) != n {
						return fmt.Errorf("%d batches, want %d", len(got), n)
					}
					for i, want := range requests(n, &reader{}) {
						if err := check(got[i], want); err != nil {
							return err
						}
					}
					return nil
				},
				Done: func(error) error {
					if s == nil {
						return nil
					}
					defer func() { s = nil }()
					return s.Close() // says so if a buffer is not home
				},
				Limits: pipelinetest.Limits{MaxCuts: 12},
			})
		})
	}
}

type copied struct{ b []byte }

func (c *copied) Bytes() []byte { return c.b }
func (c *copied) Free() error   { return nil }

// run gathers rows and hands each batch to use, which owns it.
func run(t *testing.T, s *Stage, rows []item.Rows, use func(ctx context.Context, b *item.Batch) error) error {
	t.Helper()
	p := pipeline.New()
	in := pipeline.Source(p, "rows", pipeline.LinkConfig{Items: 1}, pipeline.StageFunc[struct{}, item.Rows](
		func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[item.Rows]) error {
			for _, r := range rows {
				if err := out.Send(ctx, r); err != nil {
					return err
				}
			}
			return nil
		}))
	out := pipeline.Then(p, "batch", in, pipeline.LinkConfig{Items: 1, Release: pipeline.ReleaseOf((*item.Batch).Drop)}, s)
	pipeline.Sink(p, "use", out, pipeline.StageFunc[*item.Batch, struct{}](
		func(ctx context.Context, in pipeline.In[*item.Batch], _ pipeline.Out[struct{}]) error {
			for b, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				if err := use(ctx, b); err != nil {
					return err
				}
			}
			return nil
		}))
	return p.Run(t.Context())
}

func TestFailures(t *testing.T) {
	id := func(t32 int, token, target int32) func(int64, []int32, []int32) {
		return func(g int64, tokens, targets []int32) {
			if g == 104 {
				tokens[t32], targets[t32] = token, target
			}
		}
	}
	short := requests(3, &reader{})
	short[1].N = 2
	for _, c := range []struct {
		name  string
		rows  []item.Rows
		words []string
	}{
		{"row", requests(3, &reader{failAt: 104}), []string{"stage batch", "batch 1, window 104", errRow.Error()}},
		{"size", short, []string{"batch 1: 2 rows requested, the ring holds 3"}},
		{"token", requests(3, &reader{change: id(7, 500, 0)}), []string{"batch 1, window 104", "position 7 holds token 500, outside [0,500)"}},
		{"negative token", requests(3, &reader{change: id(0, -1, 0)}), []string{"position 0 holds token -1"}},
		{"target", requests(3, &reader{change: id(20, 0, 500)}), []string{"position 20 has target 500"}},
		{"negative target", requests(3, &reader{change: id(3, 0, -2)}), []string{"position 3 has target -2"}},
		{"largest target", requests(3, &reader{change: id(3, 0, 1<<31-1)}), []string{"position 3 has target 2147483647"}},
	} {
		for _, workers := range []int{1, 4} {
			s, err := New(open(t), Config{N: rowsN, T: rowsT, Ring: 2, Workers: workers, Vocab: 500})
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			err = run(t, s, c.rows, func(_ context.Context, b *item.Batch) error { n++; b.Release(); return nil })
			for _, w := range c.words {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%s with %d workers: %v, want %q", c.name, workers, err, w)
				}
			}
			if n > 1 {
				t.Errorf("%s with %d workers: %d batches came out, one was good", c.name, workers, n)
			}
			if err := s.Close(); err != nil {
				t.Errorf("%s with %d workers: %v", c.name, workers, err)
			}
		}
	}
}

func TestRefusedConfig(t *testing.T) {
	d := open(t)
	good := Config{N: 1, T: 1, Ring: 2}
	for _, change := range []func(c *Config){
		func(c *Config) { c.N = 0 }, func(c *Config) { c.T = 0 }, func(c *Config) { c.Ring = 1 }, func(c *Config) { c.Vocab = -1 },
		func(c *Config) { c.T = 1 << 50 }, // no memory
	} {
		c := good
		change(&c)
		if s, err := New(d, c); err == nil {
			t.Errorf("%+v was accepted", c)
			_ = s.Close()
		}
	}
}

// TestFullRingHoldsBack: with all buffers in use the stage asks for no more
// rows than it has a place for, and says that the consumer is the reason.
func TestFullRingHoldsBack(t *testing.T) {
	for _, workers := range []int{1, 3} {
		synctest.Test(t, func(t *testing.T) {
			s, err := New(open(t), Config{N: rowsN, T: rowsT, Ring: 2, Workers: workers})
			if err != nil {
				t.Fatal(err)
			}
			var held []*item.Batch
			err = run(t, s, requests(9, &reader{}), func(ctx context.Context, b *item.Batch) error {
				if held = append(held, b); len(held) < 2 {
					return nil
				}
				synctest.Wait()
				if free := s.ring.Len(); free != 0 {
					t.Errorf("%d buffers are free while two are held", free)
				}
				if err := check(held[0], requests(9, &reader{})[held[0].Batch]); err != nil {
					t.Errorf("a held batch was overwritten: %v", err)
				}
				for _, b := range held {
					b.Release()
				}
				held = held[:0]
				return nil
			})
			for _, b := range held {
				b.Release()
			}
			if err := errors.Join(err, s.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestCloseReportsLostBuffers(t *testing.T) {
	s, err := New(open(t), Config{N: 1, T: 1, Ring: 3})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.ring.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "1 of 3 buffers") {
		t.Errorf("Close: %v", err)
	}
}
