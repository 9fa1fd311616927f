package run

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"refrain/internal/run/config"
)

// withTeachers is the data hash of a run that learns from documents and from teachers.
func withTeachers(data, teachers string) [32]byte {
	return sha256.Sum256([]byte("refrain distill 1\n" + data + "\n" + teachers + "\n"))
}

// SeenSet returns the last windows that the run in folder dir was trained on before it
// ended step: limit of them, one epoch at most, and fewer when there were fewer. They are
// as the run saw them, so the loss on them is that of its memory. s is the run, opened
// with overrides; the error is a usage error when one of them changes the windows or the
// run mixes in other documents, and one of data when its documents are others by now.
func SeenSet(dir string, s *Setup, overrides []string, step, limit int64) (*ValSet, error) {
	own, err := config.Load(filepath.Join(dir, ConfigFile), nil)
	if err != nil {
		return nil, err
	}
	now, err := config.Load(filepath.Join(dir, ConfigFile), overrides)
	if err != nil {
		return nil, err
	}
	if own.Hash() != now.Hash() {
		return nil, usage(errors.New("other settings than the run's change the windows that it was trained on; leave out all but data.store, data.val and what changes only speed"))
	}
	if own.Config.Data.Synthetic.Store != "" {
		return nil, usage(fmt.Errorf("the run mixes %s in, and its windows are those of two stores; measure a run without data.synthetic", own.Config.Data.Synthetic.Store))
	}
	var info Info
	b, err := os.ReadFile(filepath.Join(dir, RunFile))
	if err == nil {
		err = json.Unmarshal(b, &info)
	}
	if err != nil {
		return nil, &Error{ExitData, fmt.Errorf("%s: %w", filepath.Join(dir, RunFile), err)}
	}
	hash := s.DataHash
	if info.TeachersHash != "" {
		hash = fmt.Sprintf("%x", withTeachers(hash, info.TeachersHash))
	}
	if hash != info.DataHash {
		return nil, &Error{ExitData, fmt.Errorf("%s was trained on other documents (data hash %.12s) than %s has (%.12s); name their store with data.store=STORE", dir, info.DataHash, s.Config.Data.Store, hash)}
	}
	end := step * int64(s.Options.Batch)
	n := min(end, s.Stream.WindowsPerEpoch(), limit)
	if n <= 0 {
		return nil, usage(fmt.Errorf("%s has made no step yet, so there is no window that it has seen", dir))
	}
	return &ValSet{stream: s.Stream, first: end - n, rows: n, docs: s.Corpus.NumDocs()}, nil
}
