package shards

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"
)

// ChildLimits bound the process that decodes one Parquet file.
type ChildLimits struct {
	Memory int64         // address space in bytes, where the system can limit it; default 4 GiB
	CPU    time.Duration // processor time; default 60 s plus 1 s for every 4 MiB of file
	Stall  time.Duration // longest wait for its next answer; default 60 s
	Binary string        // program whose main calls ChildMain; default: this one
}

func (c ChildLimits) withDefaults() ChildLimits {
	if c.Memory == 0 {
		c.Memory = 4 << 30
	}
	if c.Stall == 0 {
		c.Stall = 60 * time.Second
	}
	return c
}

const (
	maxFooter = 16 << 20 // bytes of a Parquet footer
	maxRows   = 1 << 40  // rows of a Parquet file
)

// parquet reads a Parquet file through a child process of this binary, which
// gets the open file as its standard input and answers in frames (see frame.go).
// Nothing the child says is trusted: every frame is checked against its size,
// the limits and the rows announced before. A child that dies, stalls or lies is
// damage of the shard, named with the row group it was in.
func (r *run) parquet(f *os.File) error {
	if whole, err := r.parquetTail(f); err != nil || !whole {
		return err
	}
	p, err := r.startChild(f)
	if err != nil {
		return err
	}
	err = p.frames()
	if err != nil {
		p.kill()
	}
	died := p.wait()
	var e *Error
	var sent *sendError
	switch {
	case context.Cause(r.ctx) != nil:
		return context.Cause(r.ctx)
	case errors.As(err, &sent):
		return sent.err
	case errors.As(err, &e):
		return e
	case p.stalled.Load():
		return p.damage(fmt.Errorf("the Parquet reader made no progress for %v and was stopped", r.o.Child.Stall))
	case err != nil && died != nil && p.badFrame == nil:
		return p.damage(fmt.Errorf("the Parquet reader died (%v)%s", died, p.lastWords()))
	case err != nil:
		return p.damage(err)
	case died != nil:
		return p.damage(fmt.Errorf("the Parquet reader ended badly (%v)%s", died, p.lastWords()))
	}
	return nil
}

// parquetTail checks magic numbers and footer length. A cut file has lost its
// footer, and with it everything: with the policy skip it counts as one
// truncated record, and whole is false.
func (r *run) parquetTail(f *os.File) (whole bool, err error) {
	st, err := f.Stat()
	if err != nil {
		return false, fmt.Errorf("shards: %s: %w", r.in.Path, err)
	}
	var head [4]byte
	var tail [8]byte
	size := st.Size()
	if size >= 12 {
		if _, err = f.ReadAt(head[:], 0); err == nil {
			_, err = f.ReadAt(tail[:], size-8)
		}
		if err != nil {
			return false, fmt.Errorf("shards: %s: %w", r.in.Path, err)
		}
		if string(head[:]) != magicParquet {
			return false, &Error{Path: r.in.Path, Reason: damaged, Detail: fmt.Sprintf("a Parquet file begins with PAR1, this one with %q", head), Fix: fixDamaged}
		}
	}
	if string(tail[4:]) == "PARE" {
		return false, &Error{Path: r.in.Path, Reason: Schema, Detail: "the Parquet footer is encrypted", Fix: "decrypt the file first"}
	}
	if string(tail[4:]) != magicParquet {
		return false, r.reject(place{}, Truncated, r.o.Truncated, "the Parquet footer is missing", nil, "fetch the file again, or set data.truncated: skip to leave it out")
	}
	if n := int64(binary.LittleEndian.Uint32(tail[:])); n > maxFooter || n > size-12 {
		return false, &Error{Path: r.in.Path, Reason: damaged, Detail: fmt.Sprintf("a footer of %d bytes in a file of %d (at most %d are read)", n, size, maxFooter), Fix: fixDamaged}
	}
	return true, nil
}

// child is a running Parquet reader.
type child struct {
	r        *run
	cmd      *exec.Cmd
	out      *bufio.Reader
	errs     headWriter
	timer    *time.Timer
	stalled  atomic.Bool
	badFrame error

	groups   int // announced
	group    int // being read, -1 before the first
	left     int64
	rows     int64 // announced for the file
	row      int64
	finished bool
}

// startChild starts the reader on an open file.
func (r *run) startChild(f *os.File) (*child, error) {
	lim := r.o.Child
	binaryPath := lim.Binary
	if binaryPath == "" {
		self, err := os.Executable()
		if err != nil {
			return nil, fmt.Errorf("shards: %s: Parquet is read by a second process of this program, whose file cannot be found: %w", r.in.Path, err)
		}
		binaryPath = self
	}
	cpu := lim.CPU
	if cpu == 0 {
		st, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("shards: %s: %w", r.in.Path, err)
		}
		cpu = 60*time.Second + time.Duration(st.Size()>>22)*time.Second
	}
	p := &child{r: r, group: -1}
	p.cmd = exec.CommandContext(r.ctx, binaryPath, ChildArg, r.o.Field,
		strconv.FormatInt(r.o.MaxDoc, 10), strconv.FormatInt(lim.Memory, 10), strconv.FormatInt(int64((cpu+time.Second-1)/time.Second), 10))
	p.cmd.Stdin = f
	p.cmd.Stderr = &p.errs
	p.cmd.WaitDelay = 5 * time.Second
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		if cause := context.Cause(r.ctx); cause != nil {
			return nil, cause
		}
		return nil, fmt.Errorf("shards: %s: cannot start the Parquet reader %s: %w", r.in.Path, binaryPath, err)
	}
	p.out = bufio.NewReaderSize(out, 256<<10)
	p.timer = time.AfterFunc(lim.Stall, func() {
		p.stalled.Store(true)
		p.kill()
	})
	return p, nil
}

