package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"

	"refrain/internal/flatbuf"
	"refrain/internal/fsx"
)

const (
	// MaxDocument is the most tokens of one document and of one record batch: with
	// it the int32 offsets of a batch stay far from their end.
	MaxDocument = 1 << 26
	maxShards   = 1 << 16

	batchTokens = 1 << 20 // a batch ends with the document that reaches it
	shardTokens = 1 << 28 // a shard ends with the batch that reaches it
	shardNames  = 1 << 30 // or this many bytes of source names: their offsets are int32

	// PartialSuffix marks the folder of a store that is being written.
	PartialSuffix = ".partial"
)

// limits are where batches and shards end; tests use small ones.
type limits struct{ batch, document, shard, names int }

// Writer writes one store. It is used by one goroutine. After an error every
// further call returns that error, and Abort remains to be called.
type Writer struct {
	fs     fsx.FS
	dir    string // where the files go
	final  string // where the folder goes in the end, or ""
	lock   io.Closer
	limits limits
	m      Manifest
	dtype  DType
	err    error
	done   bool

	file    fsx.File
	at      int64 // bytes of the shard so far
	head    string
	batches []block
	sources map[string]int32 // of the shard
	names   []string
	inNames int // bytes of them

	pending []byte   // ids of the open batch, as stored
	lengths []uint32 // documents of the open batch
	docIDs  []uint64
	index   []int32
	all     []uint32 // lengths of all documents
	edges   []byte   // scratch: what stands before and after the ids of a batch
}

// Create starts a store that will appear at dir when Close succeeds, not before:
// it is written to dir.partial, which is locked, and moved at the end. A folder
// left by a killed writer is taken over and emptied. dir must not exist.
func Create(dir string, m Meta) (*Writer, error) { return createOn(fsx.OS{}, dir, m) }

func createOn(fsys fsx.FS, dir string, m Meta) (*Writer, error) {
	dir = filepath.Clean(dir)
	tmp, lock, err := Partial(fsys, dir)
	if err != nil {
		return nil, err
	}
	w, err := newWriter(fsys, tmp, m)
	if err != nil {
		AbandonPartial(fsys, tmp, lock) // best effort: the first error is the one that counts
		return nil, err
	}
	w.final, w.lock = dir, lock
	return w, nil
}

// NewWriter starts a store inside the existing empty folder dir. Close writes the
// manifest last but moves nothing: for callers that build a larger folder and
// move it as a whole.
func NewWriter(fsys fsx.FS, dir string, m Meta) (*Writer, error) { return newWriter(fsys, dir, m) }

func newWriter(fsys fsx.FS, dir string, m Meta) (*Writer, error) {
	if m.Vocab < 1 || m.Vocab > 1<<31 {
		return nil, fmt.Errorf("store %s: a vocabulary of %d ids; 1 to 2^31 are possible", dir, m.Vocab)
	}
	for _, b := range []*uint32{m.Boundary.BOS, m.Boundary.EOS} {
		if b != nil && int64(*b) >= int64(m.Vocab) {
			return nil, fmt.Errorf("store %s: boundary id %d is outside the vocabulary of %d", dir, *b, m.Vocab)
		}
	}
	d := DTypeFor(m.Vocab)
	return &Writer{
		fs: fsys, dir: dir, dtype: d, limits: limits{batchTokens, MaxDocument, shardTokens, shardNames},
		m: Manifest{Format: formatName, Version: formatVersion, DType: d.String(), Meta: m},
	}, nil
}

// Meta is the part of the manifest that is the caller's; it may be changed until
// Close, except for Vocab.
func (w *Writer) Meta() *Meta { return &w.m.Meta }

// Documents and Tokens count what has been appended.
func (w *Writer) Documents() int64 { return int64(len(w.all)) }

// Tokens counts what has been appended, boundary ids included.
func (w *Writer) Tokens() int64 { return w.m.Tokens + int64(len(w.pending)/w.dtype.Size()) }

