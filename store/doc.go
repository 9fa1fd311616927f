// Package store keeps tokenised documents on disk and gives them back without
// copying: a folder of uncompressed Arrow IPC files, one row a document, that is
// written once, verified when it is opened, and mapped into memory.
//
//	w, err := store.Create("corpus", store.Meta{Vocab: 4096, TokenizerHash: h})
//	err = w.Append(docID, source, ids)
//	m, err := w.Close(ctx)            // the manifest is written last, then the folder appears
//
//	s, err := store.Open("corpus", store.OpenOptions{})
//	s.Copy(doc, from, to, dst)        // widened to int32; safe for concurrent use
//
// The format is docs/formats/tokenstore.md; pyarrow, polars and DuckDB read it.
// The hot path does not go through an Arrow reader: the package finds the token
// buffers itself, once, with every offset checked.
//
// The package knows nothing about text, tokenizers, order or training.
package store
