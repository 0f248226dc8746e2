// How the lanes of a block run on the CPU device, and wait for one another: see host.cuh, which includes this.
#pragma once

namespace host {

// host_switch saves the callee-saved registers on this stack, leaves the stack pointer in *save, and goes on at to.
extern "C" __attribute__((visibility("hidden"))) void host_switch(void** save, void* to);
extern "C" __attribute__((visibility("hidden"))) void host_restore();
extern "C" __attribute__((visibility("hidden"))) void host_begin();
extern "C" __attribute__((visibility("hidden"), used)) void host_lane();

#if defined(__x86_64__)
asm(R"(
    .text
    .hidden host_switch
    .globl host_switch
    .type host_switch,@function
host_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    .hidden host_restore
    .globl host_restore
host_restore:
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .hidden host_begin
    .globl host_begin
    .type host_begin,@function
host_begin:
    call host_lane
    ud2
)");
// A new stack: six registers, then host_begin as the address to return to, then 16-byte alignment at its call.
UNWATCHED inline void* fresh_stack(char* top) {
    void** sp = (void**)top - 9;
    memset(sp, 0, 72);
    sp[6] = (void*)host_begin;
    return sp;
}
#define WARPMAP_CONTEXT_WORD greg_t
#define WARPMAP_CONTEXT_SP(c) ((c)->uc_mcontext.gregs[REG_RSP])
#define WARPMAP_CONTEXT_PC(c) ((c)->uc_mcontext.gregs[REG_RIP])
#elif defined(__aarch64__)
asm(R"(
    .text
    .hidden host_switch
    .globl host_switch
    .type host_switch,%function
host_switch:
    sub sp, sp, #160
    stp x19, x20, [sp, #0]
    stp x21, x22, [sp, #16]
    stp x23, x24, [sp, #32]
    stp x25, x26, [sp, #48]
    stp x27, x28, [sp, #64]
    stp x29, x30, [sp, #80]
    stp d8, d9, [sp, #96]
    stp d10, d11, [sp, #112]
    stp d12, d13, [sp, #128]
    stp d14, d15, [sp, #144]
    mov x2, sp
    str x2, [x0]
    mov sp, x1
    .hidden host_restore
    .globl host_restore
host_restore:
    ldp x19, x20, [sp, #0]
    ldp x21, x22, [sp, #16]
    ldp x23, x24, [sp, #32]
    ldp x25, x26, [sp, #48]
    ldp x27, x28, [sp, #64]
    ldp x29, x30, [sp, #80]
    ldp d8, d9, [sp, #96]
    ldp d10, d11, [sp, #112]
    ldp d12, d13, [sp, #128]
    ldp d14, d15, [sp, #144]
    add sp, sp, #160
    ret
    .hidden host_begin
    .globl host_begin
    .type host_begin,%function
host_begin:
    bl host_lane
    brk #1
)");
UNWATCHED inline void* fresh_stack(char* top) {
    void** sp = (void**)(top - 160);
    memset(sp, 0, 160);
    sp[11] = (void*)host_begin;
    return sp;
}
#define WARPMAP_CONTEXT_WORD unsigned long long
#define WARPMAP_CONTEXT_SP(c) ((c)->uc_mcontext.sp)
#define WARPMAP_CONTEXT_PC(c) ((c)->uc_mcontext.pc)
#else
#error "the CPU device knows amd64 and arm64"
#endif

const u64 STACK_MARK = 0x57a3c4b1d5e6f708;

UNWATCHED inline char* stack_bottom(Worker* w, u32 stack) {
    return (char*)w + HOST_WORKER_BYTES + (size_t)(stack + stack / 32 + 1) * HOST_STACK_BYTES;
}

// The marks of a warp's stacks lie in lines of different cache sets.
UNWATCHED inline u64* stack_mark(Worker* w, u32 stack) { return (u64*)(stack_bottom(w, stack) + stack % 32 * 64); }

// begin_on makes a lane begin on a stack of its own: it gives the stack pointer to switch to.
UNWATCHED inline void* begin_on(Worker* w, u32 stack) {
    *stack_mark(w, stack) = STACK_MARK;
    return fresh_stack(stack_bottom(w, stack) + HOST_STACK_BYTES);
}

UNWATCHED inline void push_ready(Worker* w, u32 lane) {
    w->lanes[lane].state = READY;
    w->ready[(w->head + w->ready_count++) % MAX_LANES] = (u16)lane;
}

} // namespace host
#if defined(WARPMAP_MODEL)
#include "model.cuh"
#endif
namespace host {

// pop_ready takes the lane that has waited longest; in stress mode any.
UNWATCHED inline u32 pop_ready(Worker* w) {
#if defined(WARPMAP_STRESS)
    u32 at = (w->head + random_below(w, w->ready_count)) % MAX_LANES;
    u16 chosen = w->ready[at];
    w->ready[at] = w->ready[w->head % MAX_LANES];
    w->ready[w->head % MAX_LANES] = chosen;
#endif
    u32 lane = w->ready[w->head % MAX_LANES];
    w->head = (w->head + 1) % MAX_LANES;
    w->ready_count--;
    return lane;
}

// Whether the next lane to run is one that has not begun.
UNWATCHED inline bool begin_next(Worker* w) {
    if (w->unstarted == w->threads) return false;
#if defined(WARPMAP_STRESS)
    return random_below(w, w->ready_count + w->threads - w->unstarted) >= w->ready_count;
#else
    return w->ready_count == 0;
#endif
}

UNWATCHED __attribute__((noinline)) inline void report(Worker* w) {
    const char* names[] = {"ballot", "shuffle", "sync"};
    HostLaunch* l = w->launch;
    u32 n = (u32)snprintf((char*)l->message, sizeof l->message, "divergent warp operation in block %llu:", w->block);
    for (u32 first = 0; first < w->threads && n < sizeof l->message; first += 32) {
        u32 told = 0;
        for (u32 i = 0; i < 32 && n < sizeof l->message; i++) {
            Lane& a = w->lanes[first + i];
            if (a.state != WAITS && a.state != AT_BARRIER || told >> i & 1) continue;
            u32 same = 0, ended = 0;
            for (u32 j = 0; j < 32; j++) {
                Lane& b = w->lanes[first + j];
                if (b.state == a.state && (a.state == AT_BARRIER || (b.mask == a.mask && b.kind == a.kind))) same |= 1u << j;
                if (b.state == DONE) ended |= 1u << j;
            }
            told |= same;
            if (a.state == AT_BARRIER)
                n += (u32)snprintf((char*)l->message + n, sizeof l->message - n, " warp %u: lanes %08x wait in block_sync;", first / 32, same);
            else
                n += (u32)snprintf((char*)l->message + n, sizeof l->message - n,
                                   " warp %u: lanes %08x wait in %s for lanes %08x, of which %08x have ended;", first / 32, same,
                                   names[a.kind], a.mask, ended & a.mask);
        }
        if (told) break;
    }
    __atomic_store_n(&l->fault, 1, __ATOMIC_RELEASE);
}

UNWATCHED __attribute__((noinline)) inline void report_overflow(Worker* w) {
    HostLaunch* l = w->launch;
    snprintf((char*)l->message, sizeof l->message, "stack overflow in block %llu, thread %u: a lane has %d KiB", w->block, w->current,
             HOST_STACK_BYTES >> 10);
    __atomic_store_n(&l->fault, 2, __ATOMIC_RELEASE);
}

// keep_to_stack ends the launch where the running lane has left its stack.
UNWATCHED __attribute__((always_inline)) inline void keep_to_stack(Worker* w, Lane* me) {
    if (__builtin_expect((char*)__builtin_frame_address(0) >= stack_bottom(w, me->stack) && *stack_mark(w, me->stack) == STACK_MARK, 1)) return;
    report_overflow(w);
    host_switch(&me->sp, w->main_sp);
}

// leave switches to the next lane that can run. Lane `from` has put itself where it waits, or is done: then its stack
// is free, and no lane may begin on it before the switch. With begin, the next is one that has not begun.
UNWATCHED __attribute__((noinline)) HOST_INLINE void leave(Worker* w, Lane* from, bool begin) {
    keep_to_stack(w, from);
    if (w->ready_count == 0 && w->unstarted == w->threads && w->at_barrier && w->at_barrier + w->done == w->threads) {
        w->at_barrier = 0;
#if defined(WARPMAP_MODEL)
        u32 meeting[MAX_LANES / 32] = {};
        for (u32 i = 0; i < w->threads; i++)
            if (w->lanes[i].state == AT_BARRIER) meeting[i / 32] |= 1u << (i & 31);
        model::meet(meeting);
#endif
        for (u32 i = 0; i < w->threads; i++)
            if (w->lanes[i].state == AT_BARRIER) push_ready(w, i);
    }
    void* to;
    if (begin || (from->state != DONE && begin_next(w))) {
        u32 lane = w->unstarted++;
        Lane* next = &w->lanes[lane];
        next->stack = w->free_stacks[--w->free_count];
        next->state = READY;
        w->current = lane;
        to = begin_on(w, next->stack);
    } else if (w->ready_count) {
        u32 lane = pop_ready(w);
        w->current = lane;
        if (&w->lanes[lane] == from) return; // it yielded, and is the next
        to = w->lanes[lane].sp;
    } else {
        if (w->done < w->threads) report(w);
        to = w->main_sp;
    }
    host_switch(&from->sp, to);
}

// Where every lane begins, and begins again as the next lane while nothing waits.
extern "C" UNWATCHED inline void host_lane() {
    Worker* w = self();
    for (;;) {
        w->body((const void*)w->launch->params);
        Lane* me = &w->lanes[w->current];
        keep_to_stack(w, me);
        me->state = DONE;
        w->done++;
        if (begin_next(w)) {
            u32 lane = w->unstarted++;
            w->lanes[lane].stack = me->stack;
            w->lanes[lane].state = READY;
            w->current = lane;
            continue;
        }
        w->free_stacks[w->free_count++] = me->stack;
        leave(w, me);
    }
}

// A bad address in a lane becomes an error of the launch: the thread goes on where the block was started. Other
// signals, those of other threads and those that were sent go to whoever handled them before. The handler of the module
// that ran first handles the faults of all: Worker and host_restore are the same in each.
static char* regions[HOST_MAX_REGIONS];
static struct sigaction before_segv, before_bus, before_fpe;

UNWATCHED static void on_signal(int sig, siginfo_t* info, void* context) {
    ucontext_t* c = (ucontext_t*)context;
    char* region = (char*)((size_t)WARPMAP_CONTEXT_SP(c) & ~(size_t)(HOST_REGION_BYTES - 1));
    // A lane that runs off its stack faults in a guard page; its stack pointer is still inside the region.
    bool sent = info->si_code <= 0; // by kill, and by no fault
    for (int i = 0; i < HOST_MAX_REGIONS && !sent; i++) {
        char* r = __atomic_load_n(&regions[i], __ATOMIC_ACQUIRE);
        if (!r) break;
        if (r != region) continue;
        Worker* w = (Worker*)region;
        char* bad = (char*)info->si_addr;
        bool overflow = bad >= region && bad < region + HOST_REGION_BYTES;
        snprintf((char*)w->launch->message, sizeof w->launch->message, "%s at address %p in block %llu, thread %u",
                 sig == SIGFPE ? "arithmetic fault" : overflow ? "stack overflow" : "bad memory access", info->si_addr, w->block, w->current);
        __atomic_store_n(&w->launch->fault, 2, __ATOMIC_RELEASE);
        WARPMAP_CONTEXT_SP(c) = (WARPMAP_CONTEXT_WORD)w->main_sp;
        WARPMAP_CONTEXT_PC(c) = (WARPMAP_CONTEXT_WORD)host_restore;
        return;
    }
    struct sigaction* old = sig == SIGSEGV ? &before_segv : sig == SIGBUS ? &before_bus : &before_fpe;
    if (old->sa_flags & SA_SIGINFO) old->sa_sigaction(sig, info, context);
    else if (old->sa_handler != SIG_DFL && old->sa_handler != SIG_IGN) old->sa_handler(sig);
    else signal(sig, SIG_DFL); // and fault again
}

// take_signal learns who handles a signal before it takes it: another thread may have one at once.
UNWATCHED static void take_signal(int sig, const struct sigaction* handler, struct sigaction* before) {
    sigaction(sig, nullptr, before);
    sigaction(sig, handler, nullptr);
}

// watch makes the handler know a region; the first call installs it. Go serialises the calls.
UNWATCHED static void watch(char* region) {
    static bool installed;
    int i = 0;
    for (; i < HOST_MAX_REGIONS && regions[i]; i++)
        if (regions[i] == region) return;
    if (i < HOST_MAX_REGIONS) __atomic_store_n(&regions[i], region, __ATOMIC_RELEASE);
    if (installed) return;
    installed = true;
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_sigaction = on_signal;
    a.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
    sigfillset(&a.sa_mask);
    take_signal(SIGSEGV, &a, &before_segv);
    take_signal(SIGBUS, &a, &before_bus);
    take_signal(SIGFPE, &a, &before_fpe);
}
extern "C" UNWATCHED __attribute__((visibility("default"))) void warpmap_watch(char* region) { watch(region); }

UNWATCHED HOST_INLINE void run(HostLaunch* l, void (*body)(const void*)) {
    Worker* w = (Worker*)l->region;
    w->launch = l;
    w->body = body;
    w->threads = l->threads;
    u64* next = (u64*)l->next; // shared by the workers of a launch; a fault moves it past the end
#if defined(WARPMAP_MODEL)
    model::begin(w);
#endif
    for (;;) {
#if defined(WARPMAP_MODEL)
        if (model::ends()) break;
#endif
        u64 block = __atomic_fetch_add(next, 1, __ATOMIC_RELAXED);
        if (block >= l->blocks) break;
        w->block = block;
        w->random = scramble(l->seed + block * 0x9e3779b97f4a7c15ull);
        w->unstarted = w->done = w->at_barrier = w->head = w->ready_count = 0;
        w->free_count = w->threads;
#if defined(WARPMAP_MODEL)
        model::begin_block();
#endif
        for (u32 i = 0; i < w->threads; i++) {
            w->free_stacks[i] = (u16)(w->threads - 1 - i);
            w->lanes[i].state = UNSTARTED;
        }
        Lane* first = &w->lanes[w->unstarted++];
        first->stack = w->free_stacks[--w->free_count];
        first->state = READY;
        w->current = 0;
        host_switch(&w->main_sp, begin_on(w, first->stack));
        if (__atomic_load_n(&l->fault, __ATOMIC_ACQUIRE)) {
            __atomic_store_n(next, ~0ull >> 1, __ATOMIC_RELAXED);
            break;
        }
    }
#if defined(WARPMAP_MODEL)
    model::s.on = false;
#endif
    // What lanes have printed must not stay in C's buffer, which nobody writes out when Go ends. A worker that has the
    // lock writes out for all; one whose lane broke in printf keeps the lock, so nobody may wait for it.
    if (ftrylockfile(stdout) == 0) {
        fflush(stdout);
        funlockfile(stdout);
    }
}

// meet waits until every lane of the mask is in the same operation with the same mask, and gives this lane's result.
UNWATCHED HOST_INLINE u128 meet(Kind kind, u32 mask, u128 in, u32 from) {
    Worker* w = self();
    u32 first = w->current & ~31u;
    Lane* warp = &w->lanes[first];
    Lane* me = &w->lanes[w->current];
    me->mask = mask;
    me->kind = kind;
    me->in = in;
    me->from = from;
    u32 others = mask & ~(1u << (w->current & 31));
    for (u32 m = others; m; m &= m - 1) {
        Lane& o = warp[__builtin_ctz(m)];
        if (o.state != WAITS || o.mask != mask || o.kind != kind) {
            me->state = WAITS;
            leave(w, me);
            return me->out;
        }
    }
#if defined(WARPMAP_MODEL)
    if (kind == SYNC) model::meet_warp(first, mask);
#endif
    u32 votes = 0;
    if (kind == BALLOT)
        for (u32 m = mask; m; m &= m - 1)
            if (warp[__builtin_ctz(m)].in.lo) votes |= m & -m;
    for (u32 m = mask; m; m &= m - 1) {
        Lane& o = warp[__builtin_ctz(m)];
        if (kind == BALLOT) o.out.lo = votes;
        else if (kind == SHUFFLE) o.out = warp[o.from & 31].in;
    }
    for (u32 m = others; m; m &= m - 1) push_ready(w, first + (u32)__builtin_ctz(m));
    return me->out;
}

UNWATCHED HOST_INLINE void yield() {
    Worker* w = self();
    bool alone = w->ready_count == 0;
    if (alone && w->unstarted == w->threads) return;
    Lane* me = &w->lanes[w->current];
    push_ready(w, w->current);
    leave(w, me, alone);
}

} // namespace host
