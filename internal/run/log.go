package run

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"refrain/internal/fsx"
	"refrain/stages/evals"
	"refrain/stages/saves"
)

// Log writes log.jsonl of a run folder: one JSON object for each event of its
// life (start, resume, evaluation, checkpoint, note, end), with a time. Steps
// are in metrics.jsonl. What is a warning or worse also goes to a console, if
// there is one. It is a Watcher and passes every call on.
type Log struct {
	next    Watcher
	path    string
	console zapcore.Core
	file    *os.File
	core    zapcore.Core // of the file
	log     *zap.Logger  // file and console; nil before the first event
	err     error        // of opening the file
}

// NewLog returns the log of the run folder out, which need not exist before the
// first event. console may be nil.
func NewLog(out string, console zapcore.Core, next Watcher) *Log {
	if next == nil {
		next = silent{}
	}
	return &Log{next: next, path: filepath.Join(out, LogFile), console: console}
}

// ConsoleCore returns a core that writes warnings and errors to w as plain
// lines, without times: they are in log.jsonl.
func ConsoleCore(w zapcore.WriteSyncer) zapcore.Core {
	enc := zapcore.NewConsoleEncoder(zapcore.EncoderConfig{
		MessageKey: "msg", LevelKey: "level", EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder, ConsoleSeparator: "  ",
	})
	return zapcore.NewCore(enc, w, zapcore.WarnLevel)
}

// logger opens the file at the first event: before that the folder may belong
// to somebody else.
func (l *Log) logger() *zap.Logger {
	if l.log != nil {
		return l.log
	}
	l.core = zapcore.NewNopCore()
	if l.file, l.err = os.OpenFile(l.path, os.O_WRONLY|os.O_CREATE|os.O_APPEND, fsx.FilePerm); l.err == nil {
		enc := zap.NewProductionEncoderConfig()
		enc.TimeKey, enc.EncodeTime, enc.EncodeDuration = "time", zapcore.RFC3339NanoTimeEncoder, zapcore.SecondsDurationEncoder
		l.core = zapcore.NewCore(zapcore.NewJSONEncoder(enc), l.file, zapcore.InfoLevel)
	}
	if l.console == nil {
		l.console = zapcore.NewNopCore()
	}
	l.log = zap.New(zapcore.NewTee(l.core, l.console))
	return l.log
}

// Started records what runs; it is for Job.OnStart.
func (l *Log) Started(s *Setup, r *Running) {
	l.logger().Info("started", zap.Int64("step", r.Trainer.Steps()), zap.Int64("steps", s.Options.Steps),
		zap.String("config_hash", s.ConfigHash()), zap.String("data_hash", s.DataHash),
		zap.Int("devices", len(r.Devices)), zap.String("device", r.Devices[0].Info().Name), zap.Int("pid", os.Getpid()))
}

// Step implements Watcher.
func (l *Log) Step(i StepInfo) { l.next.Step(i) }

// Eval implements Watcher.
func (l *Log) Eval(r evals.Result) {
	l.logger().Info("evaluated", zap.Int64("step", r.Step), zap.Float64("loss", r.Loss), zap.Int64("tokens", r.Tokens), zap.Duration("busy", r.Busy))
	l.next.Eval(r)
}

// Save implements Watcher.
func (l *Log) Save(r saves.Result) {
	f := []zap.Field{zap.Int64("step", r.Step), zap.String("path", r.Path), zap.Duration("busy", r.Busy), zap.Error(r.Err)}
	if r.Err == nil {
		f = f[:3]
	}
	switch {
	case r.Err != nil && r.Path == "":
		l.logger().Error("checkpoint failed, training goes on", f...)
	case r.Err != nil:
		l.logger().Warn("checkpoint saved with a complaint", f...)
	default:
		l.logger().Info("checkpoint saved", f...)
	}
	l.next.Save(r)
}

// Note implements Watcher.
func (l *Log) Note(text string) {
	l.logger().Info(text)
	l.next.Note(text)
}

// End records how the run ended and closes the file. It returns what went wrong
// with the log itself, which is never a reason to fail a run. A run that never
// came to its folder leaves no log.
func (l *Log) End(res *Result, err error) error {
	if l.log == nil {
		return nil
	}
	var f []zap.Field
	if res != nil {
		f = append(f, zap.Int64("step", res.Step), zap.Float64("loss", res.Loss), zap.String("chain", res.Chain.String()),
			zap.Duration("wall", res.Wall), zap.Float64("device_wait", res.Wait))
	}
	log := zap.New(l.core) // the command prints the result itself
	switch {
	case err == nil:
		log.Info("done", f...)
	case errors.Is(err, ErrStopped):
		log.Info("stopped, resumable", f...)
	default:
		log.Error("failed", append(f, zap.Error(err), zap.Int("exit_code", ExitCode(err)))...)
	}
	if l.file == nil {
		return fmt.Errorf("no %s was written: %w", LogFile, l.err)
	}
	return errors.Join(l.file.Sync(), l.file.Close())
}
