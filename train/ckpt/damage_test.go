package ckpt

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/fsx"
)

const newest, oldest = "step-000000020", "step-000000010"

// checkCaught loads from a folder whose newest checkpoint was damaged and expects
// the older one, the damaged one kept aside byte for byte, and a word about it.
func checkCaught(t *testing.T, m *fsx.Mem) error {
	t.Helper()
	before := tree(t, m, "c/"+newest)
	l, r, err := LoadLatest(t.Context(), m, "c", LoadOptions{Want: Identity{RunID: "run-1"}})
	switch {
	case err != nil:
		return err
	case l.Manifest.Step != 10:
		return fmt.Errorf("step %d was loaded", l.Manifest.Step)
	case len(r.Skipped) != 1 || r.LostSteps != 10 || !errors.Is(r.Skipped[0].Reason, ErrDamaged):
		return fmt.Errorf("report %+v", r)
	case !strings.Contains(r.String(), newest) || !strings.Contains(r.String(), "10 steps lost"):
		return fmt.Errorf("report %q", r)
	case tree(t, m, "c/"+newest+".bad") != before:
		return errors.New("the damaged checkpoint was not kept as it was")
	}
	return sameState(l, snap(10))
}

// tree returns all names and bytes of a folder.
func tree(t *testing.T, m *fsx.Mem, dir string) string {
	t.Helper()
	var b strings.Builder
	entries, err := m.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		fmt.Fprintf(&b, "%s %v\n", e.Name(), e.IsDir())
		if !e.IsDir() {
			b.Write(get(t, m, filepath.Join(dir, e.Name())))
		}
	}
	return b.String()
}

