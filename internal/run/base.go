package run

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"refrain/internal/fsx"
	"refrain/internal/num"
	"refrain/model"
	"refrain/tokenize"
	"refrain/train/ckpt"
)

// BaseModel is a folder of Llama weights from anywhere that a run starts from: config.json
// and model.safetensors, or its parts with model.safetensors.index.json, in F32, BF16 or
// F16, as transformers and this program write them. Nothing of it is kept in memory.
type BaseModel struct {
	Dir    string
	Config model.Config
	Hash   string // SHA-256 of all parameters as float32, hexadecimal; the same for any dtype that holds them and any parts

	tensors map[string]baseTensor
}

type baseTensor struct {
	ckpt.TensorInfo
	file string // inside the folder
	at   int64  // in the file
}

const (
	baseIndex     = "model.safetensors.index.json"
	maxBaseConfig = 16 << 20 // bytes of config.json and of the index
	maxBaseParts  = 4096
)

// skipped are tensors that old checkpoints carry and nobody needs: the model computes the
// rotary frequencies itself.
var skipped = regexp.MustCompile(`^model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$`)

// OpenBase reads config.json and the headers of the weights in dir and checks that every
// parameter of the model is there, in its shape, and nothing that the model would ignore.
// Hash is not filled. Errors name the file and have the code of refused input.
func OpenBase(dir string) (*BaseModel, error) {
	b := &BaseModel{Dir: dir, tensors: map[string]baseTensor{}}
	text, err := fsx.ReadFile(fsx.OS{}, filepath.Join(dir, ckpt.ConfigFile), maxBaseConfig)
	if err != nil {
		return nil, refused("%w; name a folder with config.json and model.safetensors", err)
	}
	if b.Config, _, err = model.ParseHFConfig(text); err != nil {
		return nil, refused("%s: %w", dir, err)
	}
	parts, index, err := baseParts(dir)
	if err != nil {
		return nil, refused("%w", err)
	}
	for _, name := range parts {
		if err := b.addPart(name); err != nil {
			return nil, refused("%s: %w", filepath.Join(dir, name), err)
		}
	}
	if index != nil {
		for name, part := range index {
			if t, there := b.tensors[name]; !there || t.file != part {
				return nil, refused("%s: %s says that %s holds %q; it does not", dir, baseIndex, part, name)
			}
		}
	}
	return b, b.fits()
}

func refused(format string, args ...any) error {
	return &Error{ExitData, fmt.Errorf("model.from: "+format, args...)}
}

// baseParts lists the files with tensors, and the index when there are several.
func baseParts(dir string) (parts []string, index map[string]string, err error) {
	text, err := fsx.ReadFile(fsx.OS{}, filepath.Join(dir, baseIndex), maxBaseConfig)
	if errors.Is(err, fs.ErrNotExist) {
		return []string{ckpt.ModelFile}, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	var f struct {
		Map map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &f); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", filepath.Join(dir, baseIndex), err)
	}
	for _, name := range f.Map {
		if name != filepath.Base(name) || !strings.HasSuffix(name, ".safetensors") {
			return nil, nil, fmt.Errorf("%s names %q, which is no safetensors file beside it", filepath.Join(dir, baseIndex), name)
		}
		parts = append(parts, name)
	}
	slices.Sort(parts)
	if parts = slices.Compact(parts); len(parts) == 0 || len(parts) > maxBaseParts {
		return nil, nil, fmt.Errorf("%s names %d files; 1 to %d are read", filepath.Join(dir, baseIndex), len(parts), maxBaseParts)
	}
	return parts, f.Map, nil
}

// addPart reads the header of one file.
func (b *BaseModel) addPart(name string) error {
	f, err := os.Open(filepath.Join(b.Dir, name))
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	infos, _, start, err := ckpt.DecodeHeader(f, st.Size())
	if err != nil {
		return err
	}
	for _, t := range infos {
		if old, twice := b.tensors[t.Name]; twice {
			return fmt.Errorf("tensor %q is in %s too", t.Name, old.file)
		}
		b.tensors[t.Name] = baseTensor{t, name, start + t.Off}
	}
	return nil
}

