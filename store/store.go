package store

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"unsafe"

	"refrain/internal/fsx"
)

// OpenOptions says how a store is opened.
type OpenOptions struct {
	// Resident reads all tokens into memory at once, into huge pages where the
	// system has them, and verifies every checksum on the way. Random gathers are
	// then free of page faults. Without it the files are mapped and the tokens are
	// neither read nor verified. A system without mmap, such as Windows, reads them
	// into ordinary memory either way, and verifies them with Resident only.
	Resident bool
	// ReadAhead is for mapped stores larger than the memory there is for them: the system
	// then reads no more around a fault than the page itself, which it would soon have
	// to throw away again, and WillNeed fetches what comes next. Linux only; elsewhere,
	// and with Resident, it changes nothing.
	ReadAhead bool
	// TokenizerHash, when not empty, must be that of the store.
	TokenizerHash string
}

// Store is an open store. All methods but Close are safe for concurrent use.
type Store struct {
	dir         string
	m           *Manifest
	fingerprint [32]byte
	dtype       DType
	lengths     []uint32
	entries     []entry
	base        []unsafe.Pointer // of each shard
	shards      []*mapping
	batches     []batchView
	ahead       bool
}

// entry is where a document is. Place and length stand together because Copy needs
// both, and at random documents they would be two cache misses.
type entry struct {
	loc uint64 // shard << locShift | byte offset of the first id
	n   uint32
}

const (
	locShift = 48
	locMask  = 1<<locShift - 1
)

// batchView is where the columns of one batch are in its shard.
type batchView struct {
	shard    int
	firstDoc int
	ids      []byte // doc_id
	index    []byte // source
	names    []string
}

// Open opens the store in dir. It checks the manifest, the size of every file,
// every count, the lengths and all document offsets, so that reading afterwards
// cannot leave a file; it does not read the tokens (see Verify and
// OpenOptions.Resident). Mapped files stay open until Close.
//
// When one is truncated meanwhile, a read of a page that is gone ends the process,
// unless the reader defers Catch.
func Open(dir string, o OpenOptions) (*Store, error) {
	s, err := open(dir, o)
	if err != nil {
		return nil, fmt.Errorf("store %s: %w", dir, err)
	}
	return s, nil
}

func open(dir string, o OpenOptions) (_ *Store, err error) {
	if strings.HasSuffix(filepath.Clean(dir), PartialSuffix) {
		return nil, errors.New("this is the folder of an unfinished ingest; run data prepare again")
	}
	if !littleEndian() {
		return nil, errors.New("stores are little-endian and this machine is not")
	}
	m, fp, err := readManifest(fsx.OS{}, dir)
	if err != nil {
		return nil, err
	}
	if o.TokenizerHash != "" && o.TokenizerHash != m.TokenizerHash {
		return nil, fmt.Errorf("built with tokenizer %.16s..., and this run uses %.16s...; prepare it again or use its own tokenizer",
			m.TokenizerHash, o.TokenizerHash)
	}
	s := &Store{dir: dir, m: m, fingerprint: fp, dtype: DTypeFor(m.Vocab)}
	defer func() {
		if err != nil {
			s.Close()
		}
	}()
	defer s.Catch(Faults(), &err)
	if err := s.readLengths(); err != nil {
		return nil, err
	}
	s.entries = make([]entry, 0, m.Documents)
	s.ahead = canAhead && o.ReadAhead && !o.Resident
	for i := range m.Shards {
		if err := s.openShard(i, o); err != nil {
			return nil, fmt.Errorf("%s: %w", m.Shards[i].File, err)
		}
	}
	return s, nil
}

func littleEndian() bool {
	x := uint16(1)
	return *(*byte)(unsafe.Pointer(&x)) == 1
}

// ReadManifest reads and checks the manifest of the store in dir and nothing else.
func ReadManifest(fsys fsx.FS, dir string) (*Manifest, error) {
	m, _, err := readManifest(fsys, dir)
	return m, err
}

func readManifest(fsys fsx.FS, dir string) (*Manifest, [32]byte, error) {
	b, err := fsx.ReadFile(fsys, filepath.Join(dir, ManifestName), maxManifest)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, [32]byte{}, fmt.Errorf("no %s: not a token store, or an unfinished one: %w", ManifestName, err)
	}
	if err != nil {
		return nil, [32]byte{}, err
	}
	m, err := decodeManifest(b)
	if err != nil {
		return nil, [32]byte{}, fmt.Errorf("%s: %w", ManifestName, err)
	}
	return m, sha256.Sum256(b), nil
}

