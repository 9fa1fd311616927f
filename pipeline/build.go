package pipeline

import (
	"context"
	"errors"
	"fmt"
)

// Source adds a stage without input. Its Recv gives io.EOF at once.
func Source[B any](p *Pipeline, name string, c LinkConfig, s Stage[struct{}, B]) *Link[B] {
	n := p.add(name, s == nil)
	out := connect[B](p, n, c)
	n.run = func(ctx context.Context) error { return s.Run(ctx, noInput{}, sendEnd[B]{out}) }
	return out
}

// Then adds a stage fed by in, and returns its output.
func Then[A, B any](p *Pipeline, name string, in *Link[A], c LinkConfig, s Stage[A, B]) *Link[B] {
	n := p.add(name, s == nil)
	consume(p, n, in)
	out := connect[B](p, n, c)
	n.run = func(ctx context.Context) error { return s.Run(ctx, recvEnd[A]{in}, sendEnd[B]{out}) }
	return out
}

// Sink adds a stage without output. What it sends is discarded.
func Sink[A any](p *Pipeline, name string, in *Link[A], s Stage[A, struct{}]) {
	n := p.add(name, s == nil)
	consume(p, n, in)
	n.run = func(ctx context.Context) error { return s.Run(ctx, recvEnd[A]{in}, noOutput{}) }
}

// Tee sends every item of in to each of the links it returns, one for each
// config, in that order. It goes at the pace of the slowest link that does not
// drop. A branch whose consumer ended no longer holds up the others; the tee
// ends when all have. All branches get the same value: they share what it
// points to, and Release runs once for each branch that does not receive it.
func Tee[A any](p *Pipeline, name string, in *Link[A], c ...LinkConfig) []*Link[A] {
	n := p.add(name, false)
	n.tee = true
	consume(p, n, in)
	if len(c) == 0 {
		p.errs = append(p.errs, fmt.Errorf("stage %s: Tee needs at least one LinkConfig", name))
	}
	outs := make([]*Link[A], len(c))
	for i := range c {
		outs[i] = connect[A](p, n, c[i])
	}
	n.run = func(ctx context.Context) error {
		for a, err := range Each(ctx, In[A](recvEnd[A]{in})) {
			if err != nil {
				return err
			}
			live := 0
			var failed error
			// Every branch gets its Send, also after a failure: Send is what
			// releases an item that cannot be delivered.
			for _, out := range outs {
				switch err := out.send(ctx, a); {
				case err == nil:
					live++
				case !errors.Is(err, ErrStopped) && failed == nil:
					failed = err
				}
			}
			if failed != nil {
				return failed
			}
			if live == 0 {
				return ErrStopped
			}
		}
		return nil
	}
	return outs
}

// add appends a stage.
func (p *Pipeline) add(name string, isNil bool) *node {
	if p.started.Load() {
		// Nobody is left to report an error to, and the stage would never run.
		panic(fmt.Sprintf("pipeline: stage %q added after Run", name))
	}
	switch {
	case name == "":
		p.errs = append(p.errs, fmt.Errorf("stage number %d has no name", len(p.nodes)))
	case isNil:
		p.errs = append(p.errs, fmt.Errorf("stage %s: the Stage is nil", name))
	}
	for _, other := range p.nodes {
		if other.name == name && name != "" {
			p.errs = append(p.errs, fmt.Errorf("stage %s: the name is used twice", name))
		}
	}
	n := &node{p: p, name: name}
	p.nodes = append(p.nodes, n)
	return n
}

// connect makes an output of n.
func connect[T any](p *Pipeline, n *node, c LinkConfig) *Link[T] {
	if err := c.validate(); err != nil {
		p.errs = append(p.errs, fmt.Errorf("stage %s: %w", n.name, err))
	}
	l := newLink[T](n, c)
	n.outs = append(n.outs, l)
	p.links = append(p.links, &linkRef{end: l, prod: n})
	return l
}

// consume makes l the input of n.
func consume[T any](p *Pipeline, n *node, l *Link[T]) {
	if l == nil {
		p.errs = append(p.errs, fmt.Errorf("stage %s: the input link is nil", n.name))
		return
	}
	n.in = l
	if l.prod.p != p {
		p.errs = append(p.errs, fmt.Errorf("stage %s: its input comes from stage %s of another Pipeline", n.name, l.prod.name))
		return
	}
	if l.cons != nil {
		p.errs = append(p.errs, fmt.Errorf("stage %s: the output of stage %s already goes to stage %s; use Tee", n.name, l.prod.name, l.cons.name))
		return
	}
	l.cons = n
	for _, ref := range p.links {
		if ref.end == endpoint(l) {
			ref.cons = n
		}
	}
}

// check reports all mistakes of the building at once.
func (p *Pipeline) check() error {
	errs := p.errs
	if len(p.nodes) == 0 {
		errs = append(errs, errors.New("no stages"))
	}
	for _, l := range p.links {
		if l.cons == nil {
			errs = append(errs, fmt.Errorf("stage %s: nothing consumes its output; end the chain with Sink", l.prod.name))
		}
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("pipeline: %w", errors.Join(errs...))
}
