package house

import (
	"fmt"
	"go/ast"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// goRooms may start goroutines, each for the reason beside it. Everyone else
// gets concurrency from a pool or a pipeline that is handed in.
var goRooms = map[string]string{
	"pipeline":      "one goroutine a stage",
	"gpu":           "queues and devices",
	"internal/par":  "the spin pool",
	"internal/run":  "signals, endpoints, the run itself",
	"cmd/refrain":   "signals and child processes",
	"tokenize":      "training counts and merges on a fixed number of workers",
	"stages/shards": "the pipes of the Parquet child process",
	"stages/repack": "the next epoch's plan is built while this one runs",
	"train":         "one goroutine a device, from its start to Close",
	"bench":         "drives several sides at once",
	"study":         "runs several members at once",
}

// deterministicRooms compute the same bits from the same inputs, always: no
// clock, no random numbers but those of internal/num.
var deterministicRooms = []string{"tokenize", "stages/repack", "model", "kernels", "train", "store"}

// clockFuncs are the functions of package time that read or wait for the clock.
var clockFuncs = []string{"Now", "Since", "Until", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker", "Sleep"}

// envRooms may read environment variables: what they read is a convention of
// terminals, or what a peer inherits, never configuration.
var envRooms = []string{"cmd/refrain", "bench"}

// threadRooms may tie a goroutine to its thread: a CUDA context lives on one,
// and so does the CPU clock of a measurement.
var threadRooms = []string{"gpu/cuda", "bench"}

// importName returns the name under which f imports path, or "".
func importName(f *file, path string) string {
	for _, s := range f.ast.Imports {
		if p, err := strconv.Unquote(s.Path.Value); err != nil || p != path {
			continue
		}
		if s.Name != nil {
			return s.Name.Name
		}
		return path[strings.LastIndex(path, "/")+1:]
	}
	return ""
}

// calls lists the uses of pkg.name for a name in names.
func calls(f *file, pkg string, names []string, visit func(n ast.Node, name string)) {
	local := importName(f, pkg)
	if local == "" {
		return
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if x, ok := sel.X.(*ast.Ident); ok && x.Name == local && slices.Contains(names, sel.Sel.Name) {
			visit(sel, sel.Sel.Name)
		}
		return true
	})
}

func inAny(room string, rooms []string) bool {
	return slices.ContainsFunc(rooms, func(r string) bool { return under(room, r) })
}

// checkGoroutines complains about goroutines and locked threads elsewhere.
// A method Go with one argument starts one too (errgroup, WaitGroup).
func checkGoroutines(f *file) []string {
	var bad []string
	allowed := false
	for r := range goRooms {
		allowed = allowed || under(f.room, r)
	}
	ast.Inspect(f.ast, func(n ast.Node) bool {
		start := false
		switch n := n.(type) {
		case *ast.GoStmt:
			start = true
		case *ast.CallExpr:
			if sel, ok := n.Fun.(*ast.SelectorExpr); ok && sel.Sel.Name == "Go" && len(n.Args) == 1 {
				_, start = n.Args[0].(*ast.FuncLit)
			}
		}
		if start && !allowed {
			bad = append(bad, fmt.Sprintf("%s: %s starts a goroutine; take a par.Pool or be a pipeline stage, or give a reason in goRooms of internal/house", f.at(n), f.room))
		}
		return true
	})
	calls(f, "runtime", []string{"LockOSThread"}, func(n ast.Node, _ string) {
		if !inAny(f.room, threadRooms) {
			bad = append(bad, fmt.Sprintf("%s: LockOSThread is for gpu/cuda only, and for clocks of threads in bench", f.at(n)))
		}
	})
	return bad
}

// checkClock complains about time and chance in a deterministic room.
func checkClock(f *file) []string {
	if !inAny(f.room, deterministicRooms) {
		return nil
	}
	var bad []string
	calls(f, "time", clockFuncs, func(n ast.Node, name string) {
		bad = append(bad, fmt.Sprintf("%s: time.%s in %s, which must not depend on the clock; have the caller measure", f.at(n), name, f.room))
	})
	for _, p := range []string{"math/rand", "math/rand/v2", "crypto/rand"} {
		if importName(f, p) != "" {
			bad = append(bad, fmt.Sprintf("%s: imports %s; use the keyed streams of internal/num", f.rel, p))
		}
	}
	return bad
}

// checkEnv complains about configuration by environment.
func checkEnv(f *file) []string {
	var bad []string
	if inAny(f.room, envRooms) {
		return nil
	}
	calls(f, "os", []string{"Getenv", "LookupEnv", "Environ", "ExpandEnv", "Setenv"}, func(n ast.Node, name string) {
		bad = append(bad, fmt.Sprintf("%s: os.%s; configuration is the file and its overrides, so take an argument", f.at(n), name))
	})
	return bad
}

// checkInit complains about work done before main.
func checkInit(f *file) []string {
	var bad []string
	for _, d := range f.ast.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			bad = append(bad, fmt.Sprintf("%s: func init; build the value where it is used, or in a sync.OnceValue", f.at(fn)))
		}
	}
	return bad
}

