package ckpt

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"unicode/utf8"
)

// The safetensors container: an 8-byte little-endian header length, a JSON header,
// then the bytes of all tensors without gaps. Readers of the format differ in what
// they let pass (duplicate names, fields given twice, spaces in front, names that
// look like paths). This one accepts only what it could have written itself, up
// to order and spacing, so no two readers can see different tensors in a file.

// FormatError says what is wrong with a safetensors file.
type FormatError struct {
	Tensor string // the tensor concerned; empty for the file as a whole
	Reason string
}

func (e *FormatError) Error() string {
	if e.Tensor != "" {
		return fmt.Sprintf("safetensors: tensor %q: %s", e.Tensor, e.Reason)
	}
	return "safetensors: " + e.Reason
}

func formatErr(tensor, format string, args ...any) error {
	return &FormatError{Tensor: tensor, Reason: fmt.Sprintf(format, args...)}
}

// metadataKey is the header entry that is not a tensor.
const metadataKey = "__metadata__"

// sortTensors returns the order in which a file holds the tensors: wide elements
// first, so that each is aligned to its own width, then by name.
func sortTensors(tensors []Tensor) []Tensor {
	out := slices.Clone(tensors)
	slices.SortStableFunc(out, func(a, b Tensor) int {
		return cmp.Or(-cmp.Compare(elemSize(a.DType), elemSize(b.DType)), cmp.Compare(a.Name, b.Name))
	})
	return out
}

// encodeHeader returns the length field and the header for tensors in the order
// given, padded with spaces to a multiple of 8, with the metadata that Hugging
// Face's loader insists on.
func encodeHeader(tensors []Tensor) ([]byte, error) {
	if len(tensors) > maxTensors {
		return nil, fmt.Errorf("%d tensors, limit is %d", len(tensors), maxTensors)
	}
	h := make([]byte, 8, 256+128*len(tensors))
	h = append(h, `{"__metadata__":{"format":"pt"}`...)
	var off int64
	seen := make(map[string]bool, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		if err := t.check(); err != nil {
			return nil, err
		}
		if seen[t.Name] || t.Name == metadataKey {
			return nil, fmt.Errorf("tensor name %q is taken", t.Name)
		}
		seen[t.Name] = true
		// check has limited names to characters that need no escape in JSON.
		h = fmt.Appendf(h, `,"%s":{"dtype":"%s","shape":[`, t.Name, t.DType)
		for j, d := range t.Shape {
			if j > 0 {
				h = append(h, ',')
			}
			h = strconv.AppendInt(h, int64(d), 10)
		}
		h = fmt.Appendf(h, `],"data_offsets":[%d,%d]}`, off, off+int64(len(t.Data)))
		off += int64(len(t.Data))
	}
	h = append(h, '}')
	for len(h)%8 != 0 {
		h = append(h, ' ')
	}
	if len(h)-8 > maxHeader {
		return nil, fmt.Errorf("header of %d bytes, limit is %d", len(h)-8, maxHeader)
	}
	binary.LittleEndian.PutUint64(h, uint64(len(h)-8))
	return h, nil
}

// EncodeTensors writes a safetensors file to w. It holds the tensors sorted by
// element width and name, so the bytes do not depend on the order of the slice. The
// data is written as it lies; nothing is copied.
func EncodeTensors(w io.Writer, tensors []Tensor) error {
	sorted := sortTensors(tensors)
	h, err := encodeHeader(sorted)
	if err != nil {
		return fmt.Errorf("safetensors: %w", err)
	}
	if _, err := w.Write(h); err != nil {
		return err
	}
	for _, t := range sorted {
		if _, err := w.Write(t.Data); err != nil {
			return err
		}
	}
	return nil
}

// DecodeTensors reads a whole safetensors file and returns its tensors in the
// order of their bytes, as views into file, and its string metadata. Any deviation
// from the format is a *FormatError.
func DecodeTensors(file []byte) ([]Tensor, map[string]string, error) {
	infos, meta, start, err := DecodeHeader(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		return nil, nil, err
	}
	tensors, err := Slice(infos, file[start:])
	if err != nil {
		return nil, nil, err
	}
	return tensors, meta, nil
}

// DecodeHeader reads the header of a safetensors file of size bytes. It returns
// the tensors in the order of their bytes, Off counted from start, which is where
// the data begins in the file. It reads no data; every check of the format is made.
func DecodeHeader(r io.ReaderAt, size int64) (infos []TensorInfo, meta map[string]string, start int64, err error) {
	var length [8]byte
	if size < 8 {
		return nil, nil, 0, formatErr("", "%d bytes are too few for a header length", size)
	}
	if _, err := r.ReadAt(length[:], 0); err != nil {
		return nil, nil, 0, err
	}
	n := binary.LittleEndian.Uint64(length[:])
	switch {
	case n > maxHeader:
		return nil, nil, 0, formatErr("", "header of %d bytes, limit is %d", n, maxHeader)
	case int64(n) > size-8:
		return nil, nil, 0, formatErr("", "header of %d bytes in a file of %d", n, size)
	}
	header := make([]byte, n)
	if _, err := r.ReadAt(header, 8); err != nil && !(err == io.EOF && n == 0) {
		return nil, nil, 0, err
	}
	infos, meta, err = parseHeader(header)
	if err != nil {
		return nil, nil, 0, err
	}
	start = 8 + int64(n)
	if err := checkLayout(infos, size-start); err != nil {
		return nil, nil, 0, err
	}
	return infos, meta, start, nil
}

