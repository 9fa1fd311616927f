package ckpt

import (
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
	"slices"
	"strings"
	"syscall"

	"refrain/internal/fsx"
)

// DamageError says what is wrong with a checkpoint. It matches ErrDamaged.
type DamageError struct {
	Path   string // the checkpoint
	File   string // the file concerned
	Reason string
	Err    error // the cause, when there is one
}

func (e *DamageError) Error() string {
	msg := fmt.Sprintf("%v: %s: %s", ErrDamaged, filepath.Join(e.Path, e.File), e.Reason)
	if e.Err != nil {
		msg += ": " + e.Err.Error()
	}
	return msg
}

// Is makes every DamageError match ErrDamaged.
func (e *DamageError) Is(target error) bool { return target == ErrDamaged }

// Unwrap returns the cause.
func (e *DamageError) Unwrap() error { return e.Err }

// readErr sorts a failure to read: what proves that the checkpoint is not whole is
// damage, and everything else (no permission, no descriptors) is the machine's
// trouble, for which a good checkpoint must not be set aside.
func readErr(path, file string, err error) error {
	for _, proof := range []error{fs.ErrNotExist, io.EOF, io.ErrUnexpectedEOF, syscall.EIO, syscall.EISDIR, syscall.ENOTDIR} {
		if errors.Is(err, proof) {
			return &DamageError{Path: path, File: file, Reason: "cannot be read", Err: err}
		}
	}
	return fmt.Errorf("read checkpoint: %w", err)
}

// LoadOptions are the conditions of a load.
type LoadOptions struct {
	// Want must equal the checkpoint's identity, field by field where it is not
	// empty; otherwise the error matches ErrOtherRun.
	Want Identity
	// MaxBytes bounds the sum of the file sizes, since all of it is read into
	// memory. 0 means 64 GiB.
	MaxBytes int64
	// ModelOnly leaves the optimizer's tensors on the disk, unread: Loaded.Optim is nil,
	// and damage to that file is not noticed.
	ModelOnly bool
}

const defaultMaxBytes = 64 << 30

// Loaded is a checkpoint whose every byte that was read agrees with its manifest. The caller
// owns all of it; the tensors of a set share one buffer.
type Loaded struct {
	Path        string
	Manifest    *Manifest
	Model       []Tensor // in file order
	Optim       []Tensor
	State       json.RawMessage
	ModelConfig []byte
	Tokenizer   []byte // nil when the checkpoint has none
	Extra       []File
}

// Load reads one checkpoint folder, whatever it is called, and verifies every byte read.
// It changes nothing on the disk. Errors: ErrDamaged as a *DamageError, ErrOtherRun,
// a *VersionError, the context's, and those of the file system.
func Load(ctx context.Context, fsys fsx.FS, path string, o LoadOptions) (*Loaded, error) {
	return load(ctx, fsys, path, anyStep, o)
}

const anyStep = -1

func load(ctx context.Context, fsys fsx.FS, path string, step int64, o LoadOptions) (*Loaded, error) {
	m, err := quickCheck(fsys, path, step)
	if err != nil {
		return nil, err
	}
	limit := o.MaxBytes
	if limit == 0 {
		limit = defaultMaxBytes
	}
	for _, f := range m.Files {
		if limit -= f.Size; limit < 0 {
			return nil, fmt.Errorf("checkpoint %s is larger than the limit for loading; raise it if this is meant", path)
		}
	}
	l := &Loaded{Path: path, Manifest: m}
	for i := range m.Files {
		f := &m.Files[i]
		if o.ModelOnly && f.Name == OptimFile {
			continue
		}
		data, err := readWhole(ctx, fsys, path, f)
		if err != nil {
			return nil, err
		}
		if err := l.take(f, data); err != nil {
			return nil, err
		}
	}
	// Only now: the bytes prove that the manifest is this folder's own, so a
	// difference means another run and not a manifest that strayed here.
	if err := checkIdentity(m.Identity, o.Want, path); err != nil {
		return nil, err
	}
	return l, nil
}

// take puts a verified file where it belongs.
func (l *Loaded) take(f *FileEntry, data []byte) (err error) {
	switch f.Name {
	case ModelFile:
		l.Model, err = decodeVerified(l.Path, f, data)
	case OptimFile:
		l.Optim, err = decodeVerified(l.Path, f, data)
	case StateFile:
		l.State = data
		err = checkObject(f.Name, data)
	case ConfigFile:
		l.ModelConfig = data
		err = checkObject(f.Name, data)
	case TokenizerFile:
		l.Tokenizer = data
		err = checkObject(f.Name, data)
	default:
		l.Extra = append(l.Extra, File{Name: f.Name, Data: data})
	}
	var damage *DamageError
	if err != nil && !errors.As(err, &damage) {
		return &DamageError{Path: l.Path, File: f.Name, Reason: "unusable content", Err: err}
	}
	return err
}

