package pipeline_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"refrain/pipeline"
)

// Words are read, counted by two workers, and printed in the order they were
// read.
func Example() {
	p := pipeline.New()
	// 8 items hide the jitter of a source that reads files.
	words := pipeline.Source(p, "words", pipeline.LinkConfig{Items: 8},
		pipeline.StageFunc[struct{}, string](func(ctx context.Context, _ pipeline.In[struct{}], out pipeline.Out[string]) error {
			for i, w := range strings.Fields("a line that comes back") {
				pipeline.AtIndex(ctx, "word", int64(i)) // named if this stage fails
				if err := out.Send(ctx, w); err != nil {
					return err
				}
			}
			return nil
		}))
	lengths := pipeline.Then(p, "lengths", words, pipeline.LinkConfig{Items: 8},
		pipeline.Ordered(2, func(_ context.Context, w string) (string, error) {
			return fmt.Sprint(w, " ", len(w)), nil
		}))
	pipeline.Sink(p, "print", lengths,
		pipeline.StageFunc[string, struct{}](func(ctx context.Context, in pipeline.In[string], _ pipeline.Out[struct{}]) error {
			for s, err := range pipeline.Each(ctx, in) {
				if err != nil {
					return err
				}
				fmt.Println(s)
			}
			return nil
		}))
	if err := p.Run(context.Background()); err != nil {
		fmt.Println(err)
	}
	// Output:
	// a 1
	// line 4
	// that 4
	// comes 5
	// back 4
}

func ExampleBottleneck() {
	rows := []pipeline.StageStats{
		{Name: "shards", Wall: 10 * time.Second, Busy: 1 * time.Second, Blocked: 9 * time.Second},
		{Name: "tokens", Wall: 10 * time.Second, Busy: 10 * time.Second},
		{Name: "store", Wall: 10 * time.Second, Busy: 2 * time.Second, Starved: 8 * time.Second},
	}
	name, why := pipeline.Bottleneck(rows)
	fmt.Println(name)
	fmt.Println(why)
	// Output:
	// tokens
	// tokens is busy 100.0 % of 10s, starved 0.0 %, blocked 0.0 %; before it shards is blocked 90.0 %; after it store is starved 80.0 %
}

func ExampleWriteTable() {
	rows := []pipeline.StageStats{
		{Name: "shards", Items: 4000, Bytes: 20e6, Wall: 10 * time.Second, Busy: 1 * time.Second, Blocked: 9 * time.Second, QueueLen: 64, QueueCap: 64, Workers: 1, Done: true},
		{Name: "tokens", Items: 3900, Bytes: 9e6, Fill: time.Second, Wall: 9 * time.Second, Busy: 9 * time.Second, QueueCap: 64, Workers: 4},
	}
	if err := pipeline.WriteTable(os.Stdout, rows); err != nil {
		fmt.Println(err)
	}
	// Output:
	//    stage  items  items/s  MB/s    busy  starved  blocked  queue  dropped  workers
	//   shards   4000    400.0   2.0  10.0 %    0.0 %   90.0 %  64/64        0        1
	//   tokens   3900    390.0   0.9  90.0 %    0.0 %    0.0 %   0/64        0        4
}