// globals returns the package-level variables of one package. The key of a
// specification tells a shadowing local variable apart.
func globals(files []*file) (names map[string]bool, specs map[*ast.ValueSpec]bool) {
	names, specs = map[string]bool{}, map[*ast.ValueSpec]bool{}
	for _, f := range files {
		for _, d := range f.ast.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.VAR {
				continue
			}
			for _, s := range g.Specs {
				vs := s.(*ast.ValueSpec)
				specs[vs] = true
				for _, n := range vs.Names {
					names[n.Name] = n.Name != "_"
				}
			}
		}
	}
	return names, specs
}

// checkGlobals complains about package-level variables that change: assigned
// in a function, or of a type made for changing. files are the product files of
// one package.
func checkGlobals(files []*file) []string {
	names, specs := globals(files)
	var bad []string
	complain := func(f *file, n ast.Node, name string) {
		bad = append(bad, fmt.Sprintf("%s: package-level variable %s changes; make it a field of a value that someone owns", f.at(n), name))
	}
	for _, f := range files {
		isGlobal := func(x ast.Expr) (string, bool) {
			id := rootIdent(x)
			if id == nil || !names[id.Name] {
				return "", false
			}
			if id.Obj == nil { // not declared in this file: package level
				return id.Name, true
			}
			vs, ok := id.Obj.Decl.(*ast.ValueSpec)
			return id.Name, ok && specs[vs]
		}
		_, own := globals([]*file{f})
		for vs := range own {
			if sel, ok := vs.Type.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && (x.Name == "sync" || x.Name == "atomic") {
					complain(f, vs, vs.Names[0].Name)
				}
			}
		}
		ast.Inspect(f.ast, func(n ast.Node) bool {
			var left []ast.Expr
			switch n := n.(type) {
			case *ast.AssignStmt:
				if n.Tok != token.DEFINE {
					left = n.Lhs
				}
			case *ast.IncDecStmt:
				left = []ast.Expr{n.X}
			case *ast.RangeStmt:
				if n.Tok == token.ASSIGN {
					left = []ast.Expr{n.Key, n.Value}
				}
			case *ast.CallExpr: // delete(m, k), clear(m)
				if fn, ok := n.Fun.(*ast.Ident); ok && (fn.Name == "delete" || fn.Name == "clear") && len(n.Args) > 0 {
					left = n.Args[:1]
				}
			}
			for _, x := range left {
				if name, ok := isGlobal(x); ok {
					complain(f, x, name)
				}
			}
			return true
		})
	}
	return bad
}

// rootIdent returns v of v, v.f, v[i], *v and combinations.
func rootIdent(x ast.Expr) *ast.Ident {
	for {
		switch t := x.(type) {
		case *ast.Ident:
			return t
		case *ast.SelectorExpr:
			x = t.X
		case *ast.IndexExpr:
			x = t.X
		case *ast.StarExpr:
			x = t.X
		case *ast.ParenExpr:
			x = t.X
		default:
			return nil
		}
	}
}

// sleepyTests may sleep for real, each for the reason beside it.
var sleepyTests = map[string]string{
	"pipeline/pipelinetest/pipelinetest_test.go": "its stages run inside the bubble of the suite",
	"stages/shards/parquet_test.go":              "a child process that plays dead until it is killed",
}

