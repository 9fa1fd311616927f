package pipeline

import (
	"context"
	"fmt"
	"io"
	"reflect"
	"runtime/trace"
	"sync"
)

// In is the receiving end of a link.
type In[T any] interface {
	// Recv returns the next item, which then belongs to the caller. It blocks
	// while the link is empty. It returns io.EOF once the producer has finished
	// and the link is drained, and the cause of ctx when ctx is done, even if
	// items are queued.
	Recv(ctx context.Context) (T, error)
}

// Out is the sending end of a link.
type Out[T any] interface {
	// Send passes v on and blocks while the link is full. Afterwards v is no
	// longer the caller's, also when Send fails. It returns ErrStopped when
	// nobody will receive any more, and the cause of ctx when ctx is done.
	Send(ctx context.Context, v T) error
}

// Sizer is implemented by items that know their size. A link asks once, when
// the item is sent, on the goroutine of the sender; the method must be cheap
// and must not use the pipeline. Items without it count as 0 bytes.
type Sizer interface{ SizeBytes() int64 }

// LinkConfig is the capacity of a link.
type LinkConfig struct {
	// Items is the largest number of queued items, at least 1.
	Items int
	// Bytes, when positive, bounds the sum of the queued items' SizeBytes as
	// well. An item larger than Bytes passes alone, when the link is empty.
	Bytes int64
	// DropOldest makes Send discard the oldest queued items, counted in
	// StageStats.Dropped, instead of waiting. It is meant for snapshots, where
	// only the newest matters.
	DropOldest bool
	// Release, when not nil, is given each item that was sent but will not be
	// received: dropped, refused by Send, or left over when the consumer ended.
	// It runs on a goroutine of the producer or of the consumer, and it must not
	// block. ReleaseOf makes one from a typed function.
	Release func(item any)
}

// ReleaseOf adapts a typed function to LinkConfig.Release.
func ReleaseOf[T any](f func(T)) func(any) {
	return func(item any) { f(item.(T)) }
}

func (c LinkConfig) validate() error {
	if c.Items < 1 {
		return fmt.Errorf("LinkConfig.Items is %d; a link holds at least 1 item", c.Items)
	}
	if c.Bytes < 0 {
		return fmt.Errorf("LinkConfig.Bytes is %d; use 0 for no limit or a positive size", c.Bytes)
	}
	return nil
}

// Link is a bounded queue between two stages: a ring under a mutex, with one
// wake-up channel for each side. It is made by Source, Then and Tee, and is
// consumed by exactly one Then, Tee or Sink. Ends see it as In and Out.
type Link[T any] struct {
	cfg        LinkConfig
	prod, cons *node
	sizing     sizing

	// scratch gives SizeBytes of a value type an address without allocating.
	sizeMu  sync.Mutex
	scratch T

	mu      sync.Mutex
	ring    []T
	sizes   []int64 // parallel to ring; nil when items have no size
	head, n int
	queued  int64 // bytes in the ring
	closed  bool  // the producer returned nil: EOF after the last item
	stopped bool  // the consumer is gone: nothing will be received

	// A waiter announces itself under mu before it waits, so that the fast path
	// signals only when somebody listens. Each channel holds at most one signal;
	// a waiter that leaves passes the signal on while others wait.
	sendWaiters, recvWaiters int
	room, avail              chan struct{}

	count linkCount
}

type linkCount struct {
	sent, received, dropped uint64
	sentBytes, recvBytes    int64
}

type linkStats struct {
	linkCount
	queueLen, queueCap int
	queueBytes         int64
}

type sizing uint8

const (
	sizeNone      sizing = iota // T has no SizeBytes
	sizeByValue                 // T is a pointer or an interface: converting it does not allocate
	sizeByAddress               // T or *T has SizeBytes and T is a plain value
)

