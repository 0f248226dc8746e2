package redis

func filterType(v []byte) string { return "none" }
