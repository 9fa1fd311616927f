// Package config reads the description of a training run: one strict YAML file
// plus key=value overrides become one Config, every value knows where it came
// from, and every problem is reported at once.
//
// The struct tags below are the only list of keys: the loader, the range
// checks, the printed configuration and the JSON schema all read them. The
// package starts nothing and knows nothing about stores, models or devices.
//
//	r, err := config.Load("run.yaml", []string{"optim.lr=2e-3"})
//	os.Stdout.Write(r.YAML())
//
// # Tags
//
//	yaml     the key
//	default  value when neither preset, file nor override gives one
//	min,max  inclusive bounds; above, below: exclusive bounds
//	enum     legal texts, separated by |
//	doc      one line for people
//	weights  "no" when the value cannot change a single weight (see Hash)
//	hash     "changed" for a key that came later: its default is what was done before
//	         there was a choice, and stands in no hash, so that older runs keep theirs
package config

import "math"

// Config is a whole run. A Config made by Load has passed every check that
// needs no file but its own; what depends on the corpus is checked by
// Train.Horizon once the corpus is known.
type Config struct {
	Model      Model      `yaml:"model" doc:"the network"`
	Data       Data       `yaml:"data" doc:"which tokens, and in which order"`
	Train      Train      `yaml:"train" doc:"how long, how wide, on what"`
	Distill    Distill    `yaml:"distill" doc:"learn from the predictions of finished runs as well as from the tokens"`
	Optim      Optim      `yaml:"optim" doc:"AdamW, schedule, clipping, decay by parameter role"`
	Regularize Regularize `yaml:"regularize" doc:"what a step does at random against learning the data by heart"`
	Eval       Eval       `yaml:"eval" doc:"validation during training"`
	Save       Save       `yaml:"save" doc:"checkpoints"`
	Log        Log        `yaml:"log" doc:"step lines"`
	Metrics    Metrics    `yaml:"metrics" doc:"Prometheus endpoint"`
	Pprof      Pprof      `yaml:"pprof" doc:"pprof endpoint"`
}

// Model is the shape of a Llama-family network. The head size is Dim/Heads.
type Model struct {
	Preset      string  `yaml:"preset" weights:"no" doc:"named shape that fills model, data.seq, train.batch and optim.lr; empty = give the shape here"`
	Vocab       int     `yaml:"vocab" default:"0" min:"0" max:"1048576" doc:"vocabulary size; 0 = the store's"`
	Layers      int     `yaml:"layers" default:"0" min:"1" max:"512" doc:"transformer layers"`
	Dim         int     `yaml:"dim" default:"0" min:"2" max:"65536" doc:"model width"`
	Heads       int     `yaml:"heads" default:"0" min:"1" max:"1024" doc:"query heads"`
	KVHeads     int     `yaml:"kv_heads" default:"0" min:"0" max:"1024" doc:"key and value heads; 0 = heads"`
	FFN         int     `yaml:"ffn" default:"0" min:"1" max:"262144" doc:"width of the SwiGLU layer"`
	MaxT        int     `yaml:"max_t" default:"0" min:"0" max:"1048576" doc:"longest sequence; 0 = data.seq"`
	RopeTheta   float64 `yaml:"rope_theta" default:"10000" above:"1" max:"1e12" doc:"base of the rotary frequencies"`
	RopeScaling string  `yaml:"rope_scaling" hash:"changed" doc:"llama3:FACTOR:LOW:HIGH:ORIGINAL slows rotary frequencies down as Llama 3.1 does; empty = not"`
	NormEps     float64 `yaml:"norm_eps" default:"1e-05" above:"0" max:"0.1" doc:"epsilon of RMSNorm"`
	Tie         bool    `yaml:"tie" default:"false" doc:"one matrix for token embedding and output head"`
	Init        string  `yaml:"init" default:"papers" enum:"papers|normal-0.02" doc:"papers: truncated normal 1/sqrt(fan_in), embedding 1/dim; normal-0.02: N(0, 0.02)"`
	From        string  `yaml:"from" weights:"no" doc:"folder of Llama weights to start from (config.json, model.safetensors); empty = new weights by init and train.seed"`
}

