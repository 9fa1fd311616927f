//go:build cuda

package run

import (
	"errors"

	"refrain/gpu"
	"refrain/gpu/cuda"
)

// FindGPUs opens every GPU once and describes it.
func FindGPUs() (g GPUs) {
	g.Built = true
	drv, err := cuda.New(cuda.Config{})
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
	d, err := cuda.New(cuda.Config{})
	if err != nil {
		return nil, err
	}
	return d, nil
}

func describeGPU(drv *cuda.Driver, i int) (one GPU, err error) {
	d, err := drv.Open(i)
	if err != nil {
		return one, err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	info := d.Info()
	one = GPU{Name: info.Name, Arch: info.Kernels, Bytes: info.TotalBytes}
	one.PCI, err = d.(*cuda.Device).PCI()
	return one, err
}
