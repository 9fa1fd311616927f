package ckpt

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nlpodyssey/safetensors"
)

// raw builds a file from a header as text and a number of data bytes.
func raw(header string, data int) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), make([]byte, data)...)
}

func TestHostileSafetensors(t *testing.T) {
	const x = `"dtype":"F32","shape":[2],"data_offsets":[0,8]`
	for _, tc := range []struct {
		name   string
		file   []byte
		reason string // part of the message; "" when the file is good
	}{
		{"good", raw(`{"x":{`+x+`}}`, 8), ""},
		{"good, padded", raw(`{"x":{`+x+`}}     `, 8), ""},
		{"good, spaced", raw("{ \"x\" : {"+x+"},\n\"__metadata__\":{\"a\":\"b\"} }", 8), ""},
		{"good, scalar and empty", raw(`{"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},"e":{"dtype":"F32","shape":[0,9],"data_offsets":[8,8]}}`, 8), ""},
		{"good, no tensors", raw(`{}`, 0), ""},
		{"good, out of order", raw(`{"b":{"dtype":"U8","shape":[1],"data_offsets":[1,2]},"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}`, 2), ""},
		{"empty file", nil, "too few"},
		{"short length", []byte{1, 2, 3}, "too few"},
		{"no header", raw("", 0), "does not begin with {"},
		{"header past the end", raw(`{}`, 0)[:9], "in a file of"},
		{"absurd header", binary.LittleEndian.AppendUint64(nil, 1<<63), "limit"},
		{"null", raw(`null`, 0), "does not begin"},
		{"leading space", raw(` {"x":{`+x+`}}`, 8), "does not begin"},
		{"good, newline after", raw(`{"x":{`+x+"}}\n", 8), ""},
		{"two values", raw(`{}{}`, 0), "not JSON"},
		{"cut", raw(`{"x":{`+x, 8), "not JSON"},
		{"not UTF-8", raw("{\"__metadata__\":{\"a\":\"\xff\"}}", 0), "not UTF-8"},
		{"deep", raw(`{"x":`+strings.Repeat("[", 20000), 0), "not JSON"},
		{"duplicate name", raw(`{"x":{`+x+`},"x":{`+x+`}}`, 8), "given twice"},
		{"duplicate by escape", raw(`{"x":{`+x+`},"\u0078":{`+x+`}}`, 8), "given twice"},
		{"duplicate field", raw(`{"x":{`+x+`,"dtype":"I32"}}`, 8), "given twice"},
		{"duplicate metadata", raw(`{"__metadata__":{"a":"1","a":"2"}}`, 0), "given twice"},
		{"unknown field", raw(`{"x":{`+x+`,"stride":1}}`, 8), "unknown field"},
		{"field in other case", raw(`{"x":{"Dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, 8), "unknown field"},
		{"missing field", raw(`{"x":{"dtype":"F32","shape":[2]}}`, 0), "missing"},
		{"metadata not strings", raw(`{"__metadata__":{"a":1}}`, 0), "not a string"},
		{"tensor is a list", raw(`{"x":[]}`, 0), "belongs"},
		{"name of a path", raw(`{"../../x":{`+x+`}}`, 8), "characters"},
		{"name with dots", raw(`{"a..b":{`+x+`}}`, 8), "characters"},
		{"name begins with a dot", raw(`{".a":{`+x+`}}`, 8), "characters"},
		{"name ends with a dot", raw(`{"a.":{`+x+`}}`, 8), "characters"},
		{"name with a control character", raw(`{"a\u0000":{`+x+`}}`, 8), "characters"},
		{"empty name", raw(`{"":{`+x+`}}`, 8), "characters"},
		{"unknown dtype", raw(`{"x":{"dtype":"F31","shape":[2],"data_offsets":[0,8]}}`, 8), "unknown dtype"},
		{"fraction", raw(`{"x":{"dtype":"F32","shape":[2.0],"data_offsets":[0,8]}}`, 8), "whole number"},
		{"exponent", raw(`{"x":{"dtype":"F32","shape":[2e0],"data_offsets":[0,8]}}`, 8), "whole number"},
		{"negative", raw(`{"x":{"dtype":"F32","shape":[-2],"data_offsets":[0,8]}}`, 8), "whole number"},
		{"past int64", raw(`{"x":{"dtype":"F32","shape":[9223372036854775808],"data_offsets":[0,8]}}`, 8), "whole number"},
		{"overflow", raw(`{"x":{"dtype":"F32","shape":[4294967296,4294967296,4294967296],"data_offsets":[0,0]}}`, 0), "too large"},
		{"overflow to 8", raw(`{"x":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}}`, 8), "too large"},
		{"three offsets", raw(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8,8]}}`, 8), "more than 2"},
		{"backwards", raw(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[8,0]}}`, 8), "begin and an end"},
		{"wrong size", raw(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,7]}}`, 7), "needs 8"},
		{"hole in front", raw(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, 12), "hole"},
		{"hole between", raw(`{"x":{`+x+`},"y":{"dtype":"U8","shape":[1],"data_offsets":[9,10]}}`, 10), "hole"},
		{"overlap", raw(`{"x":{`+x+`},"y":{"dtype":"U8","shape":[1],"data_offsets":[7,8]}}`, 8), "inside the tensor before"},
		{"same bytes twice", raw(`{"x":{`+x+`},"y":{`+x+`}}`, 8), "inside the tensor before"},
		{"trailing bytes", raw(`{"x":{`+x+`}}`, 9), "end at byte 8 of 9"},
		{"data cut", raw(`{"x":{`+x+`}}`, 7), "end at byte 8 of 7"},
		{"rank 9", raw(`{"x":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}}`, 1), "more than 8"},
	} {
		start := time.Now()
		_, _, err := DecodeTensors(tc.file)
		var fe *FormatError
		switch {
		case tc.reason == "" && err != nil:
			t.Errorf("%s: %v", tc.name, err)
		case tc.reason != "" && (!errors.As(err, &fe) || !strings.Contains(err.Error(), tc.reason)):
			t.Errorf("%s: got %v, want a *FormatError with %q", tc.name, err, tc.reason)
		}
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("%s: took %v", tc.name, d)
		}
	}
}