// Append adds one document: its ids, boundary ids included. The writer keeps no
// reference to ids. It is an error when ids is empty, longer than MaxDocument, or
// holds an id outside the vocabulary.
func (w *Writer) Append(docID uint64, source string, ids []uint32) error {
	if err := w.prepare(docID, source, len(ids)); err != nil {
		return err
	}
	packed, err := Pack(w.pending, ids, w.m.Vocab)
	if err != nil {
		return w.fail(fmt.Errorf("document %d (%s): %w", docID, source, err))
	}
	w.pending = packed
	return w.added(docID, source, len(ids))
}

// AppendPacked is Append of ids that Pack has packed, and checked, for this store's
// vocabulary.
func (w *Writer) AppendPacked(docID uint64, source string, packed []byte) error {
	n := len(packed) / w.dtype.Size()
	if err := w.prepare(docID, source, n); err != nil {
		return err
	}
	w.pending = append(grown(w.pending, len(packed)), packed...)
	return w.added(docID, source, n)
}

// prepare makes the open batch ready for a document of n ids.
func (w *Writer) prepare(docID uint64, source string, n int) error {
	if w.err != nil {
		return w.err
	}
	if w.done {
		return fmt.Errorf("store %s: Append after Close", w.dir)
	}
	if n == 0 {
		return w.fail(fmt.Errorf("document %d (%s) has no tokens; leave empty documents out", docID, source))
	}
	if n > w.limits.document {
		return w.fail(fmt.Errorf("document %d (%s) has %d tokens, more than %d: split the file", docID, source, n, w.limits.document))
	}
	if len(w.all) >= 1<<32-1 {
		return w.fail(fmt.Errorf("more than 2^32-1 documents"))
	}
	if held := len(w.pending) / w.dtype.Size(); held > 0 && held+n > w.limits.document {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if w.pending == nil { // most documents that end a batch fit in too
		w.pending = make([]byte, 0, w.dtype.Size()*(w.limits.batch+w.limits.batch/8))
	}
	if w.file == nil {
		return w.openShard()
	}
	return nil
}

// added notes a document whose n ids are pending, and ends the batch when it is full.
func (w *Writer) added(docID uint64, source string, n int) error {
	w.lengths, w.all = append(w.lengths, uint32(n)), append(w.all, uint32(n))
	w.docIDs = append(w.docIDs, docID)
	w.index = append(w.index, w.sourceIndex(source))
	if len(w.pending)/w.dtype.Size() >= w.limits.batch {
		return w.flush()
	}
	return nil
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = fmt.Errorf("store %s: %w", w.dir, err)
	}
	return w.err
}

func (w *Writer) sourceIndex(source string) int32 {
	if i, ok := w.sources[source]; ok {
		return i
	}
	i := int32(len(w.names))
	w.sources[source] = i
	// Arrow strings are UTF-8; file names need not be.
	name := strings.ToValidUTF8(source, "\uFFFD")
	w.names = append(w.names, name)
	w.inNames += len(name)
	return i
}

func (w *Writer) shardName() string { return fmt.Sprintf("part-%05d.arrow", len(w.m.Shards)) }

func (w *Writer) openShard() error {
	if len(w.m.Shards) == maxShards {
		return w.fail(fmt.Errorf("more than %d shards", maxShards))
	}
	f, err := fsx.Create(w.fs, filepath.Join(w.dir, w.shardName()))
	if err != nil {
		return w.fail(err)
	}
	w.file, w.at, w.batches = f, 0, w.batches[:0]
	w.sources, w.names, w.inNames = map[string]int32{}, nil, 0
	b := &flatbuf.Builder{}
	schema := buildMessage(b, headerSchema, buildSchema(b, w.dtype), 0)
	head := append([]byte(magic), 0, 0)
	head = append(head, frame(schema, int64(len(head)))...)
	w.head = sum64(head)
	return w.write(head)
}

func (w *Writer) write(b []byte) error {
	n, err := w.file.Write(b)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	w.at += int64(n)
	if err != nil {
		return w.fail(fmt.Errorf("%s: %w", w.file.Name(), err))
	}
	return nil
}

