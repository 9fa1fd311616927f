package config

import (
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/parser"
	"github.com/goccy/go-yaml/token"
)

// scanError is a complaint about the form of the file, with its place.
type scanError struct {
	line, col int
	text      string
}

func (e *scanError) Error() string { return e.text }

// parseYAML turns text into a syntax tree. The parser recurses without a limit
// and reports one error at a time, so the tokens are checked first: nesting is
// bounded, and what a configuration has no use for (anchors, aliases, tags,
// explicit keys) is refused by name.
func parseYAML(text []byte) (file *ast.File, err error) {
	if !utf8.Valid(text) {
		line := 1
		for i, w := 0, 0; i < len(text); i += w {
			var r rune
			if r, w = utf8.DecodeRune(text[i:]); r == utf8.RuneError && w == 1 {
				break
			}
			if r == '\n' {
				line++
			}
		}
		return nil, &scanError{line, 1, "the file is not valid UTF-8; save it as UTF-8"}
	}
	// The parser is a dependency fed with whatever the user has; a panic in it
	// is bad input as far as we are concerned, never a crash of the program.
	defer func() {
		if p := recover(); p != nil {
			file, err = nil, &scanError{0, 0, fmt.Sprintf("cannot be read as YAML (%v)", p)}
		}
	}()
	tokens := lexer.Tokenize(string(text))
	if err := checkTokens(tokens); err != nil {
		return nil, err
	}
	file, err = parser.Parse(tokens, 0, parser.AllowDuplicateMapKey())
	if err != nil {
		var se *yaml.SyntaxError
		if errors.As(err, &se) && se.Token != nil && se.Token.Position != nil {
			return nil, &scanError{se.Token.Position.Line, se.Token.Position.Column, "YAML syntax: " + se.Message}
		}
		return nil, &scanError{0, 0, "YAML syntax: " + err.Error()}
	}
	return file, nil
}

// checkTokens bounds the nesting and refuses features that are not used.
func checkTokens(tokens token.Tokens) error {
	depth, lastLine, colons := 0, 0, 0
	for _, tk := range tokens {
		line, col := tk.Position.Line, tk.Position.Column
		fail := func(format string, args ...any) error {
			return &scanError{line, col, fmt.Sprintf(format, args...)}
		}
		if tk.Type == token.CommentType {
			continue
		}
		if line != lastLine {
			lastLine, colons = line, 0
			if col > maxIndent && depth == 0 {
				return fail("indented by more than %d columns", maxIndent)
			}
		}
		switch tk.Type {
		case token.AnchorType, token.AliasType, token.MergeKeyType:
			return fail("anchors, aliases and merge keys are not used in a configuration; write the value out")
		case token.TagType:
			return fail("YAML tags are not used in a configuration; write the plain value")
		case token.MappingKeyType:
			return fail("explicit keys (?) are not used in a configuration; write key: value")
		case token.DirectiveType:
			return fail("YAML directives are not used in a configuration; remove the line")
		case token.InvalidType:
			return fail("YAML syntax: %s", tk.Error)
		case token.MappingStartType, token.SequenceStartType:
			if depth++; depth > maxDepth {
				return fail("brackets are nested more than %d deep", maxDepth)
			}
		case token.MappingEndType, token.SequenceEndType:
			depth--
		case token.SequenceEntryType:
			if col > maxIndent {
				return fail("a list is nested more than %d columns deep", maxIndent)
			}
		case token.MappingValueType:
			if colons++; colons > 1 && depth == 0 {
				return fail("a second \"key: value\" on one line; put it on its own line, or quote the text if it holds a colon")
			}
		}
	}
	return nil
}

// readFile walks the syntax tree against the table of keys.
func (l *loader) readFile(text []byte) {
	file, err := parseYAML(text)
	if err != nil {
		var se *scanError
		if errors.As(err, &se) {
			l.file(se.line, se.col, "%s", se.text)
		} else {
			l.file(0, 0, "%v", err)
		}
		// Nothing of the file is known: complaints that a key is missing would
		// only bury the real one.
		for _, f := range table().leaves {
			l.bad[f.path] = true
		}
		return
	}
	var body ast.Node
	for _, d := range file.Docs {
		if d.Body == nil {
			continue
		}
		if body != nil {
			p := d.Body.GetToken().Position
			l.file(p.Line, p.Column, "a second document starts here; a configuration is one YAML document")
			break
		}
		body = d.Body
	}
	if body != nil {
		l.section(table().root, body)
	}
}

