package train

import (
	"context"
	"errors"
	"slices"

	"refrain/gpu"
)

// ReplicaMemory waits for device d and copies one of its buffers: "params",
// "m", "v" or "grads", the last with the loss sum at its end.
func (t *Trainer) ReplicaMemory(ctx context.Context, d int, name string) ([]float32, error) {
	r := t.reps[d]
	var out []float32
	err := r.d.Run(ctx, func() error {
		span := r.memory[name]
		p, err := r.d.AllocPinned(span.Len)
		if err != nil {
			return err
		}
		q := r.lanes[gpu.Math]
		if err = q.Download(p, 0, span); err == nil {
			err = q.Sync(ctx)
		}
		out = slices.Clone(gpu.BytesToFloat32s(p.Bytes()[:span.Len]))
		return errors.Join(err, p.Free())
	})
	return out, err
}
