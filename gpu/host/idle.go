package host

import (
	"sync"
	"time"
)

// idleClock adds up the time a queue has nothing to run. A wait that is still
// going on counts up to now, so that a difference of two readings is exact.
type idleClock struct {
	mu    sync.Mutex
	total time.Duration
	since time.Time // start of the wait that is going on, else zero
}

func (c *idleClock) begin() {
	c.mu.Lock()
	c.since = time.Now()
	c.mu.Unlock()
}

func (c *idleClock) end() {
	c.mu.Lock()
	c.total += time.Since(c.since)
	c.since = time.Time{}
	c.mu.Unlock()
}

func (c *idleClock) read() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.since.IsZero() {
		return c.total
	}
	return c.total + time.Since(c.since)
}