// decodeVerified parses a tensor file and compares it with the manifest's list.
func decodeVerified(path string, f *FileEntry, data []byte) ([]Tensor, error) {
	tensors, _, err := DecodeTensors(data)
	if err != nil {
		return nil, &DamageError{Path: path, File: f.Name, Reason: "unusable content", Err: err}
	}
	if wrong := wrongTensors(f, tensors); wrong != "" {
		return nil, &DamageError{Path: path, File: f.Name, Reason: "not the tensors of the manifest: " + wrong}
	}
	return tensors, nil
}

// wrongTensors names the tensors that differ from the manifest, or returns "".
func wrongTensors(f *FileEntry, tensors []Tensor) string {
	if len(f.Tensors) != len(tensors) {
		return fmt.Sprintf("%d instead of %d", len(tensors), len(f.Tensors))
	}
	var wrong []string
	for i := range tensors {
		t, want := &tensors[i], &f.Tensors[i]
		got := entryOf(&t.TensorInfo, crc32.Checksum(t.Data, castagnoli()))
		if got.Name != want.Name || got.DType != want.DType || got.CRC32C != want.CRC32C || !slices.Equal(got.Shape, want.Shape) {
			wrong = append(wrong, want.Name)
		}
	}
	return joinSome(wrong, 8)
}

func checkIdentity(got, want Identity, path string) error {
	for _, c := range []struct{ what, got, want string }{
		{"run id", got.RunID, want.RunID},
		{"config hash", got.ConfigHash, want.ConfigHash},
		{"tokenizer hash", got.TokenizerHash, want.TokenizerHash},
		{"data hash", got.DataHash, want.DataHash},
	} {
		if c.want != "" && c.got != c.want {
			return fmt.Errorf("%w: %s has %s %q, this run has %q; use the run folder it belongs to", ErrOtherRun, path, c.what, c.got, c.want)
		}
	}
	return nil
}

// Verify reads a checkpoint folder and compares every byte with the manifest,
// holding no more than a piece in memory. It changes nothing.
func Verify(ctx context.Context, fsys fsx.FS, path string) (*Manifest, error) {
	m, err := quickCheck(fsys, path, anyStep)
	if err != nil {
		return nil, err
	}
	piece := make([]byte, pieceSize)
	for i := range m.Files {
		f := &m.Files[i]
		sum, err := eachPiece(ctx, fsys, path, f, func(int64) []byte { return piece })
		if err != nil {
			return nil, err
		}
		if sum != f.SHA256 {
			return nil, &DamageError{Path: path, File: f.Name, Reason: "content does not match its sha256"}
		}
	}
	return m, nil
}

// quickCheck reads the manifest and compares the files' sizes with it, and its
// step with the folder's unless that is anyStep.
func quickCheck(fsys fsx.FS, path string, step int64) (*Manifest, error) {
	m, err := readManifest(fsys, path)
	if err != nil {
		return nil, err
	}
	if step != anyStep && m.Step != step {
		return nil, &DamageError{Path: path, File: ManifestFile, Reason: fmt.Sprintf("it is of step %d", m.Step)}
	}
	for _, f := range m.Files {
		info, err := fsys.Stat(filepath.Join(path, f.Name))
		if err != nil {
			return nil, readErr(path, f.Name, err)
		}
		if !info.Mode().IsRegular() || info.Size() != f.Size {
			return nil, &DamageError{Path: path, File: f.Name, Reason: fmt.Sprintf("%d bytes, the manifest says %d", info.Size(), f.Size)}
		}
	}
	return m, nil
}

func readManifest(fsys fsx.FS, path string) (*Manifest, error) {
	name := filepath.Join(path, ManifestFile)
	info, err := fsys.Stat(name)
	if err != nil {
		return nil, readErr(path, ManifestFile, err)
	}
	// Look before opening: opening a named pipe would wait for ever.
	if !info.Mode().IsRegular() || info.Size() > maxManifest {
		return nil, &DamageError{Path: path, File: ManifestFile, Reason: "not a manifest"}
	}
	data, err := fsx.ReadFile(fsys, name, maxManifest)
	if err != nil {
		return nil, readErr(path, ManifestFile, err)
	}
	m, err := decodeManifest(data)
	var version *VersionError
	if errors.As(err, &version) {
		return nil, fmt.Errorf("checkpoint %s: %w", path, err)
	}
	if err != nil {
		return nil, &DamageError{Path: path, File: ManifestFile, Reason: "bad manifest", Err: err}
	}
	return m, nil
}

