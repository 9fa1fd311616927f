package ckpt

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"unicode/utf8"
)

// The format that this package writes, and the only one it reads.
const (
	manifestFormat  = "refrain checkpoint"
	manifestVersion = 1
	maxManifest     = 16 << 20
	maxFiles        = 1000
)

// Identity says which run a checkpoint belongs to. The hashes are whatever the
// caller compares: any text up to 256 bytes.
type Identity struct {
	RunID         string `json:"run_id"`
	ConfigHash    string `json:"config_hash"`
	TokenizerHash string `json:"tokenizer_hash"`
	DataHash      string `json:"data_hash"`
}

// Manifest is the content of manifest.json: what the folder holds, to the byte.
type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"version"`
	Identity
	Step   int64       `json:"step"`
	Tokens int64       `json:"tokens"` // consumed in training so far
	Files  []FileEntry `json:"files"`  // every file but the manifest, in the order written
}

// FileEntry is one file of a checkpoint.
type FileEntry struct {
	Name    string        `json:"name"`
	Size    int64         `json:"size"` // bytes
	SHA256  string        `json:"sha256"`
	Tensors []TensorEntry `json:"tensors,omitempty"` // of a safetensors file, in file order
}

// TensorEntry is one tensor of a file.
type TensorEntry struct {
	Name   string `json:"name"`
	DType  string `json:"dtype"`
	Shape  []int  `json:"shape"`
	CRC32C string `json:"crc32c"` // of the tensor's bytes, 8 hexadecimal digits
}

// File returns the entry of a file, or nil.
func (m *Manifest) File(name string) *FileEntry {
	for i := range m.Files {
		if m.Files[i].Name == name {
			return &m.Files[i]
		}
	}
	return nil
}

// WeightsHash returns the SHA-256 of model.safetensors, which is equal for equal
// weights since the file's bytes follow from its tensors.
func (m *Manifest) WeightsHash() string {
	if f := m.File(ModelFile); f != nil {
		return f.SHA256
	}
	return ""
}

// fileName is what a file in a checkpoint may be called: a plain base name.
var fileName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]*(\.[A-Za-z0-9_-]+)*$`)

func validFileName(name string) bool {
	return len(name) <= 128 && name != ManifestFile && fileName.MatchString(name)
}

// The manifest covers itself: its last member is the SHA-256 of all bytes before
// the comma in front of that member. The tail has one possible form, so a flipped
// bit anywhere is either in the hashed part or breaks the tail.
const (
	sealHead = ",\n \"sha256\": \""
	sealTail = "\"\n}\n"
	sealLen  = len(sealHead) + 2*sha256.Size + len(sealTail)
)

// encode returns the bytes of manifest.json.
func (m *Manifest) encode() ([]byte, error) {
	body, err := json.MarshalIndent(m, "", " ")
	if err != nil {
		return nil, err
	}
	out := seal(bytes.TrimSuffix(body, []byte("\n}")))
	if len(out) > maxManifest {
		return nil, fmt.Errorf("manifest of %d bytes, limit is %d", len(out), maxManifest)
	}
	return out, nil
}

// seal appends the hash member and the closing brace to an object left open.
func seal(open []byte) []byte {
	sum := sha256.Sum256(open)
	return fmt.Appendf(open, "%s%x%s", sealHead, sum, sealTail)
}

// VersionError says that a whole manifest has a version this program cannot read.
type VersionError struct {
	Format  string
	Version int
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("the manifest is %q version %d, this program reads %q version %d: use the program that wrote it",
		e.Format, e.Version, manifestFormat, manifestVersion)
}

// decodeManifest checks the seal first and parses then. What it returns encodes to
// the very same bytes, which rules out unknown, repeated and misspelt members.
func decodeManifest(data []byte) (*Manifest, error) {
	if len(data) > maxManifest {
		return nil, fmt.Errorf("%d bytes, limit is %d", len(data), maxManifest)
	}
	open := len(data) - sealLen
	if open < 0 {
		return nil, fmt.Errorf("%d bytes are too few", len(data))
	}
	sum := sha256.Sum256(data[:open])
	if want := fmt.Sprintf("%s%x%s", sealHead, sum, sealTail); string(data[open:]) != want {
		return nil, fmt.Errorf("its own sha256 does not match its content")
	}
	var m Manifest
	if err := json.Unmarshal(data, &m); err != nil {
		return nil, fmt.Errorf("not the JSON of a manifest: %w", err)
	}
	if m.Format != manifestFormat || m.Version != manifestVersion {
		return nil, &VersionError{Format: m.Format, Version: m.Version}
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	again, err := m.encode()
	if err != nil {
		return nil, err
	}
	if !bytes.Equal(again, data) {
		return nil, fmt.Errorf("it has members or spelling that version %d does not have", manifestVersion)
	}
	return &m, nil
}

// check validates values; Save runs it on what it writes, so that nothing is
// written that cannot be read.
func (m *Manifest) check() error {
	if m.Step < 0 || m.Tokens < 0 {
		return fmt.Errorf("step %d or tokens %d is negative", m.Step, m.Tokens)
	}
	if m.Step > maxStep {
		return fmt.Errorf("step %d, limit is %d", m.Step, int64(maxStep))
	}
	for _, id := range []string{m.RunID, m.ConfigHash, m.TokenizerHash, m.DataHash} {
		if len(id) > 256 || !utf8.ValidString(id) {
			return fmt.Errorf("the run id and the hashes must be UTF-8 of at most 256 bytes, one is %q", id[:min(len(id), 40)])
		}
	}
	if m.RunID == "" {
		return fmt.Errorf("the run id is empty")
	}
	if len(m.Files) > maxFiles {
		return fmt.Errorf("%d files, limit is %d", len(m.Files), maxFiles)
	}
	seen := map[string]bool{}
	for i := range m.Files {
		f := &m.Files[i]
		if !validFileName(f.Name) || seen[f.Name] {
			return fmt.Errorf("file name %q is not allowed here or is given twice", f.Name)
		}
		seen[f.Name] = true
		if f.Size < 0 || !isHex(f.SHA256, sha256.Size) {
			return fmt.Errorf("file %s: size %d or sha256 %q is impossible", f.Name, f.Size, f.SHA256)
		}
		if len(f.Tensors) > maxTensors {
			return fmt.Errorf("file %s: %d tensors, limit is %d", f.Name, len(f.Tensors), maxTensors)
		}
		for _, t := range f.Tensors {
			info := TensorInfo{Name: t.Name, DType: t.DType, Shape: t.Shape}
			if _, err := info.byteLen(); err != nil {
				return fmt.Errorf("file %s: %w", f.Name, err)
			}
			if !validName(t.Name) || t.Shape == nil || !isHex(t.CRC32C, 4) {
				return fmt.Errorf("file %s: tensor %q has an impossible name, shape or CRC", f.Name, t.Name)
			}
		}
	}
	for _, name := range []string{ConfigFile, ModelFile, OptimFile, StateFile} {
		if !seen[name] {
			return fmt.Errorf("it does not list %s", name)
		}
	}
	return nil
}

func isHex(s string, size int) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == size
}
