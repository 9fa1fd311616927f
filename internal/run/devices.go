package run

import (
	"errors"
	"fmt"
	"slices"

	"refrain/gpu"
	"refrain/gpu/host"
)

// Devices are the devices that a command opened for itself.
type Devices []gpu.Device

// OpenDevices opens n devices of the CPU that share threads worker threads, 0 meaning
// one a processor; profile makes them keep the time of every kernel. An error has the
// exit code of devices. Close them.
func OpenDevices(n, threads int, profile bool) (Devices, error) {
	return openOn(host.New(host.Config{Devices: n, Threads: threads, Profile: profile}), n)
}

// openGPUs opens the first n GPUs.
func openGPUs(n int) (Devices, error) {
	drv, err := gpuDriver()
	if err != nil {
		return nil, &Error{ExitDevice, fmt.Errorf("train.device = cuda: %w", err)}
	}
	if have, err := drv.NumDevices(); err != nil || have < n {
		return nil, &Error{ExitDevice, errors.Join(err, fmt.Errorf("train.devices = %d, and the driver shows %d GPU(s); take fewer, or look at CUDA_VISIBLE_DEVICES", n, have))}
	}
	return openOn(drv, n)
}

// openOn opens the first n devices of a driver.
func openOn(drv gpu.Driver, n int) (Devices, error) {
	var devs Devices
	for i := range n {
		d, err := drv.Open(i)
		if err != nil {
			return nil, &Error{ExitDevice, errors.Join(err, devs.Close())}
		}
		devs = append(devs, d)
	}
	return devs, nil
}

// Close closes the devices, the last one first.
func (d Devices) Close() error {
	var errs []error
	for _, dev := range slices.Backward(d) {
		errs = append(errs, dev.Close())
	}
	return errors.Join(errs...)
}