// kill ends the child; it is already started, so Process is there.
func (p *child) kill() { _ = p.cmd.Process.Kill() } // already gone is as good

// wait collects the child. A child that is killed for a fault of its own is
// reported by the fault.
func (p *child) wait() error {
	p.timer.Stop()
	return p.cmd.Wait()
}

func (p *child) place() place {
	at := place{groupName: "row group", group: p.group, hasGroup: p.group >= 0}
	if p.group >= 0 {
		at.row, at.hasRow = p.row, true
	}
	return at
}

func (p *child) damage(err error) error {
	return &Error{Path: p.r.in.Path, Place: p.place().String(), Reason: damaged, Err: err, Fix: fixDamaged}
}

// frames reads the child's answers up to the last one.
func (p *child) frames() error {
	var buf []byte
	limit := frameTarget + p.r.o.MaxDoc + 64
	for {
		// The clock runs only while we wait for the child, not while the link
		// is full.
		p.timer.Reset(p.r.o.Child.Stall)
		kind, body, err := readFrame(p.out, buf, limit)
		p.timer.Stop()
		buf = body
		if err == io.EOF && p.finished {
			return nil
		}
		if err == io.EOF || errors.Is(err, io.ErrUnexpectedEOF) {
			return errors.New("the Parquet reader stopped answering")
		}
		if err == nil {
			err = p.frame(kind, body)
		}
		var e *Error
		var sent *sendError
		if err != nil && !errors.As(err, &e) && !errors.As(err, &sent) {
			p.badFrame = err
		}
		if err != nil {
			return err
		}
	}
}

func (p *child) frame(kind byte, body []byte) error {
	b := &cursor{b: body}
	switch {
	case p.finished:
		return errors.New("the Parquet reader goes on after its end")
	case kind == frameStart && p.rows == 0 && p.groups == 0 && p.group < 0:
		p.groups, p.rows = int(b.u32()), b.i64()
		if b.u8() == 0 {
			p.r.note("Parquet was decoded without a memory limit, which this system does not offer; read only files you trust")
		}
		if p.rows < 0 || p.rows > maxRows {
			return fmt.Errorf("the file claims %d rows", p.rows)
		}
	case kind == frameGroup && p.left == 0 && p.group+1 < p.groups:
		p.group++
		p.left = b.i64()
		if p.left < 0 || p.left > p.rows-p.row {
			return fmt.Errorf("row group %d claims %d rows of %d left", p.group, p.left, p.rows-p.row)
		}
	case kind == frameValues && p.group >= 0:
		if err := p.values(b); err != nil {
			return err
		}
	case kind == frameSchema:
		detail, fix, _ := strings.Cut(string(body[:min(len(body), 4096)]), "\n")
		return &Error{Path: p.r.in.Path, Reason: Schema, Detail: printable(detail), Fix: printable(fix)}
	case kind == frameFault:
		return errors.New(printable(string(body)))
	case kind == frameEnd && p.left == 0 && p.row == p.rows && p.group+1 == p.groups:
		p.finished = true
	default:
		return fmt.Errorf("the Parquet reader answers out of turn (frame %q with %d of %d rows read)", kind, p.row, p.rows)
	}
	return b.done()
}

// values takes a frame of rows.
func (p *child) values(b *cursor) error {
	n := int64(b.u32())
	if n > p.left {
		return fmt.Errorf("%d rows where %d are left in the row group", n, p.left)
	}
	for range n {
		size := b.i32()
		at := place{groupName: "row group", group: p.group, hasGroup: true, row: p.row, hasRow: true}
		var err error
		switch {
		case size == sizeNull:
			err = p.r.reject(at, Empty, p.r.o.Empty, fmt.Sprintf("column %q is null", p.r.o.Field), nil, fixEmpty)
		case size == sizeTooLong:
			err = p.r.tooLong(at)
		default:
			text := b.bytes(int64(size))
			if b.err != nil {
				return b.err
			}
			err = p.r.document(at, p.row, text)
		}
		if b.err != nil {
			return b.err
		}
		if err != nil {
			return &sendError{err}
		}
		p.row++
		p.left--
	}
	return nil
}

// lastWords is what the child wrote to its error stream, shortened.
func (p *child) lastWords() string {
	s := strings.TrimSpace(string(p.errs.b))
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = s[:i]
	}
	if s == "" {
		return ""
	}
	return ": " + printable(s)
}

// maxWords bounds what a message repeats of what the child says.
const maxWords = 500

// printable makes words of the child fit for a message. They may hold bytes of the
// file, so what could steer a terminal becomes a question mark.
func printable(s string) string {
	out := strings.Map(func(r rune) rune {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, s[:min(len(s), maxWords)])
	if len(s) > maxWords {
		out += "..."
	}
	return out
}

// headWriter keeps the first few kilobytes it is given.
type headWriter struct{ b []byte }

func (w *headWriter) Write(p []byte) (int, error) {
	if room := 4096 - len(w.b); room > 0 {
		w.b = append(w.b, p[:min(room, len(p))]...)
	}
	return len(p), nil
}
