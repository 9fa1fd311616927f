//go:build cuda && cudaheaders

package cuda

// #cgo CFLAGS: -I${SRCDIR}
// #cgo LDFLAGS: -L${SRCDIR}/stub/lib -ldl
// #include "native.h"
import "C"

import (
	"fmt"
	"path/filepath"
	"sync"
	"time"

	"gorgonia.org/cu"

	"refrain/gpu"
	"refrain/gpu/race"
)

// Config chooses how the driver behaves. The zero value is what training uses.
type Config struct {
	// Deadline is how long a device may pass no mark while somebody waits for it,
	// before it is given up; 0 means ten minutes.
	Deadline time.Duration
	// Images returns the kernels for an architecture, such as sm_90. Without it every op
	// is refused, but on simulated GPUs, which have the library beside the driver's.
	Images func(arch string) ([]byte, error)
	// RaceCheck verifies that conflicting accesses are ordered; slow, for tests.
	RaceCheck bool
}

// Driver is a gpu.Driver for the GPUs that the CUDA driver shows.
type Driver struct {
	deadline time.Duration
	images   func(arch string) ([]byte, error)
	race     *race.Check // nil without

	mu   sync.Mutex
	open map[int]*Device // by ordinal
}

// New returns the driver of this machine. Its error wraps gpu.ErrNoDriver where there is
// none, and is an *Error where there is one that found no usable GPU.
func New(c Config) (*Driver, error) {
	if p := C.GoString(C.refrain_cuda_load_problem()); p != "" {
		return nil, fmt.Errorf("%w: %s", gpu.ErrNoDriver, p)
	}
	if code := int(C.refrain_cuda_init_result()); code != 0 {
		return nil, newError(-1, "", "starting the driver", code)
	}
	if c.Deadline <= 0 {
		c.Deadline = 10 * time.Minute
	}
	if C.refrain_cuda_simulated() != 0 {
		c.Images = simulatedImage
	} else if c.Images == nil {
		c.Images = func(arch string) ([]byte, error) { return nil, fmt.Errorf("there are no kernels for %s", arch) }
	}
	d := &Driver{deadline: c.Deadline, images: c.Images, open: map[int]*Device{}}
	if c.RaceCheck {
		d.race = race.New()
	}
	return d, nil
}

// simulatedImage names the library of kernels beside the simulated driver's.
func simulatedImage(string) ([]byte, error) {
	driver, err := filepath.Abs(C.GoString(C.refrain_cuda_path()))
	if err != nil {
		return nil, err
	}
	return []byte("refrain-sim " + filepath.Join(filepath.Dir(driver), "kernels-sim.so")), nil
}

// Name returns "cuda".
func (*Driver) Name() string { return "cuda" }

// Version is the newest CUDA version that the driver supports, such as 13000.
func (*Driver) Version() int { return cu.Version() }

// NumDevices returns the number of GPUs that the process may use.
func (*Driver) NumDevices() (int, error) {
	n, err := cu.NumDevices()
	if err != nil {
		return 0, newError(-1, "", "counting devices", code(err))
	}
	return n, nil
}

// Open starts the goroutine of GPU ordinal, on an OS thread of its own, and makes the
// GPU's primary context current there. A GPU is open once at a time.
func (d *Driver) Open(ordinal int) (gpu.Device, error) {
	n, err := d.NumDevices()
	if err != nil {
		return nil, err
	}
	if ordinal < 0 || ordinal >= n {
		return nil, fmt.Errorf("cuda: device %d; the driver shows %d (see CUDA_VISIBLE_DEVICES)", ordinal, n)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.open[ordinal] != nil {
		return nil, fmt.Errorf("cuda: device %d is already open", ordinal)
	}
	dev, err := open(d, ordinal)
	if err != nil {
		return nil, err
	}
	d.open[ordinal] = dev
	return dev, nil
}

// find returns an open device.
func (d *Driver) find(ordinal int32) *Device {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.open[int(ordinal)]
}

func (d *Driver) forget(dev *Device) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, dev.ordinal)
}
