package classify

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// Format says how verdicts are written.
type Format string

// The formats. KrakenLines have C or U, the read's name, the taxon, the read's length, and the hits of the candidates
// as taxon:hits. Lines of pairs have the lengths of both mates, and the hits of each. MetaCacheLines have the name, |,
// and the taxon. Unclassified reads have taxon 0.
const (
	KrakenLines    Format = "kraken"
	MetaCacheLines Format = "metacache"
)

// ParseFormat reads the name of a Format. Errors: a name of no format.
func ParseFormat(name string) (Format, error) {
	if f := Format(name); f == KrakenLines || f == MetaCacheLines {
		return f, nil
	}
	return "", fmt.Errorf("%q: want %s or %s", name, KrakenLines, MetaCacheLines)
}

// lineBytes is about what a line takes.
const lineBytes = 64

// AppendLines appends one line for each read, or pair, of a batch.
func (c *Classifier) AppendLines(to []byte, r *Result, f Format) []byte {
	to = slices.Grow(to, lineBytes*len(r.Verdicts))
	for i, v := range r.Verdicts {
		read := r.Reads.Records[i]
		name := firstWord(read.Name)
		if f == MetaCacheLines {
			to = append(append(to, name...), "\t|\t"...)
			to = append(append(to, c.digits(v.Taxon)...), '\n')
			continue
		}
		if v.Taxon == 0 {
			to = append(to, "U\t"...)
		} else {
			to = append(to, "C\t"...)
		}
		if r.Mates != nil {
			name = bytes.TrimSuffix(name, []byte("/1"))
		}
		to = append(append(to, name...), '\t')
		to = append(append(to, c.digits(v.Taxon)...), '\t')
		to = strconv.AppendInt(to, int64(read.End-read.Start), 10)
		if r.Mates == nil {
			to = append(c.appendHits(append(to, '\t'), v, false), '\n')
			continue
		}
		mate := r.Mates.Records[i]
		to = strconv.AppendInt(append(to, '|'), int64(mate.End-mate.Start), 10)
		to = c.appendHits(append(to, '\t'), v, false)
		to = append(c.appendHits(append(to, " |:| "...), v, true), '\n')
	}
	return to
}

// appendHits appends the candidates with the hits of the first mate, or the second.
func (c *Classifier) appendHits(to []byte, v Verdict, second bool) []byte {
	begin := len(to)
	for _, b := range v.Best {
		hits := b.Hits - b.Second
		if second {
			hits = b.Second
		}
		if hits == 0 {
			continue
		}
		if len(to) > begin {
			to = append(to, ' ')
		}
		to = append(to, c.digits(c.candidateTaxon(b.Target)+1)...)
		to = strconv.AppendUint(append(to, ':'), uint64(hits), 10)
	}
	if len(to) == begin {
		to = append(to, "0:0"...)
	}
	return to
}

// write spells the numbers of all taxa that can come out, once: most of the time of making lines would go into it.
func (c *Classifier) write() {
	c.spelled = make([]string, len(c.db.taxonomy.ids)+1)
	c.spelled[0] = "0"
	spell := func(taxon uint32) { // index+1
		if c.spelled[taxon] == "" {
			n := uint64(0)
			if taxon > 0 {
				n = uint64(c.db.taxonomy.ids[taxon-1])
			}
			c.spelled[taxon] = strconv.FormatUint(n, 10)
		}
	}
	for _, taxon := range c.lineages {
		spell(taxon)
	}
	for _, list := range [][]uint32{c.indices, c.named} {
		for _, taxon := range list {
			spell(taxon + 1)
		}
	}
}

// digits is the number of a taxon, index+1, in decimal; 0 for none.
func (c *Classifier) digits(taxon uint32) string { return c.spelled[taxon] }

// candidateTaxon is the taxon of a target, or its ancestor of the lowest rank that candidates have.
func (c *Classifier) candidateTaxon(target uint32) uint32 { return c.named[target] }

// Tally counts verdicts. Several goroutines may Add at a time; all else is for one, when they are done.
type Tally struct {
	c       *Classifier
	Reads   int64 // how many reads, or pairs, were counted
	Letters int64
	// Strangers is the number of pairs whose mates have different names. The number of the mate at the end of a name,
	// as in r7/1 and r7/2, or with a dot or an underscore, makes no difference.
	Strangers int64
	truth     bool
	mu        sync.Mutex
	idle      []*counts // what batches were counted in, for later batches
}

