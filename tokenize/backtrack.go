package tokenize

type backtracker struct{}

func (t *Tokenizer) newBacktracker() *backtracker { return nil }
