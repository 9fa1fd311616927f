package run

// GPUs is what the CUDA driver shows, for doctor.
type GPUs struct {
	Built   bool // this binary has the CUDA driver in it
	Version int  // newest CUDA version that the system's driver supports, such as 13000
	List    []GPU
	Problem error // why there is none; nil when there is one, gpu.ErrNoDriver in it without a driver
}

// GPU is one device.
type GPU struct {
	Name  string `json:"name"`
	Arch  string `json:"arch"` // such as sm_90
	Bytes int64  `json:"memory_bytes"`
	Image string `json:"image"` // part of the kernels that the driver takes for it
	PCI   string `json:"pci"`   // address on the bus, by which other tools know it
}
