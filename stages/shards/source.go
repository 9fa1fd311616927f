package shards

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"refrain/pipeline"
	"refrain/stages/item"
)

// Source is the stage that sends the documents of its inputs in order, in
// blocks of at least BlockBytes of text. It implements
// pipeline.Stage[struct{}, *item.Docs] and runs once.
type Source struct {
	inputs []Input
	o      Options
	err    error // of the options, reported by Run
	stdin  io.Reader

	mu  sync.Mutex
	rep Report
	ran bool
}

var _ pipeline.Stage[struct{}, *item.Docs] = (*Source)(nil)

// New makes a Source of inputs found by Discover. Bad options are reported by
// Run. Run notes in the inputs what Digest needs to know of texts it has read; nobody
// else may use the slice meanwhile.
func New(inputs []Input, o Options) *Source {
	return &Source{inputs: inputs, o: o.withDefaults(), err: o.Validate()}
}

// SetStdin makes the input "-" read from r in place of the process's standard
// input. Call it before Run.
func (s *Source) SetStdin(r io.Reader) { s.stdin = r }

// Report returns what was read and left out so far; after Run it is complete.
// It may be called while Run runs; the counts are then those of an input that was
// finished shortly before.
func (s *Source) Report() Report {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rep.clone()
}

// Run reads all inputs and sends their documents. It blocks while the link is
// full and returns the cause when ctx is cancelled; a read of standard input or a
// pipe that waits for bytes is not interrupted. Data faults are *Error or
// *BudgetError.
func (s *Source) Run(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[*item.Docs]) error {
	if s.err != nil {
		return s.err
	}
	s.mu.Lock()
	again := s.ran
	s.ran = true
	s.mu.Unlock()
	if again {
		return errors.New("shards: a Source runs once; make a new one")
	}
	r := &run{ctx: ctx, out: out, s: s, spare: pipeline.NewSpare(spareTexts, maxSpareText)}
	if s.o.Duplicate != Keep {
		r.seen = make(map[[16]byte]struct{})
	}
	defer r.at.close()
	err := r.all()
	r.publish()
	return err
}

// run is the state of one Run.
type run struct {
	ctx  context.Context
	out  pipeline.Out[*item.Docs]
	s    *Source
	at   folders
	in   *Input  // being read
	o    Options // of that input
	rep  Report
	seen map[[16]byte]struct{} // SHA-256, cut to 128 bits, of every text sent

	id      uint64 // of the next record
	seq     int64  // of the next block
	block   *item.Docs
	arena   []byte   // text of the block, carved from the front
	lent    [][]byte // all memory of the block's texts that is spare's
	spare   *pipeline.Spare
	scratch []byte // a whole text document
	mended  []byte // a document with its invalid UTF-8 replaced
}

// publishEvery is how many inputs pass between two publications: a copy of the report for
// each of ten thousand small files takes longer than the reading of some.
const publishEvery = 16

func (r *run) publish() {
	r.s.mu.Lock()
	r.s.rep = r.rep.clone()
	r.s.mu.Unlock()
}

func (r *run) all() error {
	for i := range r.s.inputs {
		if err := context.Cause(r.ctx); err != nil {
			return err
		}
		r.in = &r.s.inputs[i]
		r.o = r.s.o
		if r.in.Options != nil {
			if err := r.in.Options.Validate(); err != nil {
				return fmt.Errorf("%s: %w", r.in.Path, err)
			}
			r.o = r.in.Options.withDefaults()
			r.o.Duplicate, r.o.Child = r.s.o.Duplicate, r.s.o.Child
		}
		if r.in.Skip != "" {
			r.rep.count(r.in.Skip, r.in.Path)
			continue
		}
		if err := r.input(); err != nil {
			return err
		}
		r.rep.Files++
		if err := r.budget(false); err != nil {
			return err
		}
		if i%publishEvery == 0 {
			r.publish()
		}
	}
	if err := r.budget(true); err != nil {
		return err
	}
	return r.flush()
}