// Data says which tokens are read and in which order.
type Data struct {
	Store          string   `yaml:"store" weights:"no" doc:"token store; with data.inputs, where it is built"`
	Val            string   `yaml:"val" weights:"no" doc:"validation store; empty = the folder val inside data.store"`
	Inputs         []string `yaml:"inputs" weights:"no" doc:"text, JSONL, Parquet or Arrow files and folders to ingest first"`
	Field          string   `yaml:"field" default:"text" weights:"no" doc:"text column of JSONL, Parquet and Arrow inputs"`
	Kind           string   `yaml:"kind" enum:"|text|jsonl|parquet|arrow-file|arrow-stream" weights:"no" doc:"read every input as this; empty = by content and name"`
	Tokenizer      string   `yaml:"tokenizer" weights:"no" doc:"with data.inputs: a tokenizer file, or train:V for a new one of V entries"`
	ValDocs        string   `yaml:"val_docs" default:"1%" weights:"no" doc:"with data.inputs: documents kept for validation, as a share (1%) or a count"`
	InvalidUTF8    string   `yaml:"invalid_utf8" enum:"|fail|skip|replace" weights:"no" doc:"text that is not UTF-8; empty = fail, but leave binary files of a folder out"`
	BadLine        string   `yaml:"bad_line" default:"fail" enum:"fail|skip" weights:"no" doc:"a JSONL line that is not an object with the text field"`
	Truncated      string   `yaml:"truncated" default:"fail" enum:"fail|skip" weights:"no" doc:"a file that ends early; skip keeps what came before the cut"`
	TooLong        string   `yaml:"too_long" default:"fail" enum:"fail|skip" weights:"no" doc:"a document over max_doc or a line over max_line"`
	Empty          string   `yaml:"empty" default:"skip" enum:"fail|skip" weights:"no" doc:"a document without text"`
	Duplicate      string   `yaml:"duplicate" default:"skip" enum:"fail|skip|keep" weights:"no" doc:"a document whose text was seen before; keep switches the check off"`
	SkipBudget     float64  `yaml:"skip_budget" default:"0.01" min:"0" max:"1" weights:"no" doc:"largest share of documents that may be skipped for being bad; 0 = no limit"`
	MaxLine        int64    `yaml:"max_line" default:"16777216" min:"1" max:"1073741824" weights:"no" doc:"bytes of a JSONL line"`
	MaxDoc         int64    `yaml:"max_doc" default:"16777216" min:"1" max:"1073741824" weights:"no" doc:"bytes of a document"`
	MaxBatch       int64    `yaml:"max_batch" default:"268435456" min:"1" max:"1099511627776" weights:"no" doc:"bytes of the text column in one Arrow record batch"`
	Include        []string `yaml:"include" weights:"no" doc:"patterns of files to read in folders; empty = all"`
	Exclude        []string `yaml:"exclude" weights:"no" doc:"patterns of files to leave out"`
	Subset         Subset   `yaml:"subset" doc:"train on a part of the documents, chosen by its own seed"`
	Pool           string   `yaml:"pool" doc:"k/n: the k-th of n independent parts of the documents; empty = all"`
	Synthetic      Mixed    `yaml:"synthetic" doc:"mix rows of a second store in, such as text that a model wrote"`
	Mode           string   `yaml:"mode" default:"repack" enum:"fixed|block|reshuffle|repack" doc:"what changes from epoch to epoch (see docs/formats/stream.md)"`
	Block          int64    `yaml:"block" default:"2048" min:"1" max:"1099511627776" doc:"mode block: windows in a block"`
	Seq            int      `yaml:"seq" default:"512" min:"1" max:"1048576" doc:"tokens in a row (T)"`
	Seed           *uint64  `yaml:"seed" doc:"seed of the order; null = train.seed"`
	Tail           string   `yaml:"tail" default:"drop" enum:"drop|carry|pad" doc:"tokens of an epoch that do not fill a row"`
	Targets        string   `yaml:"targets" default:"all" enum:"all|inside" doc:"all: every input's next token; inside: not the token after a row's last"`
	DocMask        bool     `yaml:"doc_mask" default:"true" doc:"attention stays inside a document"`
	ResetPositions bool     `yaml:"reset_positions" default:"false" doc:"positions start again at each document"`
}

// Subset chooses documents before anything else does. Zero means no limit.
type Subset struct {
	Tokens int64  `yaml:"tokens" default:"0" min:"0" max:"1099511627776" doc:"this many tokens: whole documents, and a part of the one chosen last; 0 = all"`
	Docs   int64  `yaml:"docs" default:"0" min:"0" max:"1099511627776" doc:"this many documents; 0 = all"`
	Seed   uint64 `yaml:"seed" default:"0" doc:"seed of the choice"`
}

