package model

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// RopeScaling slows the rotary frequencies of Llama 3.1 and later down, those of long
// wavelengths by Factor. The zero value leaves them alone.
type RopeScaling struct {
	Factor    float64 // above 1
	Low, High float64 // waves longer than Original/Low are slowed down, those shorter than Original/High are not
	Original  int     // positions before the scaling
}

// scalingName is the rope_type of config.json, and the first word of the text.
const scalingName = "llama3"

// String is llama3:FACTOR:LOW:HIGH:ORIGINAL, or "" for the zero value.
func (s RopeScaling) String() string {
	if s == (RopeScaling{}) {
		return ""
	}
	f := func(x float64) string { return strconv.FormatFloat(x, 'g', -1, 64) }
	return strings.Join([]string{scalingName, f(s.Factor), f(s.Low), f(s.High), strconv.Itoa(s.Original)}, ":")
}

// ParseRopeScaling reads what String writes.
func ParseRopeScaling(text string) (RopeScaling, error) {
	var s RopeScaling
	if text == "" {
		return s, nil
	}
	parts := strings.Split(text, ":")
	if len(parts) != 5 || parts[0] != scalingName {
		return s, fmt.Errorf("rope_scaling is %q; want %s:FACTOR:LOW:HIGH:ORIGINAL, such as %s:32:1:4:8192", text, scalingName, scalingName)
	}
	var errs [4]error
	s.Factor, errs[0] = strconv.ParseFloat(parts[1], 64)
	s.Low, errs[1] = strconv.ParseFloat(parts[2], 64)
	s.High, errs[2] = strconv.ParseFloat(parts[3], 64)
	s.Original, errs[3] = strconv.Atoi(parts[4])
	if err := errors.Join(errs[:]...); err != nil {
		return RopeScaling{}, fmt.Errorf("rope_scaling is %q: %w", text, err)
	}
	return s, s.validate()
}

func (s RopeScaling) validate() error {
	if s == (RopeScaling{}) {
		return nil
	}
	if !(s.Factor >= 1 && s.Factor <= 1e6) || !(s.Low > 0 && s.Low < s.High && s.High <= 1e6) || s.Original < 1 {
		return fmt.Errorf("rope_scaling is %v; factor is at least 1, low is below high, both and original are above 0", s)
	}
	return nil
}

// frequency is what becomes of the angle f per position: divided by Factor where its wave
// is longer than Original/Low, itself where it is shorter than Original/High, and in
// between a mean that goes from one to the other (the scaling that Llama 3.1 was published
// with).
func (s RopeScaling) frequency(f float64) float64 {
	if s == (RopeScaling{}) {
		return f
	}
	turns := float64(s.Original) * f / (2 * math.Pi) // waves in the original length
	switch {
	case turns < s.Low:
		return f / s.Factor
	case turns > s.High:
		return f
	}
	share := (turns - s.Low) / (s.High - s.Low)
	return float64((1-share)*f/s.Factor) + float64(share*f)
}
