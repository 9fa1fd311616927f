package ckpt

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nlpodyssey/safetensors"

	"refrain/internal/fsx"
)

// f32 returns n floats that depend on the seed, as bytes.
func f32(n int, seed uint32) []byte {
	out := make([]byte, 4*n)
	for i := range n {
		seed = seed*1664525 + 1013904223
		binary.LittleEndian.PutUint32(out[4*i:], math.Float32bits(float32(int32(seed))*1e-9))
	}
	return out
}

func tensor(name string, seed uint32, shape ...int) Tensor {
	n := 1
	for _, d := range shape {
		n *= d
	}
	return Tensor{TensorInfo: TensorInfo{Name: name, DType: "F32", Shape: shape}, Data: f32(n, seed)}
}

// snap returns a small but complete snapshot of a step.
func snap(step int64) *Snapshot {
	x := uint32(step) * 977
	return &Snapshot{
		Identity: Identity{RunID: "run-1", ConfigHash: "c0ffee", TokenizerHash: "70ca", DataHash: "da7a"},
		Step:     step, Tokens: step * 512,
		Model: []Tensor{
			tensor("model.norm.weight", x+1, 24),
			tensor("model.embed_tokens.weight", x+2, 60, 24),
			tensor("model.layers.0.self_attn.q_proj.weight", x+3, 24, 24),
			tensor("model.layers.0.self_attn.k_proj.weight", x+4, 24, 24),
		},
		Optim: []Tensor{
			tensor("m.model.norm.weight", x+5, 24), tensor("v.model.norm.weight", x+6, 24),
			tensor("m.model.embed_tokens.weight", x+7, 60, 24), tensor("v.model.embed_tokens.weight", x+8, 60, 24),
		},
		State:       map[string]any{"step": step, "horizon": 100, "cursor": map[string]any{"epoch": 1, "window": step}},
		ModelConfig: []byte(`{"architectures":["LlamaForCausalLM"]}`),
		Tokenizer:   []byte(`{"model":{"type":"BPE"}}`),
		Extra:       []File{{Name: "generation_config.json", Data: []byte("{}")}},
	}
}