func (s *Store) readLengths() error {
	b, err := fsx.ReadFile(fsx.OS{}, filepath.Join(s.dir, LengthsName), s.m.Lengths.Bytes)
	if err != nil {
		return err
	}
	if int64(len(b)) != s.m.Lengths.Bytes {
		return fmt.Errorf("%s has %d bytes, the manifest says %d", LengthsName, len(b), s.m.Lengths.Bytes)
	}
	if got := sum64(b); got != s.m.Lengths.XXH64 {
		return fmt.Errorf("%s: checksum %s, the manifest says %s: the file was changed; prepare the store again", LengthsName, got, s.m.Lengths.XXH64)
	}
	s.lengths = make([]uint32, len(b)/4)
	for i := range s.lengths {
		s.lengths[i] = binary.LittleEndian.Uint32(b[4*i:])
	}
	return nil
}

// openShard maps shard i and places its documents.
func (s *Store) openShard(i int, o OpenOptions) error {
	sh := &s.m.Shards[i]
	f, err := os.Open(filepath.Join(s.dir, sh.File))
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		f.Close()
		return err
	}
	if info.Size() != sh.Bytes || !info.Mode().IsRegular() {
		f.Close()
		return fmt.Errorf("%d bytes, the manifest says %d: the file was cut or changed", info.Size(), sh.Bytes)
	}
	m, err := newMapping(f, sh.Bytes, o.Resident)
	if err != nil {
		f.Close()
		return err
	}
	s.shards = append(s.shards, m)
	s.base = append(s.base, unsafe.Pointer(unsafe.SliceData(m.data)))
	if o.Resident {
		if err := verifyShard(sh, m.data); err != nil {
			return err
		}
	}
	dict, batches, err := layout(sh, m.data, s.dtype)
	if err != nil {
		return err
	}
	names, err := readDictionary(m.data, dict)
	if err != nil {
		return fmt.Errorf("dictionary of sources: %w", err)
	}
	for k, b := range batches {
		if err := s.place(i, m.data, b, &sh.Batches[k], names); err != nil {
			return fmt.Errorf("batch %d at byte %d: %w", k, b.offset, err)
		}
	}
	if s.ahead {
		m.atRandom()
	}
	return nil
}

// layout reads the footer of a shard and checks it against the manifest.
func layout(sh *Shard, data []byte, d DType) (dict block, batches []block, err error) {
	const tail = 4 + len(magic)
	if len(data) < 8+tail || string(data[:len(magic)]) != magic || string(data[len(data)-len(magic):]) != magic {
		return block{}, nil, errors.New("not an Arrow file: no ARROW1 at both ends")
	}
	size := int64(binary.LittleEndian.Uint32(data[len(data)-tail:]))
	if size > int64(len(data)-tail-8) {
		return block{}, nil, fmt.Errorf("footer: a length of %d in a file of %d bytes", size, len(data))
	}
	footer := data[int64(len(data)-tail)-size : len(data)-tail]
	dict, batches, err = readFooter(footer, d, int64(len(data)))
	if err != nil {
		return block{}, nil, fmt.Errorf("footer: %w", err)
	}
	if len(batches) != len(sh.Batches) {
		return block{}, nil, fmt.Errorf("footer: %d batches, the manifest says %d", len(batches), len(sh.Batches))
	}
	for k, b := range batches {
		if want := sh.Batches[k]; b.offset != want.Offset || b.metadata+b.body != want.Bytes {
			return block{}, nil, fmt.Errorf("footer: batch %d at byte %d, the manifest says %d", k, b.offset, want.Offset)
		}
	}
	return dict, batches, nil
}

func readDictionary(data []byte, b block) ([]string, error) {
	body := data[b.offset+b.metadata:][:b.body]
	rows, _, bufs, err := readRecords(data[b.offset:][:b.metadata], headerDictionary, b.body, 1, 3)
	if err != nil {
		return nil, err
	}
	cut := func(i int) []byte { return body[bufs[i][0]:][:bufs[i][1]] }
	return readStrings(cut(1), cut(2), rows)
}

