package config

import (
	"errors"

	"github.com/goccy/go-yaml/ast"
)

// Tree reads another strict YAML file of this program, such as that of a sweep, under
// the same limits and with the same words about what is wrong: nesting is bounded,
// anchors, aliases and tags are refused. name stands for the path in messages. It
// returns nil for a file without content; the error is a *Problems of one entry.
func Tree(name string, text []byte) (ast.Node, error) {
	l := newLoader(name)
	if len(text) > maxFileBytes {
		l.file(0, 0, "%s", errTooLong)
		return nil, &l.problems
	}
	file, err := parseYAML(text)
	if err != nil {
		if se := new(scanError); errors.As(err, &se) {
			l.file(se.line, se.col, "%s", se.text)
		} else {
			l.file(0, 0, "%v", err)
		}
		return nil, &l.problems
	}
	var body ast.Node
	for _, d := range file.Docs {
		switch {
		case d.Body == nil:
		case body != nil:
			p := d.Body.GetToken().Position
			l.file(p.Line, p.Column, "a second document starts here; keep one")
			return nil, &l.problems
		default:
			body = d.Body
		}
	}
	return body, nil
}

// Scalar returns the text of a plain, quoted or block scalar, and whether node is one.
func Scalar(node ast.Node) (text string, ok bool) {
	text, _, ok = scalar(node)
	return text, ok
}

// Describe names what a node is, for messages.
func Describe(node ast.Node) string { return describe(node) }

// Nearest returns the candidate that is close enough to word to be what was meant, or "".
func Nearest(word string, candidates []string) string { return nearest(word, candidates) }