func mustSave(t testing.TB, fsys fsx.FS, dir string, steps ...int64) {
	t.Helper()
	for _, step := range steps {
		saved, err := Save(context.Background(), fsys, dir, snap(step), SaveOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if saved.HintErr != nil {
			t.Fatal(saved.HintErr)
		}
	}
}

// sameState compares what was loaded with the snapshot of its step.
func sameState(l *Loaded, s *Snapshot) error {
	for _, set := range []struct{ got, want []Tensor }{{l.Model, s.Model}, {l.Optim, s.Optim}} {
		var infos []TensorInfo
		var size int64
		for _, t := range set.want {
			info := t.TensorInfo
			info.Off, info.Len = size, int64(len(t.Data))
			size += info.Len
			infos = append(infos, info)
		}
		flat := make([]byte, size)
		if err := Gather(infos, flat, set.got); err != nil {
			return err
		}
		for i, t := range set.want {
			if !bytes.Equal(flat[infos[i].Off:infos[i].Off+infos[i].Len], t.Data) {
				return fmt.Errorf("tensor %s differs", t.Name)
			}
		}
	}
	state, err := json.Marshal(s.State)
	if err != nil {
		return err
	}
	switch {
	case !bytes.Equal(l.State, state):
		return fmt.Errorf("state %s, want %s", l.State, state)
	case !bytes.Equal(l.ModelConfig, s.ModelConfig), !bytes.Equal(l.Tokenizer, s.Tokenizer), !reflect.DeepEqual(l.Extra, s.Extra):
		return errors.New("config, tokenizer or extra files differ")
	case l.Manifest.Identity != s.Identity || l.Manifest.Step != s.Step || l.Manifest.Tokens != s.Tokens:
		return errors.New("identity, step or tokens differ")
	}
	return nil
}

func TestRoundTrip(t *testing.T) {
	dir := t.TempDir()
	root, err := fsx.OpenRoot(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, tc := range []struct {
		name string
		fsys fsx.FS
		at   string
	}{
		{"os", fsx.OS{}, filepath.Join(dir, "run", "ckpt")},
		{"mem", fsx.NewMem(), filepath.Join("run", "ckpt")},
		{"root", root, filepath.Join("run", "ckpt")},
	} {
		t.Run(tc.name, func(t *testing.T) {
			fsys, at := tc.fsys, tc.at
			saved, err := Save(t.Context(), fsys, at, snap(7), SaveOptions{VerifyHash: true})
			if err != nil {
				t.Fatal(err)
			}
			l, r, err := LoadLatest(t.Context(), fsys, at, LoadOptions{Want: snap(7).Identity})
			if err != nil {
				t.Fatal(err)
			}
			if err := sameState(l, snap(7)); err != nil {
				t.Error(err)
			}
			if want := (&Report{Loaded: "step-000000007", Step: 7}); !reflect.DeepEqual(r, want) {
				t.Error(cmp.Diff(want, r))
			}
			if saved.Path != l.Path || saved.WeightsHash != l.Manifest.WeightsHash() {
				t.Errorf("saved %+v, loaded %s", saved, l.Path)
			}
			var total int64
			entries, err := fsys.ReadDir(saved.Path)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				info, err := e.Info()
				if err != nil {
					t.Fatal(err)
				}
				total += info.Size()
			}
			if total != saved.Bytes {
				t.Errorf("Bytes = %d, the files have %d", saved.Bytes, total)
			}
			hint, err := fsx.ReadFile(fsys, filepath.Join(at, "latest"), 100)
			if err != nil || string(hint) != "step-000000007\n" {
				t.Errorf("latest says %q (%v)", hint, err)
			}
		})
	}
}

// TestSameStateSameBytes saves one state twice, with the tensors in another order,
// and finds equal bytes in every file.
func TestSameStateSameBytes(t *testing.T) {
	m := fsx.NewMem()
	a, b := snap(3), snap(3)
	b.Model[0], b.Model[3] = b.Model[3], b.Model[0]
	b.Optim[1], b.Optim[2] = b.Optim[2], b.Optim[1]
	for dir, s := range map[string]*Snapshot{"a": a, "b": b} {
		if _, err := Save(t.Context(), m, dir, s, SaveOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range files(t, m, "a/step-000000003") {
		x, y := get(t, m, "a/step-000000003/"+file), get(t, m, "b/step-000000003/"+file)
		if !bytes.Equal(x, y) {
			t.Errorf("%s differs", file)
		}
	}
	// A change of the format must be meant: then raise the version, and this.
	const golden = "7051763cdd4e264d"
	data := get(t, m, "a/step-000000003/manifest.json")
	var v struct{ SHA256 string }
	if err := json.Unmarshal(data, &v); err != nil || v.SHA256 == "" {
		t.Fatalf("manifest.json is not plain JSON: %v", err)
	}
	if !strings.HasPrefix(v.SHA256, golden) {
		t.Errorf("the manifest of the golden snapshot has sha256 %s, want %s...", v.SHA256, golden)
	}
}

func files(t testing.TB, fsys fsx.FS, dir string) []string {
	t.Helper()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func get(t testing.TB, fsys fsx.FS, name string) []byte {
	t.Helper()
	data, err := fsx.ReadFile(fsys, name, 1<<30)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// set overwrites a file.
func set(t testing.TB, fsys fsx.FS, name string, data []byte) {
	t.Helper()
	if err := fsx.WriteFileAtomic(fsys, name, data); err != nil {
		t.Fatal(err)
	}
}

// TestReadByOthers opens the tensor files with a reader that is not ours.
func TestReadByOthers(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 5)
	s := snap(5)
	for file, want := range map[string][]Tensor{ModelFile: s.Model, OptimFile: s.Optim} {
		st, err := safetensors.Deserialize(get(t, m, "c/step-000000005/"+file))
		if err != nil {
			t.Fatal(err)
		}
		if st.Len() != len(want) {
			t.Errorf("%s: %d tensors, want %d", file, st.Len(), len(want))
		}
		for _, w := range want {
			v, ok := st.Tensor(w.Name)
			if !ok || !bytes.Equal(v.Data(), w.Data) || fmt.Sprint(v.Shape()) != fmt.Sprint(w.Shape) {
				t.Errorf("%s: tensor %s is missing or differs", file, w.Name)
			}
		}
	}
}

func TestSaveRefuses(t *testing.T) {
	nan := math.Float32bits(float32(math.NaN()))
	inf := math.Float32bits(float32(math.Inf(-1)))
	put := func(d []byte, i int, bits uint32) { binary.LittleEndian.PutUint32(d[4*i:], bits) }
	for _, tc := range []struct {
		name   string
		change func(s *Snapshot)
		want   error
	}{
		{"nan at the end", func(s *Snapshot) { put(s.Model[0].Data, 23, nan) }, ErrNonFinite},
		{"inf in v", func(s *Snapshot) { put(s.Optim[3].Data, 100, inf) }, ErrNonFinite},
		{"no run id", func(s *Snapshot) { s.RunID = "" }, ErrInvalid},
		{"run id not UTF-8", func(s *Snapshot) { s.RunID = "\xff" }, ErrInvalid},
		{"negative step", func(s *Snapshot) { s.Step = -1 }, ErrInvalid},
		{"huge step", func(s *Snapshot) { s.Step = maxStep + 1 }, ErrInvalid},
		{"no model", func(s *Snapshot) { s.Model = nil }, ErrInvalid},
		{"short data", func(s *Snapshot) { s.Model[1].Data = s.Model[1].Data[4:] }, ErrInvalid},
		{"name taken", func(s *Snapshot) { s.Optim[0].Name = s.Optim[1].Name }, ErrInvalid},
		{"name like a path", func(s *Snapshot) { s.Model[0].Name = "../x" }, ErrInvalid},
		{"unknown dtype", func(s *Snapshot) { s.Model[0].DType = "F31" }, ErrInvalid},
		{"state is a list", func(s *Snapshot) { s.State = []int{1} }, ErrInvalid},
		{"state has NaN", func(s *Snapshot) { s.State = map[string]any{"loss": math.NaN()} }, ErrInvalid},
		{"no config", func(s *Snapshot) { s.ModelConfig = nil }, ErrInvalid},
		{"tokenizer is empty", func(s *Snapshot) { s.Tokenizer = []byte{} }, ErrInvalid},
		{"extra file escapes", func(s *Snapshot) { s.Extra[0].Name = "../x" }, ErrInvalid},
		{"extra file is ours", func(s *Snapshot) { s.Extra[0].Name = ManifestFile }, ErrInvalid},
		{"extra file twice", func(s *Snapshot) { s.Extra[0].Name = StateFile }, ErrInvalid},
		{"step exists", func(s *Snapshot) { *s = *snap(5) }, ErrStepExists},
		{"step is older", func(s *Snapshot) { *s = *snap(4) }, ErrNotNewest},
		{"another run's folder", func(s *Snapshot) { s.RunID = "run-2" }, ErrOtherRun},
		{"stale weights", func(s *Snapshot) { s.Model = snap(5).Model }, ErrSameWeights},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := fsx.NewMem()
			mustSave(t, m, "c", 3, 5)
			before := m.String()
			s := snap(6)
			tc.change(s)
			_, err := Save(t.Context(), m, "c", s, SaveOptions{})
			if !errors.Is(err, tc.want) {
				t.Fatalf("got %v, want %v", err, tc.want)
			}
			if m.String() != before {
				t.Errorf("the folder changed to\n%s", m)
			}
		})
	}
	m := fsx.NewMem()
	mustSave(t, m, "c", 5)
	s := snap(6)
	s.Model = snap(5).Model
	if _, err := Save(t.Context(), m, "c", s, SaveOptions{AllowSameWeights: true}); err != nil {
		t.Errorf("AllowSameWeights: %v", err)
	}
}

func TestFindsEveryNonFinite(t *testing.T) {
	for _, tc := range []struct {
		dtype string
		size  int
		bits  []uint64 // not finite
		fine  []uint64 // the largest finite numbers, and zero with a sign
	}{
		{"F32", 4, []uint64{0x7f800000, 0xff800000, 0x7fc00000, 0x7f800001, 0xffffffff}, []uint64{0x7f7fffff, 0xff7fffff, 0x80000000}},
		{"F64", 8, []uint64{0x7ff0000000000000, 0xfff0000000000000, 0x7ff0000000000001}, []uint64{0x7fefffffffffffff, 1 << 63}},
		{"BF16", 2, []uint64{0x7f80, 0xff80, 0x7fc0, 0xffff}, []uint64{0x7f7f, 0xff7f, 0x8000}},
		{"F16", 2, []uint64{0x7c00, 0xfc00, 0x7e00, 0xffff}, []uint64{0x7bff, 0xfbff, 0x8000}},
		{"I32", 4, nil, []uint64{0x7f800000, 0xffffffff}},
	} {
		for at := range 7 {
			try := func(bits uint64) error {
				x := Tensor{TensorInfo: TensorInfo{Name: "x", DType: tc.dtype, Shape: []int{7}}, Data: make([]byte, 7*tc.size)}
				var le [8]byte
				binary.LittleEndian.PutUint64(le[:], bits)
				copy(x.Data[at*tc.size:], le[:tc.size])
				return checkFinite(&x)
			}
			for _, bits := range tc.bits {
				if err := try(bits); !errors.Is(err, ErrNonFinite) || !strings.Contains(err.Error(), fmt.Sprintf("element %d ", at)) {
					t.Errorf("%s %x at %d: %v", tc.dtype, bits, at, err)
				}
			}
			for _, bits := range tc.fine {
				if err := try(bits); err != nil {
					t.Errorf("%s %x at %d: %v", tc.dtype, bits, at, err)
				}
			}
		}
	}
}

// TestSnapshotMustStandStill writes into a tensor while it is being saved.
func TestSnapshotMustStandStill(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 1)
	s := snap(2)
	f := fsx.NewFault(m)
	f.After(func(c fsx.Call) {
		if c.Op == fsx.OpOpen && filepath.Base(c.Name) == OptimFile {
			s.Optim[2].Data[5] ^= 1
		}
	})
	if _, err := Save(t.Context(), f, "c", s, SaveOptions{}); !errors.Is(err, ErrChanged) {
		t.Fatalf("got %v, want ErrChanged", err)
	}
	if got := files(t, m, "c"); !reflect.DeepEqual(got, []string{"latest", "step-000000001"}) {
		t.Errorf("the folder holds %v", got)
	}
}

func TestSaveStopsWithContext(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 1)
	ctx, cancel := context.WithCancel(t.Context())
	f := fsx.NewFault(m)
	f.After(func(c fsx.Call) {
		if c.Op == fsx.OpOpen && filepath.Base(c.Name) == OptimFile {
			cancel()
		}
	})
	if _, err := Save(ctx, f, "c", snap(2), SaveOptions{}); !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want context.Canceled", err)
	}
	if got := files(t, m, "c"); !reflect.DeepEqual(got, []string{"latest", "step-000000001"}) {
		t.Errorf("the folder holds %v", got)
	}
}

