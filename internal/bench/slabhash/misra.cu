// A set of keys in lists without locks, after P. Misra and M. Chaudhuri (ICPADS 2012), who brought the lists of Harris and
// Michael to GPUs: the baseline of the SlabHash paper's Figure 7b. A thread does one operation. Nodes are an array made
// beforehand, and each operation has one of its own: none is used twice, so a link that comes back is the same node.
#include "layout.h"
#include "warpmap.cuh"

using namespace slabhash;

// A node is a key and a link. A link is the index of the next node, END after the last; with MARK, the node that holds the
// link is deleted, and the link stays as it is. A bucket is the link to its first node. Lists go up by key.
constexpr u32 END = 0, MARK = 1u << 31;

__device__ __forceinline__ u32* key_of(const misraParams& p, u32 node) { return at<u32>(p.nodes) + 2 * (u64)node; }
__device__ __forceinline__ u32* link_of(const misraParams& p, u32 node) { return key_of(p, node) + 1; }

// Where a key is in its list, or belongs.
struct Place {
    u32* link; // leads to node
    u32 node;  // the first whose key is not smaller
    u32 next;  // its link
    bool found;
};

// locate takes the deleted nodes that it meets out of the list. Where another thread has changed the link before, it begins
// again: that thread has got on with its own operation.
__device__ __forceinline__ Place locate(const misraParams& p, u32* bucket, u32 key) {
    Place x{bucket, load_relaxed(bucket), 0, false};
    while (x.node != END) {
        u32 node[2]; // at one go: the key never changes
        load_vector(key_of(p, x.node), node);
        x.next = node[1];
        if (x.next & MARK) {
            u32 after = x.next & ~MARK, was = cas(x.link, x.node, after);
            if (was == x.node) x.node = after;
            else x = Place{bucket, load_relaxed(bucket), 0, false};
            continue;
        }
        if (node[0] >= key) {
            x.found = node[0] == key;
            break;
        }
        x.link = link_of(p, x.node);
        x.node = x.next;
    }
    return x;
}

__device__ __forceinline__ u32 insert(const misraParams& p, u32* bucket, u32 key, u32 mine) {
    store_relaxed(key_of(p, mine), key);
    for (;;) {
        Place x = locate(p, bucket, key);
        if (x.found) return MISRA_PRESENT;
        store_relaxed(link_of(p, mine), x.node);
        fence(); // whoever sees the link sees the node
        if (cas(x.link, x.node, mine) == x.node) return MISRA_ADDED;
    }
}

// The mark decides who has deleted the key; taking the node out is only tidying.
__device__ __forceinline__ u32 erase(const misraParams& p, u32* bucket, u32 key) {
    for (;;) {
        Place x = locate(p, bucket, key);
        if (!x.found) return MISRA_ABSENT;
        if (cas(link_of(p, x.node), x.next, x.next | MARK) != x.next) continue;
        if (cas(x.link, x.node, x.next) != x.node) locate(p, bucket, key);
        return MISRA_PRESENT;
    }
}

__device__ __forceinline__ u32* bucket_of(const misraParams& p, u32 key) {
    return at<u32>(p.heads) + reduce(seeded64(key, 0), p.buckets);
}

WARPMAP_KERNEL(misra_build, misraParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 key = load_readonly(at<u32>(p.keys) + i);
        insert(p, bucket_of(p, key), key, (u32)(p.first + i));
    }
}

WARPMAP_KERNEL(misra_mixed, misraParams) {
    for (u64 i = grid_thread(); i < p.n; i += grid_threads()) {
        u32 key = load_readonly(at<u32>(p.keys) + i), status;
        u32* bucket = bucket_of(p, key);
        switch (load_readonly(at<u8>(p.ops) + i)) {
        case MISRA_INSERT: status = insert(p, bucket, key, (u32)(p.first + i)); break;
        case MISRA_DELETE: status = erase(p, bucket, key); break;
        default: status = locate(p, bucket, key).found ? MISRA_PRESENT : MISRA_ABSENT;
        }
        at<u8>(p.status)[i] = (u8)status;
    }
}