// fits compares the tensors with the parameters of the model, and reports all that is
// wrong up to a few.
func (b *BaseModel) fits() error {
	var errs []error
	known := map[string]bool{}
	for _, p := range b.Config.Layout().Params {
		known[p.Name] = true
		t, there := b.tensors[p.Name]
		switch {
		case !there:
			errs = append(errs, fmt.Errorf("%s is missing", p.Name))
		case !slices.Equal(t.Shape, p.Shape):
			errs = append(errs, fmt.Errorf("%s has the shape %v; config.json says %v", p.Name, t.Shape, p.Shape))
		case t.DType != "F32" && t.DType != "BF16" && t.DType != "F16":
			errs = append(errs, fmt.Errorf("%s is %s; F32, BF16 and F16 are read", p.Name, t.DType))
		}
	}
	var others []string
	for name := range b.tensors {
		// A tied model is sometimes saved with its one matrix under both names.
		if !known[name] && !skipped.MatchString(name) && !(b.Config.Tie && name == "lm_head.weight") {
			others = append(others, name)
		}
	}
	slices.Sort(others)
	for _, name := range others {
		errs = append(errs, fmt.Errorf("%s is no parameter of this model", name))
	}
	const most = 5
	if n := len(errs); n > most {
		errs = append(errs[:most], fmt.Errorf("and %d more", n-most))
	}
	if len(errs) > 0 {
		return refused("%s does not hold the model of its config.json:\n%w", b.Dir, errors.Join(errs...))
	}
	return nil
}

// baseChunk is how many elements are read at a time.
const baseChunk = 1 << 18

// each calls visit with the parameters of the model as float32, in the order of its
// layout, a piece at a time: x are elements off, off+1, ... of the flat buffer, valid
// during the call. A value that is not finite is an error.
func (b *BaseModel) each(ctx context.Context, visit func(off int, x []float32)) (err error) {
	files := map[string]*os.File{}
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	buf, x := make([]byte, 4*baseChunk), make([]float32, baseChunk)
	for _, p := range b.Config.Layout().Params {
		t := b.tensors[p.Name]
		f := files[t.file]
		if f == nil {
			if f, err = os.Open(filepath.Join(b.Dir, t.file)); err != nil {
				return refused("%w", err)
			}
			files[t.file] = f
		}
		size := int(t.Len) / p.Len
		for from := 0; from < p.Len; from += baseChunk {
			if err := ctx.Err(); err != nil {
				return err
			}
			n := min(baseChunk, p.Len-from)
			raw := buf[:n*size]
			if _, err := f.ReadAt(raw, t.at+int64(from*size)); err != nil {
				if err == io.EOF {
					err = io.ErrUnexpectedEOF
				}
				return refused("%s: tensor %q: %w", filepath.Join(b.Dir, t.file), p.Name, err)
			}
			if i := widen(x[:n], raw, t.DType); i >= 0 {
				return refused("%s: tensor %q: element %d is %g", filepath.Join(b.Dir, t.file), p.Name, from+i, x[i])
			}
			visit(p.Off+from, x[:n])
		}
	}
	return nil
}

// widen converts little-endian elements and returns the index of the first that is not
// finite, or -1.
func widen(dst []float32, raw []byte, dtype string) (bad int) {
	bad = -1
	for i := range dst {
		switch dtype {
		case "F32":
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
		case "BF16":
			dst[i] = num.BF16(binary.LittleEndian.Uint16(raw[2*i:])).Float32()
		default:
			dst[i] = num.F16(binary.LittleEndian.Uint16(raw[2*i:])).Float32()
		}
		if bad < 0 && math.Float32bits(dst[i])&0x7f800000 == 0x7f800000 {
			bad = i
		}
	}
	return bad
}

// Weights reads the parameters, in the layout of Config. It blocks for one pass over the
// files. A folder that was changed since NewSetup opened it is refused.
func (b *BaseModel) Weights(ctx context.Context) ([]float32, error) {
	w := make([]float32, b.Config.Layout().Total)
	hash, err := b.read(ctx, w)
	if err == nil && b.Hash != "" && hash != b.Hash {
		err = refused("%s has changed since this run was set up", b.Dir)
	}
	return w, err
}

