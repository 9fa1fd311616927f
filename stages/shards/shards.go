// Package shards turns files into documents: folders of text, JSON lines,
// Arrow IPC and Parquet, plain or in gzip or zstd, and standard input.
//
// It knows nothing of tokens. Every byte it reads is untrusted: a parser here
// returns a document or an error that names the shard, the place in it, the
// reason and the way out, within stated limits of time and memory. What may be
// passed over, and only then, is a matter of policy, and everything passed over
// is counted in the Report.
//
//	inputs, err := shards.Discover([]string{"corpus/"}, opts)
//	src := shards.New(inputs, opts)
//	docs := pipeline.Source(p, "shards", link, src)
//
// The order of documents is the byte order of slash paths within each input
// argument, arguments in the order given, records in file order. Nothing in it
// depends on time, on map order or on the number of workers.
//
// A binary that reads Parquet must hand its arguments to ChildMain when
// IsChild says so, before anything else: Parquet is decoded by a second process
// of the same binary, under limits, because no reader of it can be trusted with
// hostile bytes in this one.
package shards

import (
	"fmt"
	"strings"
)

// Policy says what happens to a record that cannot be used as it is.
type Policy string

// The policies. Which of them an option accepts is listed at the option.
const (
	Fail    Policy = "fail"    // stop, naming the place
	Skip    Policy = "skip"    // leave the record out and count it
	Replace Policy = "replace" // mend the record, count it, keep it
	Keep    Policy = "keep"    // use the record as it is (duplicates only)
)

// Limits and defaults. All are in bytes unless they say otherwise.
const (
	DefaultMaxLine  = 16 << 20
	DefaultMaxDoc   = 16 << 20
	DefaultMaxBatch = 256 << 20
	BlockBytes      = 64 << 10 // a block is sent once it holds this much text
	maxDepth        = 64       // nesting of a JSON value
	maxKindPlaces   = 8        // places remembered for each reason
	sniffBytes      = 8000     // head of a file that decides whether it is text
)

// Options are the reading rules of a source. The zero value is usable: it means
// the defaults named at the fields.
type Options struct {
	Field string // JSONL, Parquet and Arrow column that holds the text; default "text"
	Kind  Kind   // forces the kind of every input; empty means by magic and name

	// InvalidUTF8 is for text that is not UTF-8: fail, skip or replace (each
	// maximal invalid part becomes U+FFFD). When it is not set it is fail,
	// except that files met while walking a folder whose head is not UTF-8 are
	// taken for binary files, left out and counted.
	InvalidUTF8 Policy
	// BadLine is for JSONL lines that are not one JSON object with the text
	// field as a string: fail (default) or skip.
	BadLine Policy
	// Truncated is for input that ends too early (gzip, zstd, Arrow, the last
	// JSONL line): fail (default) or skip, which keeps the records before the
	// cut. Damage in the middle always fails: what came before it may be wrong.
	Truncated Policy
	// TooLong is for documents over MaxDoc and lines over MaxLine: fail
	// (default) or skip.
	TooLong Policy
	// Empty is for documents without text and null values: skip (default) or fail.
	Empty Policy
	// Duplicate is for documents whose text is equal to an earlier one's: skip
	// (default), fail, or keep, which switches the check off.
	Duplicate Policy

	// SkipBudget is the largest share of documents, in (0, 1], that may be
	// skipped for being invalid, bad, truncated or too long. Zero sets no limit.
	// Empty and duplicate documents do not count against it.
	SkipBudget float64

	MaxLine int64 // bytes of a JSONL line without its end; default DefaultMaxLine
	MaxDoc  int64 // bytes of a document; default DefaultMaxDoc
	// MaxBatch is the largest text column of one Arrow record batch in bytes;
	// the reader holds one in memory. Default DefaultMaxBatch.
	MaxBatch int64

	// Include and Exclude are patterns for files met while walking folders. A
	// pattern without a slash is matched against the base name, one with a slash
	// against the slash path below the folder; "**" stands for any number of
	// path elements. A file is read if it matches some Include (or there is
	// none) and no Exclude.
	Include, Exclude []string

	Child ChildLimits // of the process that decodes Parquet; zero means defaults
}

