package ckpt

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"io/fs"
	"path/filepath"
	"reflect"

	"refrain/internal/fsx"
)

// Snapshot is the state of a run after a step. It belongs to Save until Save
// returns: the caller copies what training goes on changing, scalars included.
type Snapshot struct {
	Identity       // RunID must be set
	Step     int64 // steps finished
	Tokens   int64 // tokens consumed

	Model []Tensor // finite, under their Hugging Face names; a tied matrix once
	Optim []Tensor // finite; names are the caller's, such as "m.model.norm.weight"
	State any      // everything else, encoded as a JSON object; json.RawMessage is taken as it is

	ModelConfig []byte // config.json, a JSON object
	Tokenizer   []byte // tokenizer.json; nil leaves the file out
	Extra       []File // further files for Hugging Face tools, such as generation_config.json
}

// File is a small file of a checkpoint.
type File struct {
	Name string
	Data []byte
}

// SaveOptions are the choices of Save. The zero value is the normal one.
type SaveOptions struct {
	// VerifyHash reads everything back before the checkpoint counts as saved. The
	// bytes come from the page cache, so it finds faulty memory and bugs, not disks.
	VerifyHash bool
	// AllowSameWeights accepts weights equal to another saved step's. They are
	// refused otherwise: stale tensors are the likely reason. A learning rate of
	// exactly zero is the honest one.
	AllowSameWeights bool
}

// Saved describes a finished checkpoint.
type Saved struct {
	Path        string
	Step        int64
	Bytes       int64 // of all files
	WeightsHash string
	// HintErr is why the file "latest" was not updated. Nothing depends on it.
	HintErr error
}

// Save writes s as dir/step-NNNNNNNNN and returns when it is durable and was read
// back. It blocks for all of that and for the removal of leftovers; it holds no
// second copy of the tensors. Whatever happens, older checkpoints stay as they are,
// and after an error nothing of this one is left, as far as the disk still obeys.
//
// Errors: ErrInvalid, ErrNonFinite, ErrSameWeights, ErrStepExists, ErrNotNewest,
// ErrOtherRun, ErrChanged, the context's, and those of the file system.
func Save(ctx context.Context, fsys fsx.FS, dir string, s *Snapshot, o SaveOptions) (saved *Saved, err error) {
	w := &saver{ctx: ctx, fsys: fsys, tmp: filepath.Join(dir, tmpPrefix+NameOf(s.Step))}
	defer func() {
		if err != nil {
			err = fmt.Errorf("save checkpoint of step %d: %w", s.Step, err)
		}
	}()
	if err := w.prepare(s); err != nil {
		return nil, err
	}
	if err := fsx.MkdirAll(fsys, dir, fsx.DirPerm); err != nil {
		return nil, err
	}
	have, err := scan(fsys, dir)
	if err != nil {
		return nil, err
	}
	if err := checkOrder(have.steps, s.Step); err != nil {
		return nil, err
	}
	if err := w.lookAtOthers(have.steps, s.RunID); err != nil {
		return nil, err
	}
	for _, name := range have.tmps {
		if err := fsx.RemoveAll(fsys, filepath.Join(dir, name)); err != nil {
			return nil, fmt.Errorf("remove leftover %s: %w", name, err)
		}
	}
	final := filepath.Join(dir, NameOf(s.Step))
	m, err := w.write(s, o)
	if err == nil {
		err = w.publish(m, final, o)
	}
	if err != nil {
		return nil, errors.Join(err, w.withdraw(dir, NameOf(s.Step)))
	}
	return &Saved{
		Path: final, Step: s.Step, Bytes: w.total, WeightsHash: m.WeightsHash(),
		HintErr: fsx.WriteFileAtomic(fsys, filepath.Join(dir, latestFile), []byte(NameOf(s.Step)+"\n")),
	}, nil
}

// checkOrder keeps steps apart and growing: a loader takes the newest, so a step
// saved below an existing one would never be seen.
func checkOrder(steps []Entry, step int64) error {
	for _, e := range steps {
		if e.Step == step {
			return fmt.Errorf("%w: %s", ErrStepExists, e.Path)
		}
	}
	if n := len(steps); n > 0 && steps[n-1].Step > step {
		return fmt.Errorf("%w: %s; resume from it, or move it away to branch off from an earlier one", ErrNotNewest, steps[n-1].Path)
	}
	return nil
}

// lookAtOthers reads the manifests of the checkpoints that are there. Another run's
// means that this folder is the wrong one. An unreadable one proves nothing, and
// the loader will deal with it.
func (w *saver) lookAtOthers(steps []Entry, runID string) error {
	for _, e := range steps {
		m, err := readManifest(w.fsys, e.Path)
		if err != nil {
			continue
		}
		if m.RunID != runID {
			return fmt.Errorf("%w: %s has run id %q, this run has %q; save into the folder of this run", ErrOtherRun, e.Path, m.RunID, runID)
		}
		w.others = append(w.others, otherStep{e.Name, m.WeightsHash()})
	}
	return nil
}

