package bench

// IngestPeer is a program of others that turns text into ids on disk.
type IngestPeer struct {
	Name string
	Env  string // of bench/peers/install.sh
}

// IngestPeers returns what bench/peers can make a corpus of ids with.
func IngestPeers() []IngestPeer {
	return []IngestPeer{{"datasets", "loaders"}, {"datatrove", "loaders"}}
}
