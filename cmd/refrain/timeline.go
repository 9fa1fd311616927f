package main

import (
	"encoding/json"
	"os"
	"time"

	"refrain/internal/run"
	"refrain/pipeline"
)

// timeline gathers events in the trace event format that trace viewers read
// (the JSON object form, times in microseconds).
type timeline struct {
	start  time.Time
	last   time.Time // end of the step before
	stats  []pipeline.StageStats
	tracks []string
	events []traceEvent
}

type traceEvent struct {
	Name string         `json:"name"`
	Ph   string         `json:"ph"`
	TS   float64        `json:"ts"`
	Dur  float64        `json:"dur,omitempty"`
	PID  int            `json:"pid"`
	TID  int            `json:"tid"`
	Args map[string]any `json:"args,omitempty"`
}

func newTimeline(start time.Time, stats []pipeline.StageStats) *timeline {
	return &timeline{start: start, last: start, stats: stats}
}

func (l *timeline) at(t time.Time) float64 { return float64(t.Sub(l.start).Nanoseconds()) / 1e3 }

// track returns the number of a named row, naming it at its first use.
func (l *timeline) track(name string) int {
	for i, n := range l.tracks {
		if n == name {
			return i + 1
		}
	}
	l.tracks = append(l.tracks, name)
	id := len(l.tracks)
	l.events = append(l.events, traceEvent{Name: "thread_name", Ph: "M", PID: 1, TID: id, Args: map[string]any{"name": name}})
	return id
}

// span adds work that ended at end and took d.
func (l *timeline) span(track, name string, end time.Time, d time.Duration) {
	l.events = append(l.events, traceEvent{Name: name, Ph: "X", TS: l.at(end.Add(-d)), Dur: float64(d.Nanoseconds()) / 1e3, PID: 1, TID: l.track(track)})
}

// step adds a step that has just ended, and what every stage did meanwhile.
func (l *timeline) step(i run.StepInfo, stats []pipeline.StageStats) {
	now := time.Now()
	d := now.Sub(l.last)
	l.events = append(l.events, traceEvent{
		Name: "step", Ph: "X", TS: l.at(l.last), Dur: float64(d.Nanoseconds()) / 1e3, PID: 1, TID: l.track("step"),
		Args: map[string]any{"step": i.Step, "epoch": i.Epoch, "loss": i.Loss, "grad_norm": i.Norm},
	})
	for k, s := range pipeline.Delta(stats, l.stats) {
		share := func(part time.Duration) float64 { return 100 * part.Seconds() / d.Seconds() }
		l.events = append(l.events,
			traceEvent{Name: "stage " + s.Name + " %", Ph: "C", TS: l.at(l.last), PID: 1, Args: map[string]any{
				"busy": share(s.Busy), "starved": share(s.Starved), "blocked": share(s.Blocked),
			}},
			traceEvent{Name: "queue behind " + s.Name, Ph: "C", TS: l.at(now), PID: 1, Args: map[string]any{"items": stats[k].QueueLen}})
	}
	l.last, l.stats = now, stats
}

func (l *timeline) write(path string) error {
	b, err := json.Marshal(map[string]any{"traceEvents": l.events, "displayTimeUnit": "ms"})
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(b, '\n'), 0o644)
}
