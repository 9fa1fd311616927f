//go:build cuda && cudaheaders

package kernels

import (
	"testing"

	"refrain/gpu"
	"refrain/gpu/cuda"
	"refrain/kernels/kerneltest"
)

// simulatedGPU opens a simulated GPU; the test is skipped where there is none.
func simulatedGPU(t *testing.T, settings string) gpu.Device {
	t.Helper()
	if err := cuda.Simulate(settings); err != nil {
		t.Skip(err)
	}
	drv, err := cuda.New(cuda.Config{})
	if err != nil {
		t.Fatal(err)
	}
	d, err := drv.Open(0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestCUDA holds every kernel that has a CUDA version to its reference, on the cases of
// the host's version.
func TestCUDA(t *testing.T) {
	d := simulatedGPU(t, "devices=1")
	has := map[string]bool{}
	for _, e := range All() {
		has[e.Name] = e.HasCUDA
	}
	for _, s := range suites() {
		t.Run(s.kernel, func(t *testing.T) {
			if !has[s.kernel] {
				t.Skip("has no CUDA version yet")
			}
			for _, c := range s.cases {
				if err := kerneltest.OnDevice(t.Context(), d, c.Case); err != nil {
					t.Errorf("%s: %v", c.Name, err)
				}
			}
		})
	}
}
