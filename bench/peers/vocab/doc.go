// Package vocab checks refrain/tokenize against the published vocabularies of
// OpenAI, which are megabytes and therefore come from a Go module and not from this
// repository. It is a module of its own so that the main module does not depend on
// them:
//
//	cd bench/peers/vocab && go test .
//
// The golden ids in golden.json.gz were made with tiktoken 0.14 (r50k, cl100k,
// o200k) and Hugging Face tokenizers 0.22.2 (Llama 3). The Llama 3 vocabulary is in
// no Go module; -llama3 FILE gives its tokenizer.json.
package vocab