// checkLayout sorts infos by place and requires that they fill the data exactly.
func checkLayout(infos []TensorInfo, dataLen int64) error {
	slices.SortStableFunc(infos, func(a, b TensorInfo) int {
		return cmp.Or(cmp.Compare(a.Off, b.Off), cmp.Compare(a.Len, b.Len), cmp.Compare(a.Name, b.Name))
	})
	var at int64
	for i := range infos {
		t := &infos[i]
		want, err := t.byteLen()
		if err != nil {
			return formatErr("", "%v", err)
		}
		switch {
		case t.Off > at:
			return formatErr(t.Name, "begins at %d, leaving a hole from %d", t.Off, at)
		case t.Off < at:
			return formatErr(t.Name, "begins at %d, inside the tensor before it", t.Off)
		case t.Len != want:
			return formatErr(t.Name, "has %d bytes, %s %v needs %d", t.Len, t.DType, t.Shape, want)
		}
		at += t.Len
	}
	if at != dataLen {
		return formatErr("", "the tensors end at byte %d of %d", at, dataLen)
	}
	return nil
}

// parseHeader reads the JSON of a header token by token, since encoding/json
// itself lets the last of two equal keys win.
func parseHeader(header []byte) ([]TensorInfo, map[string]string, error) {
	body := bytes.TrimRight(header, " ")
	switch {
	case len(body) == 0 || body[0] != '{':
		return nil, nil, formatErr("", "the header does not begin with {")
	case !utf8.Valid(body):
		return nil, nil, formatErr("", "the header is not UTF-8")
	case !json.Valid(body):
		return nil, nil, formatErr("", "the header is not JSON")
	}
	p := headerParser{dec: json.NewDecoder(bytes.NewReader(body)), meta: map[string]string{}}
	p.dec.UseNumber()
	if err := p.header(); err != nil {
		var fe *FormatError
		if errors.As(err, &fe) {
			return nil, nil, err
		}
		return nil, nil, formatErr("", "the header is not JSON: %v", err)
	}
	return p.infos, p.meta, nil
}

type headerParser struct {
	dec   *json.Decoder
	infos []TensorInfo
	meta  map[string]string
}

// object walks a JSON object whose opening brace comes next and calls field for
// every key, each of which may come once.
func (p *headerParser) object(owner string, field func(key string) error) error {
	if err := p.delim(owner, '{'); err != nil {
		return err
	}
	seen := map[string]bool{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return err
		}
		key, ok := tok.(string)
		if !ok {
			return formatErr(owner, "a key is not a string")
		}
		if seen[key] {
			return formatErr(owner, "%q is given twice", key)
		}
		seen[key] = true
		if err := field(key); err != nil {
			return err
		}
	}
	return p.delim(owner, '}')
}

func (p *headerParser) delim(owner string, want json.Delim) error {
	tok, err := p.dec.Token()
	if err != nil {
		return err
	}
	if tok != want {
		return formatErr(owner, "found %v where %v belongs", tok, want)
	}
	return nil
}

func (p *headerParser) str(owner, what string) (string, error) {
	tok, err := p.dec.Token()
	if err != nil {
		return "", err
	}
	s, ok := tok.(string)
	if !ok {
		return "", formatErr(owner, "%s is not a string", what)
	}
	return s, nil
}

// ints reads an array of at most limit numbers from 0 to the largest int64.
func (p *headerParser) ints(owner, what string, limit int) ([]int64, error) {
	if err := p.delim(owner, '['); err != nil {
		return nil, err
	}
	out := []int64{}
	for p.dec.More() {
		tok, err := p.dec.Token()
		if err != nil {
			return nil, err
		}
		num, ok := tok.(json.Number)
		if !ok {
			return nil, formatErr(owner, "%s holds %v, which is not a number", what, tok)
		}
		v, err := strconv.ParseUint(num.String(), 10, 63)
		if err != nil {
			return nil, formatErr(owner, "%s holds %s, want a whole number from 0", what, num)
		}
		if len(out) == limit {
			return nil, formatErr(owner, "%s has more than %d entries", what, limit)
		}
		out = append(out, int64(v))
	}
	return out, p.delim(owner, ']')
}

func (p *headerParser) header() error {
	return p.object("", func(key string) error {
		if key == metadataKey {
			return p.object(key, func(k string) (err error) {
				p.meta[k], err = p.str(metadataKey, k)
				return err
			})
		}
		if !validName(key) {
			return formatErr(key, "the name has characters beyond letters, digits, _, - and single dots, or over %d bytes", maxName)
		}
		if len(p.infos) == maxTensors {
			return formatErr("", "more than %d tensors", maxTensors)
		}
		return p.tensor(key)
	})
}

func (p *headerParser) tensor(name string) error {
	t := TensorInfo{Name: name, Off: -1}
	err := p.object(name, func(key string) (err error) {
		switch key {
		case "dtype":
			t.DType, err = p.str(name, key)
		case "shape":
			var dims []int64
			dims, err = p.ints(name, key, maxRank)
			t.Shape = make([]int, len(dims))
			for i, d := range dims {
				if d > math.MaxInt {
					return formatErr(name, "dimension %d is too large", d)
				}
				t.Shape[i] = int(d)
			}
		case "data_offsets":
			var at []int64
			at, err = p.ints(name, key, 2)
			if err == nil && (len(at) != 2 || at[1] < at[0]) {
				return formatErr(name, "data_offsets %v, want a begin and an end", at)
			}
			if err == nil {
				t.Off, t.Len = at[0], at[1]-at[0]
			}
		default:
			return formatErr(name, "unknown field %q", key)
		}
		return err
	})
	if err != nil {
		return err
	}
	if t.DType == "" || t.Shape == nil || t.Off < 0 {
		return formatErr(name, "dtype, shape or data_offsets is missing")
	}
	p.infos = append(p.infos, t)
	return nil
}
