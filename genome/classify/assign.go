package classify

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/genome"
)

// assigner tells of which taxon a reference is: by taxid|N in its header; by its file's accession, in
// assembly_summary.txt; by its own accession, in *.accession2taxid. Where two folders have lists, the one that was
// named first has the word.
type assigner struct {
	dirs             []string // where lists may lie
	seen             map[string]bool
	summaries, lists int // files
	assemblies       map[string]uint32
	accessions       []string // files, for those of NCBI do not fit into memory: what comes later has the word
	rows             int64    // of these, where they were read
}

// loadAssigner is one with the lists of folders.
func loadAssigner(dirs ...string) (*assigner, error) {
	a := &assigner{}
	for _, dir := range dirs {
		if err := a.folder(dir); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// folder reads a folder's assembly_summary*.txt, and finds its *.accession2taxid.
func (a *assigner) folder(dir string) error {
	whole, err := filepath.Abs(dir)
	if err != nil || a.seen[whole] {
		return err
	}
	if a.seen == nil {
		a.seen, a.assemblies = map[string]bool{}, map[string]uint32{}
	}
	a.seen[whole] = true
	a.dirs = append(a.dirs, dir)
	entries, _ := os.ReadDir(dir)
	own := map[string]uint32{}
	for _, name := range packedOrNot(entries, "assembly_summary*.txt") {
		if err := summary(filepath.Join(dir, name), own); err != nil {
			return err
		}
		a.summaries++
	}
	for accession, id := range own {
		if _, is := a.assemblies[accession]; !is {
			a.assemblies[accession] = id
		}
	}
	var lists []string
	for _, name := range packedOrNot(entries, "*.accession2taxid") {
		lists = append(lists, filepath.Join(dir, name))
	}
	a.lists += len(lists)
	a.accessions = append(lists, a.accessions...)
	return nil
}

// beside finds the lists that lie beside files, or in the folders that inputs name.
func (a *assigner) beside(inputs []string) error {
	found, err := genome.Expand(inputs)
	if err != nil {
		return err
	}
	for _, input := range inputs {
		if about, err := os.Stat(input); err == nil && about.IsDir() {
			if err := a.folder(input); err != nil {
				return err
			}
		}
	}
	for _, file := range found {
		if file == "-" {
			continue
		}
		if err := a.folder(filepath.Dir(file)); err != nil {
			return err
		}
	}
	return nil
}

// packedOrNot are the files of a folder whose names are of a pattern, or so and packed: as NCBI gives the long lists.
func packedOrNot(entries []os.DirEntry, pattern string) (names []string) {
	for _, ending := range []string{"", ".gz", ".zst"} {
		for _, e := range entries {
			// the one that is unpacked may be newer
			if is, _ := filepath.Match(pattern+ending, e.Name()); is &&
				(ending == "" || !slices.Contains(names, strings.TrimSuffix(e.Name(), ending))) {
				names = append(names, e.Name())
			}
		}
	}
	return names
}

// summary reads accession and taxid: from the second column, or, in NCBI's own files of more columns, from the sixth.
func summary(name string, assemblies map[string]uint32) error {
	return eachRow(name, "\t", 2, func(f []string) error {
		column := 1
		if len(f) > 5 {
			column = 5
		}
		id, err := parseID(f[column])
		if err == nil {
			assemblies[strings.Clone(f[0])] = id // f holds the whole line
		}
		return err
	})
}

// taxid tells of a reference by its header and its file; 0 if neither does: see listed.
func (a *assigner) taxid(header, file string) uint32 {
	if id := headerID([]byte(header)); id != 0 {
		return id
	}
	base := filepath.Base(file)
	for at := len(base); at > 0; at = strings.LastIndexAny(base[:at], "._") {
		if id, ok := a.assemblies[base[:at]]; ok {
			return id
		}
	}
	return 0
}

// firstWord returns a header up to its first blank or tab.
func firstWord[T string | []byte](header T) T {
	for i := range len(header) {
		if header[i] == ' ' || header[i] == '\t' {
			return header[:i]
		}
	}
	return header
}

// accessionsOf calls try with each possible accession of a header, such as gi|123|ref|NC_000913.3| …, until try returns
// true: with the version and without, the last part first.
func accessionsOf(header string, try func(accession string) (known bool)) {
	for _, part := range slices.Backward(strings.Split(firstWord(header), "|")) {
		if part == "" {
			continue
		}
		whole, _, versioned := strings.Cut(part, ".")
		if try(part) || versioned && try(whole) {
			return
		}
	}
}

// listed tells of references by the accessions in their headers; 0 of one that no list has. Cost: all lists are read,
// and only what is asked for is kept.
func (a *assigner) listed(ctx context.Context, headers []string) ([]uint32, error) {
	ids := make([]uint32, len(headers))
	if len(headers) == 0 || len(a.accessions) == 0 {
		return ids, nil
	}
	known := map[string]uint32{}
	for _, h := range headers {
		accessionsOf(h, func(accession string) bool {
			known[accession] = 0
			return false
		})
	}
	a.rows = 0
	for _, name := range a.accessions {
		first := true
		err := eachRow(name, "\t", 3, func(f []string) error {
			id, err := parseID(f[2])
			if err != nil && first { // the names of the columns
				first = false
				return nil
			} else if err != nil {
				return err
			}
			first = false
			for _, accession := range f[:2] {
				if _, asked := known[accession]; asked {
					known[strings.Clone(accession)] = id
				}
			}
			if a.rows++; a.rows%(1<<16) == 0 && ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for i, h := range headers {
		accessionsOf(h, func(accession string) bool {
			ids[i] = known[accession]
			return ids[i] != 0
		})
	}
	return ids, nil
}

// headerID is the N of taxid|N in a header; 0 if it has none.
func headerID(header []byte) uint32 {
	_, rest, ok := bytes.Cut(header, []byte("taxid|"))
	if !ok {
		return 0
	}
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	id, err := parseID(string(rest[:end]))
	if err != nil {
		return 0
	}
	return id
}