func TestIdentity(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 1, 2)
	for _, want := range []Identity{{RunID: "x"}, {ConfigHash: "x"}, {TokenizerHash: "x"}, {DataHash: "x"}} {
		_, r, err := LoadLatest(t.Context(), m, "c", LoadOptions{Want: want})
		if !errors.Is(err, ErrOtherRun) || len(r.Skipped) != 0 {
			t.Errorf("%+v: %v, %v", want, err, r)
		}
	}
	if _, _, err := LoadLatest(t.Context(), m, "c", LoadOptions{Want: Identity{DataHash: "da7a"}}); err != nil {
		t.Errorf("an equal field with the others empty: %v", err)
	}
	if got := files(t, m, "c"); len(got) != 3 {
		t.Errorf("a load of another run changed the folder: %v", got)
	}
}

// TestModelOnly: the model alone is read as it is from beside an optimizer that is
// damaged, and its own damage is seen.
func TestModelOnly(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 10)
	path := filepath.Join("c", "step-000000010")
	whole, err := Load(t.Context(), m, path, LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	flip := func(name string) {
		data := get(t, m, filepath.Join(path, name))
		data[len(data)-1] ^= 1
		set(t, m, filepath.Join(path, name), data)
	}
	flip(OptimFile)
	l, err := Load(t.Context(), m, path, LoadOptions{ModelOnly: true})
	if err != nil || l.Optim != nil || !reflect.DeepEqual(l.Model, whole.Model) {
		t.Errorf("%+v, %v", l, err)
	}
	if _, err := Load(t.Context(), m, path, LoadOptions{}); !errors.Is(err, ErrDamaged) {
		t.Errorf("all of it: %v", err)
	}
	flip(ModelFile)
	if _, err := Load(t.Context(), m, path, LoadOptions{ModelOnly: true}); !errors.Is(err, ErrDamaged) {
		t.Errorf("a damaged model: %v", err)
	}
}

