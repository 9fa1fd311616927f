//go:build cuda && cudaheaders

package cuda

import (
	"errors"
	"sync/atomic"
	"time"

	"gorgonia.org/cu"
)

// idleClock adds up the time in which a queue had nothing to run or waited for another:
// from its last mark or wait to the work after it, by the GPU's own clock. The times are
// read when more work is enqueued, long after they were taken.
type idleClock struct {
	total  atomic.Int64 // nanoseconds
	gaps   [idleGaps]gap
	made   int  // events that exist
	oldest int  // of those that are open
	open   int  // gaps with a beginning
	paused bool // the newest has no end yet
}

// gap is a beginning and an end.
type gap struct{ from, to cu.Event }

// idleGaps is how many gaps may be unread. When there are more the next ones are not
// measured: the host is then so far ahead that the queue has no reason to be idle.
const idleGaps = 16

// start makes the events.
func (c *idleClock) start(d *Device) error {
	for i := range c.gaps {
		for _, e := range []*cu.Event{&c.gaps[i].from, &c.gaps[i].to} {
			var err error
			if *e, err = cu.MakeEvent(cu.DefaultEvent); err != nil {
				return d.check("", "making an event", err)
			}
			c.made++
		}
	}
	return nil
}

// stop destroys those events that there are.
func (c *idleClock) stop() error {
	var errs []error
	for i := range c.gaps {
		for _, e := range []*cu.Event{&c.gaps[i].from, &c.gaps[i].to} {
			if c.made > 0 {
				c.made--
				errs = append(errs, cu.DestroyEvent(e))
			}
		}
	}
	return errors.Join(errs...)
}

func (c *idleClock) newest() *gap { return &c.gaps[(c.oldest+c.open-1)%idleGaps] }

// pause begins a gap at this point of the queue, if none is open.
func (c *idleClock) pause(q *queue) error {
	if c.paused {
		return nil
	}
	c.read()
	if c.open == idleGaps {
		return nil
	}
	c.open++
	c.paused = true
	return q.check("record", c.newest().from.Record(q.s))
}

// resume ends the gap before work.
func (c *idleClock) resume(q *queue) error {
	if !c.paused {
		return nil
	}
	c.paused = false
	return q.check("record", c.newest().to.Record(q.s))
}

// read adds the gaps that are over.
func (c *idleClock) read() {
	for c.open > 0 && !(c.paused && c.open == 1) {
		g := &c.gaps[c.oldest]
		if g.to.Query() != nil {
			return
		}
		if ms, err := g.from.Elapsed(g.to); err == nil {
			c.total.Add(int64(ms * float64(time.Millisecond)))
		}
		c.oldest = (c.oldest + 1) % idleGaps
		c.open--
	}
}