// budget compares skipped records with the share allowed. Before the end it
// waits for a thousand records, so that one bad record among the first few does
// not stop a long input.
func (r *run) budget(final bool) error {
	b := r.s.o.SkipBudget
	n := r.rep.skipped()
	if b == 0 || n == 0 || (!final && r.rep.Records < 1000) {
		return nil
	}
	if float64(n) > b*float64(r.rep.Records) {
		return &BudgetError{Skipped: n, Records: r.rep.Records, Budget: b, Report: r.rep.clone()}
	}
	return nil
}

// place is a position inside an input.
type place struct {
	line, row int64
	hasRow    bool
	byte      int64
	hasByte   bool
	group     int // Parquet row group or Arrow batch, counted from 0
	hasGroup  bool
	groupName string
}

func (p place) String() string {
	var parts []string
	if p.hasGroup {
		parts = append(parts, fmt.Sprintf("%s %d", p.groupName, p.group))
	}
	if p.line > 0 {
		parts = append(parts, fmt.Sprintf("line %d", p.line))
	}
	if p.hasRow {
		parts = append(parts, fmt.Sprintf("row %d", p.row))
	}
	if p.hasByte {
		parts = append(parts, fmt.Sprintf("byte %d", p.byte))
	}
	return strings.Join(parts, ", ")
}

// note adds a remark to the report, once.
func (r *run) note(s string) {
	if !slices.Contains(r.rep.Notes, s) {
		r.rep.Notes = append(r.rep.Notes, s)
	}
}

func (r *run) where(p place) string {
	if s := p.String(); s != "" {
		return r.in.Path + ": " + s
	}
	return r.in.Path
}

// The ways out that error messages name.
const (
	fixUTF8      = "set data.invalid_utf8: replace to keep it or skip to leave it out"
	fixTruncated = "fetch the file again, or set data.truncated: skip to keep what comes before the cut"
	fixEmpty     = "remove it or set data.empty: skip"
	fixDamaged   = "fetch or write the file again; damage is never skipped, since what comes before it may be wrong too"
)

// reject handles a record that cannot be used: it counts it, or stops.
func (r *run) reject(p place, reason Reason, policy Policy, detail string, cause error, fix string) error {
	if policy != Skip {
		return &Error{Path: r.in.Path, Place: p.String(), Reason: reason, Detail: detail, Err: cause, Fix: fix}
	}
	r.id++
	r.rep.Records++
	r.rep.count(reason, r.where(p))
	return nil
}

// brokenStream handles an error of the byte stream itself. A nil result means
// that the input ends here and what was read is kept.
func (r *run) brokenStream(p place, err error) error {
	if cause := context.Cause(r.ctx); cause != nil {
		return cause
	}
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return r.reject(p, Truncated, r.o.Truncated, "the "+streamName(r.in)+" ends too early", nil, fixTruncated)
	case errors.Is(err, errTooLarge):
		return &Error{Path: r.in.Path, Place: p.String(), Reason: TooLong, Err: err, Fix: "decompress it by hand if it is meant to be like this"}
	}
	return &Error{Path: r.in.Path, Place: p.String(), Reason: damaged, Err: err, Fix: fixDamaged}
}

func streamName(in *Input) string {
	switch in.Compression {
	case compGzip:
		return "gzip stream"
	case compZstd:
		return "zstd stream"
	}
	return "input"
}

// document takes one record with text. The bytes are copied.
func (r *run) document(p place, num int64, text []byte) error {
	return r.take(p, num, text, false, nil)
}

// take is document for text that may have been mended already, or that is the text
// of file and then is not copied. A record counts as replaced when it is used, so that
// it is never counted twice.
func (r *run) take(p place, num int64, text []byte, mended bool, file *held) error {
	if int64(len(text)) > r.o.MaxDoc {
		return r.tooLong(p)
	}
	if (file == nil || !file.utf8) && !utf8.Valid(text) {
		if r.o.InvalidUTF8 != Replace {
			bad := invalidAt(text, false)
			return r.reject(p, InvalidUTF8, r.o.InvalidUTF8, fmt.Sprintf("byte 0x%02x at byte %d of the text is not UTF-8", text[bad], bad), nil, fixUTF8)
		}
		r.mended = toValid(r.mended[:0], text)
		text = r.mended
		if int64(len(text)) > r.o.MaxDoc {
			return r.tooLong(p)
		}
		mended, file = true, nil
	}
	if len(text) == 0 {
		return r.reject(p, Empty, r.o.Empty, "the document has no text", nil, fixEmpty)
	}
	var key [16]byte
	switch {
	case file != nil && len(text) == len(file.text):
		key = [16]byte(file.sum[:16])
	case r.seen != nil:
		sum := sha256.Sum256(text)
		key = [16]byte(sum[:16])
	}
	if r.seen != nil {
		if _, dup := r.seen[key]; dup {
			return r.reject(p, Duplicate, r.o.Duplicate, "the text is equal to an earlier document's", nil,
				"set data.duplicate: skip to leave it out or keep to use it")
		}
		r.seen[key] = struct{}{}
	}
	if mended {
		r.rep.count(Replaced, r.where(p))
	}
	return r.add(num, text, key, file == nil)
}

