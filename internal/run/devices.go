package run

import (
	"errors"
	"slices"

	"refrain/gpu"
	"refrain/gpu/host"
)

// Devices are the devices that a command opened for itself.
type Devices []gpu.Device

// OpenDevices opens n devices that share threads worker threads, 0 meaning one a
// processor; profile makes them keep the time of every kernel. It is the one place
// that knows which driver there is. An error has the exit code of devices. Close
// them.
func OpenDevices(n, threads int, profile bool) (Devices, error) {
	drv := host.New(host.Config{Devices: n, Threads: threads, Profile: profile})
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
