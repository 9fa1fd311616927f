package bench

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"runtime"
	"time"

	"refrain/tokenize"
)

// TokenizerConfig measures encoding of documents on one thread.
type TokenizerConfig struct {
	Tokenizer *tokenize.Tokenizer
	Name      string // of the vocabulary, for the line
	Docs      [][]byte
	Rounds    int
	Cache     int // bytes of the word cache
	// Peers encode the same documents between our rounds.
	Peers []TokenizerPeer
	Lost  Lost
}

// TokenizerPeer is another tokenizer with the same vocabulary.
type TokenizerPeer struct {
	Name   string
	Encode func(ctx context.Context) (Encoded, error)
}

// Encoded is what a peer says of a first and a second pass of a fresh tokenizer over
// the documents: CPU times, and the ids as their number and the SHA-256 of their
// little-endian uint32.
type Encoded struct {
	Cold   float64 `json:"cold_s"`
	Warm   float64 `json:"warm_s"`
	Tokens int     `json:"tokens"`
	Digest string  `json:"digest"`
}

// CutDocs splits text into documents of about size bytes, at line ends.
func CutDocs(text []byte, size int) (docs [][]byte) {
	for len(text) > 0 {
		n := min(size, len(text))
		if i := bytes.IndexByte(text[n:], '\n'); n < len(text) && i >= 0 && i < size {
			n += i + 1
		}
		docs, text = append(docs, text[:n]), text[n:]
	}
	return docs
}

// passTimes are the times of one side, by round.
type passTimes struct{ cold, warm []float64 }

// ratios are the quotients round by round.
func ratios(peer, ours []float64) []float64 {
	out := make([]float64, len(ours))
	for i := range out {
		out[i] = peer[i] / ours[i]
	}
	return out
}

// Tokenizer returns a line for making an encoder and its first pass (pass=cold) and one
// for the second pass (pass=warm), medians over rounds, each followed by a line for every
// peer whose x-peer says how many times slower it is. A peer with other ids than ours
// has same-ids 0: its times are not of the same work.
func Tokenizer(ctx context.Context, c TokenizerConfig, emit func(Line)) error {
	var size int
	for _, d := range c.Docs {
		size += len(d)
	}
	tokens, digest := idsOf(c)
	var ours passTimes
	peers := make([]passTimes, len(c.Peers))
	same, lost := make([]bool, len(c.Peers)), make([]bool, len(c.Peers))
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]uint32, 0, 1<<20)
	for range c.Rounds {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		var enc *tokenize.Encoder
		pass := func() float64 {
			t0 := threadTime()
			if enc == nil { // to make it is part of the first pass, whatever it does then or later
				enc = c.Tokenizer.NewEncoder(c.Cache)
			}
			for _, d := range c.Docs {
				buf = enc.Append(buf[:0], d)
			}
			return (threadTime() - t0).Seconds()
		}
		ours.cold, ours.warm = append(ours.cold, pass()), append(ours.warm, pass())
		for i, p := range c.Peers {
			if lost[i] {
				continue
			}
			e, err := p.Encode(ctx)
			if err != nil {
				if err := c.Lost.lose(ctx, p.Name, err); err != nil {
					return err
				}
				lost[i] = true
				continue
			}
			peers[i].cold, peers[i].warm = append(peers[i].cold, e.Cold), append(peers[i].warm, e.Warm)
			same[i] = e.Tokens == tokens && e.Digest == digest
		}
	}
	rate := func(seconds []float64) (time.Duration, float64) {
		_, m, _ := Quartiles(seconds)
		return time.Duration(m * 1e9), float64(size) / m / 1e6
	}
	for _, pass := range []string{"cold", "warm"} {
		of := func(p passTimes) []float64 {
			if pass == "cold" {
				return p.cold
			}
			return p.warm
		}
		name := fmt.Sprintf("Tokenizer/vocab=%s/pass=%s", c.Name, pass)
		perOp, mbs := rate(of(ours))
		emit(Line{Name: name, Threads: 1, N: c.Rounds, PerOp: perOp,
			Metrics: []Metric{{mbs, "MB/s"}, {float64(tokens) / perOp.Seconds() / 1e6, "Mtok/s"}, {float64(size) / float64(tokens), "B/tok"}}})
		for i, p := range c.Peers {
			if lost[i] {
				continue
			}
			perOp, mbs := rate(of(peers[i]))
			lo, mid, hi := Quartiles(ratios(of(peers[i]), of(ours)))
			emit(Line{Name: name + "/peer=" + p.Name, Threads: 1, N: c.Rounds, PerOp: perOp,
				Metrics: []Metric{{mbs, "peer-MB/s"}, {mid, "x-peer"}, {lo, "x-peer-q1"}, {hi, "x-peer-q3"}, {indicator(same[i]), "same-ids"}}})
		}
	}
	return nil
}

