// The bulk operations: one entry point each. A grid's threads go over the batch in strides, a key to a lane.
#include "findall.cuh"
#include "jobs.cuh"
#include "partition.cuh"

WARPMAP_KERNEL(find, findParams) {
    FindJob job(p);
    drive<Tile, u32>(p.n, job);
}

template <u32 KIND> struct EraseJob {
    typedef KeyItem Item;
    const findParams& p;
    Op<C, KIND, false> op;
    Resident none;
    u64 erased;
    __device__ __forceinline__ EraseJob(const findParams& p) : p(p), erased(0) { op.rest(p.table); }
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(p.keys, i)}; }
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    typedef Op<C, KIND, false> Held;
    __device__ __forceinline__ void hold(Held& h) const { hold_op<true>(h, op); }
    __device__ __forceinline__ void resume(const Held& h) { op = h; }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        op.begin(p.table, KIND, x.k, value{});
        return true;
    }
    __device__ __forceinline__ bool round(Tile g, bool active) { return op.round(p.table, g, active, none); }
    __device__ __forceinline__ void done(u64 i) {
        erased += op.outcome == PRESENT;
        if (p.found) at<u8>(p.found)[i] = op.outcome == PRESENT;
    }
};

template <u32 KIND> __device__ __forceinline__ void insert_batch(const insertParams& p) {
    InsertJob<KIND> job(p);
    drive<Tile, u32>(p.rows.n, job, p.rows.span);
    job.tally.end(p.table, job.r);
}

// Brings pairs in the order of the regions that their base slabs lie in. The region is of the hash's high bits, as the bucket
// is, so regions are stretches of buckets; with p.inverse, of so many exactly. Pairs with reserved keys, which are few, are of any.
__device__ __forceinline__ auto region_of(const partitionParams& p) {
    return [&p](key k) {
        u64 hash = hash64<C::HASH>(k, p.table.seed);
        return p.inverse ? (u32)multiply_high(reduce(hash, p.table.buckets), p.inverse) : (u32)((hash >> 32) * (u32)p.rows.parts >> 32);
    };
}
WARPMAP_PARTITION(partitionParams, key, value, u32, region_of)

#if !SLAB_MULTI
WARPMAP_PARTITION_WITHIN(partitionParams, key, value, region_of)

// Rows that stretches left over: see stretch.cu. Those of the front go on behind their base slabs, and those of the end begin anew.
// A row that finds no slab is only counted: then the host has the batch go in as it is.
template <u32 KIND> struct LeftJob : InsertJob<KIND> {
    typedef InsertJob<KIND> Insert;
    typedef PairItem Item;
    u64 on, failed;
    __device__ __forceinline__ LeftJob(const insertParams& p) : Insert(p), on(at<u32>(p.left)[0]), failed(0) {}
    __device__ __forceinline__ u64 rows() const { return on + at<u32>(this->p.left)[1]; }
    __device__ __forceinline__ Item load(u64 i) { return Insert::load(i < on ? i : this->p.rows.n - 1 - (i - on)); }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        this->op.begin(this->p.table, KIND, x.k, x.v);
        bool may = i >= on || this->op.go_on(this->p.table, this->r);
        failed += !may;
        return may;
    }
    __device__ __forceinline__ void done(u64) {
        this->tally.note(this->op);
        failed += this->op.outcome == FULL;
    }
};
template <u32 KIND> __device__ __forceinline__ void insert_left(const insertParams& p) {
    LeftJob<KIND> job(p);
    u64 n = job.rows();
    if (!n) return;
    drive<Tile, u32>(n, job);
    job.tally.end(p.table, job.r);
    count_into(&counters(p.table)->failed, job.failed);
}
WARPMAP_KERNEL_RESIDENT(insert_left, insertParams, 3) { insert_left<INSERT>(p); }
WARPMAP_KERNEL_RESIDENT(insert_left_new, insertParams, 3) { insert_left<INSERT_NEW>(p); }

WARPMAP_KERNEL_RESIDENT(insert, insertParams, 3) { insert_batch<INSERT>(p); }
WARPMAP_KERNEL_RESIDENT(insert_new, insertParams, 3) { insert_batch<INSERT_NEW>(p); }

