// Package pipeline runs a chain of stages, each on its own goroutine, joined
// by bounded and measured links. It carries backpressure, failure, stopping
// and statistics, and knows nothing about tokens, tensors or devices.
//
//	p := pipeline.New()
//	docs := pipeline.Source(p, "shards", pipeline.LinkConfig{Items: 64, Bytes: 8 << 20}, reader)
//	toks := pipeline.Then(p, "tokens", docs, pipeline.LinkConfig{Items: 64}, pipeline.Ordered(4, encode))
//	pipeline.Sink(p, "store", toks, writer)
//	err := p.Run(ctx)
//
// # How a run ends
//
// There are three ways, and each leaves no goroutine behind.
//
//   - The sources end. Every stage drains what is queued, sees io.EOF from
//     Recv, and returns nil. Run returns nil.
//   - A consumer has enough and returns nil early. Its producer gets
//     [ErrStopped] from Send, and its context is cancelled with that cause, so
//     it ends even when it waits elsewhere. Returning ErrStopped is not a
//     failure. This walks upstream to the sources. Run returns nil.
//   - The context is cancelled, or a stage fails or panics. Every Send and
//     Recv returns the cause at once, queued items are not processed, and Run
//     returns the cause. A consumer never mistakes a failed producer for a
//     finished one: io.EOF is given only after a producer returned nil in a
//     run that was not cancelled.
//
// # Who owns an item
//
// After Send the item is no longer the sender's, whatever Send returned.
// Either the consumer receives it, or the link hands it to
// [LinkConfig.Release]. Nothing is lost silently: items that hold buffers of a
// [Pool] always find their way home. A stage that ends with items it made but
// did not send gives them to [Discard].
//
// # What is measured
//
// See [StageStats]. Waiting is measured only when it happens: a Send that finds
// room and a Recv that finds an item read no clock and allocate nothing.
// Goroutines carry the pprof label stage=NAME, and the labels of
// [WithLabels]; while runtime/trace is on, each stage is a task, and each
// item of Map, Ordered and Each, and every wait, is a region.
package pipeline
