package tokenize

import (
	"context"
	"fmt"
)

// candidate is a pair waiting to be merged in the words of one list, which has all
// its places: they come up together, when the younger of its tokens is made. Only if
// a merge made a token that exists already, which has not been seen to happen, would
// a pair get a second candidate for the new places, as with Hugging Face.
type candidate struct {
	count int64  // when queued; stale if the total has changed since
	key   uint64 // left<<32 | right
	pair  int32
	list  int32 // grows with time, which makes the order complete
}

func (a *candidate) before(b *candidate) bool {
	if a.count != b.count {
		return a.count > b.count
	}
	if a.key != b.key {
		return a.key < b.key
	}
	return a.list < b.list
}

// mergeQueue is a 4-ary heap of candidates, most frequent first.
type mergeQueue struct{ h []candidate }

func (q *mergeQueue) push(x candidate) {
	q.h = append(q.h, x)
	i := len(q.h) - 1
	for i > 0 {
		p := (i - 1) >> 2
		if !x.before(&q.h[p]) {
			break
		}
		q.h[i] = q.h[p]
		i = p
	}
	q.h[i] = x
}

func (q *mergeQueue) pop() candidate {
	top := q.h[0]
	x := q.h[len(q.h)-1]
	q.h = q.h[:len(q.h)-1]
	i := 0
	for {
		c := 4*i + 1
		if c >= len(q.h) {
			break
		}
		first := c
		for k := c + 1; k < c+4 && k < len(q.h); k++ {
			if q.h[k].before(&q.h[first]) {
				first = k
			}
		}
		if !q.h[first].before(&x) {
			break
		}
		q.h[i] = q.h[first]
		i = first
	}
	if len(q.h) > 0 {
		q.h[i] = x
	}
	return top
}

// pairIndex numbers pairs of ids.
type pairIndex struct {
	slots []int32 // number + 1, 0 free
	key   []uint64
	shift uint
}

func newPairIndex() pairIndex {
	return pairIndex{slots: make([]int32, 1<<16), shift: 64 - 16}
}

// find returns the number of a pair, a new one if needed.
func (x *pairIndex) find(key uint64) int32 {
	mask := uint64(len(x.slots) - 1)
	i := key * golden64 >> x.shift
	for x.slots[i] != 0 {
		if p := x.slots[i] - 1; x.key[p] == key {
			return p
		}
		i = (i + 1) & mask
	}
	p := int32(len(x.key))
	x.key = append(x.key, key)
	x.slots[i] = p + 1
	if 2*len(x.key) > len(x.slots) {
		x.shift--
		x.slots = make([]int32, 2*len(x.slots))
		mask = uint64(len(x.slots) - 1)
		for p, key := range x.key {
			i := key * golden64 >> x.shift
			for x.slots[i] != 0 {
				i = (i + 1) & mask
			}
			x.slots[i] = int32(p) + 1
		}
	}
	return p
}

// enqueue queues every pair noted in the events with the list of its words. The
// lists share one array, which is freed when all of them have been merged.
func (tr *trainer) enqueue(events []occurrence) {
	words := make([]int32, len(events))
	at := 0
	for _, e := range events {
		if n := tr.pending[e.pair]; n > 0 { // first of its pair: n words will come
			list := int32(len(tr.lists))
			tr.lists = append(tr.lists, words[at:at:at+int(n)])
			at += int(n)
			tr.pending[e.pair] = ^list // negative: the number of the list
			if total := tr.total[e.pair]; total > 0 {
				tr.queue.push(candidate{total, tr.pairs.key[e.pair], e.pair, list})
			}
		}
		list := &tr.lists[^tr.pending[e.pair]]
		*list = append(*list, e.word)
	}
	for _, e := range events {
		tr.pending[e.pair] = 0
	}
}

// run merges until the vocabulary is full or no pair is left.
func (tr *trainer) run(ctx context.Context, cfg TrainConfig) error {
	const reportEvery = 64
	var events []occurrence
	for serial := uint32(2); len(tr.tokens) < cfg.Vocab && len(tr.queue.h) > 0; {
		top := tr.queue.pop()
		if total := tr.total[top.pair]; top.count != total {
			top.count = total
			tr.queue.push(top)
			continue
		}
		if top.count < max(1, cfg.MinFrequency) {
			break
		}
		left, right := uint32(top.key>>32), uint32(top.key)
		id, err := tr.makeToken(left, right)
		if err != nil {
			return err
		}
		tr.merges = append(tr.merges, merge{left, right, id})
		events = events[:0]
		for _, w := range tr.lists[top.list] {
			events = tr.mergeWord(events, w, left, right, id, serial)
		}
		tr.lists[top.list] = nil
		tr.enqueue(events)
		if serial++; serial%reportEvery == 0 {
			if err := ctx.Err(); err != nil {
				return context.Cause(ctx)
			}
			if cfg.Progress != nil {
				cfg.Progress(len(tr.tokens), cfg.Vocab)
			}
		}
	}
	if cfg.Progress != nil {
		cfg.Progress(len(tr.tokens), cfg.Vocab)
	}
	return nil
}

// makeToken returns the id of the concatenation; another pair may have made it.
func (tr *trainer) makeToken(left, right uint32) (uint32, error) {
	text := append(append(make([]byte, 0, len(tr.tokens[left])+len(tr.tokens[right])), tr.tokens[left]...), tr.tokens[right]...)
	if id, ok := tr.byText[string(text)]; ok {
		return id, nil
	}
	if content, ok := tr.taken[string(text)]; ok {
		return 0, fmt.Errorf("special token %q also comes out of the documents as an ordinary token; choose a content that text cannot form, such as <|name|>", content)
	}
	id := uint32(len(tr.tokens))
	tr.tokens = append(tr.tokens, text)
	tr.byText[string(text)] = id
	return id, nil
}

// mergeWord replaces the pair in one word and moves the counts of its neighbours:
//
//	x left right y  ->  x id y:  (x,left) (right,y) lose, (x,id) (id,y) gain
//
// The total of the pair itself is left alone, as Hugging Face leaves it.
func (tr *trainer) mergeWord(events []occurrence, w int32, left, right, id, serial uint32) []occurrence {
	s := tr.word(w)
	c := tr.count[w]
	n := 0
	for i := 0; i < len(s); {
		if i+1 == len(s) || s[i] != left || s[i+1] != right {
			s[n] = s[i]
			n++
			i++
			continue
		}
		if n > 0 {
			tr.total[tr.pair(s[n-1], left)] -= c
			p := tr.pair(s[n-1], id)
			tr.total[p] += c
			events = tr.note(events, p, w, serial)
		}
		if i+2 < len(s) {
			tr.total[tr.pair(right, s[i+2])] -= c
			p := tr.pair(id, s[i+2])
			tr.total[p] += c
			events = tr.note(events, p, w, serial)
		}
		s[n] = id
		n++
		i += 2
	}
	tr.length[w] = int32(n)
	return events
}