WARPMAP_KERNEL(erase, findParams) {
    EraseJob<ERASE> job(p);
    drive<Tile, u32>(p.n, job);
    count_into(&counters(p.table)->erased, job.erased);
}

struct MixedItem {
    key k;
    value v;
    u32 kind;
};

// Operations of all kinds beside one another. With a clock, begin and end of each are stamped.
struct MixedJob {
    typedef MixedItem Item;
    const mixedParams& p;
    Op<C, ANY, false> op;
    Resident r;
    Tally tally;
    __device__ __forceinline__ MixedJob(const mixedParams& p) : p(p) { op.rest(p.table); }
    __device__ __forceinline__ Item load(u64 i) {
        return Item{input_key<C>(p.keys, i), input_value<C>(p.values, i), load_readonly(at<u8>(p.ops) + i)};
    }
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (p.attempt && !refused(p.refused, i)) return false;
        if (x.kind > ERASE) { // no operation: it does nothing
            output_value<C>(p.results, i, value{});
            if (p.status) at<u8>(p.status)[i] = ABSENT;
            return false;
        }
        if (p.clock && !p.attempt) at<u64>(p.calls)[i] = add(at<u64>(p.clock), (u64)1);
        op.begin(p.table, x.kind, x.k, x.v);
        return true;
    }
    __device__ __forceinline__ bool round(Tile g, bool active) { return op.round(p.table, g, active, r, p.attempt < SLAB_LAST_ATTEMPT); }
    __device__ __forceinline__ void done(u64 i) {
        tally.note(op);
        tally.erased += op.is(ERASE) && op.outcome == PRESENT;
        // What is tried again reads its value again, which may be where the result goes.
        if (op.outcome != FULL || p.attempt >= SLAB_LAST_ATTEMPT) output_value<C>(p.results, i, op.is(FIND) ? op.found_value(true) : value{});
        if (p.status) at<u8>(p.status)[i] = (u8)op.outcome;
        if (p.clock) at<u64>(p.returns)[i] = add(at<u64>(p.clock), (u64)1);
        if (op.outcome == FULL) {
            if (!p.attempt) set_refused(p.table, p.refused, i);
            else add(&counters(p.table)->failed, (u64)1);
        } else if (p.attempt) clear_refused(p.refused, i);
    }
};
WARPMAP_KERNEL_RESIDENT(mixed, mixedParams, 4) {
    MixedJob job(p);
    drive<Tile, u32>(p.n, job);
    job.tally.end(p.table, job.r);
}
#else
WARPMAP_KERNEL_RESIDENT(insert, insertParams, 3) { insert_batch<INSERT_MULTI>(p); }

// The least recent pair of each key.
WARPMAP_KERNEL(erase, findParams) {
    EraseJob<ERASE_ONE> job(p);
    drive<Tile, u32>(p.n, job);
    count_into(&counters(p.table)->erased, job.erased);
}

struct Count {
    static constexpr bool NUMBERED = true;
    __device__ __forceinline__ void turn(Tile, int) {}
    template <class W> __device__ __forceinline__ bool operator()(u64, u32, W, u32) { return true; }
};
struct Remove {
    static constexpr bool NUMBERED = false;
    __device__ __forceinline__ void turn(Tile, int) {}
    template <class W> __device__ __forceinline__ bool operator()(u64 slab, u32 slot, W w, u32) {
        return Access<C>::remove(slab, slot, w, Access<C>::key_of(w));
    }
};
struct Fill {
    static constexpr bool NUMBERED = true;
    u64 values, offset; // of this lane's key
    u64 to;             // of the key whose turn it is
    __device__ __forceinline__ void turn(Tile g, int rank) { to = g.shuffle(offset, rank); }
    template <class W> __device__ __forceinline__ bool operator()(u64 slab, u32 slot, W w, u32 number) {
        output_value<C>(values, to + number, Access<C>::load_value(slab, values_of<C>(slab), slot, w));
        return true;
    }
};

