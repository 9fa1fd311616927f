package repack

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"

	"refrain/pipeline"
	"refrain/pipeline/pipelinetest"
	"refrain/stages/item"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// collect runs a Source to its end, or until stop items have come.
func collect(t *testing.T, s *Stream, batch int, first, end int64, stop int) ([]item.Rows, error) {
	t.Helper()
	p := pipeline.New()
	link := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 2}, Source(s, batch, first, end))
	var got []item.Rows
	pipeline.Sink(p, "sink", link, pipeline.StageFunc[item.Rows, struct{}](
		func(ctx context.Context, in pipeline.In[item.Rows], _ pipeline.Out[struct{}]) error {
			for r, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				if got = append(got, r); len(got) == stop {
					return nil
				}
			}
			return nil
		}))
	err := p.Run(context.Background())
	return got, err
}

func TestSourceSendsEveryBatchOnce(t *testing.T) {
	for _, cfg := range allConfigs(16) {
		s := mustStream(t, toy(), cfg)
		got, err := collect(t, s, 5, 3, 40, -1)
		if err != nil || len(got) != 37 {
			t.Fatalf("%v: %d batches, %v", cfg, len(got), err)
		}
		for i, r := range got {
			k := int64(3 + i)
			e, row := s.Locate(k * 5)
			want := item.Rows{Batch: k, Cursor: item.Cursor{Window: k * 5, Epoch: e, Row: row}, N: 5, Reader: s}
			if r != want {
				t.Fatalf("%v: item %d is %+v, want %+v", cfg, i, r, want)
			}
		}
	}
}

func TestSourceConforms(t *testing.T) {
	s := mustStream(t, toy(), Config{Mode: Repack, Seed: 1, T: 16})
	want, err := collect(t, s, 3, 2, 30, -1)
	if err != nil {
		t.Fatal(err)
	}
	same := func(a, b item.Rows) bool {
		a.Reader, b.Reader = nil, nil // two streams over one corpus
		return a == b
	}
	pipelinetest.RunSource(t, pipelinetest.SourceCase[item.Rows]{
		New: func() pipeline.Stage[struct{}, item.Rows] {
			return Source(mustStream(t, toy(), s.Config()), 3, 2, 30)
		},
		Equal: same,
		Want: func(got []item.Rows) error {
			if !slices.EqualFunc(got, want, same) {
				return fmt.Errorf("got %d requests, want %d", len(got), len(want))
			}
			return nil
		},
	})
}

func TestSourceEndsWithItsConsumer(t *testing.T) {
	got, err := collect(t, mustStream(t, toy(), Config{Mode: Repack, T: 16}), 4, 0, Endless, 25)
	if err != nil || len(got) != 25 {
		t.Errorf("%d batches, %v", len(got), err)
	}
}

func TestSourceRefuses(t *testing.T) {
	s := mustStream(t, toy(), Config{Mode: Repack, T: 16})
	for _, c := range []struct {
		batch      int
		first, end int64
		want       string
	}{
		{0, 0, 1, "at least 1"},
		{1 << 20, 0, 1, "larger than an epoch"},
		{2, 5, 4, "no range"},
		{2, -1, 4, "no range"},
		{2, 0, Endless - 1, "beyond"},
	} {
		if got, err := collect(t, s, c.batch, c.first, c.end, -1); err == nil || !strings.Contains(err.Error(), c.want) || len(got) > 0 {
			t.Errorf("%+v: %d items, %v", c, len(got), err)
		}
	}
}

