package pipeline

import (
	"errors"
	"fmt"
)

// Output adds one more output to the last stage that was added, for a stage
// that sends items of several types: results along the chain, snapshots to the
// side. It returns the link for a consumer and the sending end, which the
// caller gives to the stage before Run. The stage ends early only when all its
// outputs have stopped.
func Output[T any](p *Pipeline, c LinkConfig) (*Link[T], Out[T]) {
	if len(p.nodes) == 0 {
		p.errs = append(p.errs, errors.New("Output: there is no stage to add it to"))
		return nil, nil
	}
	n := p.nodes[len(p.nodes)-1]
	if len(n.outs) == 0 {
		p.errs = append(p.errs, fmt.Errorf("stage %s: Output needs a stage that has an output", n.name))
	}
	l := connect[T](p, n, c)
	return l, sendEnd[T]{l}
}