// A job that goes through all pairs of each key.
template <class P, class Visit> struct SweepJob {
    typedef KeyItem Item;
    const P& p;
    u64 keys;
    Sweep<C> s;
    Visit visit;
    __device__ __forceinline__ SweepJob(const P& p, u64 keys) : p(p), keys(keys), visit{} {}
    __device__ __forceinline__ Item load(u64 i) { return Item{input_key<C>(keys, i)}; }
    __device__ __forceinline__ void ahead(const Item& x) const { ask_home<C, true>(p.table, x.k); }
    __device__ __forceinline__ bool begin(u64, const Item& x) {
        s.begin(p.table, x.k);
        return true;
    }
    __device__ __forceinline__ bool round(Tile g, bool active) { return s.round(p.table, g, active, visit); }
};

// All pairs of each key.
struct EraseAllJob : SweepJob<findParams, Remove> {
    u64 erased;
    __device__ __forceinline__ EraseAllJob(const findParams& p) : SweepJob(p, p.keys), erased(0) {}
    __device__ __forceinline__ bool round(Tile g, bool active) { // a key may have more pairs than its count
        u32 before = s.count;
        bool on = SweepJob::round(g, active);
        erased += s.count - before;
        s.count = count_on(before, s.count);
        return on;
    }
    __device__ __forceinline__ void done(u64 i) {
        if (p.found) at<u8>(p.found)[i] = s.count > 0;
    }
};
WARPMAP_KERNEL(erase_all, findParams) {
    EraseAllJob job(p);
    drive<Tile, u64>(p.n, job);
    count_into(&counters(p.table)->erased, job.erased);
}

// FindAll: see kernel/findall.cuh.
struct CountJob : SweepJob<findAllParams, Count> {
    __device__ __forceinline__ CountJob(const findAllParams& p) : SweepJob(p, p.rows.keys) {}
    __device__ __forceinline__ bool round(Tile g, bool active) {
        u32 before = s.count;
        bool on = SweepJob::round(g, active);
        s.count = count_on(before, s.count);
        return on;
    }
    __device__ __forceinline__ void done(u64 i) { at<u32>(p.rows.counts)[i] = s.count; }
};
WARPMAP_KERNEL(count_all, findAllParams) {
    CountJob job(p);
    drive<Tile, u64>(p.rows.n, job);
}
WARPMAP_KERNEL(sum_chunks, findAllParams) { sum_chunks(p.rows); }
WARPMAP_KERNEL(scan_totals, findAllParams) { scan_totals(p.rows); }
WARPMAP_KERNEL(write_offsets, findAllParams) { write_offsets(p.rows); }

struct FillJob : SweepJob<findAllParams, Fill> {
    __device__ __forceinline__ FillJob(const findAllParams& p) : SweepJob(p, p.rows.keys) { visit.values = p.rows.values; }
    __device__ __forceinline__ bool begin(u64 i, const Item& x) {
        if (!at<u32>(p.rows.counts)[i]) return false;
        visit.offset = at<u64>(p.rows.offsets)[i];
        return SweepJob::begin(i, x);
    }
    __device__ __forceinline__ void done(u64) {}
};
WARPMAP_KERNEL(fill_all, findAllParams) {
    FillJob job(p);
    drive<Tile, u64>(p.rows.n, job);
}
#endif

// The kernels below go over the buckets, the last of which is that of the reserved keys.
__device__ __forceinline__ u64 bucket_count(const Table& t) { return t.buckets + 1; }

// Whether a flush is worth it, by the counters that it does not change.
__device__ __forceinline__ bool worth_flushing(const slabsParams& p) {
    if (!p.share) return true;
    const Counters* c = counters(p.table);
    u64 dead = load_relaxed(&c->erased) - load_relaxed(&c->reused) - p.flushed;
    u64 slabs = load_relaxed(&c->linked) - p.freed;
    return dead > SLAB_FEW_TOMBSTONES && (dead > (p.table.buckets + slabs) * C::SLOTS / p.share || slabs > p.most);
}

