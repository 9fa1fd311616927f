package run

import (
	"encoding/hex"
	"fmt"
	"math"

	"refrain/stages/repack"
)

// openSynth mixes in the rows of data.synthetic, where there are any. The documents that
// the run learns from are then those of both stores, and so is DataHash.
func (s *Setup) openSynth() error {
	d := &s.Config.Data
	if d.Synthetic.Store == "" {
		return nil
	}
	num, den, ok := d.Synthetic.Share()
	if !ok || num == 0 {
		return usage(fmt.Errorf("data.synthetic.fraction = %v is no share above 0 and below 1 in millionths", d.Synthetic.Fraction))
	}
	bad := func(format string, args ...any) error {
		return &Error{ExitData, fmt.Errorf("data.synthetic.store: "+format, args...)}
	}
	var err error
	if s.Synth, err = openStore(d.Synthetic.Store); err != nil {
		return bad("%w", err)
	}
	if a, b := s.Synth.Manifest().TokenizerHash, s.Train.Manifest().TokenizerHash; a != b {
		return bad("%s was made with another tokenizer (hash %.12s) than data.store (%.12s); generate it with models that were trained on data.store's tokens", d.Synthetic.Store, a, b)
	}
	if a, b := s.Synth.Vocab(), max(s.Config.Model.Vocab, s.Train.Manifest().Vocab); a > b {
		return bad("%s has ids up to %d, and the model a vocabulary of %d", d.Synthetic.Store, a-1, b)
	}
	synth, err := repack.NewStream(s.Synth, s.Stream.Config())
	if err != nil {
		return bad("%s: %w", d.Synthetic.Store, err)
	}
	if s.Mix, err = repack.NewMixture(s.Stream, synth, repack.Share{Num: num, Den: den}); err != nil {
		return usage(err)
	}
	s.Feed = s.Mix
	fp := s.Mix.Fingerprint()
	s.DataHash = hex.EncodeToString(fp[:])
	return nil
}

// mixtureText says what a run of that many windows reads of both stores, or "".
func (s *Setup) mixtureText() string {
	if s.Mix == nil {
		return ""
	}
	windows := s.Options.Steps * int64(s.Options.Batch)
	_, synth := s.Mix.Counts(windows)
	w := s.Mix.Synthetic().WindowsPerEpoch()
	text := fmt.Sprintf("%d of the %d rows of the run are synthetic, of %d in %s", synth, windows, w, s.Config.Data.Synthetic.Store)
	if synth > w {
		text += fmt.Sprintf(": that store is read %.4g times, each time in another order as data.mode says", s.Mix.SyntheticEpochs(windows))
	}
	return text
}

// usedUp returns what there is to say when the windows [from, to) begin another pass over
// the synthetic store, or "".
func (s *Setup) usedUp(from, to int64) string {
	if s.Mix == nil || from == 0 {
		return ""
	}
	before, after := s.Mix.SyntheticEpochs(from), s.Mix.SyntheticEpochs(to)
	if n := math.Floor(after); n > math.Floor(before) {
		return fmt.Sprintf("the synthetic store is used up and read again: pass %.0f of it begins", n+1)
	}
	return ""
}
