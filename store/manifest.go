package store

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"
)

// The names of the files beside the shards, and what marks a manifest.
const (
	ManifestName  = "manifest.json"
	LengthsName   = "lengths.u32"
	formatName    = "refrain token store"
	formatVersion = 1

	// maxManifest bounds what is read before anything is known: about 150 bytes
	// for each batch of a million tokens.
	maxManifest = 256 << 20
)

// Boundary says which ids stand around every document; nil is none. They are
// part of the document and of all counts.
type Boundary struct {
	BOS *uint32 `json:"bos"`
	EOS *uint32 `json:"eos"`
}

// Input is a file, or the files of one folder or pattern, that the documents came
// from.
type Input struct {
	Name   string `json:"name,omitempty"` // of a single file
	Bytes  int64  `json:"bytes"`
	Digest string `json:"digest"`
}

// Meta is what the writer's caller says about a store. It takes part in the
// fingerprint, so it must hold nothing that differs between two runs of the same
// ingest, such as times or absolute paths.
type Meta struct {
	Vocab         int               `json:"vocab"`          // every id is below
	TokenizerHash string            `json:"tokenizer_hash"` // hexadecimal
	Boundary      Boundary          `json:"boundary"`
	Key           string            `json:"key,omitempty"` // digest of inputs, tokenizer and policies, for caches
	Inputs        []Input           `json:"inputs,omitempty"`
	Policies      map[string]string `json:"policies,omitempty"`
	Counts        map[string]int64  `json:"counts,omitempty"` // what was left out, by reason
	TextBytes     int64             `json:"text_bytes"`
	Generated     *Generated        `json:"generated,omitempty"` // nil when people wrote the documents
}

// Generated says which models wrote the documents of a store, and how. Document i was drawn
// with a stream of random numbers of its own, of the seed and i, which is its doc_id.
type Generated struct {
	Mode        string    `json:"mode"` // single, average (of the teachers' logits) or pool (document i by teacher i mod K)
	Temperature float64   `json:"temperature"`
	Seed        uint64    `json:"seed"`
	MaxLength   int       `json:"max_length"` // tokens of a document, boundary ids included
	Precision   string    `json:"precision"`  // of the products
	Cut         int64     `json:"cut"`        // documents that were ended by their length
	Empty       int64     `json:"empty"`      // documents of boundary ids alone
	Teachers    []Teacher `json:"teachers"`
}

// Teacher is a model that took part. Documents and Tokens are those it wrote alone.
type Teacher struct {
	Run        string `json:"run"`              // name of the run folder, or of the checkpoint's
	RunID      string `json:"run_id,omitempty"` // as checkpoints carry it
	Checkpoint string `json:"checkpoint"`       // its name
	Step       int64  `json:"step"`
	Weights    string `json:"weights"` // SHA-256 of model.safetensors
	Documents  int64  `json:"documents,omitempty"`
	Tokens     int64  `json:"tokens,omitempty"`
}

// FileSum is a file with its size and the xxh64 of its bytes.
type FileSum struct {
	File  string `json:"file"`
	Bytes int64  `json:"bytes"`
	XXH64 string `json:"xxh64"`
}

// Batch is one record batch of a shard: the message at bytes [Offset,
// Offset+Bytes) and its xxh64.
type Batch struct {
	Offset    int64  `json:"offset"`
	Bytes     int64  `json:"bytes"`
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	XXH64     string `json:"xxh64"`
}

// Shard is one Arrow file. Head and Tail are the xxh64 of the bytes before the
// first and after the last batch, so that with the batches every byte is covered.
type Shard struct {
	File      string  `json:"file"`
	Bytes     int64   `json:"bytes"`
	Documents int64   `json:"documents"`
	Tokens    int64   `json:"tokens"`
	Head      string  `json:"head_xxh64"`
	Tail      string  `json:"tail_xxh64"`
	Batches   []Batch `json:"batches"`
}

// Manifest describes a finished store. It is written last; a folder without one
// is not a store.
type Manifest struct {
	Format    string `json:"format"`
	Version   int    `json:"version"`
	DType     string `json:"dtype"`
	Documents int64  `json:"documents"`
	Tokens    int64  `json:"tokens"`
	Meta
	Lengths FileSum `json:"lengths"`
	Shards  []Shard `json:"shards"`
	Check   string  `json:"check"` // xxh64 of this file with an empty check
}