func (r *run) tooLong(p place) error {
	return r.reject(p, TooLong, r.o.TooLong, fmt.Sprintf("the document is longer than %d bytes", r.o.MaxDoc), nil,
		"raise data.max_doc or set data.too_long: skip")
}

// add puts text, whose hash may be zero, into the block, a copy of it if asked to, and
// sends the block when it is full.
func (r *run) add(num int64, text []byte, hash [16]byte, dup bool) error {
	if r.block == nil {
		r.block = &item.Docs{Seq: r.seq}
		r.seq++
	}
	if dup {
		text = r.copied(text)
	}
	r.block.Docs = append(r.block.Docs, item.Doc{ID: r.id, Source: r.in.Rel, Record: num, Text: text, Hash: hash})
	r.block.Bytes += int64(len(text))
	r.id++
	r.rep.Records++
	r.rep.Docs++
	r.rep.Bytes += int64(len(text))
	if r.block.Bytes >= BlockBytes {
		return r.flush()
	}
	return nil
}

// copied is a copy of text in the block's memory.
func (r *run) copied(text []byte) []byte { return r.carved(append(r.space(len(text)), text...)) }

// space is memory of the block for n bytes, empty; carved takes what was put there.
func (r *run) space(n int) []byte {
	if n > cap(r.arena)-len(r.arena) {
		r.arena = r.spare.Get(max(n, BlockBytes))
		r.lent = append(r.lent, r.arena)
	}
	return r.arena[len(r.arena):len(r.arena):cap(r.arena)]
}

func (r *run) carved(b []byte) []byte {
	r.arena = r.arena[:len(r.arena)+len(b)]
	return b[:len(b):len(b)]
}

func (r *run) flush() error {
	if r.block == nil {
		return nil
	}
	b := r.block
	if lent, spare := r.lent, r.spare; len(lent) > 0 {
		b.Free = func() {
			for _, buf := range lent {
				spare.Put(buf)
			}
		}
	}
	r.block, r.arena, r.lent = nil, nil, nil
	return r.out.Send(r.ctx, b)
}

// What is kept of the memory of blocks that were freed: buffers enough for the blocks on
// their way to the encoders, as large as most texts.
const (
	spareTexts   = 64
	maxSpareText = 1 << 20
)

// toValid appends src to dst with each maximal invalid part replaced by U+FFFD,
// as the Unicode Standard (section 3.9, substitution of maximal subparts) and
// Python's "replace" do it.
func toValid(dst, src []byte) []byte {
	for len(src) > 0 {
		r, n := utf8.DecodeRune(src)
		if r != utf8.RuneError || n > 1 {
			dst = append(dst, src[:n]...)
			src = src[n:]
			continue
		}
		dst = append(dst, "\xef\xbf\xbd"...)
		src = src[badPart(src):]
	}
	return dst
}

// badPart is the length of the maximal subpart at the start of b, which is not
// a whole rune: the longest prefix that some rune starts with, at least one.
func badPart(b []byte) int {
	n := 1
	for n < len(b) && !utf8.FullRune(b[:n]) && !utf8.FullRune(b[:n+1]) {
		n++
	}
	return n
}

// trimBOM drops a byte order mark, which is an encoding mark and not text.
func trimBOM(b []byte) []byte { return bytes.TrimPrefix(b, []byte(bom)) }