func indicator(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// idsOf encodes the documents once, for the number of ids and their digest.
func idsOf(c TokenizerConfig) (tokens int, digest string) {
	enc := c.Tokenizer.NewEncoder(c.Cache)
	h := sha256.New()
	var ids []uint32
	var raw []byte
	for _, d := range c.Docs {
		ids = enc.Append(ids[:0], d)
		raw = raw[:0]
		for _, id := range ids {
			raw = binary.LittleEndian.AppendUint32(raw, id)
		}
		h.Write(raw)
		tokens += len(ids)
	}
	return tokens, hex.EncodeToString(h.Sum(nil))
}

// TrainTokenizerConfig measures the training of a vocabulary by CPU time.
type TrainTokenizerConfig struct {
	Vocab   int
	Family  string
	Docs    [][]byte
	Workers int
	Rounds  int
	// Peer, when not nil, trains on the same documents between our rounds.
	Peer func(ctx context.Context) (Trained, error)
	Lost Lost
}

// Trained is what a peer says of a training: CPU time, and its merges as their number
// and the SHA-256 of lines of both names with a space between.
type Trained struct {
	CPU    float64 `json:"cpu_s"`
	Merges int     `json:"merges"`
	Digest string  `json:"digest"`
}

// TrainTokenizer returns a line with the median CPU time. Against a peer it has
// same-merges, 1 if all merges are equal and in one order.
func TrainTokenizer(ctx context.Context, c TrainTokenizerConfig, emit func(Line)) error {
	var size int
	for _, d := range c.Docs {
		size += len(d)
	}
	var ours, peer []float64
	var merges int
	same := true
	for range c.Rounds {
		t0 := processTime()
		t, err := tokenize.Train(ctx, tokenize.TrainConfig{Vocab: c.Vocab, Family: c.Family, Workers: c.Workers, MaxPieceBytes: 1024}, docSeq(c.Docs))
		ours = append(ours, (processTime() - t0).Seconds())
		if err != nil {
			return err
		}
		merges = t.NumMerges()
		if c.Peer == nil {
			continue
		}
		p, err := c.Peer(ctx)
		if err != nil {
			if err := c.Lost.lose(ctx, "train", err); err != nil {
				return err
			}
			c.Peer = nil
			continue
		}
		peer = append(peer, p.CPU)
		digest, err := mergeDigest(t)
		if err != nil {
			return err
		}
		same = same && p.Merges == merges && p.Digest == digest
	}
	_, m, _ := Quartiles(ours)
	l := Line{Name: fmt.Sprintf("TrainTokenizer/vocab=%d/family=%s", c.Vocab, c.Family), Threads: max(c.Workers, 1), N: c.Rounds, PerOp: time.Duration(m * 1e9),
		Metrics: []Metric{{float64(size) / m / 1e6, "MB/cpu-s"}, {float64(merges), "merges"}}}
	if c.Peer != nil {
		lo, mid, hi := Quartiles(ratios(peer, ours))
		_, p, _ := Quartiles(peer)
		l.Metrics = append(l.Metrics, Metric{float64(size) / p / 1e6, "peer-MB/cpu-s"}, Metric{mid, "x-peer"}, Metric{lo, "x-peer-q1"}, Metric{hi, "x-peer-q3"}, Metric{indicator(same), "same-merges"})
	}
	emit(l)
	return nil
}

func docSeq(docs [][]byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for _, d := range docs {
			if !yield(d, nil) {
				return
			}
		}
	}
}

// mergeDigest is the digest of the merges by their names in tokenizer.json.
func mergeDigest(t *tokenize.Tokenizer) (string, error) {
	var file bytes.Buffer
	if err := t.WriteJSON(&file); err != nil {
		return "", err
	}
	var f struct {
		Model struct{ Merges [][2]string }
	}
	if err := json.Unmarshal(file.Bytes(), &f); err != nil {
		return "", fmt.Errorf("reading the merges of our own file: %w", err)
	}
	h := sha256.New()
	for _, m := range f.Model.Merges {
		fmt.Fprintf(h, "%s %s\n", m[0], m[1])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
