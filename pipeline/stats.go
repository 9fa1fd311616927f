package pipeline

import (
	"fmt"
	"time"
)

// StageStats is one row of Pipeline.Stats.
//
// The clock of a stage starts at its first item (for a source, at the start
// of the run) and stops when it returns: Wall = Busy + Starved + Blocked. For
// Ordered the three are means over its workers.
type StageStats struct {
	Name     string
	Items    uint64 // sent to the main output; for a sink and a tee, received
	Bytes    int64  // of the same items, as told by Sizer
	Received uint64 // items taken from the input

	Busy    time.Duration // working: what remains of Wall
	Starved time.Duration // waiting for input
	Blocked time.Duration // waiting for room in the output or for an item of a Pool
	Wall    time.Duration
	Fill    time.Duration // from the start of the run to the first item

	QueueLen   int // items in the main output; a tee adds up its links
	QueueCap   int
	QueueBytes int64
	Dropped    uint64 // by DropOldest, in all outputs

	Workers int // goroutines: 1, or the n of Ordered
	Done    bool
}

// Stats returns one row for each stage, in the order they were added. It may be
// called at any time from any goroutine; it does not stop the stages, so rows
// are taken at slightly different moments. It must not race with the building.
func (p *Pipeline) Stats() []StageStats {
	rows := make([]StageStats, len(p.nodes))
	for i, n := range p.nodes {
		rows[i] = n.stats()
	}
	return rows
}

func (n *node) stats() StageStats {
	s := StageStats{Name: n.name}
	n.meter.read(&s)
	for i, o := range n.outs {
		l := o.stats()
		s.Dropped += l.dropped
		if i > 0 && !n.tee {
			continue // a side output, of another type
		}
		s.Items, s.Bytes = l.sent, l.sentBytes
		s.QueueLen, s.QueueCap = s.QueueLen+l.queueLen, s.QueueCap+l.queueCap
		s.QueueBytes += l.queueBytes
	}
	if n.in != nil {
		l := n.in.stats()
		s.Received = l.received
		if n.tee || len(n.outs) == 0 {
			s.Items, s.Bytes = l.received, l.recvBytes
		}
	}
	return s
}

// Delta returns what happened between two calls of Stats of one Pipeline:
// counts and times are differences, queue fields are those of after.
func Delta(after, before []StageStats) []StageStats {
	rows := make([]StageStats, len(after))
	for i, a := range after {
		if i < len(before) {
			b := before[i]
			a.Items -= b.Items
			a.Bytes -= b.Bytes
			a.Received -= b.Received
			a.Busy -= b.Busy
			a.Starved -= b.Starved
			a.Blocked -= b.Blocked
			a.Wall -= b.Wall
			a.Fill -= b.Fill
			a.Dropped -= b.Dropped
		}
		rows[i] = a
	}
	return rows
}

// Bottleneck names the stage that limits the throughput, and says why in one
// sentence. rows come from Stats or Delta; name is "" if no stage has worked.
//
// The rule: all stages of a run share one clock, and the stage that limits it
// is the one that works most of that time, because it waits neither for input
// (then an earlier stage would be the limit) nor for room (then a later one).
// So it is the stage with the most Busy time; of equals, the first. Time since
// the start of the run, not since the first item, is what shares are taken
// of: a stage that got its first item late was not the limit before.
// A stage that is busy for less than half of the time limits nothing by itself,
// and the sentence says so.
func Bottleneck(rows []StageStats) (name string, why string) {
	best := -1
	span := spanOf(rows)
	for i, r := range rows {
		if r.Busy > 0 && (best < 0 || r.Busy > rows[best].Busy) {
			best = i
		}
	}
	if best < 0 || span <= 0 {
		return "", "no stage has worked yet"
	}
	r := rows[best]
	why = fmt.Sprintf("%s is busy %s of %s, starved %s, blocked %s", r.Name,
		percent(r.Busy, span), span.Round(time.Millisecond), percent(r.Starved, span), percent(r.Blocked, span))
	if best > 0 {
		why += fmt.Sprintf("; before it %s is blocked %s", rows[best-1].Name, percent(rows[best-1].Blocked, span))
	}
	if best+1 < len(rows) {
		why += fmt.Sprintf("; after it %s is starved %s", rows[best+1].Name, percent(rows[best+1].Starved, span))
	}
	if 2*r.Busy < span {
		why += "; no stage is busy half of the time, so waiting, not work, sets the pace"
	}
	return r.Name, why
}
