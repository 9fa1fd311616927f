package pipeline

import (
	"context"
	"io"
	"iter"
	"runtime/trace"
)

// Each ranges over the items of in. It ends after the last item; an error of
// Recv other than io.EOF is its last pair.
//
//	for doc, err := range pipeline.Each(ctx, in) {
//		if err != nil {
//			return err
//		}
//		...
//	}
func Each[T any](ctx context.Context, in In[T]) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		name := regionName(ctx)
		for {
			v, err := in.Recv(ctx)
			if err == io.EOF {
				return
			}
			if err != nil {
				var zero T
				yield(zero, err)
				return
			}
			region := trace.StartRegion(ctx, name)
			more := yield(v, nil)
			region.End()
			if !more {
				return
			}
		}
	}
}

// Map is a stage that calls f for each item and sends what it returns. An
// error of f ends the stage.
func Map[A, B any](f func(ctx context.Context, a A) (B, error)) Stage[A, B] {
	return StageFunc[A, B](func(ctx context.Context, in In[A], out Out[B]) error {
		for a, err := range Each(ctx, in) {
			if err != nil {
				return err
			}
			b, err := f(ctx, a)
			if err != nil {
				return err
			}
			if err := out.Send(ctx, b); err != nil {
				return err
			}
		}
		return nil
	})
}

// regionName is the trace region of one item: the name of its stage.
func regionName(ctx context.Context) string {
	if name := scopeOf(ctx).stage(); name != "" {
		return name
	}
	return "item"
}
