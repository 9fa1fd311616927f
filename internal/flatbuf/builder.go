package flatbuf

// Builder makes one FlatBuffer. Objects come before what refers to them. The zero value is ready.
//
// It builds back to front, as the format wants: b holds the bytes in reverse, so the
// "address" of an object is its distance from the end.
type Builder struct {
	b      []byte
	fields []int // addresses of the fields of the open table, 0 when absent
	start  int   // len(b) when the table was opened
}

// align pads so that after extra further bytes the length is a multiple of size.
func (f *Builder) align(size, extra int) {
	for (len(f.b)+extra)%size != 0 {
		f.b = append(f.b, 0)
	}
}

// put writes the low size bytes of v, aligned to their own size.
func (f *Builder) put(v uint64, size int) {
	f.align(size, 0)
	for i := size - 1; i >= 0; i-- {
		f.b = append(f.b, byte(v>>(8*i)))
	}
}

// ref writes an offset to the object at address to.
func (f *Builder) ref(to int) {
	f.align(4, 0)
	f.put(uint64(len(f.b)+4-to), 4)
}

// Str writes a string and returns its address.
func (f *Builder) Str(s string) int {
	f.align(4, len(s)+1)
	f.b = append(f.b, 0)
	for i := len(s) - 1; i >= 0; i-- {
		f.b = append(f.b, s[i])
	}
	f.put(uint64(len(s)), 4)
	return len(f.b)
}

// Refs writes a vector of offsets and returns its address.
func (f *Builder) Refs(to ...int) int {
	f.align(4, 4*len(to))
	for i := len(to) - 1; i >= 0; i-- {
		f.ref(to[i])
	}
	f.put(uint64(len(to)), 4)
	return len(f.b)
}

// Structs writes a vector of structs made of 64-bit words and returns its
// address. words holds all of them, one struct after the other.
func (f *Builder) Structs(n int, words []uint64) int {
	f.align(4, 8*len(words))
	f.align(8, 8*len(words))
	for i := len(words) - 1; i >= 0; i-- {
		f.put(words[i], 8)
	}
	f.put(uint64(n), 4)
	return len(f.b)
}

// Open starts a table of n fields; its fields are set, then Close ends it.
func (f *Builder) Open(n int) {
	f.fields = make([]int, n)
	f.start = len(f.b)
}

// Scalar sets field i of the open table.
func (f *Builder) Scalar(i int, v uint64, size int) {
	f.put(v, size)
	f.fields[i] = len(f.b)
}

// Object sets field i of the open table to an object made before.
func (f *Builder) Object(i, to int) {
	f.ref(to)
	f.fields[i] = len(f.b)
}

// Close ends the table and returns its address.
func (f *Builder) Close() int {
	f.put(0, 4) // offset to the vtable, known below
	table := len(f.b)
	n := len(f.fields)
	for n > 0 && f.fields[n-1] == 0 {
		n--
	}
	for i := n - 1; i >= 0; i-- {
		v := 0
		if f.fields[i] != 0 {
			v = table - f.fields[i]
		}
		f.put(uint64(v), 2)
	}
	f.put(uint64(table-f.start), 2)
	f.put(uint64(2*n+4), 2)
	back := uint32(len(f.b) - table)
	for i := range 4 {
		f.b[table-1-i] = byte(back >> (8 * i))
	}
	return table
}

// Finish returns the buffer with the table at address root as its root; its
// length is a multiple of 8.
func (f *Builder) Finish(root int) []byte {
	f.align(8, 4)
	f.ref(root)
	out := make([]byte, len(f.b))
	for i, c := range f.b {
		out[len(out)-1-i] = c
	}
	return out
}