// place checks one batch and appends its documents to s.entries.
func (s *Store) place(shard int, data []byte, b block, want *Batch, names []string) error {
	bodyAt := b.offset + b.metadata
	rows, lens, bufs, err := readRecords(data[b.offset:][:b.metadata], headerRecords, b.body, 4, 8)
	if err != nil {
		return err
	}
	size := int64(s.dtype.Size())
	if rows != want.Documents || lens[0] != rows || lens[2] != rows || lens[3] != rows || lens[1] != want.Tokens {
		return fmt.Errorf("%d documents and %d tokens, the manifest says %d and %d", rows, lens[1], want.Documents, want.Tokens)
	}
	if bufs[1][1] < 4*(rows+1) || bufs[3][1] < size*lens[1] || bufs[5][1] < 8*rows || bufs[7][1] < 4*rows {
		return errFlat
	}
	cut := func(i int, n int64) []byte { return data[bodyAt+bufs[i][0]:][:n] }
	offsets := cut(1, 4*(rows+1))
	valuesAt := uint64(bodyAt + bufs[3][0])
	v := batchView{shard: shard, firstDoc: len(s.entries), ids: cut(5, 8*rows), index: cut(7, 4*rows), names: names}
	from := binary.LittleEndian.Uint32(offsets)
	if from != 0 {
		return errFlat
	}
	for r := range int(rows) {
		to := binary.LittleEndian.Uint32(offsets[4*r+4:])
		doc := len(s.entries)
		if doc >= len(s.lengths) || to <= from || to-from != s.lengths[doc] {
			return fmt.Errorf("document %d: the offsets do not fit %s", doc, LengthsName)
		}
		if i := binary.LittleEndian.Uint32(v.index[4*r:]); int64(i) >= int64(len(names)) {
			return fmt.Errorf("document %d: source %d of %d", doc, i, len(names))
		}
		s.entries = append(s.entries, entry{uint64(shard)<<locShift | (valuesAt + uint64(from)*uint64(size)), to - from})
		from = to
	}
	if int64(from) != lens[1] {
		return fmt.Errorf("the last offset is %d, the batch holds %d tokens", from, lens[1])
	}
	s.batches = append(s.batches, v)
	return nil
}

// Close gives back memory and files. No view may be used afterwards.
func (s *Store) Close() error {
	var errs []error
	for _, m := range s.shards {
		errs = append(errs, m.close())
	}
	s.shards, s.base, s.batches = nil, nil, nil
	return errors.Join(errs...)
}

// NumDocs returns the number of documents.
func (s *Store) NumDocs() int { return len(s.lengths) }

// NumTokens returns the number of tokens, boundary ids included.
func (s *Store) NumTokens() int64 { return s.m.Tokens }

// Lengths returns the token count of each document. The caller only reads it.
func (s *Store) Lengths() []uint32 { return s.lengths }

// Offsets returns NumDocs+1 prefix sums of Lengths, newly made.
func (s *Store) Offsets() []uint64 {
	out := make([]uint64, len(s.lengths)+1)
	for i, n := range s.lengths {
		out[i+1] = out[i] + uint64(n)
	}
	return out
}

// DType returns the width of the ids on disk.
func (s *Store) DType() DType { return s.dtype }

// Vocab returns the size of the vocabulary: every id is below it.
func (s *Store) Vocab() int { return s.m.Vocab }

// Fingerprint returns the SHA-256 of manifest.json, which identifies every byte.
func (s *Store) Fingerprint() [32]byte { return s.fingerprint }

// Manifest returns the manifest. The caller only reads it.
func (s *Store) Manifest() *Manifest { return s.m }

// Dir returns the folder.
func (s *Store) Dir() string { return s.dir }

func (s *Store) at(loc uint64) unsafe.Pointer {
	return unsafe.Add(s.base[loc>>locShift], loc&locMask)
}

// Tokens16 returns the ids of a document without copying, nil when DType is U32.
// The view is read-only and valid until Close.
func (s *Store) Tokens16(doc int) []uint16 {
	if s.dtype != U16 {
		return nil
	}
	e := s.entries[doc]
	return unsafe.Slice((*uint16)(s.at(e.loc)), e.n)
}

// Tokens32 returns the ids of a document without copying, nil when DType is U16.
// The view is read-only and valid until Close.
func (s *Store) Tokens32(doc int) []uint32 {
	if s.dtype != U32 {
		return nil
	}
	e := s.entries[doc]
	return unsafe.Slice((*uint32)(s.at(e.loc)), e.n)
}

// Copy writes the ids [from, to) of a document to dst[0:to-from]. A range outside
// the document or a short dst is a mistake of the program and panics.
func (s *Store) Copy(doc, from, to int, dst []int32) {
	e := s.entries[doc]
	if from < 0 || from > to || to > int(e.n) {
		panic(fmt.Sprintf("store: tokens [%d,%d) of document %d, which has %d", from, to, doc, e.n))
	}
	dst = dst[:to-from]
	if s.dtype == U16 {
		widen(dst, unsafe.Slice((*uint16)(s.at(e.loc)), to)[from:])
		return
	}
	copy(dst, unsafe.Slice((*int32)(s.at(e.loc)), to)[from:])
}

func (s *Store) view(doc int) (*batchView, int) {
	i := sort.Search(len(s.batches), func(i int) bool { return s.batches[i].firstDoc > doc }) - 1
	return &s.batches[i], doc - s.batches[i].firstDoc
}

// DocID returns the number that the ingest gave to a document.
func (s *Store) DocID(doc int) uint64 {
	v, r := s.view(doc)
	return binary.LittleEndian.Uint64(v.ids[8*r:])
}

// Source returns the file that a document came from.
func (s *Store) Source(doc int) string {
	v, r := s.view(doc)
	return v.names[binary.LittleEndian.Uint32(v.index[4*r:])]
}