// Mixed is a second store that is read beside the first. An epoch is a pass over the rows
// of data.store all the same, so a run of given epochs takes 1/(1-Fraction) as many steps.
type Mixed struct {
	Store    string  `yaml:"store" weights:"no" doc:"token store of the same tokenizer; empty = none"`
	Fraction float64 `yaml:"fraction" default:"0" hash:"changed" min:"0" below:"1" doc:"share of the rows that come from it, in millionths at most; epochs still count passes over data.store"`
}

// Share is the fraction as a reduced ratio; false when it is no whole number of millionths.
func (m *Mixed) Share() (num, den int64, ok bool) {
	const most = 1_000_000
	n := math.Round(m.Fraction * most)
	if n/most != m.Fraction {
		return 0, 0, false
	}
	num, den = int64(n), most
	for a, b := den, num; ; a, b = b, a%b {
		if b == 0 {
			return num / a, den / a, true
		}
	}
}

// Train says how long to train and on what. Exactly one of Epochs, Tokens and
// Steps is above zero.
type Train struct {
	Batch      int     `yaml:"batch" default:"8" min:"1" max:"1048576" doc:"rows in an optimiser step, over all devices"`
	Epochs     float64 `yaml:"epochs" default:"0" min:"0" max:"1e6" doc:"length in passes over the data"`
	Tokens     int64   `yaml:"tokens" default:"0" min:"0" max:"1125899906842624" doc:"length in tokens"`
	Steps      int64   `yaml:"steps" default:"0" min:"0" max:"1099511627776" doc:"length in optimiser steps"`
	Shards     int     `yaml:"shards" default:"0" min:"0" max:"65536" doc:"equal parts of a batch whose gradients are added in a fixed tree, whatever the devices; 0 = automatic"`
	MicroBatch int     `yaml:"micro_batch" default:"0" min:"0" max:"1048576" weights:"no" doc:"rows a device computes at a time, to save memory; 0 = all of its rows"`
	Device     string  `yaml:"device" default:"cpu" enum:"cpu|cuda" weights:"no" doc:"what computes: this machine's processor, or its GPUs (a binary of make cuda)"`
	Devices    int     `yaml:"devices" default:"1" min:"1" max:"64" weights:"no" doc:"devices, a power of two (logical ones on the CPU)"`
	Threads    int     `yaml:"threads" default:"0" min:"0" max:"1024" weights:"no" doc:"CPU threads of one device; 0 = share all cores"`
	Seed       uint64  `yaml:"seed" default:"0" doc:"seed of the initial weights, and of the order unless data.seed is set"`
	Precision  string  `yaml:"precision" default:"auto" enum:"auto|f32|bf16" doc:"of activations and products; auto = bf16 where the processor is faster at it, else f32; kept on resume"`
}

// Distill adds a term to the loss: (1-Weight) * cross entropy + Weight * Temperature^2 *
// KL(teachers || student). The teachers are the mean of their logits on the rows of the
// run, and not their folders but their weights are part of what the run is.
type Distill struct {
	Teachers    []string `yaml:"teachers" weights:"no" doc:"run folders, RUN@cycles or checkpoints of the same tokenizer; empty = none"`
	Weight      float64  `yaml:"weight" default:"0.5" hash:"changed" above:"0" max:"1" doc:"share of the teachers in the loss; the tokens have the rest"`
	Temperature float64  `yaml:"temperature" default:"1" hash:"changed" above:"0" max:"100" doc:"that both predictions are softened by"`
	TopK        int      `yaml:"top_k" default:"0" hash:"changed" min:"0" max:"1048576" doc:"only the likeliest tokens of the teachers, as parts of 1; 0 = all"`
}

