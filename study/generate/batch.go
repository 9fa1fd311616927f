package generate

import (
	"context"
	"fmt"

	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/train/eval"
)

// batch is continuous batching: every slot has a document until it ends, and takes the next
// one at once.
type batch struct {
	c     Config
	emit  func(Document) error
	units []*unit
	next  []int64     // by teacher in a pool, else one: the next document to begin
	base  int64       // the first document that was not handed out
	begun []*document // from base on: begun, or nil
	ahead int64       // documents from base on that may be begun
	stats Stats
}

// unit is a decoder with its documents: one a device, and in a pool one a device and teacher.
type unit struct {
	dec   *eval.Decoder
	conf  eval.DecoderConfig
	first int // teacher of its first model
	queue int // index in batch.next
	dev   int
	docs  []*document // by slot; nil when idle
	slots []eval.Slot // of the step under way
	used  int         // slots up to the last that has a document; 0 when none has
}

// document is one that is being written.
type document struct {
	number  int64
	teacher int
	ids     []uint32
	draw    num.Stream
	drawn   uint64
	token   uint32 // the newest
	pos     int    // where it stands
	ended   bool
	cut     bool
}

func newBatch(c Config, emit func(Document) error) *batch {
	b := &batch{c: c, emit: emit}
	b.stats.ByTeacher = make([]Share, len(c.Teachers))
	queues := 1
	if c.Mode == Pool {
		queues = len(c.Teachers)
	}
	for q := range queues {
		b.next = append(b.next, int64(q))
	}
	// Slots are dealt to units evenly; each has one at least.
	n := queues * len(c.Devices)
	for i := range n {
		slots := max(1, (c.Slots+n-1-i)/n)
		u := &unit{queue: i % queues, dev: i / queues, docs: make([]*document, slots)}
		u.conf = eval.DecoderConfig{Slots: slots, MaxT: c.Rule.MaxLength, Vocab: c.Vocab, Temperature: c.Temperature}
		models := c.Teachers
		if c.Mode == Pool {
			u.first, models = u.queue, c.Teachers[u.queue:u.queue+1]
		}
		for _, t := range models {
			u.conf.Models = append(u.conf.Models, t.Model)
		}
		b.units = append(b.units, u)
	}
	// In a pool, teachers of short documents get ahead of the others; what they write is held
	// until the others have caught up.
	b.ahead = int64(max(1024, 16*c.Slots))
	return b
}

