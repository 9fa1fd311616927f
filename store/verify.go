package store

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// CorruptError names the part of a store whose bytes are not those that were
// written.
type CorruptError struct {
	Shard  string
	Batch  int   // index of the record batch; -1 for the bytes before the first or after the last
	Offset int64 // first byte of that part in the file
	Bytes  int64
	Got    string // xxh64 of what is there
	Want   string
}

func (e *CorruptError) Error() string {
	part := fmt.Sprintf("batch %d", e.Batch)
	if e.Batch < 0 {
		part = "the frame"
	}
	return fmt.Sprintf("%s: %s at bytes [%d,%d) has checksum %s, the manifest says %s: the data was changed; prepare the store again",
		e.Shard, part, e.Offset, e.Offset+e.Bytes, e.Got, e.Want)
}

// Verify reads every byte of the store in dir, compares it with the manifest, and
// checks every id against the vocabulary. A part that differs is read once more
// before it is reported as a *CorruptError. progress, when not nil, is told the
// bytes done and in all after each batch. A done ctx ends it before the next batch
// with the cause.
func Verify(ctx context.Context, dir string, progress func(done, total int64)) error {
	s, err := Open(dir, OpenOptions{})
	if err != nil {
		return err
	}
	defer s.Close()
	var done, total int64
	for _, sh := range s.m.Shards {
		total += sh.Bytes
	}
	firstDoc := 0
	for i := range s.m.Shards {
		report := func(n int64) {
			if done += n; progress != nil {
				progress(done, total)
			}
		}
		if err := s.verifyFile(ctx, i, firstDoc, report); err != nil {
			return fmt.Errorf("store %s: %w", dir, err)
		}
		firstDoc += int(s.m.Shards[i].Documents)
	}
	return nil
}

// checkIDs compares the ids of the documents from doc on with the vocabulary. b is
// the batch that they make up, which begins at offset in its file.
func (s *Store) checkIDs(b []byte, offset int64, doc, docs int) error {
	ids := b[int64(s.entries[doc].loc&locMask)-offset:]
	for end := doc + docs; doc < end; doc++ {
		for at := range int(s.lengths[doc]) {
			var id uint32
			if s.dtype == U16 {
				id, ids = uint32(binary.LittleEndian.Uint16(ids)), ids[2:]
			} else {
				id, ids = binary.LittleEndian.Uint32(ids), ids[4:]
			}
			if int64(id) >= int64(s.m.Vocab) {
				return fmt.Errorf("document %d: id %d at token %d is outside the vocabulary of %d", doc, id, at, s.m.Vocab)
			}
		}
	}
	return nil
}

// part is one checked range of a shard.
type part struct {
	batch         int
	offset, bytes int64
	want          string
}

func parts(sh *Shard) []part {
	first := sh.Batches[0].Offset
	out := []part{{-1, 0, first, sh.Head}}
	end := first
	for i, b := range sh.Batches {
		out = append(out, part{i, b.Offset, b.Bytes, b.XXH64})
		end = b.Offset + b.Bytes
	}
	return append(out, part{-1, end, sh.Bytes - end, sh.Tail})
}

// verifyFile reads shard i, whose documents begin with number doc, through the file
// and not the mapping, so that an error of the disk is an error here and not a signal.
func (s *Store) verifyFile(ctx context.Context, i, doc int, report func(n int64)) error {
	sh := &s.m.Shards[i]
	f, err := os.Open(filepath.Join(s.dir, sh.File))
	if err != nil {
		return err
	}
	defer f.Close()
	var buf []byte
	for _, p := range parts(sh) {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if int64(cap(buf)) < p.bytes {
			buf = make([]byte, p.bytes)
		}
		buf = buf[:p.bytes]
		got := ""
		for range 2 { // a second look tells a bad disk from a bad read
			if _, err := f.ReadAt(buf, p.offset); err != nil && !errors.Is(err, io.EOF) {
				return fmt.Errorf("%s: %w", sh.File, err)
			}
			if got = sum64(buf); got == p.want {
				break
			}
		}
		if got != p.want {
			return &CorruptError{sh.File, p.batch, p.offset, p.bytes, got, p.want}
		}
		if p.batch >= 0 {
			docs := int(sh.Batches[p.batch].Documents)
			if err := s.checkIDs(buf, p.offset, doc, docs); err != nil {
				return fmt.Errorf("%s: %w", sh.File, err)
			}
			doc += docs
		}
		report(p.bytes)
	}
	return nil
}

// verifyShard checks a shard that is in memory.
func verifyShard(sh *Shard, data []byte) error {
	for _, p := range parts(sh) {
		if got := sum64(data[p.offset:][:p.bytes]); got != p.want {
			return &CorruptError{sh.File, p.batch, p.offset, p.bytes, got, p.want}
		}
	}
	return nil
}
