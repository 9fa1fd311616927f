package pipeline

import (
	"errors"
	"fmt"
)

// Output adds one more output to the stage that main comes from, for a stage
// that sends items of several types: results along the chain, snapshots to the
// side. It returns the link for a consumer and the sending end, which the
// caller gives to the stage before Run. The stage ends early only when all its
// outputs have stopped.
func Output[T, U any](p *Pipeline, main *Link[U], c LinkConfig) (*Link[T], Out[T]) {
	if main == nil || main.prod.p != p {
		p.errs = append(p.errs, errors.New("Output: the main output is nil or of another Pipeline"))
		l := newLink[T](&node{p: p}, c)
		return l, sendEnd[T]{l}
	}
	if p.started.Load() {
		panic(fmt.Sprintf("pipeline: output added to stage %q after Run", main.prod.name))
	}
	l := connect[T](p, main.prod, c)
	return l, sendEnd[T]{l}
}
