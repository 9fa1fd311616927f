//go:build cuda

package run

import (
	"errors"

	"refrain/gpu"
	"refrain/gpu/cuda"
	"refrain/kernels/ptx"
)

// FindGPUs opens every GPU once and describes it.
func FindGPUs() (g GPUs) {
	g.Built = true
	drv, err := newCUDA()
	if err != nil {
		g.Problem = err
		return g
	}
	g.Version = drv.Version()
	n, err := drv.NumDevices()
	if err != nil {
		g.Problem = err
		return g
	}
	for i := range n {
		one, err := describeGPU(drv, i)
		if err != nil {
			g.Problem = errors.Join(g.Problem, err)
			continue
		}
		g.List = append(g.List, one)
	}
	return g
}

func gpuDriver() (gpu.Driver, error) {
	d, err := newCUDA()
	if err != nil {
		return nil, err
	}
	return d, nil
}

func newCUDA() (*cuda.Driver, error) { return cuda.New(cuda.Config{Images: ptx.Image}) }

func describeGPU(drv *cuda.Driver, i int) (one GPU, err error) {
	d, err := drv.Open(i)
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	info := d.Info()
	one = GPU{Name: info.Name, Arch: info.Kernels, Bytes: info.TotalBytes}
	if one.PCI, err = d.(*cuda.Device).PCI(); err != nil {
		return one, err
	}
	one.Image, err = ptx.Chosen(one.Arch)
	return one, err
}