// flush writes the open batch; a shard that is large enough ends.
func (w *Writer) flush() error {
	rows := len(w.lengths)
	size := w.dtype.Size()
	tokens := len(w.pending) / size
	offsets := 4 * (rows + 1)
	valuesAt := pad64(offsets)
	idsAt := valuesAt + pad64(len(w.pending))
	indexAt := idsAt + pad64(8*rows)
	bodyLen := indexAt + pad64(4*rows)

	b := &flatbuf.Builder{}
	head := buildRecords(b, rows, []int{rows, tokens, rows, rows}, [][2]int{
		{0, 0}, {0, offsets}, // tokens: validity (absent), offsets
		{valuesAt, 0}, {valuesAt, len(w.pending)}, // tokens.item
		{idsAt, 0}, {idsAt, 8 * rows}, // doc_id
		{indexAt, 0}, {indexAt, 4 * rows}, // source
	})
	at := w.at
	meta := frame(buildMessage(b, headerRecords, head, int64(bodyLen)), at)
	edges := append(w.edges[:0], meta...)
	var end uint32
	edges = binary.LittleEndian.AppendUint32(edges, 0)
	for _, n := range w.lengths {
		end += n
		edges = binary.LittleEndian.AppendUint32(edges, end)
	}
	edges = zeros(edges, len(meta)+valuesAt)
	before := len(edges)
	gap := valuesAt + len(w.pending) // into the body, of what stands behind the ids
	edges = zeros(edges, before+idsAt-gap)
	for _, id := range w.docIDs {
		edges = binary.LittleEndian.AppendUint64(edges, id)
	}
	edges = zeros(edges, before+indexAt-gap)
	for _, i := range w.index {
		edges = binary.LittleEndian.AppendUint32(edges, uint32(i))
	}
	w.edges = zeros(edges, before+bodyLen-gap)

	h := xxhash.New()
	for _, part := range [][]byte{w.edges[:before], w.pending, w.edges[before:]} {
		h.Write(part)
		if err := w.write(part); err != nil {
			return err
		}
	}
	fsx.StartWriting(w.file, at, w.at-at) // so that little is left when the shard is synced
	w.batches = append(w.batches, block{at, int64(len(meta)), int64(bodyLen)})
	w.addBatch(Batch{Offset: at, Bytes: w.at - at, Documents: int64(rows), Tokens: int64(tokens), XXH64: fmt.Sprintf("%016x", h.Sum64())})
	w.pending, w.lengths, w.docIDs, w.index = w.pending[:0], w.lengths[:0], w.docIDs[:0], w.index[:0]
	if s := w.m.Shards[len(w.m.Shards)-1]; s.Tokens >= int64(w.limits.shard) || w.inNames >= w.limits.names {
		return w.closeShard()
	}
	return nil
}

// zeros extends b to n bytes.
func zeros(b []byte, n int) []byte {
	for len(b) < n {
		b = append(b, 0)
	}
	return b
}

func (w *Writer) addBatch(b Batch) {
	if len(w.batches) == 1 {
		w.m.Shards = append(w.m.Shards, Shard{File: w.shardName(), Head: w.head})
	}
	s := &w.m.Shards[len(w.m.Shards)-1]
	s.Batches = append(s.Batches, b)
	s.Documents += b.Documents
	s.Tokens += b.Tokens
	w.m.Tokens += b.Tokens
}