// read passes over all weights once and returns their hash; into, when not nil, takes them.
func (b *BaseModel) read(ctx context.Context, into []float32) (hash string, err error) {
	h := sha256.New()
	fmt.Fprintf(h, "refrain weights 1\n%d parameters\n", b.Config.Layout().Total)
	raw := make([]byte, 0, 4*baseChunk)
	err = b.each(ctx, func(off int, x []float32) {
		raw = raw[:0]
		for _, v := range x {
			raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
		}
		h.Write(raw)
		if into != nil {
			copy(into[off:], x)
		}
	})
	return hex.EncodeToString(h.Sum(nil)), err
}

// openBase joins the setup with the folder of model.from.
func (s *Setup) openBase(c model.Config) error {
	dir := s.Config.Model.From
	if dir == "" {
		return nil
	}
	b, err := OpenBase(dir)
	if err != nil {
		return err
	}
	if err := s.sameShape(b, c); err != nil {
		return usage(err)
	}
	if s.Config.Data.Seq > b.Config.MaxT {
		return usage(fmt.Errorf("data.seq = %d is longer than the %d positions that %s was trained for (max_position_embeddings)", s.Config.Data.Seq, b.Config.MaxT, dir))
	}
	if err := s.sameIDs(dir); err != nil {
		return err
	}
	if b.Hash, err = b.read(context.Background(), nil); err != nil {
		return err
	}
	s.Base = b
	return nil
}

// sameShape compares the configured model with that of the folder, and says which
// settings would make them one.
func (s *Setup) sameShape(b *BaseModel, c model.Config) error {
	var differ, write []string
	for _, f := range []struct {
		key        string
		ours, base any
	}{
		{"vocab", c.Vocab, b.Config.Vocab}, {"layers", c.Layers, b.Config.Layers}, {"dim", c.Dim, b.Config.Dim}, {"heads", c.Heads, b.Config.Heads},
		{"kv_heads", c.KVHeads, b.Config.KVHeads}, {"ffn", c.FFN, b.Config.FFN}, {"rope_theta", c.RopeTheta, b.Config.RopeTheta},
		{"rope_scaling", c.RopeScaling.String(), b.Config.RopeScaling.String()},
		{"norm_eps", c.NormEps, b.Config.NormEps}, {"tie", c.Tie, b.Config.Tie},
	} {
		if f.ours != f.base {
			differ = append(differ, fmt.Sprintf("model.%s is %s and %s there", f.key, orNone(f.ours), orNone(f.base)))
			write = append(write, fmt.Sprintf("model.%s=%v", f.key, f.base))
		}
	}
	if len(differ) > 0 {
		return fmt.Errorf("model.from: %s has another shape: %s; write %s", b.Dir, strings.Join(differ, ", "), strings.Join(write, " "))
	}
	if c.C() != b.Config.C() {
		return fmt.Errorf("model.from: %s has heads of %d; this program trains heads of model.dim / model.heads = %d", b.Dir, b.Config.C(), c.C())
	}
	return nil
}

// orNone words a setting, which may be an empty text.
func orNone(v any) string {
	if v == "" {
		return "none"
	}
	return fmt.Sprint(v)
}

// sameIDs refuses weights that were trained with another tokenizer than the store was
// made with: its ids would mean other text. A folder without a tokenizer is taken.
func (s *Setup) sameIDs(dir string) error {
	path := filepath.Join(dir, ckpt.TokenizerFile)
	text, err := fsx.ReadFile(fsx.OS{}, path, maxBaseConfig*4)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return refused("%w", err)
	}
	t, err := tokenize.Load(bytes.NewReader(text))
	if err != nil {
		return refused("%s: %w; the store cannot have been made with it", path, err)
	}
	h := t.Hash()
	if got := hex.EncodeToString(h[:]); got != s.TokHash {
		return refused("%s (hash %.12s) is not the tokenizer that data.store was made with (%.12s), so its ids mean other text; prepare the store with --tokenizer %s", path, got, s.TokHash, path)
	}
	return nil
}

// ConfigHash is the hash of everything that the configuration says about the weights: that
// of its settings and, when the run starts from weights, theirs too, wherever they lie.
func (s *Setup) ConfigHash() string {
	h := s.Config.Hash()
	if s.Base == nil {
		return h
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "refrain config 1\nsettings %s\nfrom %s\n", h, s.Base.Hash))
	return hex.EncodeToString(sum[:])
}
