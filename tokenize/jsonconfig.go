package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// preNode is one pre-tokenizer of tokenizer.json.
type preNode struct {
	kind        string
	prefixSpace bool // ByteLevel
	useRegex    bool // ByteLevel
	pattern     string
	behavior    string
	invert      bool
	children    []preNode
}

// preTokenizer reads the pre_tokenizer and finds the family it amounts to.
func preTokenizer(s *jsonScanner) *family {
	n := readPreNode(s)
	if s.err != nil {
		return nil
	}
	fam, err := n.family()
	if err != nil {
		s.fail("pre_tokenizer: %w", err)
	}
	return fam
}

func readPreNode(s *jsonScanner) preNode {
	n := preNode{useRegex: true, prefixSpace: true} // the defaults of ByteLevel
	s.object(func(name string) {
		switch name {
		case "type":
			n.kind = string(s.text())
		case "add_prefix_space":
			n.prefixSpace = s.bool()
		case "trim_offsets":
			s.bool() // offsets into the text only
		case "use_regex":
			n.useRegex = s.bool()
		case "behavior":
			n.behavior = string(s.text())
		case "invert":
			n.invert = s.bool()
		case "pattern":
			s.object(func(form string) {
				if form != "Regex" {
					s.fail("pattern form %q is not supported; Regex is", form)
				}
				n.pattern = string(s.text())
			})
		case "pretokenizers":
			s.array(func() { n.children = append(n.children, readPreNode(s)) })
		default:
			s.fail("key %q of a pre_tokenizer is not supported", name)
		}
	})
	return n
}

func (n preNode) family() (*family, error) {
	switch {
	case n.kind == "ByteLevel" && n.prefixSpace, n.kind == "Sequence" && len(n.children) == 2 && n.children[1].kind == "ByteLevel" && n.children[1].prefixSpace:
		return nil, fmt.Errorf("ByteLevel with add_prefix_space is not supported")
	case n.kind == "ByteLevel" && n.useRegex:
		return familyByName("r50k")
	case n.kind == "ByteLevel":
		return nil, fmt.Errorf("ByteLevel without use_regex and without a Split before it is not supported")
	case n.kind != "Sequence":
		return nil, fmt.Errorf("type %q is not supported; ByteLevel and Sequence[Split, ByteLevel] are", n.kind)
	case len(n.children) != 2 || n.children[0].kind != "Split" || n.children[1].kind != "ByteLevel" || n.children[1].useRegex:
		kinds := make([]string, len(n.children))
		for i, c := range n.children {
			kinds[i] = c.kind
		}
		return nil, fmt.Errorf("Sequence[%s] is not supported; Sequence[Split, ByteLevel with use_regex false] is", strings.Join(kinds, ", "))
	}
	// The known patterns match every character, so keeping what matches and
	// removing what does not is the same as isolating the matches.
	split := n.children[0]
	if !(split.behavior == "Isolated" && !split.invert) && !(split.behavior == "Removed" && split.invert) {
		return nil, fmt.Errorf("Split with behavior %q and invert %v is not supported; Isolated without invert is", split.behavior, split.invert)
	}
	return familyByPattern(split.pattern)
}

// template is the TemplateProcessing of a post-processor, of which only the first
// and last token of a single text matter.
type template struct {
	first, last string
}

// postProcessor reads the post_processor, keeps its text for writing, and refuses
// what is neither about offsets nor a plain template.
func (f *jsonFile) postProcessor(s *jsonScanner) {
	if s.null() {
		return
	}
	s.peek()
	start := s.i
	f.readPost(s)
	if s.err != nil {
		return
	}
	var out bytes.Buffer
	if err := json.Compact(&out, s.b[start:s.i]); err != nil {
		s.fail("%v", err)
		return
	}
	f.rawPost = out.Bytes()
}

func (f *jsonFile) readPost(s *jsonScanner) {
	kind := ""
	s.object(func(name string) {
		switch name {
		case "type":
			kind = string(s.text())
		case "add_prefix_space", "trim_offsets", "use_regex":
			s.bool()
		case "processors":
			s.array(func() { f.readPost(s) })
		case "single":
			f.readTemplate(s)
		case "pair", "special_tokens":
			s.raw()
		default:
			s.fail("key %q of the post_processor is not supported", name)
		}
	})
	if s.err == nil && !slices.Contains([]string{"ByteLevel", "Sequence", "TemplateProcessing"}, kind) {
		s.fail("post_processor %q is not supported; ByteLevel, TemplateProcessing and Sequence are", kind)
	}
}

// readTemplate reads the template of a single text: at most one special token on
// either side of the text A.
func (f *jsonFile) readTemplate(s *jsonScanner) {
	var before, after []string
	texts := 0
	s.array(func() {
		s.object(func(kind string) {
			id := ""
			s.object(func(name string) {
				switch name {
				case "id":
					id = string(s.text())
				case "type_id":
					s.id()
				default:
					s.fail("key %q of a template is not supported", name)
				}
			})
			switch {
			case kind == "Sequence" && id == "A":
				texts++
			case kind == "SpecialToken" && texts == 0:
				before = append(before, id)
			case kind == "SpecialToken":
				after = append(after, id)
			default:
				s.fail("template part %s %q is not supported", kind, id)
			}
		})
	})
	if s.err != nil {
		return
	}
	if texts != 1 || len(before) > 1 || len(after) > 1 || f.template != (template{}) {
		s.fail("the template must be one text with at most one special token before and after it")
		return
	}
	f.template = template{strings.Join(before, ""), strings.Join(after, "")}
}

// roles turns the names of the template into ids.
func (t template) roles(s *source, added map[string]AddedToken) error {
	for _, r := range []struct {
		name string
		id   *uint32
	}{{t.first, &s.bos}, {t.last, &s.eos}} {
		if r.name == "" {
			continue
		}
		a, ok := added[r.name]
		if !ok || !a.Special {
			return fmt.Errorf("the template uses %q, which is no special token of the file", r.name)
		}
		*r.id = a.ID
	}
	return nil
}
