package classify

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/files"
)

// Rank is a rank of a taxonomy, from a single sequence up to the root. Lineages pass over taxa of other ranks.
type Rank uint8

// The ranks, the lowest first.
const (
	Sequence Rank = iota
	Form
	Variety
	Subspecies
	Species
	Subgenus
	Genus
	Subtribe
	Tribe
	Subfamily
	Family
	Suborder
	Order
	Subclass
	Class
	Subphylum
	Phylum
	Subkingdom
	Kingdom
	Domain
	Root
	Unranked
)

// ranks is how many a lineage has.
const ranks = int(Unranked)

var rankNames = [...]string{"sequence", "form", "variety", "subspecies", "species", "subgenus", "genus", "subtribe",
	"tribe", "subfamily", "family",
	"suborder", "order", "subclass", "class", "subphylum", "phylum", "subkingdom", "kingdom", "domain", "root",
	"no rank"}

func (r Rank) String() string { return rankNames[min(r, Unranked)] }

// ParseRank reads a rank's name. Superkingdom, realm and acellular root are read as domain. Errors: a name of no rank.
func ParseRank(name string) (Rank, error) {
	r := rankOf(name)
	if r == Unranked {
		return 0, fmt.Errorf("%q: want a rank: %s", name, strings.Join(rankNames[:ranks], ", "))
	}
	return r, nil
}

func rankOf(name string) Rank {
	switch name {
	case "superkingdom", "realm", "acellular root":
		return Domain
	case "varietas":
		return Variety
	case "forma":
		return Form
	}
	for i, n := range rankNames[:ranks] {
		if n == name {
			return Rank(i)
		}
	}
	return Unranked
}

// Taxonomy is a tree of taxa. Each taxon has an index; the root's index is 0.
type Taxonomy struct {
	ids     []uint32
	parents []uint32 // indices
	ranks   []Rank
	names   []string
	merged  map[uint32]uint32 // ids that are now others
	index   map[uint32]uint32 // of each id
}

const rootID = 1

