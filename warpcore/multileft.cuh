// Rows of a multimap that stretches left over: see stretch_multi.cu. A lane has a row, and reads windows whole, from the second turn of the row's chain on.
#pragma once

WARPMAP_KERNEL(insert_left_multi, insertParams) {
    WholeTile g;
    tile<32, true> warp;
    u64 n = at<u32>(p.left)[0], inserted = 0, reused = 0, failed = 0;
    FOR_EACH_ITEM(i, n) {
        bool active = i < n;
        Insert<C, Keep, true, true> s;
        Skip<C> skip;
        s.begin(p.table, active ? input_key<C>(p.rows.keys, i) : key{}, active ? input_value<C>(p.rows.values, i) : value{}, p.limit);
        skip.begin();
        s.probes += s.p.turn();
        s.p.go_to(s.p.turn());
        for (bool own = active; warp.any(own);) {
            if (!own) continue;
            skip.ask(p.table, s);
            own = s.round(p.table, g, true);
        }
        if (active && s.outcome == ADDED) skip.leave(p.table, s.p, s.candidate_probes - 1);
        inserted += active && s.outcome == ADDED;
        reused += active && s.reused;
        failed += active && s.outcome == FULL;
    }
    count_into(&counters(p.table)->inserted, inserted);
    count_into(&counters(p.table)->reused, reused);
    count_into(&counters(p.table)->failed, failed);
}