// withDefaults returns o with every default filled in. InvalidUTF8 stays empty
// when it was not set, since "not set" differs from "fail" (see the field).
func (o Options) withDefaults() Options {
	set := func(p *Policy, d Policy) {
		if *p == "" {
			*p = d
		}
	}
	set(&o.BadLine, Fail)
	set(&o.Truncated, Fail)
	set(&o.TooLong, Fail)
	set(&o.Empty, Skip)
	set(&o.Duplicate, Skip)
	if o.Field == "" {
		o.Field = "text"
	}
	if o.MaxLine == 0 {
		o.MaxLine = DefaultMaxLine
	}
	if o.MaxDoc == 0 {
		o.MaxDoc = DefaultMaxDoc
	}
	if o.MaxBatch == 0 {
		o.MaxBatch = DefaultMaxBatch
	}
	o.Child = o.Child.withDefaults()
	return o
}

// Validate reports every setting that is not allowed, one line each, in the
// names of the configuration file.
func (o Options) Validate() error {
	var bad []string
	check := func(name string, p Policy, allowed ...Policy) {
		if p == "" {
			return
		}
		var names []string
		for _, a := range allowed {
			if p == a {
				return
			}
			names = append(names, string(a))
		}
		bad = append(bad, fmt.Sprintf("data.%s: %q is not one of %s", name, p, strings.Join(names, ", ")))
	}
	check("invalid_utf8", o.InvalidUTF8, Fail, Skip, Replace)
	check("bad_line", o.BadLine, Fail, Skip)
	check("truncated", o.Truncated, Fail, Skip)
	check("too_long", o.TooLong, Fail, Skip)
	check("empty", o.Empty, Fail, Skip)
	check("duplicate", o.Duplicate, Fail, Skip, Keep)
	if !(o.SkipBudget >= 0 && o.SkipBudget <= 1) {
		bad = append(bad, fmt.Sprintf("data.skip_budget: %v is not a share between 0 and 1", o.SkipBudget))
	}
	limit := func(name string, n int64) {
		if n < 0 || n > 1<<31-1 {
			bad = append(bad, fmt.Sprintf("data.%s: %d is not between 1 and 2147483647 bytes", name, n))
		}
	}
	limit("max_line", o.MaxLine)
	limit("max_doc", o.MaxDoc)
	if o.MaxBatch < 0 || o.MaxBatch > 1<<40 {
		bad = append(bad, fmt.Sprintf("data.max_batch: %d is not between 1 and 2^40 bytes", o.MaxBatch))
	}
	switch o.Kind {
	case "", KindText, KindJSONL, KindParquet, KindArrowFile, KindArrowStream:
	default:
		bad = append(bad, fmt.Sprintf("data.kind: %q is not one of text, jsonl, parquet, arrow-file, arrow-stream", o.Kind))
	}
	if o.Child.Memory < 0 || o.Child.CPU < 0 || o.Child.Stall < 0 {
		bad = append(bad, "the limits of the Parquet process must not be negative")
	}
	for _, p := range append(append([]string(nil), o.Include...), o.Exclude...) {
		if err := checkPattern(p); err != nil {
			bad = append(bad, fmt.Sprintf("data.include or data.exclude: pattern %q: %v", p, err))
		}
	}
	if bad == nil {
		return nil
	}
	return fmt.Errorf("shards: %s", strings.Join(bad, "\nshards: "))
}

// Kind names the format of an input once decompressed.
type Kind string

// The kinds that are read.
const (
	KindText        Kind = "text"
	KindJSONL       Kind = "jsonl"
	KindParquet     Kind = "parquet"
	KindArrowFile   Kind = "arrow-file"
	KindArrowStream Kind = "arrow-stream"
	kindUnknown     Kind = "" // decided when the bytes arrive (standard input)
)

// The compressions that are read.
const (
	compNone = ""
	compGzip = "gz"
	compZstd = "zst"
)
