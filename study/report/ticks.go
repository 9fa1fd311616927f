package report

import (
	"math"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
)

// wholeTicks puts labels at whole numbers, at most that many, at steps of 1, 2 or 5 times
// a power of ten.
func wholeTicks(lo, hi float64, most int) (ticks []plot.Tick) {
	step := 1.0
	for i := 0; (hi-lo)/step > float64(most); i++ {
		step *= []float64{2, 2.5, 2}[i%3]
	}
	for x := math.Ceil(lo/step) * step; x <= hi; x += step {
		ticks = append(ticks, plot.Tick{Value: x, Label: number(x)})
	}
	return ticks
}

// niceTicks puts at most that many labels at steps of 1, 2 or 5 times a power of ten, with
// as many decimals as the step needs.
func niceTicks(lo, hi float64, most int) (ticks []plot.Tick) {
	if !(hi > lo) {
		return nil
	}
	exp := math.Floor(math.Log10((hi - lo) / float64(most)))
	step := math.Pow(10, exp)
	for i := 0; (hi-lo)/step > float64(most); i++ {
		step *= []float64{2, 2.5, 2}[i%3]
		if i%3 == 2 {
			exp++
		}
	}
	decimals := int(max(0, -exp))
	for k := math.Ceil(lo/step - 1e-9); k*step <= hi+1e-9*step; k++ {
		x := k * step
		text := strconv.FormatFloat(x+0, 'f', decimals, 64)
		// Three digits are all that number keeps.
		if decimals == 0 && math.Abs(x) >= 10000 && step >= math.Abs(x)/100 {
			text = number(x)
		}
		ticks = append(ticks, plot.Tick{Value: x, Label: text})
	}
	return ticks
}

// logTicks puts labels at the values that there are, as far as they lie apart enough for
// that many to stand beside each other.
func logTicks(lo, hi float64, values []float64, most int) (ticks []plot.Tick) {
	values = slices.Clone(values)
	slices.Sort(values)
	gap := math.Log(hi/lo) / float64(most)
	last := math.Inf(-1)
	for _, x := range slices.Compact(values) {
		if x < lo*(1-1e-9) || x > hi*(1+1e-9) || math.Log(x)-last < gap {
			continue
		}
		last = math.Log(x)
		ticks = append(ticks, plot.Tick{Value: x, Label: number(x)})
	}
	return ticks
}

// number is x in a few letters: 0.1, 12, 65.5k, 1.2M.
func number(x float64) string {
	for _, u := range []struct {
		from float64
		text string
	}{{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e4, "k"}} {
		if math.Abs(x) >= u.from {
			unit := u.from
			if u.text == "k" {
				unit = 1e3
			}
			return strconv.FormatFloat(round3(x/unit), 'f', -1, 64) + u.text
		}
	}
	return strconv.FormatFloat(round4(x), 'g', -1, 64)
}

func round3(x float64) float64 { return significant(x, 3) }
func round4(x float64) float64 { return significant(x, 4) }

// significant rounds x to n digits.
func significant(x float64, n int) float64 {
	r, err := strconv.ParseFloat(strconv.FormatFloat(x, 'g', n, 64), 64)
	if err != nil {
		return x
	}
	return r
}
