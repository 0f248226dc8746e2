// The kernels behind look-ups through long chains. A program's own Slots are meant: what look-ups take a slot for.
#pragma once

WARPMAP_KERNEL(count_long, findAllParams) { count_long<Slots, FindTile>(p.table, p.longs); }
WARPMAP_KERNEL(settle_long, findAllParams) { settle_long(p.table, p.longs, at<u32>(p.rows.counts), p.rows.n); }
WARPMAP_KERNEL(fill_long, findAllParams) { fill_long<Slots, FindTile>(p.table, p.longs, at<value>(p.rows.values)); }
WARPMAP_KERNEL(erase_long, findParams) { erase_long<Slots, FindTile, Erase<Slots>>(p.table, p.longs); }
WARPMAP_KERNEL(forget_long, findParams) { forget_long(p.table, p.longs, at<u8>(p.found)); }