// TestEveryDamageIsCaught flips 500 bits, cuts 150 files, and does what else
// happens to files; each must be noticed and the checkpoint before it used.
func TestEveryDamageIsCaught(t *testing.T) {
	good := fsx.NewMem()
	mustSave(t, good, "c", 10, 20)
	names := files(t, good, "c/"+newest)
	if len(names) != 7 {
		t.Fatalf("a checkpoint has the files %v", names)
	}
	rng := rand.New(rand.NewPCG(1, 2))
	damage := func(what string, do func(m *fsx.Mem)) {
		t.Helper()
		m := good.Crash(fsx.KeepAll, 0) // a copy
		do(m)
		if err := checkCaught(t, m); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	path := func(name string) string { return "c/" + newest + "/" + name }
	for i := range 500 {
		name := names[i%len(names)]
		data := get(t, good, path(name))
		bit := rng.IntN(8 * len(data))
		data[bit/8] ^= 1 << (bit % 8)
		damage(fmt.Sprintf("%s bit %d flipped", name, bit), func(m *fsx.Mem) { set(t, m, path(name), data) })
	}
	for i := range 150 {
		name := names[i%len(names)]
		data := get(t, good, path(name))
		n := rng.IntN(len(data))
		damage(fmt.Sprintf("%s cut to %d bytes", name, n), func(m *fsx.Mem) { set(t, m, path(name), data[:n]) })
	}
	for _, name := range names {
		data := get(t, good, path(name))
		damage(name+" gone", func(m *fsx.Mem) {
			if err := m.Remove(path(name)); err != nil {
				t.Fatal(err)
			}
		})
		damage(name+" empty", func(m *fsx.Mem) { set(t, m, path(name), nil) })
		damage(name+" longer", func(m *fsx.Mem) { set(t, m, path(name), append(data[:len(data):len(data)], 0)) })
		damage(name+" of the other step", func(m *fsx.Mem) {
			other := get(t, good, "c/"+oldest+"/"+name)
			if bytes.Equal(other, data) {
				other = append([]byte(" "), other[:len(other)-1]...) // config and tokenizer are equal in both
			}
			set(t, m, path(name), other)
		})
		damage(name+" a folder", func(m *fsx.Mem) {
			if err := errors.Join(m.Remove(path(name)), m.Mkdir(path(name), fsx.DirPerm)); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// TestSwappedTensorsAreNamed swaps the bytes of two tensors of one shape: sizes,
// header and even the sum of bytes stay the same.
func TestSwappedTensorsAreNamed(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 10, 20)
	name := "c/" + newest + "/" + ModelFile
	data := get(t, m, name)
	tensors, _, err := DecodeTensors(data)
	if err != nil {
		t.Fatal(err)
	}
	a, b := tensors[1], tensors[2]
	if !strings.Contains(a.Name, "k_proj") || !strings.Contains(b.Name, "q_proj") {
		t.Fatalf("unexpected order: %s, %s", a.Name, b.Name)
	}
	old := bytes.Clone(a.Data)
	copy(a.Data, b.Data)
	copy(b.Data, old)
	set(t, m, name, data)
	_, r, err := LoadLatest(t.Context(), m, "c", LoadOptions{})
	if err != nil || len(r.Skipped) != 1 {
		t.Fatalf("%v, %v", r, err)
	}
	for _, want := range []string{a.Name, b.Name} {
		if !strings.Contains(r.Skipped[0].Reason.Error(), want) {
			t.Errorf("%q does not name %s", r.Skipped[0].Reason, want)
		}
	}
	if strings.Contains(r.Skipped[0].Reason.Error(), "model.norm") {
		t.Errorf("%q names a tensor that is whole", r.Skipped[0].Reason)
	}
}

// TestForeignManifest puts another run's manifest into a checkpoint, which is
// damage, and a whole checkpoint of another run into the folder, which is an error.
func TestForeignManifest(t *testing.T) {
	other := fsx.NewMem()
	s := snap(20)
	s.RunID, s.Model[0] = "run-2", tensor("model.norm.weight", 4711, 24)
	if _, err := Save(t.Context(), other, "c", s, SaveOptions{}); err != nil {
		t.Fatal(err)
	}
	m := fsx.NewMem()
	mustSave(t, m, "c", 10, 20)
	set(t, m, "c/"+newest+"/"+ManifestFile, get(t, other, "c/"+newest+"/"+ManifestFile))
	if err := checkCaught(t, m); err != nil {
		t.Error(err)
	}

	m = fsx.NewMem()
	mustSave(t, m, "c", 10, 20)
	for _, name := range files(t, other, "c/"+newest) {
		set(t, m, "c/"+newest+"/"+name, get(t, other, "c/"+newest+"/"+name))
	}
	before := m.String()
	if _, _, err := LoadLatest(t.Context(), m, "c", LoadOptions{Want: Identity{RunID: "run-1"}}); !errors.Is(err, ErrOtherRun) {
		t.Errorf("a whole checkpoint of another run: %v", err)
	}
	if m.String() != before {
		t.Error("it was moved")
	}
}

// TestRenamedCheckpoint: a copy under another step's name is not that step.
func TestRenamedCheckpoint(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 10, 20)
	if err := m.Rename("c/"+newest, "c/step-000000030"); err != nil {
		t.Fatal(err)
	}
	l, r, err := LoadLatest(t.Context(), m, "c", LoadOptions{})
	if err != nil || l.Manifest.Step != 10 || len(r.Skipped) != 1 || r.LostSteps != 20 {
		t.Errorf("%v, %v", r, err)
	}
}

func TestAllDamaged(t *testing.T) {
	m := fsx.NewMem()
	mustSave(t, m, "c", 10, 20)
	for _, step := range []string{oldest, newest} {
		set(t, m, "c/"+step+"/"+StateFile, []byte("{}"))
	}
	_, r, err := LoadLatest(t.Context(), m, "c", LoadOptions{})
	if !errors.Is(err, ErrNoGood) || len(r.Skipped) != 2 {
		t.Errorf("%v, %v", r, err)
	}
	// The same step again: the second bad one gets a name of its own.
	mustSave(t, m, "c", 20)
	set(t, m, "c/"+newest+"/"+StateFile, []byte("{}"))
	_, r, err = LoadLatest(t.Context(), m, "c", LoadOptions{})
	if !errors.Is(err, ErrNoGood) || r.Skipped[0].KeptAs != newest+".bad-2" {
		t.Errorf("%v, %v", r, err)
	}
}

// TestRetain covers the numeric order, whatever the width of the names.
func TestRetain(t *testing.T) {
	for _, tc := range []struct {
		name   string
		steps  []int64
		policy Policy
		want   []string
	}{
		{"order of numbers", []int64{9, 10, 99, 100, 1000}, Policy{Keep: 3}, []string{"step-100", "step-1000", "step-99"}},
		{"fewer than kept", []int64{9, 10}, Policy{Keep: 5}, []string{"step-10", "step-9"}},
		{"every hundredth", []int64{9, 10, 99, 100, 150, 1000, 1001}, Policy{Keep: 2, Every: 100}, []string{"step-100", "step-1000", "step-1001"}},
		{"pinned", []int64{9, 10, 99, 100, 150}, Policy{Keep: 2, Pinned: func(step int64) bool { return step == 10 }}, []string{"step-10", "step-100", "step-150"}},
		{"other run's stay", []int64{9, 10, 99}, Policy{Keep: 2, RunID: "another"}, []string{"step-10", "step-9", "step-99"}},
		{"all bytes read", []int64{9, 10, 99, 100}, Policy{Keep: 2, RunID: "run-1", VerifyHash: true}, []string{"step-100", "step-99"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := fsx.NewMem()
			mustSave(t, m, "c", tc.steps...)
			for _, step := range tc.steps { // as if an older program had padded nothing
				if err := m.Rename("c/"+NameOf(step), fmt.Sprintf("c/step-%d", step)); err != nil {
					t.Fatal(err)
				}
			}
			entries, err := List(m, "c")
			if err != nil {
				t.Fatal(err)
			}
			for i, e := range entries {
				if e.Step != tc.steps[i] {
					t.Fatalf("List gives %v", entries)
				}
			}
			if _, err := Retain(t.Context(), m, "c", tc.policy); err != nil {
				t.Fatal(err)
			}
			got := files(t, m, "c")
			if fmt.Sprint(got) != fmt.Sprint(append([]string{"latest"}, tc.want...)) {
				t.Errorf("left %v, want %v", got, tc.want)
			}
			l, _, err := LoadLatest(t.Context(), m, "c", LoadOptions{})
			if err != nil || l.Manifest.Step != tc.steps[len(tc.steps)-1] {
				t.Errorf("newest: %v", err)
			}
		})
	}
	if _, err := Retain(t.Context(), fsx.NewMem(), "c", Policy{Keep: 1}); err == nil {
		t.Error("a policy of one was accepted")
	}
}

// TestRetainCountsOnlyGood damages the newest two: the two before them are then
// the newest good ones and stay, and the damaged ones are not deleted.
func TestRetainCountsOnlyGood(t *testing.T) {
	for _, full := range []bool{false, true} {
		m := fsx.NewMem()
		mustSave(t, m, "c", 1, 2, 3, 4, 5)
		for _, step := range []string{"step-000000004", "step-000000005"} {
			data := get(t, m, "c/"+step+"/"+OptimFile)
			data[len(data)-1] ^= 1
			if !full {
				data = data[:len(data)-1] // the quick look sees sizes only
			}
			set(t, m, "c/"+step+"/"+OptimFile, data)
		}
		removed, err := Retain(t.Context(), m, "c", Policy{Keep: 2, VerifyHash: full})
		if err != nil || fmt.Sprint(removed) != "[step-000000001]" {
			t.Errorf("full %v: removed %v, %v", full, removed, err)
		}
	}
}
