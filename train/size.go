package train

import "math"

// mostElements is how many elements one axis of a tensor may have; parameters, gradients
// and the bytes of a batch are such axes.
const mostElements = math.MaxInt32

// checkSize reports shapes whose buffers cannot be described. The rest of o is valid.
func (o *Options) checkSize(bad func(format string, args ...any)) {
	if n := o.Model.Layout().Total + o.sums(); n > mostElements {
		bad("the model has %d parameters; at most %d fit into one buffer: use fewer layers, a smaller dim, ffn or vocab", n-o.sums(), mostElements-o.sums())
	}
	if n := o.deviceLayout().Bytes(); n > mostElements {
		bad("a batch of %d rows of %d tokens takes %d bytes on a device; at most %d can be moved at once: use a smaller batch or seq", o.Batch/o.Devices, o.T, n, mostElements)
	}
}