func TestNothingToLoad(t *testing.T) {
	m := fsx.NewMem()
	ctx := t.Context()
	if _, _, err := LoadLatest(ctx, m, "c", LoadOptions{}); !errors.Is(err, ErrNone) {
		t.Errorf("missing folder: %v", err)
	}
	if err := fsx.MkdirAll(m, "c/.tmp-step-000000001", fsx.DirPerm); err != nil {
		t.Fatal(err)
	}
	if _, _, err := LoadLatest(ctx, m, "c", LoadOptions{}); !errors.Is(err, ErrNone) {
		t.Errorf("a first save that did not end: %v", err)
	}
	if err := fsx.MkdirAll(m, "c/step-000000001", fsx.DirPerm); err != nil {
		t.Fatal(err)
	}
	for _, when := range []string{"an empty checkpoint", "one set aside before"} {
		if _, _, err := LoadLatest(ctx, m, "c", LoadOptions{}); !errors.Is(err, ErrNoGood) {
			t.Errorf("%s: %v", when, err)
		}
	}
	if got := files(t, m, "c"); !reflect.DeepEqual(got, []string{".tmp-step-000000001", "step-000000001.bad"}) {
		t.Errorf("the folder holds %v", got)
	}
}

// TestTroubleIsNotDamage: what the machine refuses for reasons of its own sets no
// checkpoint aside; a read error of the disk does.
func TestTroubleIsNotDamage(t *testing.T) {
	for _, tc := range []struct {
		err  error
		step int64 // loaded; 0 for an error
	}{{syscall.EMFILE, 0}, {os.ErrPermission, 0}, {syscall.ENOMEM, 0}, {syscall.EIO, 1}} {
		for _, op := range []fsx.Op{fsx.OpOpen, fsx.OpRead} {
			m := fsx.NewMem()
			mustSave(t, m, "c", 1, 2)
			f := fsx.NewFault(m, fsx.Rule{Ops: []fsx.Op{op}, Nth: 3, Err: tc.err})
			l, r, err := LoadLatest(t.Context(), f, "c", LoadOptions{})
			if tc.step == 0 {
				if !errors.Is(err, tc.err) || errors.Is(err, ErrDamaged) || len(files(t, m, "c")) != 3 {
					t.Errorf("%v in %v: %v; the folder holds %v", tc.err, op, err, files(t, m, "c"))
				}
				continue
			}
			if err != nil || l.Manifest.Step != tc.step || r.LostSteps != 1 || r.Skipped[0].KeptAs != "step-000000002.bad" {
				t.Errorf("%v in %v: %v, %v", tc.err, op, err, r)
			}
		}
	}
}