type otherStep struct{ name, weights string }

// saver is one attempt.
type saver struct {
	ctx   context.Context
	fsys  fsx.FS
	tmp   string
	files []FileEntry
	total int64

	others       []otherStep // the checkpoints that are there already
	state        []byte
	model, optim tensorSet
	published    bool // the rename has been tried, so whatever has the final name is ours
}

// tensorSet is the content of one safetensors file in file order.
type tensorSet struct {
	tensors []Tensor
	header  []byte
	entries []TensorEntry
	crcs    []uint32
}

// prepare validates everything and computes what the manifest says of the tensors,
// before a byte is written.
func (w *saver) prepare(s *Snapshot) (err error) {
	if w.state, err = json.Marshal(s.State); err != nil {
		return fmt.Errorf("%w: state: %v", ErrInvalid, err)
	}
	if err := checkObject("state", w.state); err != nil {
		return err
	}
	if err := checkObject(ConfigFile, s.ModelConfig); err != nil {
		return err
	}
	if s.Tokenizer != nil {
		if err := checkObject(TokenizerFile, s.Tokenizer); err != nil {
			return err
		}
	}
	if len(s.Model) == 0 {
		return fmt.Errorf("%w: no model tensors", ErrInvalid)
	}
	if w.model, err = w.prepareTensors(s.Model); err != nil {
		return fmt.Errorf("%s: %w", ModelFile, err)
	}
	if w.optim, err = w.prepareTensors(s.Optim); err != nil {
		return fmt.Errorf("%s: %w", OptimFile, err)
	}
	// The manifest's own rules, tried on what it will say; sizes and hashes follow.
	probe := w.manifest(s)
	for _, name := range []string{ConfigFile, ModelFile, OptimFile, StateFile} {
		probe.Files = append(probe.Files, FileEntry{Name: name})
	}
	if s.Tokenizer != nil {
		probe.Files = append(probe.Files, FileEntry{Name: TokenizerFile})
	}
	for _, f := range s.Extra {
		probe.Files = append(probe.Files, FileEntry{Name: f.Name})
	}
	for i := range probe.Files {
		probe.Files[i].SHA256 = fmt.Sprintf("%x", sha256.Sum256(nil))
	}
	if err := probe.check(); err != nil {
		return fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	return nil
}

func (w *saver) manifest(s *Snapshot) *Manifest {
	return &Manifest{Format: manifestFormat, Version: manifestVersion, Identity: s.Identity, Step: s.Step, Tokens: s.Tokens}
}

func checkObject(what string, data []byte) error {
	if !json.Valid(data) || bytes.TrimLeft(data, " \t\r\n")[0] != '{' {
		return fmt.Errorf("%w: %s is not a JSON object", ErrInvalid, what)
	}
	return nil
}

func (w *saver) prepareTensors(tensors []Tensor) (tensorSet, error) {
	set := tensorSet{tensors: sortTensors(tensors), entries: []TensorEntry{}}
	var err error
	if set.header, err = encodeHeader(set.tensors); err != nil {
		return set, fmt.Errorf("%w: %v", ErrInvalid, err)
	}
	for i := range set.tensors {
		t := &set.tensors[i]
		if err := w.ctx.Err(); err != nil {
			return set, err
		}
		if err := checkFinite(t); err != nil {
			return set, err
		}
		crc := crc32.Checksum(t.Data, castagnoli())
		set.crcs = append(set.crcs, crc)
		set.entries = append(set.entries, entryOf(&t.TensorInfo, crc))
	}
	return set, nil
}

func entryOf(t *TensorInfo, crc uint32) TensorEntry {
	shape := append([]int{}, t.Shape...) // "[]" and not "null" for a scalar
	return TensorEntry{Name: t.Name, DType: t.DType, Shape: shape, CRC32C: fmt.Sprintf("%08x", crc)}
}

func castagnoli() *crc32.Table { return crc32.MakeTable(crc32.Castagnoli) }

// write fills the temporary folder, the manifest last.
func (w *saver) write(s *Snapshot, o SaveOptions) (*Manifest, error) {
	if err := w.fsys.Mkdir(w.tmp, fsx.DirPerm); err != nil {
		return nil, err
	}
	if err := w.bytes(ConfigFile, s.ModelConfig); err != nil {
		return nil, err
	}
	if s.Tokenizer != nil {
		if err := w.bytes(TokenizerFile, s.Tokenizer); err != nil {
			return nil, err
		}
	}
	for _, f := range s.Extra {
		if err := w.bytes(f.Name, f.Data); err != nil {
			return nil, err
		}
	}
	if err := w.tensors(ModelFile, &w.model); err != nil {
		return nil, err
	}
	if !o.AllowSameWeights {
		if err := w.checkMoved(); err != nil {
			return nil, err
		}
	}
	if err := w.tensors(OptimFile, &w.optim); err != nil {
		return nil, err
	}
	if err := w.bytes(StateFile, w.state); err != nil {
		return nil, err
	}
	m := w.manifest(s)
	m.Files = w.files
	data, err := m.encode()
	if err != nil {
		return nil, err
	}
	w.total += int64(len(data))
	return m, fsx.WriteFile(w.fsys, filepath.Join(w.tmp, ManifestFile), data)
}

// checkMoved refuses weights that another step already has.
func (w *saver) checkMoved() error {
	hash := w.files[len(w.files)-1].SHA256
	for _, o := range w.others {
		if o.weights == hash {
			return fmt.Errorf("%w: they equal those of %s", ErrSameWeights, o.name)
		}
	}
	return nil
}

func (w *saver) bytes(name string, data []byte) error {
	return w.file(name, nil, func(h *hashWriter) error {
		_, err := h.Write(data)
		return err
	})
}

func (w *saver) tensors(name string, set *tensorSet) error {
	return w.file(name, set.entries, func(h *hashWriter) error {
		if _, err := h.Write(set.header); err != nil {
			return err
		}
		for i := range set.tensors {
			h.crc = 0
			if _, err := h.Write(set.tensors[i].Data); err != nil {
				return err
			}
			if h.crc != set.crcs[i] {
				return fmt.Errorf("%w: tensor %s", ErrChanged, set.tensors[i].Name)
			}
		}
		return nil
	})
}

// file makes, fills, syncs and closes one file. The first error ends the attempt;
// above all a failed sync is never tried again.
func (w *saver) file(name string, entries []TensorEntry, fill func(h *hashWriter) error) error {
	path := filepath.Join(w.tmp, name)
	f, err := fsx.Create(w.fsys, path)
	if err != nil {
		return err
	}
	h := &hashWriter{ctx: w.ctx, f: f, sha: sha256.New(), table: castagnoli()}
	if err := fill(h); err != nil {
		f.Close() // the write error is the one that counts
		return fmt.Errorf("write %s: %w", path, err)
	}
	if err := f.Sync(); err != nil {
		f.Close() // likewise
		return fmt.Errorf("sync %s: %w", path, err)
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("close %s: %w", path, err)
	}
	w.files = append(w.files, FileEntry{Name: name, Size: h.size, SHA256: fmt.Sprintf("%x", h.sha.Sum(nil)), Tensors: entries})
	w.total += h.size
	return nil
}

// hashWriter writes in pieces that stay in the processor's cache while they are
// hashed, and looks at the context between them.
type hashWriter struct {
	ctx   context.Context
	f     fsx.File
	sha   hash.Hash
	table *crc32.Table
	crc   uint32 // CRC32C since it was last set to zero
	size  int64
}

const pieceSize = 1 << 20

func (h *hashWriter) Write(p []byte) (int, error) {
	done := 0
	for done < len(p) {
		if err := h.ctx.Err(); err != nil {
			return done, err
		}
		piece := p[done:min(done+pieceSize, len(p))]
		n, err := h.f.Write(piece)
		if err == nil && n < len(piece) {
			err = io.ErrShortWrite
		}
		if err != nil {
			return done + n, err
		}
		h.sha.Write(piece)
		h.crc = crc32.Update(h.crc, h.table, piece)
		h.size += int64(n)
		done += n
	}
	return done, nil
}

// publish gives the folder its name and reads it back.
func (w *saver) publish(m *Manifest, final string, o SaveOptions) error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	err := fsx.CommitDir(w.fsys, w.tmp, final)
	w.published = !errors.Is(err, fs.ErrExist)
	if err != nil {
		return err
	}
	got, err := quickCheck(w.fsys, final, m.Step)
	if err != nil {
		return fmt.Errorf("read back: %w", err)
	}
	if !reflect.DeepEqual(got, m) {
		return fmt.Errorf("read back: %s holds another manifest than was written", final)
	}
	if o.VerifyHash {
		if _, err := Verify(w.ctx, w.fsys, final); err != nil {
			return fmt.Errorf("read back: %w", err)
		}
	}
	return nil
}

// withdraw removes what a failed attempt left, the published folder included: a
// checkpoint that may not be durable must not count.
func (w *saver) withdraw(dir, name string) error {
	err := fsx.RemoveAll(w.fsys, w.tmp)
	if w.published {
		there, serr := fsx.Exists(w.fsys, filepath.Join(dir, name))
		if err = errors.Join(err, serr); there {
			err = errors.Join(err, discard(w.fsys, dir, name))
		}
	}
	if err != nil {
		return fmt.Errorf("and what it left could not be removed: %w", err)
	}
	return nil
}
