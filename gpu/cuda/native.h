// What package cuda calls besides gorgonia.org/cu. Handles are the driver's pointers;
// results are the driver's codes, 0 for success.
#include <stddef.h>

// refrain_cuda_load_problem says why no driver could be opened, "" when one was.
const char *refrain_cuda_load_problem(void);

// refrain_cuda_init_result is what the driver's initialisation returned.
int refrain_cuda_init_result(void);

// refrain_cuda_path is the library of the driver.
const char *refrain_cuda_path(void);

// refrain_cuda_simulated tells whether the driver that is open is the simulated one.
int refrain_cuda_simulated(void);

// refrain_cuda_simulate configures the simulated driver as if it had just been started;
// -1 when another driver, or none, is open.
int refrain_cuda_simulate(const char *settings);

// refrain_cuda_error_name and _text describe a code; NULL when the driver knows none.
const char *refrain_cuda_error_name(int code);
const char *refrain_cuda_error_text(int code);

// refrain_cuda_host_alloc returns zeroed page-locked memory for all devices, and its
// address on them.
int refrain_cuda_host_alloc(void **at, unsigned long long *device, size_t bytes);

// refrain_cuda_pci_id writes the device's PCI address, such as 0000:17:00.0.
int refrain_cuda_pci_id(char *id, int size, int device);

// refrain_cuda_launch is a kernel with its arguments: parameters points to a table of
// pointers to values, both in C memory.
typedef struct {
	void *function;
	unsigned grid[3], block[3], shared;
	void **parameters;
} refrain_cuda_launch;

// refrain_cuda_launch_all enqueues n kernels on a stream, in order, up to the first that
// fails.
int refrain_cuda_launch_all(const refrain_cuda_launch *kernels, int n, void *stream);

// refrain_cuda_set_shared allows a kernel that many bytes of dynamic shared memory.
int refrain_cuda_set_shared(void *function, int bytes);

// refrain_cuda_parameter returns the size of parameter i; 1 when there is none.
int refrain_cuda_parameter(void *function, size_t i, size_t *size);