// section reads the keys of f from node.
func (l *loader) section(f *field, node ast.Node) {
	var pairs []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		pairs = n.Values
	case *ast.MappingValueNode:
		pairs = []*ast.MappingValueNode{n}
	case *ast.NullNode:
		return // "optim:" with nothing below it
	default:
		name := f.path
		if name == "" {
			name = "the file"
		}
		o := l.place(node)
		l.at(o, "%s holds keys, for example \"%s: ...\"; got %s", name, f.children[0].name, describe(node))
		l.silence(f)
		return
	}
	first := map[string]int{}
	for _, kv := range pairs {
		o := l.place(kv.Key)
		name := kv.Key.GetToken().Value
		c := f.child(name)
		if c == nil {
			l.unknown(o, name, f)
			continue
		}
		if line, dup := first[name]; dup {
			l.at(o, "key %q stands twice in %s, first at line %d; keep one", name, sectionName(f), line)
			continue
		}
		first[name] = o.Line
		if c.kind == kindSection {
			l.section(c, kv.Value)
		} else {
			l.leaf(c, o, kv.Value)
		}
	}
}

func sectionName(f *field) string {
	if f.path == "" {
		return f.name
	}
	return f.path
}

// silence marks every key below f, so that rules do not complain about values
// that could not be read.
func (l *loader) silence(f *field) {
	for _, c := range f.children {
		if c.kind == kindSection {
			l.silence(c)
		} else {
			l.bad[c.path] = true
		}
	}
}

// place returns the position of node as an origin.
func (l *loader) place(node ast.Node) Origin {
	o := Origin{Kind: FromFile, File: l.path, Line: 1, Col: 1}
	if tk := node.GetToken(); tk != nil && tk.Position != nil {
		o.Line, o.Col = tk.Position.Line, tk.Position.Column
	}
	return o
}

// leaf reads one value. o is the place of its key, where problems point.
func (l *loader) leaf(f *field, o Origin, node ast.Node) {
	if _, null := node.(*ast.NullNode); null {
		l.give(f, nil, o)
		return
	}
	if f.kind == kindList {
		list, err := stringList(node)
		if err != nil {
			l.reject(f, o, "%s: %v", f.path, err)
			return
		}
		l.give(f, list, o)
		return
	}
	text, quoted, ok := scalar(node)
	if !ok {
		l.reject(f, o, "%s: %s", f.path, typeMessage(f, describe(node)))
		return
	}
	if quoted && f.kind != kindString {
		l.reject(f, o, "%s: %s", f.path, typeMessage(f, "the quoted text "+clip(text))+"; remove the quotes")
		return
	}
	x, err := f.parse(text)
	if err != nil {
		l.reject(f, o, "%s: %s", f.path, typeMessage(f, clip(text)))
		return
	}
	l.give(f, x, o)
}

// scalar returns the text of a plain, quoted or block scalar.
func scalar(node ast.Node) (text string, quoted, ok bool) {
	switch n := node.(type) {
	case *ast.StringNode:
		q := n.Token.Type == token.SingleQuoteType || n.Token.Type == token.DoubleQuoteType
		return n.Value, q, true
	case *ast.LiteralNode:
		return n.Value.Value, true, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode, *ast.InfinityNode, *ast.NanNode:
		return node.GetToken().Value, false, true
	}
	return "", false, false
}

// describe names what a node is, for messages.
func describe(node ast.Node) string {
	switch node.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return "a section"
	case *ast.SequenceNode:
		return "a list"
	case *ast.NullNode, nil:
		return "nothing"
	}
	if text, _, ok := scalar(node); ok {
		return clip(text)
	}
	return "something else"
}

// stringList reads a list of texts.
func stringList(node ast.Node) ([]string, error) {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		return nil, fmt.Errorf("want %v, got %s", kindList, describe(node))
	}
	list := make([]string, 0, len(seq.Values))
	for i, v := range seq.Values {
		text, _, ok := scalar(v)
		if !ok {
			return nil, fmt.Errorf("entry %d: want text, got %s", i+1, describe(v))
		}
		list = append(list, text)
	}
	return list, nil
}

// parseFlowList reads the "[a, b]" of an override.
func parseFlowList(text string) ([]string, error) {
	file, err := parseYAML([]byte(text))
	if err != nil {
		return nil, err
	}
	if len(file.Docs) != 1 || file.Docs[0].Body == nil {
		return nil, fmt.Errorf("want %v, got %s", kindList, clip(text))
	}
	return stringList(file.Docs[0].Body)
}
