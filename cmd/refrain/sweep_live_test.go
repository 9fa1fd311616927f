package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vbauerster/mpb/v8"

	"refrain/study"
)

// TestLiveTable: the best point first, then what goes on, then the rest from the best one
// up; what does not fit is counted, and no line is wider than the terminal.
func TestLiveTable(t *testing.T) {
	path, _ := sweepFile(t, "grid:\n  optim.lr: [0.001, 0.002, 0.003, 0.004]\nseeds: [0, 1]\n")
	spec, err := study.LoadSpec(path)
	if err != nil {
		t.Fatal(err)
	}
	cells, err := spec.Cells()
	if err != nil {
		t.Fatal(err)
	}
	if err := study.Open(cells, 0); err != nil {
		t.Fatal(err)
	}
	answers := make([]*study.Record, 8)
	end := func(i int, loss float64, s study.Status) {
		answers[i] = &study.Record{Label: cells[i].Label(), Seed: cells[i].Seed, Status: s, Val: &loss}
	}
	end(0, 5, study.Done)
	end(1, 5.2, study.Done)
	end(2, 4, study.Done)
	end(3, 4.2, study.Done)
	end(4, 9, study.Diverged)
	now := map[string]*liveCell{cells[6].Key(): {25, 100}, cells[7].Key(): {0, 100}}
	got := liveTable(cells, study.Groups(cells, answers), now, 12, 200)
	want := []string{
		"  4.1000 +- 0.1414  2/2  optim.lr=0.002  best",
		"  -                 0/2  optim.lr=0.004  seed 0 25 %, seed 1 0 %",
		"  5.1000 +- 0.1414  2/2  optim.lr=0.001",
		"  -                 0/2  optim.lr=0.003  seed 0 diverged",
	}
	if !slices.Equal(got, want) {
		t.Errorf("\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	got = liveTable(cells, study.Groups(cells, answers), now, 3, 30)
	if want := []string{want[0][:30], want[1][:30], "  and 2 more"}; !slices.Equal(got, want) {
		t.Errorf("in three lines of 30\n%s", strings.Join(got, "\n"))
	}
}

// TestTableRows: the lines are drawn with the bar, missing ones as empty, and asked for once
// a drawing.
func TestTableRows(t *testing.T) {
	var out bytes.Buffer
	asked := 0
	all := mpb.New(mpb.WithOutput(&out), mpb.WithAutoRefresh(), mpb.WithRefreshRate(time.Hour))
	bar := all.AddBar(1, mpb.BarBtmExtender(tableRows(3, func(width int) []string {
		asked++
		return []string{"one", "two"}
	})...))
	bar.SetCurrent(1)
	all.Wait()
	text := out.String()
	if drawn := strings.Count(text, "one\ntwo\n\n"); drawn == 0 || drawn != asked {
		t.Errorf("drawn %d times, asked %d times: %q", drawn, asked, text)
	}
}
