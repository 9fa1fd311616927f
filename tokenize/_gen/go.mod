module refrain/tokenize/gen

go 1.26.0
