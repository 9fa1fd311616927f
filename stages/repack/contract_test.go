package repack

import (
	"encoding/json"
	"math"
	"slices"
	"strings"
	"testing"
)

// The numbered requirements of this repository for orders, resume, counts and
// shapes. Those that live elsewhere:
//
//	R11, R12  mixing of sources: not offered; one store is one corpus
//	R10       whole-corpus shuffle: TestPRPQuality holds its figures
//	R8        TestPRPBijection, TestPRPQuality, TestPRPSmallDomains
//	R20       position by the consumed step: stages/step and train
//	R22       batch shape: stages/batch; row shape here
//	R27       store opens verified: store
//	R28, R31-R35, R40  text, documents, corruption: store, stages/tokens, stages/shards
//	R29       attention across documents: kernels; the bitmap it uses here
//	R36-R39   processes and shutdown: pipeline, stages; TestSourceConforms here
//	R43       evaluation owns its view: stages/evals
func TestRequirements(t *testing.T) {
	for _, c := range []struct {
		id, what string
		test     func(*testing.T, Config)
	}{
		{"R1", "epochs differ as the mode says", testEpochDigests},
		{"R2", "after e epochs every token was seen e times", testExposure},
		{"R3", "the stream does not depend on how long it is read", testPrefix},
		{"R4", "resume at every window equals never stopped", testResumeEverywhere},
		{"R5", "windows around epoch ends", testEpochEnds},
		{"R6", "a state survives saving, byte for byte", testStateRoundTrip},
		{"R9", "devices take contiguous slices of the same batch", testSlices},
		{"R13", "a foreign state is refused by field", testForeignState},
		{"R14", "reading in any order gives the same rows", testAnyOrder},
		{"R17", "a state is small", testStateSize},
		{"R24", "every token is accounted for", testCounters},
		{"R25", "targets are the next tokens of the stream", testTargets},
		{"R29", "boundary bits are document starts", testStarts},
		{"R44", "rows are spans and cost no allocation", testSpansAndAllocs},
	} {
		t.Run(c.id, func(t *testing.T) {
			for _, cfg := range allConfigs(16) {
				t.Run(cfg.modeText()+"-"+cfg.Tail.String()+"-"+cfg.targetsText(), func(t *testing.T) { c.test(t, cfg) })
			}
		})
	}
}

func testEpochDigests(t *testing.T, cfg Config) {
	s := mustStream(t, toy(), cfg)
	d, m := map[[32]byte]bool{}, map[uint64]bool{}
	h := map[[32]byte]bool{}
	for e := range int64(3) {
		from, to := s.FirstWindow(e), s.FirstWindow(e+1)
		d[digest(t, s, from, to)] = true
		m[multiset(t, s, from, to)] = true
		o, err := s.OrderHash(e)
		if err != nil {
			t.Fatal(err)
		}
		h[o] = true
	}
	wantOrders, wantSets := 3, 1
	if cfg.Mode == Fixed {
		wantOrders = 1
	}
	if cfg.Mode == Repack || cfg.Tail == Carry { // carry moves the cuts every epoch
		wantOrders, wantSets = 3, 3
	}
	if len(d) != wantOrders || len(m) != wantSets || len(h) != wantOrders {
		t.Errorf("3 epochs: %d orders, %d sets of rows, %d order hashes; want %d, %d, %d",
			len(d), len(m), len(h), wantOrders, wantSets, wantOrders)
	}
}

func testExposure(t *testing.T, cfg Config) {
	c := toy()
	s := mustStream(t, c, cfg)
	seen := make([]int, c.total)
	for e := range int64(4) {
		for g := s.FirstWindow(e); g < s.FirstWindow(e+1); g++ {
			spans, err := s.Spans(g)
			if err != nil {
				t.Fatal(err)
			}
			for _, sp := range spans {
				for i := sp.From; i < sp.To; i++ {
					seen[c.first[sp.Doc]+i]++
				}
			}
		}
		short, over := 0, 0
		for _, n := range seen {
			switch n - int(e+1) {
			case 0:
			case 1:
				over++
			default:
				if n > int(e+1) {
					t.Fatalf("after epoch %d a token was seen %d times", e, n)
				}
				short++
			}
		}
		switch {
		case cfg.Tail == Drop && (short >= 16*int(e+1) || over > 0):
			t.Errorf("epoch %d: %d tokens short, %d over", e, short, over)
		case cfg.Tail == Carry && (short > 0 || over >= 16):
			t.Errorf("epoch %d: %d tokens short, %d over", e, short, over)
		case cfg.Tail == Pad && (short > 0 || over > 0):
			t.Errorf("epoch %d: %d tokens short, %d over", e, short, over)
		}
	}
}