func sizingOf[T any]() sizing {
	var zero T
	switch reflect.TypeFor[T]().Kind() {
	case reflect.Interface:
		return sizeByValue
	case reflect.Pointer:
		if _, ok := any(zero).(Sizer); ok {
			return sizeByValue
		}
	default:
		if _, ok := any(&zero).(Sizer); ok {
			return sizeByAddress
		}
	}
	return sizeNone
}

func newLink[T any](prod *node, c LinkConfig) *Link[T] {
	l := &Link[T]{
		cfg: c, prod: prod, sizing: sizingOf[T](),
		ring: make([]T, max(c.Items, 1)),
		room: make(chan struct{}, 1), avail: make(chan struct{}, 1),
	}
	if l.sizing != sizeNone {
		l.sizes = make([]int64, len(l.ring))
	}
	return l
}

func (l *Link[T]) size(v T) int64 {
	switch l.sizing {
	case sizeByValue:
		if s, ok := any(v).(Sizer); ok {
			return max(s.SizeBytes(), 0)
		}
	case sizeByAddress:
		l.sizeMu.Lock()
		defer l.sizeMu.Unlock() // deferred: SizeBytes is not our code and may panic
		l.scratch = v
		s := max(any(&l.scratch).(Sizer).SizeBytes(), 0)
		clear1(&l.scratch)
		return s
	}
	return 0
}

func clear1[T any](p *T) {
	var zero T
	*p = zero
}

func (l *Link[T]) send(ctx context.Context, v T) error {
	if s := l.prod.p.shaker; s != nil {
		s.shake()
	}
	if ctx.Err() != nil {
		l.release(v)
		return context.Cause(ctx)
	}
	size := l.size(v)
	l.mu.Lock()
	for !l.stopped && !l.fits(size) {
		if l.cfg.DropOldest {
			old := l.pop()
			l.count.dropped++
			l.mu.Unlock()
			l.release(old)
			l.mu.Lock()
			continue
		}
		// pop and stop need l.mu, so neither can happen unnoticed between
		// fits and the announcement inside waitRoom.
		if err := l.waitRoom(ctx, size); err != nil {
			l.mu.Unlock()
			l.release(v)
			return err
		}
	}
	if l.stopped {
		l.mu.Unlock()
		l.release(v)
		return ErrStopped
	}
	l.push(v, size)
	l.mu.Unlock()
	return nil
}

// fits reports, under mu, whether an item of the given size may be queued.
func (l *Link[T]) fits(size int64) bool {
	if l.n == len(l.ring) {
		return false
	}
	return l.n == 0 || l.cfg.Bytes <= 0 || size <= l.cfg.Bytes-l.queued
}

// push queues v, under mu, and wakes a receiver.
func (l *Link[T]) push(v T, size int64) {
	i := l.head + l.n
	if i >= len(l.ring) {
		i -= len(l.ring)
	}
	l.ring[i] = v
	if l.sizes != nil {
		l.sizes[i] = size
	}
	l.n++
	l.queued += size
	l.count.sent++
	l.count.sentBytes += size
	if l.recvWaiters > 0 {
		signal(l.avail)
	}
}

// pop takes the oldest item, under mu, and wakes a sender.
func (l *Link[T]) pop() T {
	v := l.ring[l.head]
	clear1(&l.ring[l.head]) // the ring must not keep a received item alive
	if l.sizes != nil {
		l.queued -= l.sizes[l.head]
	}
	l.head++
	if l.head == len(l.ring) {
		l.head = 0
	}
	l.n--
	if l.sendWaiters > 0 {
		signal(l.room)
	}
	return v
}

func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default: // a signal is already pending, one is enough
	}
}

