package shards

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"refrain/stages/item"
)

// TestMain plays the Parquet child when it is started as one. A field name that
// begins with @ asks for a child that misbehaves.
func TestMain(m *testing.M) {
	if IsChild(os.Args) {
		if len(os.Args) > 2 && strings.HasPrefix(os.Args[2], "@") {
			os.Exit(badChild(os.Args[2]))
		}
		os.Exit(ChildMain(os.Args, os.Stdin, os.Stdout))
	}
	os.Exit(m.Run())
}

// badChild is a child with a fault.
func badChild(fault string) int {
	start := func(groups uint32, rows uint64) {
		b := binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint32(nil, groups), rows)
		writeFrame(os.Stdout, frameStart, append(b, 1))
	}
	group := func(rows uint64) {
		writeFrame(os.Stdout, frameGroup, binary.LittleEndian.AppendUint64(nil, rows))
	}
	u32 := func(v ...uint32) (b []byte) {
		for _, x := range v {
			b = binary.LittleEndian.AppendUint32(b, x)
		}
		return b
	}
	switch fault {
	case "@silent":
		time.Sleep(time.Hour)
	case "@stall":
		start(2, 10)
		group(5)
		time.Sleep(time.Hour)
	case "@die":
		start(2, 10)
		group(5)
		fmt.Fprintln(os.Stderr, "fatal error: runtime: out of memory")
		return 2
	case "@hog":
		if ok, err := limitSelf(1<<30, 60); !ok || err != nil {
			return 2
		}
		start(1, 1)
		var keep [][]byte
		for range 1024 { // 64 GiB of address space
			keep = append(keep, make([]byte, 64<<20))
		}
		runtime.KeepAlive(keep)
	case "@spin":
		if ok, err := limitSelf(4<<30, 1); err != nil || runtime.GOOS != "linux" && !ok {
			return 2
		}
		for {
		}
	case "@flood":
		os.Stdout.Write([]byte{frameStart, 0xff, 0xff, 0xff, 0xff})
	case "@early":
		group(5)
	case "@rows":
		start(1, 2)
		group(2)
		writeFrame(os.Stdout, frameValues, u32(3, 0, 0, 0))
	case "@group":
		start(1, 2)
		group(7)
	case "@short":
		start(1, 2)
		group(2)
		writeFrame(os.Stdout, frameValues, append(u32(1, 100), "only this"...))
	case "@negative":
		start(1, 2)
		group(2)
		writeFrame(os.Stdout, frameValues, u32(1, 0xfffffff0))
	case "@more":
		start(1, 1)
		group(1)
		writeFrame(os.Stdout, frameValues, append(u32(1, 1), "xyz"...))
	case "@end":
		start(2, 2)
		group(2)
		writeFrame(os.Stdout, frameEnd, nil)
	case "@status":
		start(0, 0)
		writeFrame(os.Stdout, frameEnd, nil)
		return 9
	}
	return 0
}

func TestParquetFixtures(t *testing.T) {
	for _, n := range []string{"snappy.parquet", "zstd.parquet", "gzip-v2.parquet", "brotli.parquet", "plain.parquet", "delta.parquet", "zipped.parquet.gz", "required.parquet"} {
		t.Run(n, func(t *testing.T) { wantFixture(t, read(t, Options{}, filepath.Join("testdata", n)), 0) })
	}
	t.Run("stdin", func(t *testing.T) {
		raw, err := os.ReadFile("testdata/snappy.parquet")
		if err != nil {
			t.Fatal(err)
		}
		ins, _ := Discover([]string{"-"}, Options{})
		src := New(ins, Options{})
		src.SetStdin(bytes.NewReader(raw))
		wantFixture(t, runSource(t, src), 0)
	})
	for n, want := range map[string][]string{
		"bad-lz4.parquet":    {"LZ4", "zstd, snappy"},
		"bad-list.parquet":   {`column "text" is nested`, "a string column is needed"},
		"bad-int.parquet":    {`column "text" is INT64`, "not a string"},
		"bad-column.parquet": {`no column "text" among ["Text" "id"]`, `did you mean "Text"?`, "data.field"},
	} {
		t.Run(n, func(t *testing.T) {
			r := read(t, Options{}, filepath.Join("testdata", n))
			wantErr(t, r.err, append(want, n)...)
			var e *Error
			if !errors.As(r.err, &e) || e.Reason != Schema {
				t.Errorf("%#v", r.err)
			}
		})
	}
}

func TestParquetPolicies(t *testing.T) {
	p := "testdata/snappy.parquet"
	wantErr(t, read(t, Options{Empty: Fail}, p).err, "row group 0, row 5", "null", "data.empty")
	wantErr(t, read(t, Options{MaxDoc: 500}, p).err, "row group 1, row 29", "longer than 500", "data.max_doc")
	r := read(t, Options{MaxDoc: 500, TooLong: Skip}, p)
	if r.err != nil || r.rep.Of(TooLong) != 1 || r.rep.Docs != 56 {
		t.Errorf("%v %s", r.err, r.rep)
	}
	raw, err := os.ReadFile(p)
	if err != nil {
		t.Fatal(err)
	}
	cut := put(t, t.TempDir(), "cut.parquet", raw[:len(raw)-100])
	wantErr(t, read(t, Options{}, cut).err, "cut.parquet", "truncated", "footer is missing")
	r = read(t, Options{Truncated: Skip}, cut, p)
	if r.err != nil || r.rep.Of(Truncated) != 1 || r.rep.Docs != 57 {
		t.Errorf("%v %s", r.err, r.rep)
	}
	wantErr(t, read(t, Options{}, put(t, t.TempDir(), "empty.parquet", nil)).err, "empty.parquet", "truncated")
	long := bytes.Clone(raw)
	binary.LittleEndian.PutUint32(long[len(long)-8:], 1<<31)
	wantErr(t, read(t, Options{}, put(t, t.TempDir(), "long.parquet", long)).err, "footer of 2147483648 bytes")
}