// checkSleep complains about tests that wait for the clock: inside a synctest
// bubble a sleep is exact and free, elsewhere it is slow and, on a busy
// machine, wrong.
func checkSleep(f *file) []string {
	if !f.test || importName(f, "testing/synctest") != "" || sleepyTests[f.rel] != "" {
		return nil
	}
	var bad []string
	calls(f, "time", []string{"Sleep"}, func(n ast.Node, _ string) {
		bad = append(bad, fmt.Sprintf("%s: a test that sleeps; use testing/synctest, or give a reason in sleepyTests of internal/house", f.at(n)))
	})
	return bad
}

// eachFile runs a rule over the product files.
func eachFile(t *testing.T, rule func(f *file) []string) {
	t.Helper()
	var bad []string
	load(t).product(func(f *file) { bad = append(bad, rule(f)...) })
	report(t, bad)
}

func TestGoroutines(t *testing.T)  { eachFile(t, checkGoroutines) }
func TestClock(t *testing.T)       { eachFile(t, checkClock) }
func TestEnvironment(t *testing.T) { eachFile(t, checkEnv) }
func TestInit(t *testing.T)        { eachFile(t, checkInit) }

func TestSleep(t *testing.T) {
	var bad []string
	for _, f := range load(t).files {
		bad = append(bad, checkSleep(f)...)
	}
	report(t, bad)
}

func TestGlobals(t *testing.T) {
	packages := map[string][]*file{}
	load(t).product(func(f *file) { packages[f.room] = append(packages[f.room], f) })
	var bad []string
	for _, files := range packages {
		bad = append(bad, checkGlobals(files)...)
	}
	report(t, bad)
}

func TestStateRules(t *testing.T) {
	in := func(rel, body string) *file { return mustParse(t, rel, "package p\n"+body) }
	expect(t, checkGoroutines(in("model/a.go", "func f() { go g() }")), "model starts a goroutine")
	expect(t, checkGoroutines(in("model/a.go", "func f() { wg.Go(func() {}) }")), "model starts a goroutine")
	expect(t, checkGoroutines(in("gpu/host/a.go", "func f() { go g() }")))
	expect(t, checkGoroutines(in("gpu/host/a.go", "import \"runtime\"\nfunc f() { runtime.LockOSThread() }")), "for gpu/cuda only")

	expect(t, checkClock(in("train/ckpt/a.go", "import \"time\"\nvar x = time.Now()")), "time.Now in train/ckpt")
	expect(t, checkClock(in("train/a.go", "import clock \"time\"\nvar x = clock.Since")), "time.Since in train")
	expect(t, checkClock(in("train/a.go", "import \"time\"\nvar x time.Duration")))
	expect(t, checkClock(in("store/a.go", "import \"math/rand/v2\"\nvar x = rand.Int")), "imports math/rand/v2")
	expect(t, checkClock(in("internal/run/a.go", "import \"time\"\nvar x = time.Now()")))

	expect(t, checkEnv(in("train/a.go", "import \"os\"\nvar x = os.Getenv(\"X\")")), "os.Getenv")
	expect(t, checkEnv(in("cmd/refrain/a.go", "import \"os\"\nvar x = os.Getenv(\"NO_COLOR\")")))
	expect(t, checkInit(in("a/a.go", "func init() {}\nfunc (t T) init() {}")), "a/a.go:2: func init")

	expect(t, checkSleep(in("a/a_test.go", "import \"time\"\nfunc f() { time.Sleep(1) }")), "a test that sleeps")
	expect(t, checkSleep(in("a/a_test.go", "import (\"time\"; \"testing/synctest\")\nfunc f() { time.Sleep(1) }")))

	one := in("a/one.go", `import "sync"
var count, table = 0, map[string]int{}
var mu sync.Mutex
var once = sync.OnceValue(f)
func f() int { count++; return 0 }
func g() { count := 1; count = 2; _ = count }
`)
	two := in("a/two.go", `func h(p *T) { table["x"] = 1; delete(table, "x"); p.count = 3; other.table = nil
	for count = range 3 {} }
func k(count int) { count = 4 }
`)
	expect(t, checkGlobals([]*file{one, two}),
		"a/one.go:4: package-level variable mu", "a/one.go:6: package-level variable count",
		"a/two.go:2: package-level variable table", "a/two.go:2: package-level variable table", "a/two.go:3: package-level variable count")
}