func testPrefix(t *testing.T, cfg Config) {
	c := toy()
	long, short := mustStream(t, c, cfg), mustStream(t, c, cfg)
	n := 2*long.WindowsPerEpoch() + 3
	if _, err := long.ReadRow(20*n, make([]int32, 16), make([]int32, 16), make([]byte, 2)); err != nil {
		t.Fatal(err)
	}
	if digest(t, long, 0, n) != digest(t, short, 0, n) {
		t.Error("the first windows depend on later reads")
	}
}

func testResumeEverywhere(t *testing.T, cfg Config) {
	c := toy()
	s := mustStream(t, c, cfg)
	n := s.FirstWindow(2)
	want := make([][32]byte, n)
	for g := range n {
		want[g] = digest(t, s, g, g+1)
	}
	for k := range n {
		fresh := mustStream(t, c, cfg)
		g, err := fresh.Resume(s.State(k))
		if err != nil || g != k {
			t.Fatalf("resume at %d: %d, %v", k, g, err)
		}
		for i := g; i < min(n, g+3); i++ {
			if digest(t, fresh, i, i+1) != want[i] {
				t.Fatalf("resumed at %d, row %d differs", k, i)
			}
		}
	}
}

func testEpochEnds(t *testing.T, cfg Config) {
	s := mustStream(t, toy(), cfg)
	w := s.FirstWindow(1)
	for _, c := range []struct{ g, epoch, row int64 }{
		{0, 0, 0}, {w - 1, 0, w - 1}, {w, 1, 0}, {w + 1, 1, 1}, {s.FirstWindow(2) - 1, 1, s.WindowsIn(1) - 1}, {s.FirstWindow(2), 2, 0},
	} {
		if e, row := s.Locate(c.g); e != c.epoch || row != c.row {
			t.Errorf("window %d is epoch %d row %d, want %d, %d", c.g, e, row, c.epoch, c.row)
		}
		readRow(t, s, c.g)
	}
	last := s.maxWindow()
	e, row := s.Locate(last)
	if row < 0 || row >= s.WindowsIn(e) || s.FirstWindow(e)+row != last {
		t.Errorf("window %d is epoch %d row %d of %d", last, e, row, s.WindowsIn(e))
	}
	readRow(t, s, last)
	for _, g := range []int64{-1, last + 1, math.MaxInt64} {
		if _, err := s.ReadRow(g, make([]int32, 16), make([]int32, 16), make([]byte, 2)); err == nil {
			t.Errorf("window %d was served", g)
		}
	}
}

func testStateRoundTrip(t *testing.T, cfg Config) {
	s := mustStream(t, toy(), cfg)
	for _, g := range []int64{0, 1, 12345} {
		b, err := json.Marshal(s.State(g))
		if err != nil {
			t.Fatal(err)
		}
		st, err := ParseState(b)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := json.Marshal(st); string(again) != string(b) {
			t.Errorf("state %s came back as %s", b, again)
		}
		if got, err := s.Resume(st); err != nil || got != g {
			t.Errorf("resume = %d, %v, want %d", got, err, g)
		}
	}
}

func testSlices(t *testing.T, cfg Config) {
	s := mustStream(t, toy(), cfg)
	const batch = 8
	for _, devices := range []int{1, 2, 4, 8} {
		sub := batch / devices
		var parts [][32]byte
		for d := range devices {
			for i := range sub {
				g := int64(3*batch + d*sub + i)
				parts = append(parts, digest(t, s, g, g+1))
			}
		}
		for i, p := range parts {
			if p != digest(t, s, int64(3*batch+i), int64(3*batch+i+1)) {
				t.Fatalf("%d devices: row %d differs", devices, i)
			}
		}
	}
}

func testForeignState(t *testing.T, cfg Config) {
	s := mustStream(t, toy(), cfg)
	for _, c := range []struct {
		field  string
		change func(*State)
	}{
		{"contract version", func(st *State) { st.Version++ }},
		{"data fingerprint", func(st *State) { st.Fingerprint = "x" }},
		{"seed", func(st *State) { st.Seed++ }},
		{"mode", func(st *State) { st.Mode += "x" }},
		{"T =", func(st *State) { st.T++ }},
		{"tail", func(st *State) { st.Tail = "other" }},
		{"targets", func(st *State) { st.Targets = "other" }},
		{"window -1", func(st *State) { st.G = -1 }},
	} {
		st := s.State(3)
		c.change(&st)
		if _, err := s.Resume(st); err == nil || !strings.Contains(err.Error(), c.field) {
			t.Errorf("changed %s: %v", c.field, err)
		}
	}
}