// A bucket to a tile; the base slab of the next is read ahead.
WARPMAP_KERNEL(flush_buckets, slabsParams) {
    if (!worth_flushing(p)) return;
    if (grid_thread() == 0) store_relaxed(at<u32>(p.table.alloc.dry), 0u);
    constexpr u32 TILES = 32 / SLAB_GROUP; // of a warp
    Tile g;
    u32 flushed = 0, freed = 0;
    u64 n = bucket_count(p.table), warp = grid_thread() / 32 * TILES, stride = grid_threads() / 32 * TILES;
    u64 bucket = warp + (thread_index() & 31) / SLAB_GROUP;
    slab::View<C, SLAB_GROUP> now, next;
    now.load(bucket < n, p.table.base + bucket * SLAB_BYTES, g.rank());
    for (; warp < n; warp += stride, bucket += stride) {
        next.load(bucket + stride < n, p.table.base + (bucket + stride) * SLAB_BYTES, g.rank());
        flush<C>(p.table, g, bucket < n, p.table.base + bucket * SLAB_BYTES, now, flushed, freed);
        now = next;
    }
    count_into(&counters(p.table)->flushed, (u64)flushed);
    count_into(&counters(p.table)->freed, (u64)freed);
}

// Here each lane walks the chain of a bucket.
__device__ __forceinline__ key real_key(const Table& t, u64 bucket, key stored) {
    return C::real(stored, bucket == t.buckets);
}

// Copies every pair into another table. The pairs of a bucket go one after the other, so those of one key keep their order.
WARPMAP_KERNEL(rehash, slabsParams) {
    Tile g;
    Resident r;
    Tally tally;
    u64 failed = 0;
    FOR_EACH_ITEM(b, bucket_count(p.table)) {
        bool there = b < bucket_count(p.table);
        Walk<C> w(p.table, there ? b : 0);
        Op<C, INSERT_MULTI, false> op;
        op.begin(p.target, INSERT_MULTI, 0, value{});
        bool busy = false;
        do {
            if (there && !busy) {
                there = w.next(p.table);
                busy = there;
                if (there) op.begin(p.target, INSERT_MULTI, real_key(p.table, b, w.stored()), w.value());
            }
            bool was = busy;
            busy = op.round(p.target, g, busy, r);
            if (was && !busy) {
                tally.note(op);
                failed += op.outcome == FULL;
            }
        } while (g.any_of_all(there || busy));
    }
    tally.end(p.target, r);
    count_into(&counters(p.target)->failed, failed);
}

WARPMAP_KERNEL(export_pairs, slabsParams) {
    FOR_EACH_ITEM(i, p.buckets) {
        if (i >= p.buckets) continue;
        u64 b = p.first + i;
        for (Walk<C> w(p.table, b); w.next(p.table);) {
            u64 to = add(&counters(p.table)->exported, (u64)1);
            if (to >= p.limit) continue;
            at<key>(p.keys)[to] = real_key(p.table, b, w.stored());
            output_value<C>(p.values, to, w.value());
        }
    }
}

// How many slabs a look-up reads to find each pair; and the longest chain.
WARPMAP_KERNEL(chain_lengths, slabsParams) {
    u64 sum = 0, most = 0;
    FOR_EACH_ITEM(b, bucket_count(p.table)) {
        if (b >= bucket_count(p.table)) continue;
        Walk<C> w(p.table, b);
        while (w.next(p.table)) {
            u32 bin = w.depth < SLAB_HISTOGRAM_BINS ? w.depth - 1 : SLAB_HISTOGRAM_BINS - 1;
            add(at<u64>(p.histogram) + bin, (u64)1);
            sum += w.depth;
        }
        // A look-up of a key that is not there goes on to the end of the chain.
        u64 slabs = w.depth;
        for (u64 slab = w.slab;; slabs++) {
            u32 name = load_relaxed(link_of<C>(slab));
            if (name == NONE) break;
            slab = SlabAlloc<C::LIGHT>::address(p.table.alloc, name);
        }
        if (slabs > most) most = slabs;
    }
    count_into(at<u64>(p.histogram) + SLAB_HISTOGRAM_BINS, sum);
    max_of(at<u64>(p.histogram) + SLAB_HISTOGRAM_BINS + 1, most);
}