// counts are those of some batches.
type counts struct {
	c      *Classifier
	direct map[uint32]int64 // by taxon
	lines  map[uint32]*[ranks]uint32
	known  [ranks]int64
	told   [ranks]int64
	right  [ranks]int64
}

// NewTally makes an empty Tally. With truth, reads whose headers have taxid|N are compared with that taxon.
func (c *Classifier) NewTally(truth bool) *Tally { return &Tally{c: c, truth: truth} }

func (c *Classifier) newCounts() *counts {
	return &counts{c: c, direct: map[uint32]int64{}, lines: map[uint32]*[ranks]uint32{}}
}

// Add counts the verdicts of a batch.
func (t *Tally) Add(r *Result) {
	n := t.take()
	letters, strangers := r.Letters(), r.strangers()
	n.add(r, t.truth)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.idle = append(t.idle, n)
	t.Reads += int64(len(r.Verdicts))
	t.Letters += letters
	t.Strangers += strangers
}

// strangers counts the pairs whose mates have different names.
func (r *Result) strangers() (n int64) {
	if r.Mates == nil {
		return 0
	}
	for i, x := range r.Reads.Records {
		if !bytes.Equal(mateless(x.Name), mateless(r.Mates.Records[i].Name)) {
			n++
		}
	}
	return n
}

// mateless returns a read's name without the number of the mate at its end.
func mateless(name []byte) []byte {
	name = firstWord(name)
	n := len(name) - 2
	if n > 0 && strings.IndexByte("/._", name[n]) >= 0 && (name[n+1] == '1' || name[n+1] == '2') {
		return name[:n]
	}
	return name
}

// take gives counts that nobody else counts in.
func (t *Tally) take() *counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	if last := len(t.idle) - 1; last >= 0 {
		n := t.idle[last]
		t.idle = t.idle[:last]
		return n
	}
	return t.c.newCounts()
}

// all puts the counts together.
func (t *Tally) all() *counts {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := t.c.newCounts()
	for _, n := range t.idle {
		for taxon, reads := range n.direct {
			all.direct[taxon] += reads
		}
		for r := range ranks {
			all.known[r] += n.known[r]
			all.told[r] += n.told[r]
			all.right[r] += n.right[r]
		}
	}
	t.idle = []*counts{all}
	return all
}

func (n *counts) add(r *Result, truth bool) {
	for i, v := range r.Verdicts {
		if v.Taxon != 0 {
			n.direct[v.Taxon-1]++
		}
		if truth {
			n.compare(v, headerID(r.Reads.Records[i].Name))
		}
	}
}

func (n *counts) lineage(taxon uint32) *[ranks]uint32 {
	l := n.lines[taxon]
	if l == nil {
		line := n.c.db.taxonomy.lineage(taxon)
		l = &line
		n.lines[taxon] = l
	}
	return l
}

func (n *counts) compare(v Verdict, truth uint32) {
	taxon, known := n.c.db.taxonomy.find(truth)
	if !known {
		return
	}
	want := n.lineage(taxon)
	var got [ranks]uint32
	if v.Taxon != 0 {
		got = *n.lineage(v.Taxon - 1)
	}
	for r := range want {
		if want[r] == 0 {
			continue
		}
		n.known[r]++
		if got[r] != 0 {
			n.told[r]++
		}
		if got[r] == want[r] {
			n.right[r]++
		}
	}
}

// RankSummary tells how many reads were told at a rank or below it.
type RankSummary struct {
	Rank        string  `json:"rank"`
	Reads       int64   `json:"reads"`
	Share       float64 `json:"share"`                 // the share of all reads
	Precision   float64 `json:"precision,omitempty"`   // the share of those told that are right; with a ground truth
	Sensitivity float64 `json:"sensitivity,omitempty"` // the share of those whose truth is known that are right
}

// mainRanks are those of summaries.
var mainRanks = []Rank{Species, Genus, Family, Order, Class, Phylum, Kingdom, Domain, Root}

// Summary tells how many reads are classified at each main rank or below. With a ground truth, it gives only ranks that
// some truth has.
func (t *Tally) Summary() (out []RankSummary) {
	var at [ranks]int64
	all := t.all()
	for taxon, n := range all.direct {
		lowest := t.c.db.taxonomy.effective(taxon)
		for r := int(lowest); r < ranks; r++ {
			at[r] += n
		}
	}
	for _, r := range mainRanks {
		if t.truth && all.known[r] == 0 {
			continue
		}
		s := RankSummary{Rank: r.String(), Reads: at[r], Share: ratio(at[r], t.Reads)}
		if t.truth {
			s.Precision, s.Sensitivity = ratio(all.right[r], all.told[r]), ratio(all.right[r], all.known[r])
		}
		out = append(out, s)
	}
	return out
}

