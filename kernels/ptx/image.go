//go:build cuda

package ptx

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed kernels.fatbin
var fatbin []byte

// Image returns the kernels for a GPU such as sm_90. The driver takes its part of it.
func Image(arch string) ([]byte, error) {
	if _, err := Chosen(arch); err != nil {
		return nil, err
	}
	return fatbin, nil
}

// Chosen says which part of the image the driver takes for a GPU, such as "sm_90a", or
// "PTX for sm_80" which it compiles at first use.
func Chosen(arch string) (string, error) {
	n, err := strconv.Atoi(strings.TrimPrefix(arch, "sm_"))
	if err != nil {
		return "", fmt.Errorf("architecture %q is not a number such as sm_90", arch)
	}
	switch n {
	case 80, 86, 89:
		return arch, nil
	case 90, 100:
		return arch + "a", nil
	}
	if n < 80 {
		return "", fmt.Errorf("%s is too old: kernels are for sm_80 (Ampere, 2020) and newer", arch)
	}
	return "PTX for sm_80", nil
}
