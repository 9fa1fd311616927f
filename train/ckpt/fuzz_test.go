package ckpt

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"strings"
	"testing"

	"refrain/internal/fsx"
)

// goodManifest returns the bytes of a manifest as Save writes it.
func goodManifest(t testing.TB) []byte {
	t.Helper()
	m := fsx.NewMem()
	mustSave(t, m, "c", 7)
	return get(t, m, "c/step-000000007/manifest.json")
}

// TestHostileManifests seals manifests that are wrong in meaning: the hash is no
// signature, so each must be refused for what it says.
func TestHostileManifests(t *testing.T) {
	good := string(goodManifest(t))
	good = good[:len(good)-sealLen]
	if _, err := decodeManifest(seal([]byte(good))); err != nil {
		t.Fatalf("the unchanged manifest: %v", err)
	}
	for _, tc := range []struct{ name, old, new string }{
		{"unknown member", `"step": 7`, `"step": 7,` + "\n" + ` "stop": 8`},
		{"member twice", `"step": 7`, `"step": 9,` + "\n" + ` "step": 7`},
		{"member in other case", `"step"`, `"Step"`},
		{"other spacing", `"step": 7`, `"step":  7`},
		{"number with fraction", `"step": 7`, `"step": 7.0`},
		{"negative step", `"step": 7`, `"step": -7`},
		{"no run id", `"run-1"`, `""`},
		{"file outside", `"state.json"`, `"../state.json"`},
		{"file below", `"state.json"`, `"a/state.json"`},
		{"hidden file", `"generation_config.json"`, `".generation_config.json"`},
		{"the manifest itself", `"generation_config.json"`, `"manifest.json"`},
		{"file twice", `"generation_config.json"`, `"state.json"`},
		{"required file missing", `"optimizer.safetensors"`, `"optimiser.safetensors"`},
		{"tensor of a path", `"model.norm.weight"`, `"../model.norm.weight"`},
		{"dtype", `"F32"`, `"F33"`},
		{"type", `"step": 7`, `"step": "7"`},
	} {
		changed := strings.Replace(good, tc.old, tc.new, 1)
		if changed == good {
			t.Fatalf("%s: nothing to replace", tc.name)
		}
		if _, err := decodeManifest(seal([]byte(changed))); err == nil {
			t.Errorf("%s: accepted", tc.name)
		}
	}
	if _, err := decodeManifest(make([]byte, maxManifest+1)); err == nil || !strings.Contains(err.Error(), "limit") {
		t.Errorf("a manifest above the limit: %v", err)
	}
}

// FuzzManifest seals any text as a manifest. What is accepted is in the one form
// that Save writes, so it encodes to the same bytes.
func FuzzManifest(f *testing.F) {
	good := goodManifest(f)
	f.Add(good[:len(good)-sealLen])
	f.Add([]byte(`{"format": "refrain checkpoint", "version": 2`))
	f.Add([]byte(`{"files": [{"name": "state.json", "size": -1}]`))
	f.Fuzz(func(t *testing.T, open []byte) {
		for _, data := range [][]byte{open, seal(bytes.Clone(open))} {
			m, err := decodeManifest(data)
			if err != nil {
				continue
			}
			again, err := m.encode()
			if err != nil || !bytes.Equal(again, data) {
				t.Fatalf("accepted in a form that is not written: %v\n%s", err, data)
			}
		}
	})
}

// FuzzLoad overwrites bytes of one file of a checkpoint, or cuts it. Whatever
// changed is damage; no change, no damage. With resealed set, the manifest agrees
// with the new bytes, so the parsers behind the hashes are reached.
func FuzzLoad(f *testing.F) {
	base := fsx.NewMem()
	mustSave(f, base, "c", 7)
	const dir = "c/step-000000007/"
	names := files(f, base, dir)
	f.Add(uint8(0), uint32(0), []byte("x"), false)
	f.Add(uint8(3), uint32(4000), []byte{1, 2, 3}, false)
	f.Add(uint8(3), uint32(12), []byte("dtype"), true)
	f.Add(uint8(4), uint32(9), []byte(nil), true)
	f.Fuzz(func(t *testing.T, file uint8, at uint32, patch []byte, resealed bool) {
		m := base.Crash(fsx.KeepAll, 0)
		name := names[int(file)%len(names)]
		old := get(t, m, dir+name)
		cut := int(at) % len(old)
		data := old[:cut:cut] // an empty patch cuts the file
		if len(patch) > 0 {
			data = bytes.Clone(old)
			copy(data[cut:], patch)
		}
		set(t, m, dir+name, data)
		if resealed && name != ManifestFile {
			reseal(t, m, dir, name, data)
		}
		l, err := Load(t.Context(), m, "c/step-000000007", LoadOptions{})
		switch {
		case err != nil && !errors.Is(err, ErrDamaged):
			t.Fatalf("untyped error %v", err)
		case bytes.Equal(data, old) && err != nil:
			t.Fatalf("unchanged, and yet %v", err)
		case !bytes.Equal(data, old) && err == nil && !resealed:
			t.Fatalf("%s changed at %d unnoticed", name, cut)
		case err == nil && len(l.Model) != 4:
			t.Fatalf("%d tensors", len(l.Model))
		}
	})
}

// reseal makes the manifest agree with a changed file, as a forger would.
func reseal(t *testing.T, m *fsx.Mem, dir, name string, data []byte) {
	t.Helper()
	manifest, err := decodeManifest(get(t, m, dir+ManifestFile))
	if err != nil {
		t.Fatal(err)
	}
	f := manifest.File(name)
	f.Size, f.SHA256 = int64(len(data)), fmt.Sprintf("%x", sha256.Sum256(data))
	out, err := manifest.encode()
	if err != nil {
		t.Fatal(err)
	}
	set(t, m, dir+ManifestFile, out)
}