func TestVersionOfTheFuture(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 1, 2)
	name := "c/step-000000002/manifest.json"
	data := get(t, m, name)
	open := bytes.Replace(data[:len(data)-sealLen], []byte(`"version": 1`), []byte(`"version": 2`), 1)
	set(t, m, name, seal(open))
	_, _, err := LoadLatest(t.Context(), m, "c", LoadOptions{})
	var version *VersionError
	if !errors.As(err, &version) || version.Version != 2 {
		t.Errorf("got %v, want a *VersionError", err)
	}
	if len(files(t, m, "c")) != 3 {
		t.Errorf("the checkpoint was moved: %v", files(t, m, "c"))
	}
}

func TestLoadLimit(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 1)
	l, _, err := LoadLatest(t.Context(), m, "c", LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var sum int64
	for _, f := range l.Manifest.Files {
		sum += f.Size
	}
	if _, _, err := LoadLatest(t.Context(), m, "c", LoadOptions{MaxBytes: sum}); err != nil {
		t.Errorf("at the limit: %v", err)
	}
	if _, _, err := LoadLatest(t.Context(), m, "c", LoadOptions{MaxBytes: sum - 1}); err == nil || errors.Is(err, ErrDamaged) {
		t.Errorf("above the limit: %v", err)
	}
}

// BenchmarkSaveLoad writes and reads 64 MiB of state on the disk. The floor of a
// save is one CRC-32C and one SHA-256 of every byte, the write and the sync; of a
// load, the read and the same two hashes.
func BenchmarkSaveLoad(b *testing.B) {
	s := snap(1)
	s.Model[1] = tensor("model.embed_tokens.weight", 1, 16384, 512)
	s.Optim[2] = tensor("m.model.embed_tokens.weight", 2, 16384, 512)
	const size = 2 * 16384 * 512 * 4
	dir := b.TempDir()
	b.Run("save", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			s.Step++
			if _, err := Save(b.Context(), fsx.OS{}, dir, s, SaveOptions{AllowSameWeights: true}); err != nil {
				b.Fatal(err)
			}
			if _, err := Retain(b.Context(), fsx.OS{}, dir, Policy{Keep: 2}); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("load", func(b *testing.B) {
		b.SetBytes(size)
		for b.Loop() {
			if _, _, err := LoadLatest(b.Context(), fsx.OS{}, dir, LoadOptions{}); err != nil {
				b.Fatal(err)
			}
		}
	})
}