// Optim is AdamW with decoupled, learning-rate-scaled decay:
// w -= lr_t*(mhat/(sqrt(vhat)+eps) + decay*w).
type Optim struct {
	LR             float64  `yaml:"lr" default:"0.003" above:"0" max:"10" doc:"peak learning rate"`
	Beta1          float64  `yaml:"beta1" default:"0.9" min:"0" below:"1" doc:"decay of the first moment"`
	Beta2          float64  `yaml:"beta2" default:"0.95" min:"0" below:"1" doc:"decay of the second moment"`
	Beta2RefBatch  int      `yaml:"beta2_reference_batch" hash:"changed" default:"0" min:"0" max:"1048576" doc:"the batch beta2 is meant for: with another train.batch the second moment keeps its half-life in tokens; 0 = beta2 as it is"`
	Eps            float64  `yaml:"eps" default:"1e-08" above:"0" max:"1" doc:"added to the root of the second moment"`
	Clip           float64  `yaml:"clip" default:"1" min:"0" max:"1e6" doc:"largest global gradient norm, applied before the moments; 0 = off"`
	WarmupFrac     float64  `yaml:"warmup_frac" default:"0.01" min:"0" max:"1" doc:"share of the steps that warm up linearly"`
	WarmupSteps    *int64   `yaml:"warmup_steps" min:"0" max:"1099511627776" doc:"warm-up in steps, instead of warmup_frac"`
	MinLRRatio     float64  `yaml:"min_lr_ratio" default:"0" min:"0" max:"1" doc:"the cosine ends at lr times this"`
	Schedule       string   `yaml:"schedule" default:"cosine" enum:"cosine|cyclic" hash:"changed" doc:"cyclic: the learning rate restarts optim.cycles times, and the model at the end of each cycle is kept as a member of an ensemble"`
	Cycles         int64    `yaml:"cycles" default:"4" min:"1" max:"1000000" hash:"changed" doc:"schedule cyclic: cycles in the run"`
	CycleDecayFrom float64  `yaml:"cycle_decay_from" default:"0.65" min:"0" max:"100" hash:"changed" doc:"schedule cyclic: weight decays begin a cycle at this many times their value"`
	CycleDecayTo   float64  `yaml:"cycle_decay_to" default:"1.5" min:"0" max:"100" hash:"changed" doc:"schedule cyclic: and rise to this while the learning rate falls; both 1 = constant"`
	WeightDecay    float64  `yaml:"weight_decay" default:"0.1" min:"0" max:"1000" doc:"decay of hidden matrices"`
	HeadDecay      *float64 `yaml:"head_decay" min:"0" max:"1000" doc:"decay of an untied head; null = weight_decay"`
	EmbeddingDecay float64  `yaml:"embedding_decay" default:"0" min:"0" max:"1000" doc:"decay of an untied token embedding"`
	TiedDecay      float64  `yaml:"tied_decay" default:"0" min:"0" max:"1000" doc:"decay of the shared matrix when model.tie is on"`
	NormDecay      float64  `yaml:"norm_decay" default:"0" min:"0" max:"1000" doc:"decay of norm scales"`
	LRMul          LRMul    `yaml:"lr_mul" doc:"learning-rate multiplier of each parameter role"`
}

// LRMul multiplies the learning rate of a parameter role.
type LRMul struct {
	Hidden    float64 `yaml:"hidden" default:"1" min:"0" max:"1000" doc:"hidden matrices"`
	Head      float64 `yaml:"head" default:"1" min:"0" max:"1000" doc:"untied output head"`
	Embedding float64 `yaml:"embedding" default:"1" min:"0" max:"1000" doc:"untied token embedding"`
	Tied      float64 `yaml:"tied" default:"1" min:"0" max:"1000" doc:"shared matrix"`
	Norm      float64 `yaml:"norm" default:"1" min:"0" max:"1000" doc:"norm scales"`
}

// Eval says when and on how much validation runs. It never changes a weight.
type Eval struct {
	Every int64 `yaml:"every" default:"0" min:"0" max:"1099511627776" weights:"no" doc:"steps between validations; 0 = 20 in a run"`
	Rows  int64 `yaml:"rows" default:"0" min:"0" max:"1099511627776" weights:"no" doc:"rows of the validation store; 0 = all"`
	Batch int   `yaml:"batch" default:"0" min:"0" max:"1048576" weights:"no" doc:"rows at a time; 0 = train.batch"`
}

// Save says when checkpoints are written and how many stay. One is always
// written at the end of a run and on a stop.
type Save struct {
	Every   int64   `yaml:"every" default:"0" min:"0" max:"1099511627776" weights:"no" doc:"steps between checkpoints; 0 = by time only"`
	Minutes float64 `yaml:"minutes" default:"10" min:"0" max:"1e5" weights:"no" doc:"minutes between checkpoints; 0 = by steps only"`
	Keep    int     `yaml:"keep" default:"3" min:"0" max:"1000000" weights:"no" doc:"newest checkpoints that stay; 0 = all"`
}

// Log says how often a step line is printed.
type Log struct {
	Every int64 `yaml:"every" default:"10" min:"1" max:"1099511627776" weights:"no" doc:"steps between lines on the terminal; metrics.jsonl has every step"`
}

// Metrics is the Prometheus endpoint.
type Metrics struct {
	Addr string `yaml:"addr" weights:"no" doc:"loopback address such as 127.0.0.1:9090; empty = off"`
}

// Pprof is the net/http/pprof endpoint.
type Pprof struct {
	Addr string `yaml:"addr" weights:"no" doc:"loopback address such as 127.0.0.1:6060; empty = off"`
}