// waitRoom is called and returns with mu held. It waits until an item of the
// given size fits or the link is stopped, or fails with the cause of ctx.
func (l *Link[T]) waitRoom(ctx context.Context, size int64) (err error) {
	l.sendWaiters++
	l.mu.Unlock()
	region := trace.StartRegion(ctx, "blocked")
	since := l.prod.meter.begin(blocked)
	for {
		select {
		case <-l.room:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		l.mu.Lock()
		if err != nil || l.stopped || l.fits(size) {
			break
		}
		l.mu.Unlock()
	}
	l.prod.meter.end(blocked, since)
	region.End()
	l.sendWaiters--
	if l.sendWaiters > 0 {
		signal(l.room)
	}
	return err
}

func (l *Link[T]) recv(ctx context.Context) (T, error) {
	var zero T
	if s := l.prod.p.shaker; s != nil {
		s.shake()
	}
	if ctx.Err() != nil {
		return zero, context.Cause(ctx)
	}
	l.mu.Lock()
	if l.n == 0 && !l.closed {
		if err := l.waitItem(ctx); err != nil {
			l.mu.Unlock()
			return zero, err
		}
	}
	if l.n == 0 {
		l.mu.Unlock()
		return zero, io.EOF
	}
	if l.sizes != nil {
		l.count.recvBytes += l.sizes[l.head]
	}
	v := l.pop()
	l.count.received++
	l.mu.Unlock()
	l.cons.meter.gotItem()
	return v, nil
}

// waitItem is called and returns with mu held. It waits until an item is
// queued or the link is closed, or fails with the cause of ctx.
func (l *Link[T]) waitItem(ctx context.Context) (err error) {
	l.recvWaiters++
	l.mu.Unlock()
	region := trace.StartRegion(ctx, "starved")
	since := l.cons.meter.begin(starved)
	for {
		select {
		case <-l.avail:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
		l.mu.Lock()
		if err != nil || l.n > 0 || l.closed {
			break
		}
		l.mu.Unlock()
	}
	l.cons.meter.end(starved, since)
	region.End()
	l.recvWaiters--
	if l.recvWaiters > 0 {
		signal(l.avail)
	}
	return err
}

// close says that nothing more will be sent.
func (l *Link[T]) close() {
	l.mu.Lock()
	l.closed = true
	signal(l.avail)
	l.mu.Unlock()
}

// stop says that nothing more will be received, and releases what is queued.
func (l *Link[T]) stop() {
	l.mu.Lock()
	l.stopped = true
	signal(l.room)
	for l.n > 0 {
		v := l.pop()
		l.mu.Unlock()
		l.release(v)
		l.mu.Lock()
	}
	l.mu.Unlock()
	l.prod.outStopped()
}

func (l *Link[T]) isStopped() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.stopped
}

func (l *Link[T]) release(v T) {
	if l.cfg.Release != nil {
		l.cfg.Release(v)
	}
}

func (l *Link[T]) stats() linkStats {
	l.mu.Lock()
	defer l.mu.Unlock()
	return linkStats{linkCount: l.count, queueLen: l.n, queueCap: len(l.ring), queueBytes: l.queued}
}

// recvEnd and sendEnd are what stages see of a link.
type recvEnd[T any] struct{ l *Link[T] }

func (e recvEnd[T]) Recv(ctx context.Context) (T, error) { return e.l.recv(ctx) }

type sendEnd[T any] struct{ l *Link[T] }

func (e sendEnd[T]) Send(ctx context.Context, v T) error { return e.l.send(ctx, v) }

// Discard hands v to the link's Release.
func (e sendEnd[T]) Discard(v T) { e.l.release(v) }

// Discarder is the part of an Out that takes back an item without sending it.
// The ends that a Pipeline makes have it.
type Discarder[T any] interface{ Discard(v T) }

// Discard gives up v, which was made for out but will not be sent, as if Send
// had refused it: it goes to LinkConfig.Release. An Out without Discard drops
// it.
func Discard[T any](out Out[T], v T) {
	if d, ok := out.(Discarder[T]); ok {
		d.Discard(v)
	}
}

// noInput is the input of a source.
type noInput struct{}

func (noInput) Recv(ctx context.Context) (struct{}, error) {
	if ctx.Err() != nil {
		return struct{}{}, context.Cause(ctx)
	}
	return struct{}{}, io.EOF
}

// noOutput is the output of a sink.
type noOutput struct{}

func (noOutput) Send(ctx context.Context, _ struct{}) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return nil
}
