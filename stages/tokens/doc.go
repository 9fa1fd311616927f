// Package tokens turns documents into token ids, in order and on every core, and
// writes them to a token store.
//
//	source --*item.Docs--> Encode (n workers) --*item.Tokens--> Write --> STORE.partial
//	                                                               \----> STORE.partial/val
//	                                           then one rename: STORE
//
// Equal inputs give equal bytes, whatever the number of workers. Prepare is the
// whole chain; Encode and Write are its stages.
//
// The package knows nothing about where documents come from or what reads a store.
package tokens
