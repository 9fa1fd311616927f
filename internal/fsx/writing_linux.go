package fsx

import (
	"os"

	"golang.org/x/sys/unix"
)

func startWriting(f *os.File, off, n int64) {
	_ = unix.SyncFileRange(int(f.Fd()), off, n, unix.SYNC_FILE_RANGE_WRITE) // what it cannot do, Sync does
}
