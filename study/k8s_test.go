package study

import (
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
)

// TestIndexedJob: the manifest is one YAML document with what a Job needs, whatever the
// names hold.
func TestIndexedJob(t *testing.T) {
	j := IndexedJob{
		Name: "refrain-decay", Image: "registry.example/refrain:1", Claim: "studies", Mount: "/data", Spec: "a: #b 'c\" d.yaml",
		Cells: "1,3-4", Number: 3, Parallel: 2, CPUs: 4, Memory: 100 << 20, Args: []string{"--budget", "2h"},
	}
	b, err := j.YAML()
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := yaml.Unmarshal(b, &got); err != nil {
		t.Fatalf("%v\n%s", err, b)
	}
	at := func(v any, path ...any) any {
		for _, p := range path {
			switch k := p.(type) {
			case string:
				v = v.(map[string]any)[k]
			case int:
				v = v.([]any)[k]
			}
		}
		return v
	}
	pod := []any{"spec", "template", "spec"}
	box := append(pod[:3:3], "containers", 0)
	for _, c := range []struct {
		path []any
		want any
	}{
		{[]any{"apiVersion"}, "batch/v1"},
		{[]any{"kind"}, "Job"},
		{[]any{"metadata", "name"}, "refrain-decay"},
		{[]any{"spec", "completionMode"}, "Indexed"},
		{[]any{"spec", "completions"}, uint64(3)},
		{[]any{"spec", "parallelism"}, uint64(2)},
		{[]any{"spec", "podFailurePolicy", "rules", 0, "onExitCodes", "values"}, []any{uint64(75)}},
		{append(pod[:3:3], "restartPolicy"), "Never"}, // or there may be no policy of failures
		{append(pod[:3:3], "volumes", 0, "persistentVolumeClaim", "claimName"), "studies"},
		{append(box[:5:5], "image"), j.Image},
		{append(box[:5:5], "workingDir"), "/data"},
		{append(box[:5:5], "args"), []any{"sweep", j.Spec, "--cells", "1,3-4", "--index", "$(JOB_COMPLETION_INDEX)", "--budget", "2h"}},
		{append(box[:5:5], "resources", "limits"), map[string]any{"cpu": "4", "memory": "101Mi"}},
		{append(box[:5:5], "volumeMounts", 0, "mountPath"), "/data"},
		{append(box[:5:5], "volumeMounts", 0, "name"), at(got, append(pod[:3:3], "volumes", 0, "name")...)},
		{append(box[:5:5], "name"), at(got, "spec", "podFailurePolicy", "rules", 0, "onExitCodes", "containerName")},
	} {
		if d := cmp.Diff(c.want, at(got, c.path...)); d != "" {
			t.Errorf("%v (-want +got)\n%s", c.path, d)
		}
	}
	if _, there := at(got, "metadata").(map[string]any)["namespace"]; there {
		t.Error("there is a namespace that nobody gave")
	}
	bad := IndexedJob{Name: "Refrain_1", Namespace: "a b", Image: "", Claim: "A", Mount: "data"}
	_, err = bad.YAML()
	for _, want := range []string{`name "Refrain_1"`, `namespace "a b"`, `image ""`, `claim "A"`, `mount "data"`, "0 CPUs", "no cells"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s in it", err, want)
		}
	}
	for file, want := range map[string]string{"studies/Decay_2.yaml": "refrain-decay-2", `c:\x\LR.yml`: "refrain-lr", strings.Repeat("ab-", 40): "refrain-" + strings.Repeat("ab-", 14) + "ab"} {
		if got := NameOfJob(file); got != want || !dnsLabel.MatchString(got) || len(got) > maxLabel {
			t.Errorf("%s gives %s, want %s", file, got, want)
		}
	}
}
