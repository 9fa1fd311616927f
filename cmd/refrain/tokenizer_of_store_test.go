package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"refrain/store"
	"refrain/tokenize"
)

// TestTokenizerOfAStore: a tokenizer.json in the folder above belongs to a validation
// store inside a store and to nothing else.
func TestTokenizerOfAStore(t *testing.T) {
	tok, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 257, Workers: 1}, func(yield func([]byte, error) bool) { yield([]byte("words"), nil) })
	if err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := tok.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	root := t.TempDir()
	put := func(name string, data []byte) {
		t.Helper()
		name = filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put("tokenizer.json", b.Bytes()) // a folder of other things
	for _, dir := range []string{"bare", "val", "s/other", "s/val"} {
		put(dir+"/"+store.ManifestName, nil)
	}
	put("s/tokenizer.json", b.Bytes())
	put("s/"+store.ManifestName, nil)
	for dir, want := range map[string]bool{"bare": false, "val": false, "s": true, "s/val": true, "s/val/": true, "s/other": false} {
		got, err := storeTokenizer(filepath.Join(root, dir))
		if err != nil || (got != nil) != want {
			t.Errorf("%s: a tokenizer: %v, want %v (%v)", dir, got != nil, want, err)
		}
	}
	t.Chdir(filepath.Join(root, "s", "val"))
	if got, err := storeTokenizer("."); got == nil || err != nil {
		t.Errorf("inside the validation store: %v, %v", got, err)
	}
}
