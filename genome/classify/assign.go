package classify

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
)

// assigner tells of which taxon a reference is: by taxid|N in its header; by its file's accession, in
// assembly_summary.txt; by its own accession, in *.accession2taxid.
type assigner struct {
	dir              string // where the lists lie; empty: there are none
	summaries, lists int    // files
	assemblies       map[string]uint32
	accessions       map[string]uint32
}

func loadAssigner(dir string) (*assigner, error) {
	a := &assigner{dir: dir, assemblies: map[string]uint32{}, accessions: map[string]uint32{}}
	for _, name := range packedOrNot(dir, "assembly_summary*.txt") {
		if err := a.summary(name); err != nil {
			return nil, err
		}
		a.summaries++
	}
	for _, name := range packedOrNot(dir, "*.accession2taxid") {
		first := true
		err := eachRow(name, "\t", 3, func(f []string) error {
			id, err := parseID(f[2])
			if err != nil && first { // the names of the columns
				err = nil
			} else if err == nil {
				a.accessions[strings.Clone(f[0])], a.accessions[strings.Clone(f[1])] = id, id // f holds the whole line
			}
			first = false
			return err
		})
		if err != nil {
			return nil, err
		}
		a.lists++
	}
	return a, nil
}

// packedOrNot are the files of a folder whose names are of a pattern, or so and packed: as NCBI gives the long lists.
func packedOrNot(dir, pattern string) (names []string) {
	for _, ending := range []string{"", ".gz", ".zst"} {
		found, _ := filepath.Glob(filepath.Join(dir, pattern+ending))
		for _, name := range found {
			// the one that is unpacked may be newer
			if ending == "" || !slices.Contains(names, strings.TrimSuffix(name, ending)) {
				names = append(names, name)
			}
		}
	}
	return names
}

// summary reads accession and taxid: from the second column, or, in NCBI's own files of more columns, from the sixth.
func (a *assigner) summary(name string) error {
	return eachRow(name, "\t", 2, func(f []string) error {
		column := 1
		if len(f) > 5 {
			column = 5
		}
		id, err := parseID(f[column])
		if err == nil {
			a.assemblies[strings.Clone(f[0])] = id
		}
		return err
	})
}

// taxid tells of a reference by its header and its file; 0 if nothing does.
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
	accession, _, _ := strings.Cut(header, " ")
	parts := strings.Split(accession, "|") // gi|123|ref|NC_000913.3|
	slices.Reverse(parts)
	for _, part := range parts {
		if id, ok := a.accessions[part]; ok {
			return id
		}
		whole, _, _ := strings.Cut(part, ".")
		if id, ok := a.accessions[whole]; ok {
			return id
		}
	}
	return 0
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
