package gpu

import (
	"context"
	"errors"
	"fmt"
)

// UploadFloats copies x to dst, dst.Len/4 elements, by way of pinned memory of
// its own, and blocks until the copy has arrived. It is called outside d.Run, so
// that others can enqueue meanwhile; q is the caller's for that long. When ctx ends
// it still waits for a copy that has been enqueued, since that reads the pinned
// memory.
func UploadFloats(ctx context.Context, d Device, q Queue, dst Span, x []float32) error {
	if int64(len(x))*4 != dst.Len {
		return fmt.Errorf("gpu: %d floats for a buffer of %d", len(x), dst.Len/4)
	}
	var from Pinned
	var arrived Event
	err := d.Run(ctx, func() (err error) {
		if arrived, err = d.NewEvent(); err != nil {
			return err
		}
		from, err = d.AllocPinned(dst.Len)
		return err
	})
	if err != nil {
		return err
	}
	copy(BytesToFloat32s(from.Bytes()), x)
	err = d.Run(ctx, func() error { return errors.Join(q.Upload(dst, from, 0), q.Record(arrived)) })
	if err == nil {
		err = arrived.Sync(ctx)
	}
	if err != nil {
		_ = arrived.Sync(context.WithoutCancel(ctx)) // the error of a dead device is in err
	}
	return errors.Join(err, from.Free())
}
