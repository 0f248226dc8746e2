package workload

import (
	"strings"
	"sync"
)

// What comments are drawn with, beside the other columns.
const (
	tpchOrderComments = 1 << 62
	tpchLineComments  = 3 << 61
)

// The words of the specification's section 4.2.2.14, from which comments are made.
var (
	tpchNouns = words(`foxes ideas theodolites pinto_beans instructions dependencies excuses platelets asymptotes courts dolphins multipliers
		sauternes warthogs frets dinos attainments somas Tiresias' patterns forges braids hockey_players frays warhorses dugouts notornis
		epitaphs pearls tithes waters orbits gifts sheaves depths sentiments decoys realms pains grouches escapades`)
	tpchVerbs = words(`sleep wake are cajole haggle nag use boost affix detect integrate maintain nod was lose sublate solve thrash promise engage
		hinder print x-ray breach eat grow impress mold poach serve run dazzle snooze doze unwind kindle play hang believe doubt`)
	tpchAdjectives = words(`furious sly careful blithe quick fluffy slow quiet ruthless thin close dogged daring brave stealthy permanent enticing
		idle busy regular final ironic even bold silent`)
	tpchAdverbs = words(`sometimes always never furiously slyly carefully blithely quickly fluffily slowly quietly ruthlessly thinly closely
		doggedly daringly bravely stealthily permanently enticingly idly busily regularly finally ironically evenly boldly silently`)
	tpchPrepositions = words(`about above according_to across after against along alongside_of among around at atop before behind beneath beside
		besides between beyond by despite during except for from in_place_of inside instead_of into near of on outside over past since
		through throughout to toward under until up upon without with within`)
	tpchAuxiliaries = words(`do may might shall will would can could should ought_to must will_have_to shall_have_to could_have_to should_have_to
		must_have_to need_to try_to`)
	tpchEnds = words(`. ; : ? ! --`)
)

// words are separated by blanks; _ is a blank in one.
func words(s string) []string {
	list := strings.Fields(s)
	for i := range list {
		list[i] = strings.ReplaceAll(list[i], "_", " ")
	}
	return list
}

// tpchPool is text to draw comments from.
type tpchPool string

// tpchPoolBytes is how long it is. The specification's is 300 MB, which takes longer to make than many tables.
const tpchPoolBytes = 4 << 20

// pool is the text for comments. It is the same for all seeds, and made when first needed.
func (t TPCH) pool() tpchPool {
	if !t.Comments {
		return ""
	}
	return tpchText()
}

var tpchText = sync.OnceValue(func() tpchPool {
	w := writer{r: 1}
	for len(w.text) < tpchPoolBytes {
		w.sentence()
	}
	return tpchPool(w.text[:tpchPoolBytes])
})

// draw takes a comment of least to most bytes.
func (p tpchPool) draw(r *tpchRand, least, most int64) string {
	n := r.in(least, most)
	from := r.in(0, int64(len(p))-n)
	return string(p[from : from+n])
}

// writer writes sentences by the specification's grammar.
type writer struct {
	text []byte
	r    tpchRand
}

// one writes a word of a list, and what is behind it.
func (w *writer) one(list []string, behind string) {
	w.text = append(append(w.text, list[w.r.of(list)]...), behind...)
}

func (w *writer) noun() {
	switch w.r.in(0, 3) {
	case 1:
		w.one(tpchAdjectives, " ")
	case 2:
		w.one(tpchAdjectives, ", ")
		w.one(tpchAdjectives, " ")
	case 3:
		w.one(tpchAdverbs, " ")
		w.one(tpchAdjectives, " ")
	}
	w.one(tpchNouns, " ")
}

func (w *writer) verb() {
	form := w.r.in(0, 3)
	if form&1 != 0 {
		w.one(tpchAuxiliaries, " ")
	}
	w.one(tpchVerbs, " ")
	if form&2 != 0 {
		w.one(tpchAdverbs, " ")
	}
}

func (w *writer) preposition() {
	w.one(tpchPrepositions, " the ")
	w.noun()
}

func (w *writer) sentence() {
	form := w.r.in(0, 4)
	w.noun()
	if form >= 3 {
		w.preposition()
	}
	w.verb()
	switch form {
	case 1, 4:
		w.preposition()
	case 2, 3:
		w.noun()
	}
	w.text = w.text[:len(w.text)-1] // the end follows the last word at once
	w.one(tpchEnds, " ")
}
