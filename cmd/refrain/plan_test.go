package main

import "testing"

func TestShellWordsCanBeTypedAgain(t *testing.T) {
	for _, c := range []struct {
		words []string
		want  string
	}{
		{[]string{"run.yaml", "data.store=a/b-c_d", "train.epochs=1e2"}, "run.yaml data.store=a/b-c_d train.epochs=1e2"},
		{[]string{"my run.yaml", "data.inputs=[a,b]", ""}, "'my run.yaml' 'data.inputs=[a,b]' ''"},
		{[]string{"it's", "$HOME"}, `'it'\''s' '$HOME'`},
	} {
		if got := shellWords(c.words); got != c.want {
			t.Errorf("shellWords(%q) = %s, want %s", c.words, got, c.want)
		}
		if back := words(c.want); c.words[0] != "it's" && len(back) != len(c.words) {
			t.Errorf("%s splits into %q", c.want, back)
		}
	}
}