// Classified counts the reads that have a verdict.
func (t *Tally) Classified() (n int64) {
	for _, d := range t.all().direct {
		n += d
	}
	return n
}

func ratio(a, b int64) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// effective is a taxon's rank, or that of the next ancestor that has one, just below which it then counts.
func (t *Taxonomy) effective(taxon uint32) Rank {
	for at := taxon; at != 0; at = t.parents[at] {
		if t.ranks[at] < Root {
			return t.ranks[at]
		}
	}
	return Root
}

// clades adds up each taxon's reads and those of all below it, of taxa that have any. direct are each taxon's own.
func (t *Tally) clades() (direct, clade map[uint32]int64, children map[uint32][]uint32) {
	direct, clade, children = t.all().direct, map[uint32]int64{}, map[uint32][]uint32{}
	tree := t.c.db.taxonomy
	for taxon, n := range direct {
		for at := taxon; ; at = tree.parents[at] {
			if clade[at] == 0 && at != 0 {
				children[tree.parents[at]] = append(children[tree.parents[at]], at)
			}
			clade[at] += n
			if at == 0 {
				break
			}
		}
	}
	for _, c := range children {
		slices.SortFunc(c, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(clade[b], clade[a]), cmp.Compare(tree.ids[a], tree.ids[b]))
		})
	}
	return direct, clade, children
}

// Report writes Kraken's report, which Bracken reads. A line has percent, reads of the clade, reads of the taxon
// itself, the code of its rank, the taxon, and its name, indented by two blanks a level.
func (t *Tally) Report(to io.Writer) error {
	w := bufio.NewWriter(to)
	direct, clade, children := t.clades()
	tree := t.c.db.taxonomy
	line := func(n, own int64, code string, id uint32, depth int, name string) {
		fmt.Fprintf(w, "%6.2f\t%d\t%d\t%s\t%d\t%s%s\n", 100*ratio(n, t.Reads), n, own, code, id,
			strings.Repeat("  ", depth), name)
	}
	if n := t.Reads - clade[0]; n > 0 {
		line(n, n, "U", 0, 0, "unclassified")
	}
	var walk func(taxon uint32, code byte, below, depth int)
	walk = func(taxon uint32, code byte, below, depth int) {
		if own := rankCodes[tree.ranks[taxon]]; own != 0 {
			code, below = own, 0
		} else {
			below++
		}
		text := string(code)
		if below > 0 {
			text += strconv.Itoa(below)
		}
		line(clade[taxon], direct[taxon], text, tree.ids[taxon], depth, tree.names[taxon])
		for _, c := range children[taxon] {
			walk(c, code, below, depth+1)
		}
	}
	if clade[0] > 0 {
		walk(0, 'R', 0, 0)
	}
	return w.Flush()
}

var rankCodes = [Unranked + 1]byte{Root: 'R', Domain: 'D', Kingdom: 'K', Phylum: 'P', Class: 'C', Order: 'O',
	Family: 'F', Genus: 'G', Species: 'S'}

// Abundances writes, for each main rank, the taxa with their reads, including those of all taxa below. A line has rank,
// taxon, name, reads, and percent of all reads.
func (t *Tally) Abundances(to io.Writer) error {
	w := bufio.NewWriter(to)
	_, clade, _ := t.clades()
	tree := t.c.db.taxonomy
	fmt.Fprintln(w, "rank\ttaxid\tname\treads\tpercent")
	for _, r := range mainRanks[:len(mainRanks)-1] {
		var taxa []uint32
		for taxon := range clade {
			if tree.ranks[taxon] == r {
				taxa = append(taxa, taxon)
			}
		}
		slices.SortFunc(taxa, func(a, b uint32) int {
			return cmp.Or(cmp.Compare(clade[b], clade[a]), cmp.Compare(tree.ids[a], tree.ids[b]))
		})
		for _, x := range taxa {
			fmt.Fprintf(w, "%s\t%d\t%s\t%d\t%.4f\n", r, tree.ids[x], tree.names[x], clade[x],
				100*ratio(clade[x], t.Reads))
		}
	}
	return w.Flush()
}