// closeShard writes the dictionary of sources, the end mark and the footer. The
// dictionary stands behind the batches, which a file (not a stream) may do, so
// that a shard has one complete dictionary without being held in memory.
func (w *Writer) closeShard() error {
	if w.inNames > math.MaxInt32 {
		return w.fail(fmt.Errorf("%s: the names of %d sources take %d bytes, more than 2^31-1: shorten the paths", w.shardName(), len(w.names), w.inNames))
	}
	var data []byte
	offsets := binary.LittleEndian.AppendUint32(nil, 0)
	for _, s := range w.names {
		data = append(data, s...)
		offsets = binary.LittleEndian.AppendUint32(offsets, uint32(len(data)))
	}
	dataAt := pad64(len(offsets))
	body := zeros(append(zeros(append([]byte(nil), offsets...), dataAt), data...), dataAt+pad64(len(data)))
	b := &flatbuf.Builder{}
	n := len(w.names)
	recs := buildRecords(b, n, []int{n}, [][2]int{{0, 0}, {0, len(offsets)}, {dataAt, len(data)}})
	b.Open(3)
	b.Scalar(0, 0, 8)
	b.Object(1, recs)
	dict := b.Close()
	meta := frame(buildMessage(b, headerDictionary, dict, int64(len(body))), w.at)

	footer := buildFooter(w.dtype, []block{{w.at, int64(len(meta)), int64(len(body))}}, w.batches)
	tail := append(append([]byte(nil), meta...), body...)
	tail = binary.LittleEndian.AppendUint64(tail, continues) // end of stream: the mark and a length of 0
	tail = append(tail, footer...)
	tail = binary.LittleEndian.AppendUint32(tail, uint32(len(footer)))
	tail = append(tail, magic...)
	if err := w.write(tail); err != nil {
		return err
	}
	name := w.file.Name()
	if err := w.file.Sync(); err != nil {
		return w.fail(fmt.Errorf("sync %s: %w", name, err))
	}
	err := w.file.Close()
	w.file = nil
	if err != nil {
		return w.fail(fmt.Errorf("close %s: %w", name, err))
	}
	s := &w.m.Shards[len(w.m.Shards)-1]
	s.Bytes, s.Tail = w.at, sum64(tail)
	return nil
}

// Close finishes the store: last batch, lengths, manifest, and for Create the
// move to its final name, each synced. It returns the manifest. An error, or a
// done ctx, leaves nothing that opens; Abort then removes the rest.
func (w *Writer) Close(ctx context.Context) (*Manifest, error) {
	if w.err != nil {
		return nil, w.err
	}
	if w.done {
		return nil, fmt.Errorf("store %s: Close after Close", w.dir)
	}
	if len(w.all) == 0 {
		return nil, w.fail(errors.New("no documents; nothing to store"))
	}
	if len(w.lengths) > 0 {
		if err := w.flush(); err != nil {
			return nil, err
		}
	}
	if w.file != nil {
		if err := w.closeShard(); err != nil {
			return nil, err
		}
	}
	if ctx.Err() != nil {
		return nil, w.fail(context.Cause(ctx))
	}
	lengths := make([]byte, 0, 4*len(w.all))
	for _, n := range w.all {
		lengths = binary.LittleEndian.AppendUint32(lengths, n)
	}
	w.m.Documents = int64(len(w.all))
	w.m.Lengths = FileSum{LengthsName, int64(len(lengths)), sum64(lengths)}
	if err := fsx.WriteFile(w.fs, filepath.Join(w.dir, LengthsName), lengths); err != nil {
		return nil, w.fail(err)
	}
	b, err := w.m.encode()
	if err == nil {
		err = fsx.WriteFile(w.fs, filepath.Join(w.dir, ManifestName), b)
	}
	if err == nil {
		err = w.fs.SyncDir(w.dir)
	}
	if err == nil && w.final != "" {
		err = CommitPartial(w.fs, w.dir, w.final, w.lock)
		w.lock = nil
	}
	if err != nil {
		return nil, w.fail(err)
	}
	w.done = true
	return &w.m, nil
}

// Abort removes what an unfinished writer has written. After a successful Close
// it does nothing, so it may be deferred.
func (w *Writer) Abort() error {
	if w.done {
		return nil
	}
	w.done = true
	if w.file != nil {
		w.file.Close() // given up: its content no longer matters
		w.file = nil
	}
	if w.final == "" {
		return nil // the folder is the caller's
	}
	if w.lock == nil {
		return nil // ended by CommitPartial, which has seen to the folder
	}
	return AbandonPartial(w.fs, w.dir, w.lock)
}
