// Package ckpt reads and writes checkpoints: folders that a machine may die on
// at any moment without losing the previous one, in which every byte is covered by
// a hash, and which Hugging Face tools open as they are.
//
// The package knows named tensors and nothing of models, optimisers or data. The
// caller hands over a Snapshot (its own copy of the state: nothing in it may
// change until Save returns) and gets it back as Loaded. One writer per folder at
// a time; the run folder's lock sees to that. Readers may come and go.
//
//	dir/step-000000400/   config.json model.safetensors tokenizer.json    Hugging Face
//	                      optimizer.safetensors state.json manifest.json  ours
//	dir/step-000000200/
//	dir/step-000000300.bad/   found damaged; kept, never loaded or deleted
//	dir/latest                a hint for people; never trusted
//
// The format, byte for byte, is in docs/formats/checkpoint.md.
package ckpt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Names of the files in a checkpoint.
const (
	ConfigFile    = "config.json"
	ModelFile     = "model.safetensors"
	TokenizerFile = "tokenizer.json"
	OptimFile     = "optimizer.safetensors"
	StateFile     = "state.json"
	ManifestFile  = "manifest.json"
)

// Errors that callers branch on, all found with errors.Is.
var (
	// ErrNone: the folder has never held a checkpoint; start from zero.
	ErrNone = errors.New("no checkpoint yet")
	// ErrNoGood: there are or were checkpoints and none can be loaded. Starting
	// from zero now would throw the run away, so a person decides (exit code 4).
	ErrNoGood = errors.New("no loadable checkpoint in a non-empty folder")
	// ErrDamaged: a checkpoint's bytes are not the ones that were saved.
	ErrDamaged = errors.New("damaged checkpoint")
	// ErrOtherRun: a whole checkpoint, of another run, configuration or data.
	ErrOtherRun = errors.New("checkpoint of another run")
	// ErrStepExists: the step is already saved; it is never overwritten.
	ErrStepExists = errors.New("step already saved")
	// ErrNotNewest: a later step is already saved, so this one would be shadowed.
	ErrNotNewest = errors.New("a later step is already saved")
	// ErrSameWeights: weights equal to those of another step, bit for bit.
	ErrSameWeights = errors.New("weights did not change between two saved steps")
	// ErrNonFinite: a tensor holds NaN or infinity.
	ErrNonFinite = errors.New("tensor is not finite")
	// ErrChanged: somebody wrote into the snapshot while it was being saved.
	ErrChanged = errors.New("snapshot changed while it was being saved")
	// ErrInvalid: the snapshot cannot be a checkpoint; the message says why.
	ErrInvalid = errors.New("invalid snapshot")
)

// TensorInfo describes one tensor: row-major, contiguous, little-endian.
type TensorInfo struct {
	Name  string
	DType string // of the safetensors format, such as "F32" or "BF16"
	Shape []int  // empty for a scalar; a zero dimension is allowed
	// Off and Len are bytes in the buffer that holds all tensors of a set: the
	// caller's flat buffer in Slice and Gather, the data part of the file in what
	// DecodeTensors returns. Save looks at neither.
	Off, Len int64
}

// Tensor is a tensor with its bytes.
type Tensor struct {
	TensorInfo
	Data []byte
}

// Limits on what is read or written; each is tested at the limit and above it.
const (
	maxHeader  = 16 << 20
	maxTensors = 65536
	maxRank    = 8
)

const maxName = 256

// validName says whether a tensor may be called name: letters, digits, "_", "-"
// and single dots between them. Names are map keys and never paths, and this keeps
// them harmless even where somebody else makes a path of one. A loop, since a
// regular expression took most of the time of reading a large header.
func validName(name string) bool {
	dot := true // a dot may not come now
	for i := range len(name) {
		c := name[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '_', c == '-':
			dot = false
		case c == '.' && !dot:
			dot = true
		default:
			return false
		}
	}
	return !dot && len(name) <= maxName
}

// elemSize returns the bytes of one element, or 0 for an unknown type.
func elemSize(dtype string) int64 {
	switch dtype {
	case "BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3":
		return 1
	case "U16", "I16", "F16", "BF16":
		return 2
	case "U32", "I32", "F32":
		return 4
	case "U64", "I64", "F64":
		return 8
	}
	return 0
}

