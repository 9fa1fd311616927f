module refrain/bench/peers/vocab

go 1.26.0

require (
	github.com/pkoukk/tiktoken-go-loader v0.0.2
	refrain v0.0.0
)

require (
	golang.org/x/sync v0.25.0 // indirect
	golang.org/x/sys v0.50.0 // indirect
)

replace refrain => ../../..
