package tokenize

type maskScratch struct{}

func maskR50k(m *maskScratch, text []byte)   {}
func maskCL100k(m *maskScratch, text []byte) {}
