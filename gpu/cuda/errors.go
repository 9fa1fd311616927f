//go:build cuda && cudaheaders

package cuda

// #include "native.h"
import "C"

import (
	"fmt"
	"reflect"

	"refrain/gpu"
)

// Error is a driver call that failed.
type Error struct {
	Device int    // ordinal, -1 before there is one
	Queue  string // label, "" outside a queue
	Op     string // the call, or the kernel
	Code   int    // the driver's
	Name   string // the driver's word for it, such as CUDA_ERROR_OUT_OF_MEMORY
	Text   string // its explanation
	Advice string // ours, "" where there is none
}

func (e *Error) Error() string {
	where := "cuda"
	if e.Device >= 0 {
		where += fmt.Sprintf(": device %d", e.Device)
	}
	if e.Queue != "" {
		where += " queue " + e.Queue
	}
	s := fmt.Sprintf("%s: %s: %s", where, e.Op, e.Name)
	if e.Text != "" {
		s += " (" + e.Text + ")"
	}
	if e.Advice != "" {
		s += "; " + e.Advice
	}
	return s
}

// Is makes every Error that leaves the device unusable a gpu.ErrDevice.
func (e *Error) Is(target error) bool { return target == gpu.ErrDevice && sticky(e.Code) }

// Codes of the driver, by its documentation.
const (
	codeOutOfMemory  = 2
	codeInvalidValue = 1
	codeNotReady     = 600
	codeNoDevice     = 100
	codeUnknownPTX   = 222
	codeMismatch     = 803
	codeNotPermitted = 800
	codeNoBinary     = 209
)

// sticky tells whether a code is one after which every call in the context fails: the
// device's memory is undefined from then on.
func sticky(code int) bool {
	switch code {
	case 214, // ECC error that could not be corrected
		220,                     // NVLink error
		700,                     // illegal address
		702,                     // launch timeout
		709,                     // context is destroyed
		710,                     // assertion in a kernel
		714, 715, 716, 717, 718, // hardware stack, illegal instruction, misaligned address, address space, program counter
		719, // launch failure
		721, // launch of a cluster
		46,  // device unavailable
		999: // unknown
		return true
	}
	return false
}

// advice is what to do about a code.
func advice(code int) string {
	switch code {
	case codeNoDevice:
		return "no GPU is visible; look at nvidia-smi and CUDA_VISIBLE_DEVICES, or train with device=cpu"
	case codeUnknownPTX, codeNoBinary:
		return "the driver is older than the kernels or knows no such GPU; update it (refrain doctor names the version needed)"
	case codeMismatch:
		return "the driver's library and its kernel module differ in version; reboot, or reload the module"
	case codeNotPermitted:
		return "this user may not use the GPU; look at the permissions of its device files"
	case codeOutOfMemory:
		return "another process may hold memory (nvidia-smi); lower train.micro_batch otherwise"
	}
	return ""
}

// code returns the driver's code in an error of cu's, whose type is an integer that cu
// does not export; 0 for nil.
func code(err error) int {
	if err == nil {
		return 0
	}
	if v := reflect.ValueOf(err); v.CanInt() {
		return int(v.Int())
	}
	return 999
}

// newError describes a failed call by its code.
func newError(device int, queue, op string, code int) *Error {
	e := &Error{Device: device, Queue: queue, Op: op, Code: code, Advice: advice(code)}
	if s := C.refrain_cuda_error_name(C.int(code)); s != nil {
		e.Name = C.GoString(s)
	} else {
		e.Name = fmt.Sprintf("code %d", code)
	}
	if s := C.refrain_cuda_error_text(C.int(code)); s != nil {
		e.Text = C.GoString(s)
	}
	return e
}
