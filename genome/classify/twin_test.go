package classify

import (
	"slices"
)

// The plain Go twin: what classify.cu does, told another way.

func twinHash(x uint32) uint32 {
	for range 2 {
		x = (x>>16 ^ x) * 0x45d9f3b
	}
	return x>>16 ^ x
}

// twinSketch is the features of a window: all hashes, sorted, each once, cut.
func twinSketch(text []byte, o Options) (hashes []uint32) {
	codes := map[byte]uint64{'A': 0, 'C': 1, 'G': 2, 'T': 3, 'U': 3, 'a': 0, 'c': 1, 'g': 2, 't': 3, 'u': 3}
windows:
	for i := 0; i+o.K <= len(text); i++ {
		var forward, reverse uint64
		for j, letter := range text[i : i+o.K] {
			code, ok := codes[letter]
			if !ok {
				continue windows
			}
			forward = forward<<2 | code
			reverse |= (3 - code) << (2 * j)
		}
		if h := twinHash(uint32(min(forward, reverse))); h != noFeature {
			hashes = append(hashes, h)
		}
	}
	slices.Sort(hashes)
	hashes = slices.Compact(hashes)
	return hashes[:min(len(hashes), o.Sketch)]
}

func twinSketches(text []byte, o Options) (out [][]uint32) {
	if len(text) <= o.Window {
		return [][]uint32{twinSketch(text, o)}
	}
	for ; len(text) >= o.Window; text = text[o.Stride:] {
		out = append(out, twinSketch(text[:o.Window], o))
	}
	if len(text) >= o.K {
		out = append(out, twinSketch(text, o))
	}
	return out
}

// twinIndex is a database as a Go map, of references' texts.
func twinIndex(references []string, o Options) map[uint32][]uint64 {
	index := map[uint32][]uint64{}
	for t, text := range references {
		for w, features := range twinSketches([]byte(text), o) {
			for _, f := range features {
				if len(index[f]) < o.MaxLocations {
					index[f] = append(index[f], uint64(t)<<32|uint64(w))
				}
			}
		}
	}
	return index
}

// twinHit is a location and the mate whose feature is there.
type twinHit struct {
	target, window uint32
	mate           int
}

type twinCandidate struct {
	taxon        uint32 // index+1, or of a target, 1<<31 | its number
	target       uint32
	hits, second int
}

// twinCandidates are all targets, or taxa, by hits: those that come first in the order of targets stay first.
func twinCandidates(db *Database, locations func(uint32) []uint64, o QueryOptions,
	mates ...string) (out []twinCandidate) {
	var hits []twinHit
	letters := 0
	for m, text := range mates {
		letters += len(text)
		for _, features := range twinSketches([]byte(text), db.Options) {
			for _, f := range features {
				for _, at := range locations(f) {
					hits = append(hits, twinHit{uint32(at >> 32), uint32(at), m})
				}
			}
		}
	}
	span := uint32(2 + max(letters, o.Insert)/db.Options.Stride)
	slices.SortFunc(hits, func(a, b twinHit) int {
		return slices.Compare([]uint32{a.target, a.window, uint32(a.mate)},
			[]uint32{b.target, b.window, uint32(b.mate)})
	})
	best := map[uint32]twinCandidate{} // by target
	var targets []uint32
	for i, last := range hits { // the range that ends with this hit
		if _, seen := best[last.target]; !seen {
			targets = append(targets, last.target)
		}
		c := twinCandidate{target: last.target}
		for _, h := range hits[:i+1] {
			if h.target == last.target && last.window-h.window < span {
				c.hits++
				c.second += h.mate
			}
		}
		if c.hits > best[last.target].hits {
			best[last.target] = c
		}
	}
	for _, t := range targets {
		c := best[t]
		c.taxon = 1<<31 | t
		if o.Lowest > Sequence {
			lineage := db.taxonomy.lineage(db.targets[t].taxon)
			c.taxon = 0
			for r := int(o.Lowest); r < ranks && c.taxon == 0; r++ {
				c.taxon = lineage[r]
			}
		}
		i := slices.IndexFunc(out, func(x twinCandidate) bool { return x.taxon == c.taxon })
		if i < 0 {
			out = append(out, c)
		} else if c.hits > out[i].hits {
			out = append(slices.Delete(out, i, i+1), c)
		}
	}
	slices.SortStableFunc(out, func(a, b twinCandidate) int { return b.hits - a.hits })
	return out
}

// twinVerdict is the taxon, index+1, or 0.
func twinVerdict(db *Database, o QueryOptions, candidates []twinCandidate) uint32 {
	if len(candidates) == 0 || candidates[0].hits < o.HitMin {
		return 0
	}
	chosen := candidates[:1]
	if len(candidates) > 1 && float32(candidates[1].hits) > float32(candidates[0].hits-o.HitMin)*float32(o.HitDiff) {
		chosen = candidates[:2]
	}
	if len(chosen) == 1 && o.Lowest == Sequence {
		return db.targets[chosen[0].target].taxon + 1
	}
	a := db.taxonomy.lineage(db.targets[chosen[0].target].taxon)
	b := db.taxonomy.lineage(db.targets[chosen[len(chosen)-1].target].taxon)
	for r := max(o.Lowest, Form); r <= o.Highest; r++ {
		if a[r] != 0 && a[r] == b[r] {
			return a[r]
		}
	}
	return 0
}
