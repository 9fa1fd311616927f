package main

import (
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/vbauerster/mpb/v8"
	"github.com/vbauerster/mpb/v8/decor"
)

// plainEvery is the time between progress lines where there is no terminal.
const plainEvery = 10 * time.Second

// progress shows how far a long command is: a bar on a terminal, a line every
// few seconds elsewhere, nothing with --quiet. It writes to the error output,
// so that results can be piped. Methods may be called from any goroutine.
type progress struct {
	mu    sync.Mutex
	w     io.Writer
	label string
	quiet bool
	all   *mpb.Progress // nil without a terminal
	bar   *mpb.Bar
	gone  bool // nothing of it stays on the terminal at the end
	note  string
	start time.Time
	last  time.Time
	from  int64 // done before the start
	done  int64
	total int64
}

// progress begins to show label. total is in units of whatever set is given;
// zero or less means that it is not known.
func (a *app) progress(label string, total int64) *progress {
	return a.progressTable(label, total, 0, nil)
}

// progressTable is progress with as many lines below the bar as rows says, which are drawn
// anew with it and vanish at the end. Where there is no terminal there are none. lines is
// called a few times a second, with the width there is, and returns at most rows lines
// without line ends.
func (a *app) progressTable(label string, total int64, rows int, lines func(width int) []string) *progress {
	p := &progress{w: a.err, label: label, quiet: a.quiet, total: total, start: time.Now()}
	p.last = p.start
	if a.quiet || !a.bars {
		return p
	}
	p.all = mpb.New(mpb.WithOutput(a.err), mpb.WithWidth(32), mpb.WithRefreshRate(150*time.Millisecond))
	note := decor.Any(func(decor.Statistics) string {
		p.mu.Lock()
		defer p.mu.Unlock()
		return "  " + p.note
	})
	before := mpb.PrependDecorators(decor.Name(fmt.Sprintf("%-10s", label)))
	below := mpb.BarOptional(mpb.BarBtmExtender(tableRows(rows, lines)...), rows > 0)
	p.gone = rows > 0
	remove := mpb.BarOptional(mpb.BarRemoveOnComplete(), p.gone)
	if total > 0 {
		p.bar = p.all.AddBar(total, before, below, remove, mpb.AppendDecorators(decor.NewPercentage("% .0f"), note,
			decor.Any(func(decor.Statistics) string { return p.eta() })))
	} else {
		p.bar = p.all.AddSpinner(0, before, below, remove, mpb.AppendDecorators(note))
	}
	return p
}

// tableRows draw a line each; the first of them asks for all.
func tableRows(rows int, lines func(width int) []string) (list []mpb.BarFiller) {
	var now []string // of this drawing; one goroutine draws
	for i := range rows {
		list = append(list, mpb.BarFillerFunc(func(w io.Writer, st decor.Statistics) error {
			if i == 0 {
				now = lines(st.AvailableWidth)
			}
			line := ""
			if i < len(now) {
				line = now[i]
			}
			_, err := io.WriteString(w, line+"\n")
			return err
		}))
	}
	return list
}

// beginsAt says how much was done before the start, which tells nothing about the speed.
func (p *progress) beginsAt(done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.from = done
}

// eta is the time left at the mean speed since the start.
func (p *progress) eta() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := time.Since(p.start)
	if p.total <= 0 || p.done <= p.from || d < time.Second {
		return ""
	}
	left := time.Duration(float64(d) * float64(p.total-p.done) / float64(p.done-p.from))
	return "  eta " + round(max(0, left))
}

// set says how much is done, with a remark such as the speed.
func (p *progress) set(done int64, note string) {
	p.mu.Lock()
	p.done, p.note = done, note
	due := p.bar == nil && !p.quiet && time.Since(p.last) >= plainEvery
	if due {
		p.last = time.Now()
	}
	p.mu.Unlock()
	if p.bar != nil && p.total > 0 {
		p.bar.SetCurrent(min(done, p.total))
	}
	if !due {
		return
	}
	share := ""
	if p.total > 0 {
		share = fmt.Sprintf(" %.0f %%", 100*float64(done)/float64(p.total))
	}
	fmt.Fprintf(p.w, "%s%s  %s%s\n", p.label, share, note, p.eta())
}

// end finishes the bar; ok tells whether all is done. It waits until the bar is
// drawn and leaves no goroutine behind.
func (p *progress) end(ok bool) {
	if p.all == nil {
		return
	}
	if ok {
		p.bar.SetTotal(-1, true)
	} else {
		p.bar.Abort(p.gone)
	}
	p.all.Wait()
}

// rate words an amount of bytes over the time since the start.
func (p *progress) rate(bytes int64) string {
	d := time.Since(p.start).Seconds()
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf("%.3g MB/s", float64(bytes)/1e6/d)
}

// verifyAfter is how long the stores may be read before a start says why it waits.
const verifyAfter = 2 * time.Second

// verifying returns a run.Job.OnVerify that prints how far it is, once that takes
// long. A bar would not do: most stores are read before anybody could see it.
func (a *app) verifying() func(key string, done, total int64) {
	next := time.Now().Add(verifyAfter)
	return func(key string, done, total int64) {
		now := time.Now()
		if a.quiet || now.Before(next) {
			return
		}
		next = now.Add(plainEvery)
		a.notef("%s is compared with its checksums before the start: %.0f %% of %s", key, 100*float64(done)/float64(max(1, total)), bytesText(total))
	}
}
