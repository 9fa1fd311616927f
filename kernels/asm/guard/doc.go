// Package guard gives tests memory in which a read or write past the end stops
// the program, which is the only way to see one made by assembly.
package guard
