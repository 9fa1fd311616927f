// Package ptx holds the kernels as compiled for real GPUs: machine code for each
// architecture that is supported and PTX for those that come later, made by make kernels
// from kernels/*.cu. It is empty without the tag cuda.
package ptx