func testAnyOrder(t *testing.T, cfg Config) {
	c := toy()
	a, b := mustStream(t, c, cfg), mustStream(t, c, cfg)
	n := a.FirstWindow(5)
	want := make([][32]byte, n)
	for g := range n {
		want[g] = digest(t, a, g, g+1)
	}
	visit := NewPRP(uint64(n), NewKey("visit", 1, 1))
	for i := range n {
		g := int64(visit.At(uint64(i)))
		if digest(t, b, g, g+1) != want[g] {
			t.Fatalf("row %d depends on what was read before", g)
		}
	}
}

func testStateSize(t *testing.T, cfg Config) {
	cfg.Seed = math.MaxUint64
	if cfg.Mode == Block {
		cfg.Block = maxBlock
	}
	s := mustStream(t, memOf([]uint32{math.MaxUint32, math.MaxUint32}), cfg)
	st := s.State(math.MaxInt64)
	st.T = maxT
	b, err := json.Marshal(st)
	if err != nil || len(b) >= 200 {
		t.Errorf("state of %d bytes (%v): %s", len(b), err, b)
	}
}

func testCounters(t *testing.T, cfg Config) {
	for _, c := range []*memCorpus{toy(), memOf([]uint32{16, 16, 32}), memOf([]uint32{1000}), memOf([]uint32{5, 11, 16})} {
		s := mustStream(t, c, cfg)
		for e := range int64(4) {
			n, err := s.Counters(e)
			if err != nil {
				t.Fatal(err)
			}
			if n.Tokens+n.CarriedOut+n.Padded != n.Inputs+n.Dropped+n.CarriedIn {
				t.Errorf("tokens do not add up: %+v", n)
			}
			if n.Dropped >= 16 || n.CarriedIn >= 16 || n.CarriedOut >= 16 || n.Padded >= 16 {
				t.Errorf("more than T-1 lost: %+v", n)
			}
			checkCountersByRows(t, s, e, n)
		}
	}
}

// checkCountersByRows recounts what Counters says by reading every row.
func checkCountersByRows(t *testing.T, s *Stream, e int64, n Counters) {
	t.Helper()
	type doc struct{ first, last, whole bool }
	type key struct {
		doc  int64
		next bool // of the epoch after, in a carried window
	}
	p, err := s.Epoch(e)
	if err != nil {
		t.Fatal(err)
	}
	docs := map[key]*doc{}
	var scored int64
	for row := range p.Windows {
		scored += int64(readRow(t, s, p.First+row).scored)
		spans, err := s.Spans(p.First + row)
		if err != nil {
			t.Fatal(err)
		}
		pos := int64(streamPos(p, row))
		for _, sp := range spans {
			k := key{sp.Doc, pos >= s.numTokens}
			pos += sp.To - sp.From
			d := docs[k]
			if d == nil {
				d = &doc{}
				docs[k] = d
			}
			length := int64(s.lengths[sp.Doc])
			d.first = d.first || sp.From == 0
			d.last = d.last || sp.To == length
			d.whole = d.whole || sp.From == 0 && sp.To == length
		}
	}
	var started, completed, cut int64
	for _, d := range docs {
		if d.first {
			started++
		}
		if d.last {
			completed++
		}
		if !d.whole {
			cut++
		}
	}
	if scored != n.Scored || n.Scored+n.Masked != n.Inputs {
		t.Errorf("epoch %d: %d targets scored by the rows, counters %+v", e, scored, n)
	}
	if started != n.Started || completed != n.Completed || cut != n.Cut {
		t.Errorf("epoch %d: rows show %d started, %d completed, %d cut; counters %+v", e, started, completed, cut, n)
	}
}