// eachPiece reads a file of exactly the size the manifest gives and returns its
// SHA-256. into says where the bytes from an offset go.
func eachPiece(ctx context.Context, fsys fsx.FS, path string, f *FileEntry, into func(off int64) []byte) (sum string, err error) {
	file, err := fsx.Open(fsys, filepath.Join(path, f.Name))
	if err != nil {
		return "", readErr(path, f.Name, err)
	}
	defer file.Close()
	var h hash.Hash = sha256.New()
	for off := int64(0); off < f.Size; {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		piece := into(off)
		piece = piece[:min(int64(len(piece)), pieceSize, f.Size-off)]
		if _, err := io.ReadFull(file, piece); err != nil {
			return "", readErr(path, f.Name, err)
		}
		h.Write(piece)
		off += int64(len(piece))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// readWhole reads and verifies one file. When the hash does not match it looks for
// the tensors that are to blame.
func readWhole(ctx context.Context, fsys fsx.FS, path string, f *FileEntry) ([]byte, error) {
	if int64(int(f.Size)) != f.Size {
		return nil, fmt.Errorf("checkpoint %s: %s has %d bytes, more than this machine can address", path, f.Name, f.Size)
	}
	data := make([]byte, f.Size)
	sum, err := eachPiece(ctx, fsys, path, f, func(off int64) []byte { return data[off:] })
	if err != nil {
		return nil, err
	}
	if sum == f.SHA256 {
		return data, nil
	}
	reason := "content does not match its sha256"
	if f.Tensors != nil {
		if tensors, _, err := DecodeTensors(data); err != nil {
			reason += "; " + err.Error()
		} else if wrong := wrongTensors(f, tensors); wrong != "" {
			reason += "; wrong tensors: " + wrong
		}
	}
	return nil, &DamageError{Path: path, File: f.Name, Reason: reason}
}

// Report says what LoadLatest met on its way.
type Report struct {
	Loaded  string // folder name of what was loaded; empty when nothing was
	Step    int64
	Skipped []Skipped // newest first
	// LostSteps is how far the loaded step lies before the newest one found.
	LostSteps int64
}

// Skipped is a checkpoint that was not whole.
type Skipped struct {
	Name    string
	Step    int64
	Reason  error
	KeptAs  string // its new name; empty when it could not be renamed
	KeepErr error  // why it could not
}

// String is one line for each skipped checkpoint and one for the result.
func (r *Report) String() string {
	var b strings.Builder
	for _, s := range r.Skipped {
		fmt.Fprintf(&b, "skipped %s: %v", s.Name, s.Reason)
		if s.KeptAs != "" {
			fmt.Fprintf(&b, "; kept as %s", s.KeptAs)
		}
		if s.KeepErr != nil {
			fmt.Fprintf(&b, "; could not be set aside: %v", s.KeepErr)
		}
		b.WriteByte('\n')
	}
	switch {
	case r.Loaded == "":
		b.WriteString("loaded no checkpoint")
	case r.LostSteps > 0:
		fmt.Fprintf(&b, "loaded %s; %d steps lost", r.Loaded, r.LostSteps)
	default:
		fmt.Fprintf(&b, "loaded %s", r.Loaded)
	}
	return b.String()
}

// LoadLatest loads the newest good checkpoint in dir. One that is proven damaged
// is renamed to "*.bad", kept, reported, and the one before it is tried. A whole
// checkpoint of another run ends the search with ErrOtherRun. When the folder never
// had a checkpoint the error is ErrNone; when it has or had some and none loads,
// ErrNoGood. The report is never nil.
func LoadLatest(ctx context.Context, fsys fsx.FS, dir string, o LoadOptions) (*Loaded, *Report, error) {
	r := &Report{}
	s, err := scan(fsys, dir)
	if err != nil {
		return nil, r, err
	}
	for _, e := range slices.Backward(s.steps) {
		l, err := load(ctx, fsys, e.Path, e.Step, o)
		if err == nil {
			r.Loaded, r.Step = e.Name, e.Step
			r.LostSteps = s.steps[len(s.steps)-1].Step - e.Step
			return l, r, nil
		}
		if !errors.Is(err, ErrDamaged) {
			return nil, r, err
		}
		skip := Skipped{Name: e.Name, Step: e.Step, Reason: err}
		skip.KeptAs, skip.KeepErr = setAside(fsys, dir, e.Name)
		r.Skipped = append(r.Skipped, skip)
	}
	if len(s.steps) == 0 && len(s.bad) == 0 && !s.latest {
		return nil, r, fmt.Errorf("%w in %s", ErrNone, dir)
	}
	return nil, r, fmt.Errorf("%w: %s holds %d damaged ones and is not a fresh start; restore one, or choose a new folder to begin again",
		ErrNoGood, dir, len(s.bad)+len(r.Skipped))
}
