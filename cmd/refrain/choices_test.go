package main

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/study/ensemble"
)

// countingYAML is a model that learns to count to nine in a moment.
const countingYAML = `model: {layers: 1, dim: 32, heads: 2, kv_heads: 1, ffn: 40}
data: {seq: 32, store: store}
train: {batch: 8, epochs: 12, threads: 1, precision: f32}
optim: {lr: 0.02}
eval: {every: 1000}
save: {every: 1000}
log: {every: 1000}
`

// TestRow29ChoicesOfRuns (E row 29), with runs trained here on counting: they answer what
// comes next, alone and as an ensemble, in the shapes that others read; the result of one
// run stays in its folder; what cannot be scored is refused.
func TestRow29ChoicesOfRuns(t *testing.T) {
	t.Chdir(t.TempDir())
	put := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	names := strings.Fields("zero one two three four five six seven eight nine")
	for i := range 120 {
		from := i % 5
		put(fmt.Sprintf("text/%03d.txt", i), strings.Join(names[from:from+4+i/5%3], " ")+strings.Repeat(".", i))
	}
	put("run.yaml", countingYAML)
	var file, other strings.Builder
	for i := range 8 {
		fmt.Fprintf(&file, `{"context": %q, "choices": [%q, %q], "label": %d}`+"\n", names[i%5]+" "+names[i%5+1], names[i%5+2], names[(i+5)%10], 0)
		fmt.Fprintf(&other, `{"context": %q, "choices": [%q, %q], "label": 1}`+"\n", names[i%5], names[(i+7)%10], names[i%5+1])
	}
	put("next.jsonl", file.String())
	put("other.jsonl", other.String())
	for _, line := range []string{
		"data prepare text -o store --tokenizer train:270 --val-docs 10% -q", "train run.yaml --out a -q", "train run.yaml train.seed=1 --out b -q",
	} {
		if code, _, msg := cli("", words(line)...); code != 0 {
			t.Fatalf("%s: exit %d: %s", line, code, msg)
		}
	}
	one := object[ensemble.ChoiceReport](t, 0, "eval", "a", "--choices", "next.jsonl")
	f := one.Files[0]
	if f.Items != 8 || f.Rows != 16 || f.Cut != 0 || len(f.Members) != 1 || f.Logit != nil || one.Start != "eos" || one.Limit != 32 {
		t.Errorf("%+v", one)
	}
	if f.Members[0].Acc.Acc < 0.75 || one.Results["next"]["acc,none"] != f.Members[0].Acc.Acc || one.Means[0].Acc != f.Members[0].Acc.Acc {
		t.Errorf("a model that can count has %+v, results %v", f.Members[0], one.Results)
	}
	if kept, err := filepath.Glob("a/eval/step-*-choices-next.json"); err != nil || len(kept) != 1 {
		t.Errorf("%q, %v", kept, err)
	}
	both := object[ensemble.ChoiceReport](t, 0, "eval", "a", "b", "--choices", "next.jsonl", "--choices", "other.jsonl")
	onThePage(t, "Multiple-choice questions", "choices", both)
	if len(both.Files) != 2 || len(both.Members) != 2 || both.Files[0].Logit == nil || !reflect.DeepEqual(both.Files[0].Members[0], f.Members[0]) ||
		both.Logit.Acc != (both.Files[0].Logit.Acc.Acc+both.Files[1].Logit.Acc.Acc)/2 || both.Results["other"]["acc_norm,none"] != both.Files[1].Logit.Norm.Acc {
		t.Errorf("%+v", both)
	}
	// Threads change nothing, and wrong labels turn the share round.
	same := object[ensemble.ChoiceReport](t, 0, "eval", "a", "--choices", "next.jsonl", "train.threads=2")
	if !reflect.DeepEqual(same.Files, one.Files) {
		t.Errorf("%+v", same.Files)
	}
	put("wrong.jsonl", strings.ReplaceAll(file.String(), `"label": 0`, `"label": 1`))
	wrong := object[ensemble.ChoiceReport](t, 0, "eval", "a", "--choices", "wrong.jsonl")
	if got, want := wrong.Files[0].Members[0].Acc.Acc, 1-f.Members[0].Acc.Acc; got != want {
		t.Errorf("%v of the wrong answers instead of %v", got, want)
	}
	code, text, msg := cli("", words("eval a b --choices next.jsonl --choices other.jsonl")...)
	for _, part := range []string{"8 questions with 16 choices", "mean logits of 2", "mean of 2 files", "acc_norm"} {
		if code != 0 || !strings.Contains(text, part) {
			t.Errorf("exit %d, %q is missing in\n%s%s", code, part, text, msg)
		}
	}
	put("bad.jsonl", `{"context": "one", "choices": ["two"], "label": 0}`)
	put("long.jsonl", fmt.Sprintf(`{"context": "one", "choices": ["two", %q], "label": 0}`, strings.Repeat("x", 99)))
	put("sub/next.jsonl", file.String())
	conf := tiny(t)
	if code, _, msg := cli("", "train", conf, "--out", "mute", "train.epochs=1", "-q"); code != 0 {
		t.Fatal(msg)
	}
	for want, c := range map[string]struct {
		code int
		line string
	}{
		"bad.jsonl:1: 1 choices":             {run.ExitData, "eval a --choices bad.jsonl"},
		"long.jsonl:1: choice 1 has":         {run.ExitData, "eval a --choices long.jsonl"},
		"gone.jsonl":                         {run.ExitUsage, "eval a --choices gone.jsonl"},
		"eval takes one run":                 {run.ExitUsage, "eval a b"},
		"no run was named":                   {run.ExitUsage, "eval data.doc_mask=false --choices next.jsonl"},
		"--rows are of":                      {run.ExitUsage, "eval a --rows 3 --choices next.jsonl"},
		"two files are called next":          {run.ExitUsage, "eval a --choices next.jsonl --choices sub/next.jsonl"},
		"bit for bit":                        {run.ExitData, "eval a a --choices next.jsonl"},
		"has no tokenizer.json":              {run.ExitData, "eval mute --choices next.jsonl"},
		"was trained with another tokenizer": {run.ExitData, "eval a mute --choices next.jsonl"},
	} {
		if code, _, msg := cli("", words(c.line)...); code != c.code || !strings.Contains(msg, want) {
			t.Errorf("%s: exit %d instead of %d, %q is missing in: %s", c.line, code, c.code, want, msg)
		}
	}
}
