package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// part is one way of trying.
type part struct {
	name  string
	share int // of the time, in parts of all shares
	env   []string
	turns []turn

	at, under, ran, tests int // the next turn, and how many are under way, ended, and tests that passed in them
	used                  time.Duration
	tried                 map[string]int
	findings              []string // the logs' names
}

// behind is how much of its share a part has had. A turn that is under way counts a minute.
func (p *part) behind() float64 {
	return (p.used + time.Duration(p.under)*time.Minute).Seconds() / float64(p.share)
}

// turn is what a process of a part runs.
type turn struct {
	dir    string // of the package, from the root; "root" is the root itself
	tests  string // a pattern as of go test -run. DEVICE stands for the device; a turn without it is of the CPU alone
	lasts  bool   // it goes on for as long as WARPMAP_PROGRAMS says
	fuzz   bool   // tests is a pattern of fuzzers
	failed int
}

// suits tells whether any of a part's turns can run.
func (p *part) suits(t *trial) bool {
	var can []turn
	for _, x := range p.turns {
		if !x.fuzz || t.tests == "" {
			can = append(can, x)
		}
	}
	p.turns, p.tried = can, map[string]int{}
	return len(can) > 0
}

// parts are all. Patterns name tests that look for defects of this module, and not those that must find planted ones:
// these need the seeds that they were written with.
func parts() []*part {
	return []*part{
		{name: "operations", share: 6, turns: []turn{
			{dir: "internal/operations", tests: "^TestGenerated$/^DEVICE$", lasts: true},
			{dir: "shard/operations", tests: "^TestMembersFiles$", lasts: true},
		}},
		{name: "faults", share: 4, turns: []turn{
			{dir: "root", tests: "^TestEachCallFails$/^DEVICE$"},
			{dir: "root", tests: "^TestCallsFailAtRandom$/^DEVICE$"},
			{dir: "root", tests: "^TestEachAllocationFails$/^DEVICE$"},
			{dir: "root", tests: "^Test(EachAllocation|EachCall|Calls)OfCachesFail.*$/^DEVICE$"},
			{dir: "root", tests: "^TestEachCallOfShardsFails$"},
			{dir: "shard", tests: "^TestEachNCCLCallFails$"},
		}},
		{name: "crashes", share: 3, env: []string{"WARPMAP_LONG=1"}, turns: []turn{
			{dir: "cmd/warpmap", tests: "^TestKilledAtEachCall$"},
			{dir: "cmd/warpmap", tests: "^TestEachCallOnFilesFails$"},
			{dir: "serve/flight", tests: "^TestTablesKilledAtEachCall$"},
			{dir: "cmd/warpmap", tests: "^Test(LaunchMemberKilled|ServeKilled|TablesLogSurvivesKill)$"},
		}},
		{name: "servers", share: 2, env: []string{"WARPMAP_LONG=1"}, turns: []turn{
			{dir: "cmd/warpmap", tests: "^TestHostileHours$"},
			{dir: "serve/flight", tests: "^TestLogIsTheTables$"},
		}},
		{name: "stress", share: 3, turns: histories},
		{name: "model", share: 4, env: []string{"WARPMAP_MODEL=1"}, turns: histories},
		{name: "aging", share: 2, env: []string{"WARPMAP_LONG=1"}, turns: []turn{
			{dir: "internal/bench/library", tests: "^TestAging$/^DEVICE$"},
			{dir: "cache", tests: "^TestAging$/^DEVICE$"},
			{dir: "cuckoo", tests: "^TestAging$/^DEVICE$"},
		}},
		{name: "fuzzers", share: 3, turns: fuzzers()},
	}
}

// histories are tests under stress, which the memory model checks in its own part.
var histories = []turn{
	{dir: "slab", tests: "^Test(Mixed|Updates|Choices|UserKernels|Allocator|Stretches).*UnderStress$"},
	{dir: "warpcore", tests: "^Test(Counters|Filter|Partitioned|Choices|Combined|Updates|.*Stretches).*UnderStress$"},
	{dir: "stadium", tests: "^Test(Mixed|Updates|Stretches)UnderStress$"},
	{dir: "gph", tests: "^Test(Shared|Stretches)UnderStress$"},
	{dir: "dycuckoo", tests: "^Test(|Updates|Voters)UnderStress$"},
	{dir: "root", tests: "^TestFamiliesUnderStress$"},
	{dir: "warpcore", tests: "^Test(BucketList|MultiBucket|MixedOperations)UnderStress$"},
	{dir: "shard", tests: "^TestStress$"},
	{dir: "gph", tests: "^TestMovesUnderStress$"},
	{dir: "table/text", tests: "^TestUnderStress$"},
	{dir: "cuckoo", tests: "^TestUnderStress$"},
	{dir: "cache", tests: "^Test(Stress|Histories)$"},
	{dir: "sketch", tests: "^TestStress(|Counts|Top)$"},
	{dir: "internal/frame", tests: "^TestPartitionUnderStress$"},
}

// fuzzers are turns for each package that has a corpus: go run ./internal/fuzz finds its fuzzers.
func fuzzers() (all []turn) {
	filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if dir, ok := strings.CutSuffix(filepath.ToSlash(name), "/testdata/fuzz"); ok {
			all = append(all, turn{dir: dir, tests: "^" + dir + "/Fuzz", fuzz: true, lasts: true})
			return filepath.SkipDir
		}
		if _, err := os.Stat(filepath.Join(name, "go.mod")); name != "." && d.IsDir() &&
			(err == nil || strings.HasPrefix(d.Name(), ".")) {
			return filepath.SkipDir
		}
		return nil
	})
	return all
}