// While the first batch of epoch 0 is still being worked on, the plan of epoch 1
// gets built.
func TestSourcePlansAhead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := mustStream(t, toy(), Config{Mode: Repack, T: 16})
		p := pipeline.New()
		link := pipeline.Source(p, "repack", pipeline.LinkConfig{Items: 1}, Source(s, 1, 0, Endless))
		pipeline.Sink(p, "sink", link, pipeline.StageFunc[item.Rows, struct{}](
			func(ctx context.Context, in pipeline.In[item.Rows], _ pipeline.Out[struct{}]) error {
				if _, err := in.Recv(ctx); err != nil {
					return err
				}
				synctest.Wait() // the source is blocked in Send, its goroutine is done
				for _, p := range s.plans.Load() {
					if p != nil && p.Epoch == 1 {
						return nil
					}
				}
				t.Error("epoch 1 has no plan")
				return nil
			}))
		if err := p.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestRowsJSON(t *testing.T) {
	s := mustStream(t, toy(), Config{Mode: Repack, Seed: 9, T: 16, Tail: Pad})
	var buf bytes.Buffer
	if err := s.RowsJSON(&buf, 2, 3, true); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(buf.String()), "\n")
	if len(lines) != 3 {
		t.Fatalf("%d lines", len(lines))
	}
	for i, line := range lines {
		var got struct {
			Epoch, Row int64
			Spans      [][3]int64
			Tokens     []int32
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatal(err)
		}
		r := readRow(t, s, s.FirstWindow(2)+int64(i))
		spans, _ := s.Spans(s.FirstWindow(2) + int64(i))
		if got.Epoch != 2 || got.Row != int64(i) || len(got.Spans) != len(spans) || len(got.Tokens) != 16 {
			t.Fatalf("line %s", line)
		}
		for j, sp := range spans {
			if got.Spans[j] != [3]int64{sp.Doc, sp.From, sp.To} {
				t.Errorf("row %d span %d: %v, want %v", i, j, got.Spans[j], sp)
			}
		}
		for j, id := range got.Tokens {
			if id != r.tokens[j] {
				t.Errorf("row %d token %d: %d, want %d", i, j, id, r.tokens[j])
			}
		}
	}
	buf.Reset()
	if err := s.RowsJSON(&buf, 0, -1, false); err != nil || strings.Count(buf.String(), "\n") != int(s.WindowsIn(0)) || strings.Contains(buf.String(), "tokens") {
		t.Errorf("all rows without tokens: %v, %d lines", err, strings.Count(buf.String(), "\n"))
	}
}

func TestCutsChanged(t *testing.T) {
	for _, c := range []struct {
		mode      Mode
		unchanged bool
	}{{Fixed, true}, {Reshuffle, true}, {Repack, false}} {
		changed, total, err := mustStream(t, toy(), Config{Mode: c.mode, T: 16}).CutsChanged(1)
		if err != nil || total == 0 || (changed == 0) != c.unchanged || changed > total {
			t.Errorf("%v: %d of %d edges moved, %v", c.mode, changed, total, err)
		}
	}
}

func TestParse(t *testing.T) {
	for m := Fixed; m <= Repack; m++ {
		if got, err := ParseMode(m.String()); err != nil || got != m {
			t.Errorf("mode %v came back as %v, %v", m, got, err)
		}
	}
	for tail := Drop; tail <= Pad; tail++ {
		if got, err := ParseTail(tail.String()); err != nil || got != tail {
			t.Errorf("tail %v came back as %v, %v", tail, got, err)
		}
	}
	for _, s := range []string{"", "REPACK", "mode(0)"} {
		if _, err := ParseMode(s); err == nil {
			t.Errorf("mode %q was accepted", s)
		}
		if _, err := ParseTail(s); err == nil {
			t.Errorf("tail %q was accepted", s)
		}
	}
	good := `{"v":1,"fp":"x","seed":1,"mode":"repack","T":4,"tail":"drop","targets":"next","g":9}`
	if st, err := ParseState([]byte(good)); err != nil || st.G != 9 {
		t.Errorf("%+v %v", st, err)
	}
	for _, bad := range []string{"", "{}", good + "x", good + good, strings.Replace(good, `"g"`, `"h"`, 1), strings.Replace(good, `"seed":1,`, "", 1),
		strings.Replace(good, `"g":9`, `"g":9,"G":3`, 1)} {
		if _, err := ParseState([]byte(bad)); err == nil {
			t.Errorf("state %s was accepted", bad)
		}
	}
}
