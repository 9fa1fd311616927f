package study

import (
	"bytes"
	"fmt"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"refrain/internal/run"
)

// IndexedJob is a Kubernetes Job that trains cells of a sweep, one a pod. Files are on a
// volume claim, which is mounted at Mount, the working directory.
type IndexedJob struct {
	Name      string // of the job, a DNS label
	Namespace string // empty is that of whoever applies it
	Image     string // with the program in its PATH
	Claim     string // of the volume, to be written by several pods at a time
	Mount     string
	Spec      string // the sweep file, relative to Mount
	Cells     string // numbers such as 1,3-4, of which a pod trains that of its index
	Number    int    // of them
	Parallel  int    // most pods at a time; 0 is all
	CPUs      int    // of a pod
	Memory    int64  // bytes of a pod
	Args      []string
}

// dnsLabel is what Kubernetes takes for the name of a job (RFC 1123).
var dnsLabel = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`)

// maxLabel leaves room for what Kubernetes puts behind the name of a job for its pods.
const maxLabel = 52

// NameOfJob makes a name for a job from that of a sweep file.
func NameOfJob(file string) string {
	base := path.Base(strings.ReplaceAll(file, `\`, "/"))
	base = strings.ToLower(strings.TrimSuffix(base, path.Ext(base)))
	name := "refrain-" + strings.Trim(regexp.MustCompile(`[^a-z0-9]+`).ReplaceAllString(base, "-"), "-")
	return strings.TrimRight(name[:min(len(name), maxLabel)], "-")
}

// graceSeconds is how long a pod that is asked to end has to finish a step and save.
const graceSeconds = 120

// manifest and what follows are the keys of a batch/v1 Job that are used.
type manifest struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       jobSpec  `yaml:"spec"`
}

type metadata struct {
	Name      string            `yaml:"name,omitempty"`
	Namespace string            `yaml:"namespace,omitempty"`
	Labels    map[string]string `yaml:"labels"`
}

type jobSpec struct {
	CompletionMode       string        `yaml:"completionMode"`
	Completions          int           `yaml:"completions"`
	Parallelism          int           `yaml:"parallelism"`
	BackoffLimitPerIndex int           `yaml:"backoffLimitPerIndex"`
	PodFailurePolicy     failurePolicy `yaml:"podFailurePolicy"`
	Template             template      `yaml:"template"`
}

type failurePolicy struct {
	Rules []failureRule `yaml:"rules"`
}

type failureRule struct {
	Action      string     `yaml:"action"`
	OnExitCodes *exitCodes `yaml:"onExitCodes,omitempty"`
	// OnPodConditions has the kinds of ends that come from outside, such as a drained node.
	OnPodConditions []condition `yaml:"onPodConditions,omitempty"`
}

type exitCodes struct {
	ContainerName string `yaml:"containerName"`
	Operator      string `yaml:"operator"`
	Values        []int  `yaml:"values"`
}

type condition struct {
	Type string `yaml:"type"`
}

type template struct {
	Metadata metadata `yaml:"metadata"`
	Spec     podSpec  `yaml:"spec"`
}

type podSpec struct {
	RestartPolicy string      `yaml:"restartPolicy"`
	Grace         int         `yaml:"terminationGracePeriodSeconds"`
	Containers    []container `yaml:"containers"`
	Volumes       []volume    `yaml:"volumes"`
}

type container struct {
	Name       string    `yaml:"name"`
	Image      string    `yaml:"image"`
	WorkingDir string    `yaml:"workingDir"`
	Command    []string  `yaml:"command"`
	Args       []string  `yaml:"args"`
	Resources  resources `yaml:"resources"`
	Mounts     []mount   `yaml:"volumeMounts"`
}

type resources struct {
	Requests amounts `yaml:"requests"`
	Limits   amounts `yaml:"limits"`
}

type amounts struct {
	CPU    string `yaml:"cpu"`
	Memory string `yaml:"memory"`
}

type mount struct {
	Name string `yaml:"name"`
	Path string `yaml:"mountPath"`
}

type volume struct {
	Name  string `yaml:"name"`
	Claim claim  `yaml:"persistentVolumeClaim"`
}

type claim struct {
	Name string `yaml:"claimName"`
}

// check tells everything that is wrong at once.
func (j *IndexedJob) check() error {
	var wrong []string
	for _, c := range []struct {
		bad  bool
		text string
	}{
		{len(j.Name) > maxLabel || !dnsLabel.MatchString(j.Name), fmt.Sprintf("the name %q: want at most %d small letters, digits and hyphens", j.Name, maxLabel)},
		{j.Namespace != "" && !dnsLabel.MatchString(j.Namespace), fmt.Sprintf("the namespace %q: want small letters, digits and hyphens", j.Namespace)},
		{j.Image == "" || strings.ContainsAny(j.Image, " \t\n"), fmt.Sprintf("the image %q: want a name such as registry.example/refrain:1", j.Image)},
		{j.Claim == "" || !dnsLabel.MatchString(j.Claim), fmt.Sprintf("the claim %q: want the name of a volume claim: small letters, digits and hyphens", j.Claim)},
		{!path.IsAbs(j.Mount) || strings.Contains(j.Mount, ":"), fmt.Sprintf("the mount %q: want an absolute path such as /data", j.Mount)},
		{j.CPUs < 1, fmt.Sprintf("%d CPUs: want 1 or more", j.CPUs)},
		{j.Number < 1, "there are no cells"},
	} {
		if c.bad {
			wrong = append(wrong, c.text)
		}
	}
	if len(wrong) > 0 {
		return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("the job cannot be written: %s", strings.Join(wrong, "; "))}
	}
	return nil
}

// YAML is the manifest. A pod that saved and stopped (exit 75) or whose node was drained is
// started again without being counted as a failure; one that found the configuration or its
// input wrong (2, 3) is not, since the next would find the same.
func (j *IndexedJob) YAML() ([]byte, error) {
	if err := j.check(); err != nil {
		return nil, err
	}
	parallel := j.Number
	if j.Parallel > 0 {
		parallel = min(parallel, j.Parallel)
	}
	labels := map[string]string{"app.kubernetes.io/name": "refrain", "app.kubernetes.io/instance": j.Name}
	amount := amounts{CPU: strconv.Itoa(j.CPUs), Memory: fmt.Sprintf("%dMi", j.Memory>>20+1)}
	codes := func(values ...int) *exitCodes { return &exitCodes{"refrain", "In", values} }
	m := manifest{
		APIVersion: "batch/v1", Kind: "Job", Metadata: metadata{j.Name, j.Namespace, labels},
		Spec: jobSpec{
			CompletionMode: "Indexed", Completions: j.Number, Parallelism: parallel, BackoffLimitPerIndex: 3,
			PodFailurePolicy: failurePolicy{[]failureRule{
				{Action: "Ignore", OnExitCodes: codes(run.ExitResumable)},
				{Action: "Ignore", OnPodConditions: []condition{{"DisruptionTarget"}}},
				{Action: "FailIndex", OnExitCodes: codes(run.ExitUsage, run.ExitData)},
			}},
			Template: template{metadata{Labels: labels}, podSpec{
				RestartPolicy: "Never", Grace: graceSeconds,
				Containers: []container{{
					Name: "refrain", Image: j.Image, WorkingDir: j.Mount, Command: []string{"refrain"},
					Args:      append([]string{"sweep", j.Spec, "--cells", j.Cells, "--index", "$(JOB_COMPLETION_INDEX)"}, j.Args...),
					Resources: resources{amount, amount},
					Mounts:    []mount{{"data", j.Mount}},
				}},
				Volumes: []volume{{"data", claim{j.Claim}}},
			}},
		},
	}
	var b bytes.Buffer
	if err := yaml.NewEncoder(&b, yaml.Indent(2), yaml.IndentSequence(true)).Encode(m); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