func testTargets(t *testing.T, cfg Config) {
	c := toy()
	s := mustStream(t, c, cfg)
	for e := range int64(3) {
		// The stream of the epoch, rebuilt from the order of documents alone.
		var flat []int32
		for _, ee := range []int64{e, e + 1} {
			p, err := s.Epoch(ee)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range p.order.docs {
				for i := range d.n {
					flat = append(flat, int32(c.first[d.doc]+int64(i)))
				}
			}
		}
		if cfg.Tail != Carry {
			flat = flat[:c.total]
		}
		p, _ := s.Epoch(e)
		for g := p.First; g < p.First+p.Windows; g++ {
			start := streamPos(p, g-p.First)
			if (int64(start)-s.phase(e))%16 != 0 {
				t.Fatalf("window %d starts at %d", g, start)
			}
			r := readRow(t, s, g)
			scored := 0
			for i := range 16 {
				in, target := int32(0), int32(Masked)
				if start+i < len(flat) {
					in = flat[start+i]
				}
				if start+i+1 < len(flat) && !(cfg.TargetsInside && i == 15) {
					target = flat[start+i+1]
					scored++
				}
				if r.tokens[i] != in || r.targets[i] != target {
					t.Fatalf("epoch %d window %d place %d: %d -> %d, want %d -> %d", e, g, i, r.tokens[i], r.targets[i], in, target)
				}
			}
			if r.scored != scored {
				t.Fatalf("window %d: scored = %d, want %d", g, r.scored, scored)
			}
		}
	}
}

func testStarts(t *testing.T, cfg Config) {
	c := toy()
	s := mustStream(t, c, cfg)
	for g := range s.FirstWindow(3) {
		r := readRow(t, s, g)
		spans, err := s.Spans(g)
		if err != nil {
			t.Fatal(err)
		}
		filled := int64(0)
		for _, sp := range spans {
			filled += sp.To - sp.From
		}
		for i := range int64(16) {
			// Token ids name their place, so a start is an id in c.first.
			_, isStart := slices.BinarySearch(c.first, int64(r.tokens[i]))
			if bit := r.starts[i/8]>>(i%8)&1 == 1; bit != (isStart && i < filled) {
				t.Fatalf("window %d input %d (token %d): start bit %v", g, i, r.tokens[i], bit)
			}
		}
	}
}

func testSpansAndAllocs(t *testing.T, cfg Config) {
	s := mustStream(t, toy(), cfg)
	for g := range s.FirstWindow(2) {
		spans, err := s.Spans(g)
		if err != nil {
			t.Fatal(err)
		}
		r, at := readRow(t, s, g), 0
		buf := make([]int32, 16)
		for _, sp := range spans {
			n := int(sp.To - sp.From)
			s.corpus.Copy(int(sp.Doc), int(sp.From), int(sp.To), buf)
			if !slices.Equal(buf[:n], r.tokens[at:at+n]) {
				t.Fatalf("window %d: span %v is not in the row", g, sp)
			}
			at += n
		}
	}
	tokens, targets, starts := make([]int32, 16), make([]int32, 16), make([]byte, 2)
	g := int64(0)
	if n := testing.AllocsPerRun(200, func() {
		if _, err := s.ReadRow(g%s.FirstWindow(2), tokens, targets, starts); err != nil {
			t.Fatal(err)
		}
		g++
	}); n != 0 {
		t.Errorf("%v allocations a row", n)
	}
}

// streamPos is the place of a row in its epoch's stream, by adding up lengths.
func streamPos(p *Plan, row int64) int {
	at := p.rows[row]
	pos := int(at.off)
	for _, d := range p.order.docs[:at.rank] {
		pos += int(d.n)
	}
	return pos
}

// R7: no two of 8 seeds x 8 epochs share an order.
func TestR7SeedsAndEpochsNeverShareAnOrder(t *testing.T) {
	for _, mode := range []Mode{Reshuffle, Repack} {
		seen := map[[32]byte][2]int64{}
		for seed := range uint64(8) {
			s := mustStream(t, toy(), Config{Mode: mode, Seed: seed, T: 16})
			for e := range int64(8) {
				h, err := s.OrderHash(e)
				if err != nil {
					t.Fatal(err)
				}
				if other, ok := seen[h]; ok {
					t.Errorf("%v: seed %d epoch %d equals seed %d epoch %d", mode, seed, e, other[0], other[1])
				}
				seen[h] = [2]int64{int64(seed), e}
			}
		}
	}
}

// R15, R16: there is no iterator that could be broken out of; two readers of one
// stream do not disturb each other, and a plan may be evicted under a reader.
func TestR15ReadersDoNotDisturbEachOther(t *testing.T) {
	c := toy()
	s := mustStream(t, c, Config{Mode: Repack, Seed: 1, T: 16, Tail: Carry})
	n := s.FirstWindow(12)
	want := digest(t, s, 0, n)
	fresh := mustStream(t, c, s.Config())
	done := make(chan [32]byte, 4)
	for range 4 {
		go func() { done <- digest(t, fresh, 0, n) }()
	}
	for range 4 {
		if got := <-done; got != want {
			t.Error("a concurrent reader saw another stream")
		}
	}
}