func sum64(b []byte) string { return fmt.Sprintf("%016x", xxhash.Sum64(b)) }

// encode returns the canonical bytes, the check filled in.
func (m *Manifest) encode() ([]byte, error) {
	body := func() ([]byte, error) {
		b, err := json.MarshalIndent(m, "", " ")
		return append(b, '\n'), err
	}
	m.Check = ""
	b, err := body()
	if err != nil {
		return nil, fmt.Errorf("encode manifest: %w", err)
	}
	m.Check = sum64(b)
	return body()
}

// decodeManifest reads a manifest that must be byte for byte what encode writes:
// any changed byte is noticed.
func decodeManifest(b []byte) (*Manifest, error) {
	var m Manifest
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&m); err != nil {
		return nil, fmt.Errorf("not a manifest: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return nil, fmt.Errorf("bytes after the manifest's end")
	}
	if m.Format != formatName {
		return nil, fmt.Errorf("format is %q, not %q", m.Format, formatName)
	}
	if m.Version != formatVersion {
		return nil, fmt.Errorf("format version %d; this program reads version %d: prepare the store again", m.Version, formatVersion)
	}
	check := m.Check
	canon, err := m.encode()
	if err != nil {
		return nil, err
	}
	if m.Check != check || !bytes.Equal(canon, b) {
		return nil, fmt.Errorf("the check %q does not fit the content: the file was changed", check)
	}
	return &m, m.validate()
}

// validate checks that the numbers fit each other.
func (m *Manifest) validate() error {
	if m.Vocab < 1 || m.Vocab > 1<<31 || DTypeFor(m.Vocab).String() != m.DType {
		return fmt.Errorf("vocabulary of %d with ids of type %s", m.Vocab, m.DType)
	}
	if m.Documents < 1 || m.Documents > 1<<32-1 || m.Lengths.File != LengthsName || m.Lengths.Bytes != 4*m.Documents {
		return fmt.Errorf("%d documents with a lengths file %q of %d bytes", m.Documents, m.Lengths.File, m.Lengths.Bytes)
	}
	if g := m.Generated; g != nil && (!(g.Temperature > 0) || g.MaxLength < 1 || len(g.Teachers) == 0) {
		return fmt.Errorf("generated at temperature %g, to %d tokens a document, by %d models", g.Temperature, g.MaxLength, len(g.Teachers))
	}
	if len(m.Shards) > maxShards {
		return fmt.Errorf("%d shards, more than %d", len(m.Shards), maxShards)
	}
	var docs, tokens int64
	seen := map[string]bool{}
	for _, s := range m.Shards {
		// A name is a plain file of this folder, whatever the manifest says.
		if s.File != filepath.Base(s.File) || strings.ContainsAny(s.File, `/\:`) || !strings.HasSuffix(s.File, ".arrow") || seen[s.File] {
			return fmt.Errorf("shard name %q", s.File)
		}
		seen[s.File] = true
		end := int64(0)
		var d, t int64
		for _, b := range s.Batches {
			if b.Offset < end || b.Bytes < 1 || b.Offset > s.Bytes || b.Bytes > s.Bytes-b.Offset || b.Documents < 1 || b.Tokens < b.Documents || b.Tokens > b.Bytes/2 {
				return fmt.Errorf("shard %s: a batch of %d documents and %d tokens at byte %d of %d", s.File, b.Documents, b.Tokens, b.Offset, s.Bytes)
			}
			if end != 0 && b.Offset != end {
				return fmt.Errorf("shard %s: a gap before byte %d", s.File, b.Offset)
			}
			end = b.Offset + b.Bytes
			d, t = d+b.Documents, t+b.Tokens
		}
		if d != s.Documents || t != s.Tokens || d == 0 {
			return fmt.Errorf("shard %s: batches hold %d documents and %d tokens, the shard says %d and %d", s.File, d, t, s.Documents, s.Tokens)
		}
		docs, tokens = docs+d, tokens+t
	}
	if docs != m.Documents || tokens != m.Tokens {
		return fmt.Errorf("shards hold %d documents and %d tokens, the manifest says %d and %d", docs, tokens, m.Documents, m.Tokens)
	}
	return nil
}

// Fingerprint is the SHA-256 of the canonical manifest. Through the checksums in
// it, it identifies every byte of the store.
func (m *Manifest) Fingerprint() ([32]byte, error) {
	c := *m // encode fills in the check
	b, err := c.encode()
	return sha256.Sum256(b), err
}
