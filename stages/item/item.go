// Package item holds the types that travel on the links between stages, and
// nothing else: what a document, a row and a batch are, and who owns them.
package item

import "refrain/gpu"

// Doc is one document of a source.
type Doc struct {
	ID     uint64 // position in the ordered input, counted from 0 before any skipping
	Source string // file or shard it came from: its slash path below the folder that was named, or its base name
	Record int64  // JSONL line from 1, Arrow or Parquet row from 0, 0 for a whole file
	Text   []byte // valid UTF-8; nobody writes to it, and it stays valid until the block is freed
	// Hash is the first 16 bytes of the SHA-256 of Text, for those who need it; zero
	// when the source had no use for it.
	Hash [16]byte
}

// Docs is a block of consecutive documents, the unit of work of the tokenizer
// (at least 64 KiB of text unless the input ended).
type Docs struct {
	Seq   int64 // 0, 1, 2, ... in input order
	Docs  []Doc
	Bytes int64 // total text

	// Free, when not nil, gives the memory of the texts back to the source. The last
	// owner of the block may call it, once, when nobody reads a Text any more; a block
	// that is not freed is the collector's.
	Free func()
}

// SizeBytes reports the text bytes held, for links bounded by bytes.
func (d *Docs) SizeBytes() int64 { return d.Bytes }

// Tokens is the encoded form of one Docs block: ids of all documents end to
// end, boundary tokens included, as a token store holds them. Packed ids are half as
// much memory between encoder and writer.
type Tokens struct {
	Seq     int64
	IDs     []byte     // all documents, concatenated; store.Pack
	Ends    []int      // Ends[i] is the end in IDs of document i, in bytes
	DocIDs  []uint64   // Doc.ID of document i
	Sources []string   // Doc.Source of document i
	Hashes  [][16]byte // hash of the text of document i, which decides the split
	Bytes   int64      // text bytes that were encoded
}

// SizeBytes reports the id bytes held.
func (t *Tokens) SizeBytes() int64 { return int64(len(t.IDs)) }

// Cursor names a place of the stream by arithmetic alone: Window is the global
// window g (g div W is the epoch), and all state there is.
type Cursor struct {
	Window int64 // first window of the batch, counted over all epochs
	Epoch  int64
	Row    int64 // index of that window within its epoch
}

// RowReader materialises windows of the stream. It is safe for concurrent use.
type RowReader interface {
	// ReadRow fills the row of global window g: T inputs, T targets (-1 where
	// masked), and the boundary bitmap of ceil(T/8) bytes, bit t set when a
	// document starts at input t. It returns the number of scored
	// targets.
	ReadRow(g int64, tokens, targets []int32, starts []byte) (scored int, err error)
}

// Rows is a request for the rows of one global batch: windows
// [Cursor.Window, Cursor.Window+N).
type Rows struct {
	Batch  int64 // index k of the global batch, the optimiser step it feeds (from 0)
	Cursor Cursor
	N      int
	Reader RowReader
}

// Batch is a global batch in pinned host memory. The layout of Host is
// tokens [N,T] i32, targets [N,T] i32, starts [N,ceil(T/8)] u8 padded to 64
// bytes, each section 64-byte aligned (see Layout). Whoever holds the Batch
// owns it and calls Release exactly once.
type Batch struct {
	Batch   int64
	Cursor  Cursor
	N, T    int
	Valid   int64  // scored targets in the whole batch
	CRC     uint32 // CRC-32C of tokens, targets and starts, for the ledger
	Host    gpu.Pinned
	Release func()
}

// Drop gives the batch back unused.
func (b *Batch) Drop() { b.Release() }

// SizeBytes reports the pinned bytes held.
func (b *Batch) SizeBytes() int64 { return Layout{b.N, b.T}.Bytes() }

// Layout is the shape of a Batch buffer.
type Layout struct{ N, T int }

func align64(n int64) int64 { return (n + 63) &^ 63 }

// StartsRow is the length of one row's boundary bitmap in bytes.
func (l Layout) StartsRow() int { return (l.T + 7) / 8 }

// TokensOff, TargetsOff and StartsOff are the byte offsets of the sections.
func (l Layout) TokensOff() int64  { return 0 }
func (l Layout) TargetsOff() int64 { return align64(int64(l.N) * int64(l.T) * 4) }
func (l Layout) StartsOff() int64  { return 2 * align64(int64(l.N)*int64(l.T)*4) }

// Bytes is the size of the buffer.
func (l Layout) Bytes() int64 { return l.StartsOff() + align64(int64(l.N)*int64(l.StartsRow())) }

// DeviceBatch is a global batch whose rows lie on the devices. Slot names the
// ring slot on every device; Ready[d] is recorded on device d's copy queue
// once its rows have arrived. The consumer records Free[d] on the queue of its
// last reader, then calls Release once; the slot is not overwritten before
// Free[d] has passed on device d.
type DeviceBatch struct {
	Batch   int64
	Cursor  Cursor
	N, T    int
	Valid   int64
	CRC     uint32
	Slot    int
	Ready   []gpu.Event
	Free    []gpu.Event
	Release func()
}

// Drop gives the batch back unused.
func (b *DeviceBatch) Drop() { b.Release() }
