package pipeline

import (
	"runtime"
	"sync/atomic"
	"time"
)

// WithShake disturbs the schedule for tests: before each Send and Recv the
// goroutine goes on, yields, or sleeps for up to 100 microseconds, as a hash of
// seed and of the number of calls so far says. Which call meets which decision
// still depends on the scheduler; a seed selects a distribution of delays, not
// one interleaving. The results of a pipeline must not depend on it.
func WithShake(seed uint64) Option {
	return func(p *Pipeline) { p.shaker = &shaker{seed: seed} }
}

type shaker struct {
	seed  uint64
	calls atomic.Uint64
}

func (s *shaker) shake() {
	h := mix64(s.seed ^ mix64(s.calls.Add(1)))
	switch h & 7 {
	case 0, 1, 2:
		runtime.Gosched()
	case 3:
		time.Sleep(time.Duration(h>>32) % (100 * time.Microsecond))
	}
}

// mix64 is the finalizer of splitmix64 (Steele, Lea, Flood 2014), which turns
// a counter into well-spread bits.
func mix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