// TestParquetChildFaults: whatever a child does, the parent names the file and,
// where it is known, the row group, and leaves no process behind.
func TestParquetChildFaults(t *testing.T) {
	for fault, want := range map[string][]string{
		"@silent":   {"no progress for 300ms"},
		"@stall":    {"row group 0, row 0", "no progress for 300ms"},
		"@die":      {"row group 0", "died (exit status 2)", "out of memory"},
		"@hog":      {"died", "out of memory"},
		"@spin":     {"died (signal: killed)"},
		"@flood":    {"frame of 4294967295 bytes"},
		"@early":    {"out of turn"},
		"@rows":     {"row group 0", "3 rows where 2 are left"},
		"@group":    {"row group 0 claims 7 rows of 2 left"},
		"@short":    {"too short or too long"},
		"@negative": {"too short or too long"},
		"@more":     {"too short or too long"},
		"@end":      {"out of turn"},
		"@status":   {"ended badly (exit status 9)"},
	} {
		t.Run(fault, func(t *testing.T) {
			if fault == "@hog" && (raceEnabled || runtime.GOOS != "linux") {
				t.Skip("no limit of memory here")
			}
			if fault == "@spin" && runtime.GOOS != "linux" {
				t.Skip("no limit of processor time here")
			}
			lim := ChildLimits{Stall: 30 * time.Second}
			if fault == "@silent" || fault == "@stall" {
				lim.Stall = 300 * time.Millisecond
			}
			r := read(t, Options{Field: fault, Child: lim}, "testdata/snappy.parquet")
			wantErr(t, r.err, append(want, "snappy.parquet", "damaged")...)
		})
	}
}

func TestParquetCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(200*time.Millisecond, func() { cancel(why) })
	ins, err := Discover([]string{"testdata/snappy.parquet"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	err = New(ins, Options{Field: "@silent"}).Run(ctx, none{}, &collector{})
	if !errors.Is(err, why) {
		t.Errorf("%v", err)
	}
}

// TestParquetSendFails: the error of the link comes back as it is.
func TestParquetSendFails(t *testing.T) {
	ins, err := Discover([]string{"testdata/snappy.parquet"}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	why := errors.New("link is closed")
	err = New(ins, Options{}).Run(t.Context(), none{}, failing{why})
	if err != why {
		t.Errorf("%v", err)
	}
}

type failing struct{ err error }

func (f failing) Send(context.Context, *item.Docs) error { return f.err }

// TestParquetMutations damages files: documents or a named error, never a crash
// of this process, never a wait beyond the limits.
func TestParquetMutations(t *testing.T) {
	rounds := 60
	if testing.Short() {
		rounds = 8
	}
	names, err := filepath.Glob("testdata/*.parquet")
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	rng := rand.New(rand.NewSource(5))
	d, bad := t.TempDir(), 0
	for range rounds {
		n := names[rng.Intn(len(names))]
		raw, err := os.ReadFile(n)
		if err != nil {
			t.Fatal(err)
		}
		m := mutate(raw, rng)
		if rng.Intn(2) == 0 && len(m) > 8 { // keep the tail readable so that the child gets to see it
			m = append(m[:len(m)-8], raw[len(raw)-8:]...)
		}
		in := Input{Path: put(t, d, "m.parquet", m), Kind: KindParquet}
		r := readInputs(t, []Input{in}, Options{Child: ChildLimits{Stall: 5 * time.Second, CPU: 5 * time.Second, Memory: 2 << 30}})
		var e *Error
		if r.err != nil {
			bad++
			if !errors.As(r.err, &e) || e.Path == "" || e.Reason == "" {
				t.Fatalf("%s: error without a place: %v", n, r.err)
			}
		}
	}
	t.Logf("%d inputs, %d refused", rounds, bad)
	if bad == 0 {
		t.Error("no damage was noticed")
	}
}

func TestChildUsage(t *testing.T) {
	if IsChild([]string{"refrain"}) || IsChild([]string{"refrain", "train"}) || !IsChild([]string{"refrain", ChildArg}) {
		t.Error("IsChild is wrong")
	}
	for _, args := range [][]string{{"x", ChildArg}, {"x", ChildArg, "text", "0", "1", "1"}, {"x", ChildArg, "text", "a", "1", "1"}} {
		if got := ChildMain(args, os.Stdin, &bytes.Buffer{}); got != childUsage {
			t.Errorf("%q: status %d", args, got)
		}
	}
}

// TestWordsOfTheChild: a hostile file cannot reach the terminal through a message.
func TestWordsOfTheChild(t *testing.T) {
	for _, c := range [][2]string{
		{"parquet: page 3 of 7 is cut", "parquet: page 3 of 7 is cut"},
		{"name \x1b[2J\x07 and\nmore \xff", "name ?[2J? and?more ?"},
		{strings.Repeat("x", 600), strings.Repeat("x", 500) + "..."},
	} {
		if got := printable(c[0]); got != c[1] {
			t.Errorf("%q became %q, want %q", c[0], got, c[1])
		}
	}
}
