package store

import (
	"encoding/binary"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzManifest: any bytes are refused or decode to a manifest that encodes to
// exactly them.
func FuzzManifest(f *testing.F) {
	dir := filepath.Join(f.TempDir(), "s")
	build(f, dir, makeDocs(20, 300), testMeta(300))
	b, err := os.ReadFile(filepath.Join(dir, ManifestName))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("{}"))
	f.Add(b[:len(b)/2])
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err != nil {
			return
		}
		again, err := m.encode()
		if err != nil || string(again) != string(b) {
			t.Errorf("accepted %q, which encodes to %q (%v)", b, again, err)
		}
	})
}

// openBytes treats data as the only shard of a store whose manifest agrees with
// the true one about everything but the checksums.
func openBytes(sh Shard, d DType, lengths []uint32, data []byte) error {
	s := &Store{dtype: d, lengths: lengths}
	dict, batches, err := layout(&sh, data, d)
	if err != nil {
		return err
	}
	names, err := readDictionary(data, dict)
	if err != nil {
		return err
	}
	for k, b := range batches {
		if err := s.place(0, data, b, &sh.Batches[k], names); err != nil {
			return err
		}
	}
	// What Open accepted can be read to the last byte.
	for doc, e := range s.entries {
		end := int64(e.loc&locMask) + int64(e.n)*int64(d.Size())
		if end > int64(len(data)) {
			panic("a document lies outside the file")
		}
		_, _ = s.DocID(doc), s.Source(doc)
	}
	return nil
}

func seedShard(t testing.TB) (Shard, []uint32, []byte) {
	dir := filepath.Join(t.TempDir(), "s")
	docs := makeDocs(12, 300)
	m := build(t, dir, docs, testMeta(300))
	data, err := os.ReadFile(filepath.Join(dir, m.Shards[0].File))
	if err != nil {
		t.Fatal(err)
	}
	var lengths []uint32
	for _, d := range docs[:m.Shards[0].Documents] {
		lengths = append(lengths, uint32(len(d.ids)))
	}
	return m.Shards[0], lengths, data
}

// FuzzShard: no shard, however broken, panics or leads outside its bytes.
func FuzzShard(f *testing.F) {
	sh, lengths, data := seedShard(f)
	f.Add(data)
	f.Add(data[:100])
	f.Fuzz(func(t *testing.T, b []byte) { _ = openBytes(sh, U16, lengths, b) })
}

// The same in plain tests: 20,000 mutations of a valid shard.
func TestMutatedShards(t *testing.T) {
	sh, lengths, data := seedShard(t)
	if err := openBytes(sh, U16, lengths, data); err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	refused := 0
	for range 20_000 {
		b := append([]byte(nil), data...)
		for range 1 + rng.IntN(4) {
			i := rng.IntN(len(b))
			switch rng.IntN(3) {
			case 0:
				b[i] ^= 1 << rng.IntN(8)
			case 1:
				b[i] = byte(rng.Uint32())
			case 2:
				for j := i; j < min(len(b), i+8); j++ {
					b[j] = 0xff
				}
			}
		}
		if openBytes(sh, U16, lengths, b) != nil {
			refused++
		}
	}
	if refused == 0 {
		t.Error("no mutation was refused")
	}
}

// A shard whose offsets do not fit the lengths, or do not reach the end of its ids,
// is refused.
func TestOffsetsMustFit(t *testing.T) {
	sh, lengths, data := seedShard(t)
	_, batches, err := layout(&sh, data, U16)
	if err != nil {
		t.Fatal(err)
	}
	last := len(lengths) - 1
	for _, by := range []uint32{1, ^uint32(0)} {
		lengths[last] += by
		if openBytes(sh, U16, lengths, data) == nil {
			t.Error("a wrong length was accepted")
		}
		lengths[last] -= by
	}
	b := batches[len(batches)-1]
	_, _, bufs, err := readRecords(data[b.offset:][:b.metadata], headerRecords, b.body, 4, 8)
	if err != nil {
		t.Fatal(err)
	}
	at := b.offset + b.metadata + bufs[1][0] + 4*sh.Batches[len(batches)-1].Documents
	binary.LittleEndian.PutUint32(data[at:], binary.LittleEndian.Uint32(data[at:])-1)
	lengths[last]--
	if err := openBytes(sh, U16, lengths, data); err == nil || !strings.Contains(err.Error(), "last offset") {
		t.Errorf("a batch that ends early: %v", err)
	}
}