// TestSafetensorsLimits goes to each limit and one past it, writing and reading.
func TestSafetensorsLimits(t *testing.T) {
	one := func(name string, shape ...int) Tensor {
		x := tensor(name, 1, shape...)
		x.Data = make([]byte, len(x.Data))
		return x
	}
	many := func(n int) []Tensor {
		out := make([]Tensor, n)
		for i := range out {
			out[i] = one(fmt.Sprintf("t%d", i), 0)
		}
		return out
	}
	long := func(n int) []Tensor { // a header of about n bytes: 250 for each tensor and more
		var out []Tensor
		for i := range n / 300 {
			out = append(out, one(fmt.Sprintf("%s%d", strings.Repeat("x", 250), i), 0))
		}
		return out
	}
	for _, tc := range []struct {
		name string
		ts   []Tensor
		ok   bool
	}{
		{"rank 8", []Tensor{one("x", 1, 1, 1, 1, 1, 1, 1, 1)}, true},
		{"rank 9", []Tensor{one("x", 1, 1, 1, 1, 1, 1, 1, 1, 1)}, false},
		{"name of 256", []Tensor{one(strings.Repeat("n", 256), 1)}, true},
		{"name of 257", []Tensor{one(strings.Repeat("n", 257), 1)}, false},
		{"65536 tensors", many(maxTensors), true},
		{"65537 tensors", many(maxTensors + 1), false},
		{"header below 16 MiB", long(15 << 20), true},
		{"header above 16 MiB", long(19 << 20), false},
		{"metadata as a name", []Tensor{one("__metadata__", 1)}, false},
	} {
		var b bytes.Buffer
		err := EncodeTensors(&b, tc.ts)
		if (err == nil) != tc.ok {
			t.Errorf("%s: write: %v", tc.name, err)
			continue
		}
		if !tc.ok || b.Len() > 8<<20 {
			continue // reading large headers is slow, and the limit is read below
		}
		got, _, err := DecodeTensors(b.Bytes())
		if err != nil || len(got) != len(tc.ts) {
			t.Errorf("%s: read: %v", tc.name, err)
		}
	}
	// Past the limits in a file that somebody else wrote.
	var h strings.Builder
	for i := range maxTensors + 1 {
		fmt.Fprintf(&h, `,"t%d":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`, i)
	}
	if _, _, err := DecodeTensors(raw("{"+h.String()[1:]+"}", 0)); err == nil || !strings.Contains(err.Error(), "more than 65536") {
		t.Errorf("65537 tensors read: %v", err)
	}
	if _, _, err := DecodeTensors(raw("{}"+strings.Repeat(" ", maxHeader-1), 0)); err == nil {
		t.Error("a header of 16 MiB and a byte was read")
	}
	if _, _, err := DecodeTensors(raw("{}"+strings.Repeat(" ", maxHeader-2), 0)); err != nil {
		t.Errorf("a header of 16 MiB: %v", err)
	}
}