// LoadTaxonomy reads nodes.dmp, and names.dmp and merged.dmp if they are there, from a folder, in NCBI's form. Taxa
// whose parent is missing are attached to the root. A domain below a domain, such as a realm of Viruses, counts as a
// taxon without a rank. Errors: *genome.InputError, with file and line.
func LoadTaxonomy(dir string) (*Taxonomy, error) {
	t := &Taxonomy{merged: map[uint32]uint32{}}
	t.add(rootID, Root, "root")
	parents := []uint32{rootID}
	t.index = map[uint32]uint32{rootID: 0}
	err := eachRow(filepath.Join(dir, "nodes.dmp"), "\t|\t", 3, func(f []string) error {
		id, err := parseID(f[0])
		if err != nil {
			return err
		}
		parent, err := parseID(f[1])
		if err != nil {
			return err
		}
		if _, twice := t.index[id]; !twice {
			t.index[id] = uint32(len(t.ids))
			t.add(id, rankOf(strings.TrimSpace(f[2])), "")
			parents = append(parents, parent)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	t.parents = make([]uint32, len(t.ids))
	for i, id := range parents {
		t.parents[i] = t.index[id] // 0, the root, for want of it
	}
	if err := t.acyclic(); err != nil {
		return nil, &genome.InputError{Input: filepath.Join(dir, "nodes.dmp"), Err: err}
	}
	t.oneDomain()
	err = eachRow(filepath.Join(dir, "names.dmp"), "\t|\t", 4, func(f []string) error {
		id, err := parseID(f[0])
		if i, known := t.index[id]; err == nil && known && f[3] == "scientific name" {
			t.names[i] = strings.Clone(f[1]) // f[1] holds the whole line
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	err = eachRow(filepath.Join(dir, "merged.dmp"), "\t|\t", 2, func(f []string) error {
		old, err := parseID(f[0])
		if err != nil {
			return err
		}
		id, err := parseID(f[1])
		t.merged[old] = id
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return t, nil
}

func (t *Taxonomy) add(id uint32, r Rank, name string) {
	t.ids, t.ranks, t.names = append(t.ids, id), append(t.ranks, r), append(t.names, name)
}

// acyclic tells of a taxon that is its own ancestor.
func (t *Taxonomy) acyclic() error {
	good := make([]bool, len(t.ids))
	good[0] = true
	for i := range t.ids {
		steps := 0
		for at := uint32(i); !good[at]; at = t.parents[at] {
			if steps++; steps > len(t.ids) {
				return fmt.Errorf("taxon %d is its own ancestor: want a tree", t.ids[i])
			}
		}
		for at := uint32(i); !good[at]; at = t.parents[at] {
			good[at] = true
		}
	}
	return nil
}

// oneDomain removes the rank of domains below another domain, such as the realms of Viruses, whose rank is acellular
// root. Otherwise a report would count a read in two domains.
func (t *Taxonomy) oneDomain() {
	var inner []uint32
	for i, r := range t.ranks {
		for at := uint32(i); r == Domain && at != 0; {
			if at = t.parents[at]; t.ranks[at] == Domain {
				inner = append(inner, uint32(i))
				break
			}
		}
	}
	for _, i := range inner {
		t.ranks[i] = Unranked
	}
}

// find gives the index of an id, or, where the tree has none, of what it was merged into.
func (t *Taxonomy) find(id uint32) (uint32, bool) {
	i, ok := t.index[id]
	if now, moved := t.merged[id]; moved && !ok {
		i, ok = t.index[now]
	}
	return i, ok
}

// lineage has for each rank the index+1 of a taxon's ancestor, or its own; 0 where there is none.
func (t *Taxonomy) lineage(taxon uint32) (l [ranks]uint32) {
	for at := taxon; at != 0; at = t.parents[at] {
		if r := t.ranks[at]; r < Root && r > Sequence && l[r] == 0 {
			l[r] = at + 1
		}
	}
	l[Root] = 1
	return l
}

// atLeast is a taxon, or its next ancestor of a rank or one above.
func (t *Taxonomy) atLeast(taxon uint32, lowest Rank) uint32 {
	if lowest == Sequence {
		return taxon
	}
	for taxon != 0 && (t.ranks[taxon] < lowest || t.ranks[taxon] > Root) {
		taxon = t.parents[taxon]
	}
	return taxon
}

// mostLine is how long a line of a taxonomy may be. NCBI's take some hundred bytes.
const mostLine = 1 << 20

// eachRow gives the fields of a file's lines but for empty ones and those that begin with #. They are good until row
// returns.
func eachRow(name, separator string, fields int, row func([]string) error) error {
	f, err := files.OpenText(name)
	if err != nil {
		return &genome.InputError{Input: name, Err: err}
	}
	defer f.Close()
	in := bufio.NewScanner(f)
	in.Buffer(make([]byte, 1<<16), mostLine)
	line := int64(0)
	for in.Scan() {
		line++
		// NCBI's lines end as their fields do
		text := bytes.TrimSuffix(bytes.TrimRight(in.Bytes(), "\r"), []byte("\t|"))
		if len(text) == 0 || text[0] == '#' {
			continue
		}
		f := strings.Split(string(text), separator)
		if len(f) < fields {
			return &genome.InputError{Input: name, Line: line,
				Err: fmt.Errorf("%d fields: want %d at least, separated by %q", len(f), fields, separator)}
		}
		if err := row(f); err != nil {
			return &genome.InputError{Input: name, Line: line, Err: err}
		}
	}
	if err := in.Err(); errors.Is(err, bufio.ErrTooLong) {
		return &genome.InputError{Input: name, Line: line + 1,
			Err: fmt.Errorf("a line of more than %d bytes: want rows of fields separated by %q", mostLine, separator)}
	} else if err != nil {
		return &genome.InputError{Input: name, Line: line + 1, Err: err}
	}
	return nil
}

func parseID(text string) (uint32, error) {
	id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("taxon %q: want a number", text)
	}
	return uint32(id), nil
}
