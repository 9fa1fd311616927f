// Package par runs short parallel regions on a fixed set of goroutines.
//
// A training step is a few hundred regions of 10 to 2000 microseconds with a
// barrier after each. Starting goroutines, or waking parked ones, costs tens of
// microseconds on a loaded machine, which is more than many of these regions
// take. The workers of a Pool therefore poll for work for about 200
// microseconds after each region before they park; while they poll, a region
// costs below a microsecond. An idle Pool uses no CPU.
//
// The package knows nothing of numbers. What it promises about results: the
// chunks that [Pool.For] hands out depend on n and grain only, never on the
// number of threads or on timing. Code that keeps one owner for each output and
// one partial sum for each chunk gets the same bits with any Pool.
//
//	pool := par.New(runtime.GOMAXPROCS(0))
//	defer pool.Close()
//	pool.For(rows, 64, func(worker, lo, hi int) {
//		for i := lo; i < hi; i++ {
//			normalise(row(i), scratch[worker])
//		}
//	})
package par
