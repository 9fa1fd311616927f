// Package num holds the numeric ground the trainer stands on: bfloat16
// conversion, a counter-based random number generator, and comparison of
// computed values against a reference by one table of tolerances.
//
// It knows nothing about models, devices or files.
package num
