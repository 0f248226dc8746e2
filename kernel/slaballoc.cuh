// SlabAlloc (S. Ashkiani, M. Farach-Colton, J. D. Owens, IPDPS 2018, §V): slabs of SLAB_BYTES from memory that the host provides, by
// lanes of a running kernel. Alloc is frame::SlabMemory; the host's part is table.Slabs, in table/slabs.go.
//
// Memory is super blocks; a super block is memory blocks of SLAB_UNITS slabs, and before the slabs a bitmap for each memory
// block, in which a set bit is a slab that is taken. A slab has a name of 32 bits: super block, memory block, unit. In the
// light variant all is one super block, and the name is the slab's number in it.
//
// What was written to a slab before it was given back is seen by whoever gets it next with load_relaxed, load_acquire, and the
// atomic operations: those go to the L2 cache, by an address that is known only once the slab was got. An allocation makes no
// fence, which would cost it more than all else. So one that reads its slab by plain loads, or by load_readonly, calls fence()
// first, once for all slabs that it has got; and one that hands a slab on to other lanes does so by a release.
#pragma once
#include "layout.h"
#include "warpmap.cuh"

// The name of no slab.
static constexpr u32 NO_SLAB = ~0u;

// Resident is what a lane knows of the memory block that its warp takes slabs from, in registers. Each lane begins with
// a word of the block's bitmap that is its own in the warp, so lanes do not get into each other's way, and need not meet.
struct Resident {
    u32 block;   // its number among all blocks; NO_SLAB before the first allocation
    u32 word;    // of the bitmap: the one that this lane takes from
    u32 taken;   // what is known of it
    u32 changes; // of the resident block

    __device__ __forceinline__ Resident() : block(NO_SLAB), word(0), taken(~0u), changes(0) {}
};

template <bool LIGHT> struct SlabAlloc {
    typedef frame::SlabMemory Alloc;
    static constexpr u32 WORDS = SLAB_UNITS / 32;

    // address is where a slab lies: one indexed load of a parameter; in the light variant, not even that.
    static __device__ __forceinline__ u64 address(const Alloc& a, u32 name) {
        if constexpr (LIGHT) return a.supers[0] + (u64)name * SLAB_BYTES;
        else return a.supers[name >> SLAB_SUPER_SHIFT] + (u64)(name & (1u << SLAB_SUPER_SHIFT) - 1) * SLAB_BYTES;
    }
    // The bitmap of a block of a super block: they lie before its first unit, the first block's last.
    static __device__ __forceinline__ u32* bitmap(const Alloc& a, u32 super, u32 block) {
        return at<u32>(a.supers[super] - (u64)(block + 1) * (SLAB_UNITS / 8));
    }
    // The super block that a block belongs to, by the block's number among all.
    static __device__ __forceinline__ u32 super_of(const Alloc& a, u32 block) {
        u32 s = 0;
        if constexpr (!LIGHT)
            for (s = a.count - 1; a.starts[s] > block;) s--;
        return s;
    }

    // change gives the lane another resident block (§V), and a word of it: first its own, by the number of its warp and its
    // own in it; then others by a hash of those and the number of changes.
    static __device__ __forceinline__ void change(const Alloc& a, Resident& r) {
        u32 thread = (u32)grid_thread(), n = r.changes++;
        u32 h = fmix32(thread ^ n * 0x9e3779b9u);
        r.block = n == 0 ? thread / 32 % a.blocks : (u32)((u64)h * a.blocks >> 32);
        r.word = (n == 0 ? thread : h) & (WORDS - 1);
        r.taken = 0; // unknown: the first try tells
    }

    // allocate gives the name of a slab that is now this lane's, or NO_SLAB. It tries words here and there, because one that is
    // used up says little of others; then all words of some blocks, one after the other, and of all blocks where they are few; then
    // it gives up, and notes for the other lanes that memory has run dry. Each lane may call it for itself.
    static __device__ __forceinline__ u32 allocate(const Alloc& a, Resident& r) {
        if (a.blocks == 0) return NO_SLAB;
        for (u32 n = 0; n < SLAB_MAX_CHANGES; n++) {
            if (r.block == NO_SLAB || !~r.taken) change(a, r);
            u32 name = take(a, r);
            if (name != NO_SLAB) return name;
        }
        if (load_relaxed(at<u32>(a.dry))) return NO_SLAB;
        u32 name = search(a, r);
        if (name != NO_SLAB || exchange(at<u32>(a.dry), 1u)) return name;
        // One that gives a slab back now sees that memory is dry, or this search sees its slab.
        fence();
        name = search(a, r);
        if (name != NO_SLAB) store_relaxed(at<u32>(a.dry), 0u);
        return name;
    }

    // release gives a slab back, that must be as it was got: every byte 0xff. Nobody else may know it.
    static __device__ __forceinline__ void release(const Alloc& a, u32 name) {
        fence();
        release_for_later(a, name);
        fence();
        if (load_relaxed(at<u32>(a.dry))) store_relaxed(at<u32>(a.dry), 0u);
    }
    // release_for_later is release where nothing allocates before the kernel has ended: it waits for nothing. The host
    // says that memory is no longer dry.
    static __device__ __forceinline__ void release_for_later(const Alloc& a, u32 name) {
        u32 super = LIGHT ? 0 : name >> SLAB_SUPER_SHIFT, unit = LIGHT ? name : name & (1u << SLAB_SUPER_SHIFT) - 1;
        and_of(bitmap(a, super, unit / SLAB_UNITS) + unit % SLAB_UNITS / 32, ~(1u << (unit & 31)));
    }

  private:
    static __device__ __forceinline__ u32* word_at(const Alloc& a, const Resident& r) {
        u32 super = super_of(a, r.block);
        return bitmap(a, super, r.block - a.starts[super]) + r.word;
    }
    static __device__ __forceinline__ u32 search(const Alloc& a, Resident& r) {
        for (u32 n = 0; n < SLAB_MAX_BLOCKS && n < a.blocks; n++) {
            if (++r.block >= a.blocks) r.block = 0;
            for (r.word = 0; r.word < WORDS; r.word++) {
                r.taken = load_relaxed(word_at(a, r));
                u32 name = take(a, r);
                if (name != NO_SLAB) return name;
            }
            r.word = 0;
        }
        return NO_SLAB;
    }
    // take takes a bit of the lane's word, if one is clear. Warps that share the word begin at bits of their own.
    static __device__ __forceinline__ u32 take(const Alloc& a, Resident& r) {
        u32* word = word_at(a, r);
        u32 turn = (u32)(grid_thread() / 32) * 0x9e3779b9u >> 27;
        for (u32 tries = 0; ~r.taken && tries < 32; tries++) {
            u32 free = ~r.taken, from = free >> turn << turn;
            u32 bit = (u32)lowest_bit(from ? from : free);
            u32 was = or_of(word, 1u << bit);
            r.taken = was | 1u << bit;
            if (was >> bit & 1) continue;
            u32 super = super_of(a, r.block), block = r.block - a.starts[super];
            return (LIGHT ? 0 : super << SLAB_SUPER_SHIFT) + block * SLAB_UNITS + r.word * 32 + bit;
        }
        return NO_SLAB;
    }
};
