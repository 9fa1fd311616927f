package pipeline

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
	"time"
)

// WriteTable writes rows of Stats or Delta as aligned text, one line a stage,
// after a line of headings. Shares are of the time since the start of the run
// (or, for rows of Delta, of the interval), so that rows can be compared; what
// is missing to 100 % is the time before the first item and after the last. Rates
// are over the same time.
func WriteTable(w io.Writer, rows []StageStats) error {
	span := spanOf(rows)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	// tabwriter keeps the first error and Flush returns it.
	fmt.Fprintf(t, "stage\titems\titems/s\tMB/s\tbusy\tstarved\tblocked\tqueue\tdropped\tworkers\t\n")
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t%d/%d\t%d\t%d\t\n", r.Name, r.Items,
			rate(float64(r.Items), span), rate(float64(r.Bytes)/1e6, span),
			percent(r.Busy, span), percent(r.Starved, span), percent(r.Blocked, span),
			r.QueueLen, r.QueueCap, r.Dropped, r.Workers)
	}
	return t.Flush()
}

// spanOf is the time that rows cover: that of the stage that ran longest.
func spanOf(rows []StageStats) time.Duration {
	var span time.Duration
	for _, r := range rows {
		span = max(span, r.Fill+r.Wall)
	}
	return span
}

func rate(n float64, span time.Duration) string {
	if span <= 0 {
		return "-"
	}
	return strconv.FormatFloat(n/span.Seconds(), 'f', 1, 64)
}

func percent(part, whole time.Duration) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