// open makes the decoders.
func (b *batch) open(ctx context.Context) (err error) {
	for _, u := range b.units {
		u.dec, err = eval.NewDecoder(ctx, b.c.Devices[u.dev], u.conf, func(ctx context.Context, k int) ([]float32, error) {
			return b.c.Teachers[u.first+k].Weights(ctx)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (u *unit) close() error {
	if u.dec == nil {
		return nil
	}
	return u.dec.Close()
}

// run works until enough documents have been handed out.
func (b *batch) run(ctx context.Context) error {
	for {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		busy := false
		for _, u := range b.units {
			b.fill(u)
			if u.used > 0 {
				busy = true
				if err := u.dec.Start(ctx, u.slots[:u.used]); err != nil {
					return err
				}
			}
		}
		if !busy {
			return fmt.Errorf("nothing is left to do after %d documents", b.base) // never: the first that is missing is being written
		}
		for _, u := range b.units {
			if u.used > 0 {
				if err := b.step(ctx, u); err != nil {
					return err
				}
			}
		}
		if done, err := b.handOut(); done || err != nil {
			return err
		}
	}
}

// fill gives idle slots a document, where one is needed, and prepares the next step.
func (b *batch) fill(u *unit) {
	u.used, u.slots = 0, u.slots[:0]
	for i, d := range u.docs {
		if d == nil {
			d = b.begin(u)
			u.docs[i] = d
		}
		slot := eval.Slot{Uniform: 0.5}
		if d != nil {
			slot, u.used = eval.Slot{Token: d.token, Pos: d.pos, Uniform: d.draw.Float64(d.drawn)}, i+1
		}
		u.slots = append(u.slots, slot)
	}
}

// begin is the next document of a unit's queue, or nil while none may begin.
func (b *batch) begin(u *unit) *document {
	number := b.next[u.queue]
	if !b.needed(number) {
		return nil
	}
	b.next[u.queue] += int64(len(b.next))
	d := &document{number: number, teacher: u.first, draw: num.NewStream("generate", b.c.Seed, uint64(number)), token: b.c.Rule.Start}
	if len(u.conf.Models) > 1 {
		d.teacher = -1
	}
	if b.c.Rule.Written {
		d.ids = append(d.ids, d.token)
	}
	for int64(len(b.begun)) <= number-b.base {
		b.begun = append(b.begun, nil)
	}
	b.begun[number-b.base] = d
	return d
}

// needed says that a document may be begun: it is not so far ahead, and those before it do
// not suffice yet. They only grow, so what is not needed once never is.
func (b *batch) needed(number int64) bool {
	if number >= b.base+b.ahead || b.c.Documents > 0 && number >= b.c.Documents {
		return false
	}
	if b.c.Tokens == 0 {
		return true
	}
	tokens := b.stats.Tokens
	for i := b.base; i < number && i-b.base < int64(len(b.begun)); i++ {
		if d := b.begun[i-b.base]; d != nil {
			tokens += int64(len(d.ids))
		}
	}
	return tokens < b.c.Tokens
}

// step takes what a unit drew.
func (b *batch) step(ctx context.Context, u *unit) error {
	ids, err := u.dec.Wait(ctx)
	if err != nil {
		return err
	}
	b.stats.Steps++
	b.stats.Slots += int64(len(u.docs))
	for i, id := range ids {
		d := u.docs[i]
		if d == nil {
			continue
		}
		if id < 0 {
			return b.notFinite(ctx, u, i)
		}
		b.stats.Drawn++
		if d.take(&b.c.Rule, uint32(id)); d.ended {
			u.docs[i] = nil
		}
	}
	return nil
}

// take adds a token to the document.
func (d *document) take(r *Rule, id uint32) {
	d.drawn++
	if d.ended = id == r.Stop; d.ended && !r.StopKept {
		return
	}
	d.ids = append(d.ids, id)
	if !d.ended && len(d.ids) == r.MaxLength {
		d.ended, d.cut = true, true
	}
	d.token = id
	if d.drawn > 1 || r.Seen {
		d.pos++ // else it takes the place of Start, which nothing attends to
	}
}

// empty says that the document has nothing between its borders.
func (d *document) empty(r *Rule) bool {
	n := len(d.ids)
	if r.Written {
		n--
	}
	if r.StopKept && !d.cut {
		n--
	}
	return n == 0
}

func (b *batch) notFinite(ctx context.Context, u *unit, slot int) error {
	d := u.docs[slot]
	k, err := u.dec.NotFinite(ctx, slot)
	if err != nil {
		return err
	}
	name := b.c.Teachers[u.first+max(0, k)].Name
	return &run.Error{Code: run.ExitNumerics, Err: fmt.Errorf("%s: a logit of token %d of document %d is not finite; this model has diverged, leave it out", name, len(d.ids), d.number)}
}

// handOut emits the documents that have ended and have none unfinished before them, and
// says whether there are enough.
func (b *batch) handOut() (done bool, err error) {
	for len(b.begun) > 0 && b.begun[0] != nil && b.begun[0].ended {
		d := b.begun[0]
		b.begun[0], b.begun, b.base = nil, b.begun[1:], b.base+1
		if err := b.emit(Document{Number: d.number, Teacher: d.teacher, IDs: d.ids, Cut: d.cut}); err != nil {
			return false, err
		}
		s := &b.stats
		s.Documents++
		s.Tokens += int64(len(d.ids))
		if d.cut {
			s.Cut++
		}
		if d.empty(&b.c.Rule) {
			s.Empty++
		}
		if d.teacher >= 0 {
			s.ByTeacher[d.teacher].Documents++
			s.ByTeacher[d.teacher].Tokens += int64(len(d.ids))
		}
		if b.c.Tokens > 0 && s.Tokens >= b.c.Tokens || b.c.Documents > 0 && s.Documents >= b.c.Documents {
			return true, nil
		}
	}
	return false, nil
}