// byteLen returns what the type and shape need, or an error that says what is
// wrong with them, overflow included.
func (t *TensorInfo) byteLen() (int64, error) {
	size := elemSize(t.DType)
	if size == 0 {
		return 0, fmt.Errorf("tensor %q: unknown dtype %q", t.Name, t.DType)
	}
	if len(t.Shape) > maxRank {
		return 0, fmt.Errorf("tensor %q: rank %d, limit is %d", t.Name, len(t.Shape), maxRank)
	}
	const limit = 1 << 48 // far above any file, far below overflow
	zero := false
	for _, d := range t.Shape {
		switch {
		case d < 0:
			return 0, fmt.Errorf("tensor %q: negative dimension %d", t.Name, d)
		case d == 0:
			zero = true
		case int64(d) > limit/size:
			return 0, fmt.Errorf("tensor %q: shape %v is too large", t.Name, t.Shape)
		default:
			size *= int64(d)
		}
	}
	if zero {
		return 0, nil
	}
	return size, nil
}

// check validates one tensor that is about to be written.
func (t *Tensor) check() error {
	if !validName(t.Name) {
		return fmt.Errorf("tensor name %q: want letters, digits, _ and - with single dots between, at most %d bytes", t.Name, maxName)
	}
	want, err := t.byteLen()
	if err != nil {
		return err
	}
	if int64(len(t.Data)) != want {
		return fmt.Errorf("tensor %q: %d bytes of data, %s %v needs %d", t.Name, len(t.Data), t.DType, t.Shape, want)
	}
	return nil
}

// Slice returns the tensors that infos describe inside flat, as views: no byte is
// copied. It fails when one lies outside flat or its Len is not that of its
// type and shape.
func Slice(infos []TensorInfo, flat []byte) ([]Tensor, error) {
	out := make([]Tensor, len(infos))
	for i, info := range infos {
		want, err := info.byteLen()
		if err != nil {
			return nil, err
		}
		if info.Len != want {
			return nil, fmt.Errorf("tensor %q: Len is %d, %s %v needs %d", info.Name, info.Len, info.DType, info.Shape, want)
		}
		if info.Off < 0 || info.Off > int64(len(flat)) || info.Len > int64(len(flat))-info.Off {
			return nil, fmt.Errorf("tensor %q: bytes %d to %d lie outside the buffer of %d", info.Name, info.Off, info.Off+info.Len, len(flat))
		}
		out[i] = Tensor{TensorInfo: info, Data: flat[info.Off : info.Off+info.Len : info.Off+info.Len]}
	}
	return out, nil
}

// Gather is the way back: it copies into flat, at each info's place, the tensor of
// the same name. Types and shapes must agree, every info must find its tensor,
// and no tensor may be left over; otherwise flat is unchanged and the error lists
// every disagreement.
func Gather(infos []TensorInfo, flat []byte, tensors []Tensor) error {
	dst, err := Slice(infos, flat)
	if err != nil {
		return err
	}
	have := make(map[string]*Tensor, len(tensors))
	for i := range tensors {
		have[tensors[i].Name] = &tensors[i]
	}
	var problems []string
	wanted := make(map[string]bool, len(infos))
	for _, d := range dst {
		if wanted[d.Name] {
			problems = append(problems, fmt.Sprintf("%s is wanted twice", d.Name))
		}
		wanted[d.Name] = true
		t := have[d.Name]
		switch {
		case t == nil:
			problems = append(problems, fmt.Sprintf("%s is missing", d.Name))
		case t.DType != d.DType || !slices.Equal(t.Shape, d.Shape) || len(t.Data) != len(d.Data):
			problems = append(problems, fmt.Sprintf("%s is %s %v, want %s %v", d.Name, t.DType, t.Shape, d.DType, d.Shape))
		}
	}
	for _, t := range tensors {
		if !wanted[t.Name] {
			problems = append(problems, fmt.Sprintf("%s is not part of this model", t.Name))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("the tensors do not fit: %s", joinSome(problems, 8))
	}
	for _, d := range dst {
		copy(d.Data, have[d.Name].Data)
	}
	return nil
}

// joinSome joins the first n strings and counts the rest.
func joinSome(all []string, n int) string {
	if len(all) <= n {
		return strings.Join(all, "; ")
	}
	return fmt.Sprintf("%s; and %d more", strings.Join(all[:n], "; "), len(all)-n)
}