// TestTensorsAreAligned checks that each tensor lies at a multiple of its element
// width in the file, so that it can be read in place.
func TestTensorsAreAligned(t *testing.T) {
	mk := func(name, dtype string, n int) Tensor {
		x := Tensor{TensorInfo: TensorInfo{Name: name, DType: dtype, Shape: []int{n}}}
		x.Data = make([]byte, int64(n)*elemSize(dtype))
		return x
	}
	ts := []Tensor{mk("a", "U8", 3), mk("b", "F32", 5), mk("c", "BF16", 1), mk("d", "F64", 1), mk("e", "I8", 1), mk("f", "F32", 1)}
	var b bytes.Buffer
	if err := EncodeTensors(&b, ts); err != nil {
		t.Fatal(err)
	}
	infos, meta, start, err := DecodeHeader(bytes.NewReader(b.Bytes()), int64(b.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if meta["format"] != "pt" {
		t.Errorf("metadata %v", meta)
	}
	var order []string
	for _, i := range infos {
		order = append(order, i.Name)
		if (start+i.Off)%elemSize(i.DType) != 0 {
			t.Errorf("%s lies at byte %d", i.Name, start+i.Off)
		}
	}
	if want := []string{"d", "b", "f", "c", "a", "e"}; !slices.Equal(order, want) {
		t.Errorf("order %v, want %v", order, want)
	}
}

func TestSliceAndGather(t *testing.T) {
	infos := []TensorInfo{
		{Name: "a", DType: "F32", Shape: []int{2}, Off: 4, Len: 8},
		{Name: "b", DType: "F32", Shape: []int{}, Off: 0, Len: 4},
	}
	flat := []byte("0123456789ab")
	ts, err := Slice(infos, flat)
	if err != nil || string(ts[0].Data) != "456789ab" || string(ts[1].Data) != "0123" {
		t.Fatalf("%v, %v", ts, err)
	}
	back := make([]byte, 12)
	slices.Reverse(ts)
	if err := Gather(infos, back, ts); err != nil || !bytes.Equal(back, flat) {
		t.Errorf("%q, %v", back, err)
	}
	for _, bad := range []TensorInfo{
		{Name: "a", DType: "F32", Shape: []int{2}, Off: 5, Len: 8},
		{Name: "a", DType: "F32", Shape: []int{2}, Off: -1, Len: 8},
		{Name: "a", DType: "F32", Shape: []int{2}, Off: 1 << 62, Len: 8},
		{Name: "a", DType: "F32", Shape: []int{2}, Off: 0, Len: 7},
		{Name: "a", DType: "", Shape: []int{2}, Off: 0, Len: 8},
	} {
		if _, err := Slice([]TensorInfo{bad}, flat); err == nil {
			t.Errorf("Slice accepted %+v", bad)
		}
	}
	clear(back)
	wrong := []Tensor{ts[0], tensor("c", 1, 2)}
	wrong[0].Shape = []int{1}
	err = Gather(infos, back, wrong)
	for _, want := range []string{"a is missing", "b is F32 [1], want F32 []", "c is not part"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Gather: %v, want %q in it", err, want)
		}
	}
	if !bytes.Equal(back, make([]byte, 12)) {
		t.Error("a failed Gather wrote")
	}
}

// FuzzSafetensors: any input gives tensors or a typed error. What is accepted can
// be written again to the same tensors, and a reader that is not ours sees the same.
func FuzzSafetensors(f *testing.F) {
	var b bytes.Buffer
	if err := EncodeTensors(&b, snap(1).Model); err != nil {
		f.Fatal(err)
	}
	f.Add(b.Bytes())
	f.Add(raw(`{"x":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"y":{"dtype":"U8","shape":[0,3],"data_offsets":[8,8]},"__metadata__":{"a":"b"}}`, 8))
	f.Add(raw(`{"x":{"dtype":"F32","shape":[4611686018427387906],"data_offsets":[0,8]}}`, 8))
	f.Fuzz(func(t *testing.T, file []byte) {
		tensors, _, err := DecodeTensors(file)
		if err != nil {
			var fe *FormatError
			if !errors.As(err, &fe) {
				t.Fatalf("untyped error %v", err)
			}
			return
		}
		var again bytes.Buffer
		if err := EncodeTensors(&again, tensors); err != nil {
			t.Fatalf("accepted, but cannot be written: %v", err)
		}
		back, _, err := DecodeTensors(again.Bytes())
		if err != nil || len(back) != len(tensors) {
			t.Fatalf("written, but cannot be read: %v", err)
		}
		other, err := safetensors.Deserialize(file)
		if err != nil {
			t.Fatalf("accepted here and refused elsewhere: %v", err)
		}
		for _, x := range tensors {
			v, ok := other.Tensor(x.Name)
			if !ok || !bytes.Equal(v.Data(), x.Data) {
				t.Fatalf("tensor %s: another reader sees other bytes", x.Name)
			}
			i := slices.IndexFunc(back, func(y Tensor) bool { return y.Name == x.Name })
			if i < 0 || !bytes.Equal(back[i].Data, x.Data) || !reflect.DeepEqual(back[i].Shape, x.Shape) {
				t.Fatalf("tensor %s changed on the way", x.Name)
			}
		}
	})
}
