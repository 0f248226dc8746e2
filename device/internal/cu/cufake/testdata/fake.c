// A CUDA driver and an NVRTC that need no GPU: memory is malloc's, work is done within the call that queues it, and
// failures are made to order through fake_set. Only what package cu and package nvrtc use is here.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int CUresult;
typedef uint64_t CUdeviceptr;

enum { OOM = 2, NOT_READY = 600, NO_DEVICE = 100, INVALID_DEVICE = 101, INVALID_CONTEXT = 201, INVALID_HANDLE = 400, NOT_FOUND = 500,
       ILLEGAL_ADDRESS = 700, PEER_ENABLED = 704, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
       CAPTURE_ISOLATION = 905 };

// What tests set and read, by name.
enum { DEVICES, CAPABILITY, INIT, MEMORY, FAULT, LAUNCHES, CONTEXTS, ALLOCS, USED, HOST, STREAMS, EVENTS, MODULES,
       NVRTC_VERSION, NVRTC_OLDEST, NVRTC_NEWEST, NVRTC_FAIL, PROGRAMS, DYNAMIC, SHARED, HEAP, PARAMS,
       POOLS, HAS_POOLS, HOLD, WAITS, FREES, PEAK, KEPT, PEERS, ENABLED, ACROSS, IPC, STRICT,
       IDLE, TRIMS, POOLED, UNTOLD, NO_RECORDS, NO_FREES, NO_WAITS, NO_MEMORY, WIDE, DRIVER, MIG, NO_POOLS, TIGHT, VALUES };
static const char *names[VALUES] = { "devices", "capability", "init", "memory", "fault", "launches", "contexts",
    "allocs", "used", "host", "streams", "events", "modules", "nvrtc version", "nvrtc oldest", "nvrtc newest",
    "nvrtc fail", "programs", "dynamic", "shared", "heap", "params", "pools",
    "has pools", "hold", "waits", "frees", "peak", "kept", "peers", "enabled", "across",
    "ipc", "strict", "idle", "trims", "pooled", "untold", "refused records", "refused frees", "refused waits", "refused memory", "wide", "driver", "mig", "pool error", "tight" };
static int64_t v[VALUES] = { [DEVICES] = 2, [CAPABILITY] = 90, [MEMORY] = 1 << 20, [FAULT] = ILLEGAL_ADDRESS,
    [NVRTC_VERSION] = 12040, [NVRTC_OLDEST] = 50, [NVRTC_NEWEST] = 90, [DYNAMIC] = 48 << 10,
    [PARAMS] = 24, [HAS_POOLS] = 1, [PEERS] = 1, [IPC] = 1, [DRIVER] = 12080 };

static pthread_mutex_t mu = PTHREAD_MUTEX_INITIALIZER;

// So many of the next calls of a kind are refused, with an error after which the driver goes on.
static int refused(int kind) {
    pthread_mutex_lock(&mu);
    int is = v[kind] > 0;
    v[kind] -= is;
    pthread_mutex_unlock(&mu);
    return is;
}
#define REFUSE(kind) do { if (refused(kind)) return 999; } while (0)

static CUresult sticky;            // what every call returns once a kernel has crashed
static __thread void *current;     // the thread's context

int64_t fake_get(const char *name) {
    for (int i = 0; i < VALUES; i++)
        if (!strcmp(names[i], name)) return v[i];
    return -1;
}

int fake_set(const char *name, int64_t value) {
    for (int i = 0; i < VALUES; i++)
        if (!strcmp(names[i], name)) { v[i] = value; return 0; }
    return -1;
}

CUresult cuGetErrorName(CUresult r, const char **p) {
    switch (r) {
    case 0: *p = "CUDA_SUCCESS"; return 0;
    case 1: *p = "CUDA_ERROR_INVALID_VALUE"; return 0;
    case OOM: *p = "CUDA_ERROR_OUT_OF_MEMORY"; return 0;
    case NO_DEVICE: *p = "CUDA_ERROR_NO_DEVICE"; return 0;
    case INVALID_DEVICE: *p = "CUDA_ERROR_INVALID_DEVICE"; return 0;
    case INVALID_CONTEXT: *p = "CUDA_ERROR_INVALID_CONTEXT"; return 0;
    case NOT_FOUND: *p = "CUDA_ERROR_NOT_FOUND"; return 0;
    case ILLEGAL_ADDRESS: *p = "CUDA_ERROR_ILLEGAL_ADDRESS"; return 0;
    }
    *p = 0;
    return 1;
}

CUresult cuGetErrorString(CUresult r, const char **p) {
    switch (r) {
    case OOM: *p = "out of memory"; return 0;
    case NO_DEVICE: *p = "no CUDA-capable device is detected"; return 0;
    case NOT_FOUND: *p = "named symbol not found"; return 0;
    case ILLEGAL_ADDRESS: *p = "an illegal memory access was encountered"; return 0;
    }
    *p = 0;
    return 1;
}

CUresult cuInit(unsigned flags) { return v[INIT] ? v[INIT] : v[DEVICES] ? 0 : NO_DEVICE; }
CUresult cuDriverGetVersion(int *p) { *p = (int)v[DRIVER]; return 0; }
CUresult cuDeviceGetCount(int *p) { *p = v[DEVICES]; return 0; }
CUresult cuDeviceGet(int *p, int i) { *p = i; return i < v[DEVICES] ? 0 : INVALID_DEVICE; }
CUresult cuDeviceGetName(char *p, int n, int d) { snprintf(p, n, "Fake GPU %d", d); return 0; }
CUresult cuDeviceGetUuid(char *p, int d) { memset(p, d + 1, 16); return 0; }
CUresult cuDeviceGetUuid_v2(char *p, int d) { memset(p, d + 1 + (int)v[MIG], 16); return 0; } // of a MIG instance
CUresult cuDeviceGetPCIBusId(char *p, int n, int d) { snprintf(p, n, "00FA:%02X:00.0", d + 1); return 0; }
CUresult cuDeviceTotalMem_v2(size_t *p, int d) { *p = v[MEMORY]; return 0; }
CUresult cuDeviceGetAttribute(int *p, int a, int d) {
    switch (a) {
    case 16: *p = 3; return 0;
    case 38: *p = 4096; return 0;
    case 75: *p = v[CAPABILITY] / 10; return 0;
    case 76: *p = v[CAPABILITY] % 10; return 0;
    case 97: *p = 227 << 10; return 0;
    case 115: *p = v[HAS_POOLS]; return 0;
    }
    return 1;
}

#define LOCK pthread_mutex_lock(&mu)
#define UNLOCK pthread_mutex_unlock(&mu)
#define NEED_CONTEXT do { if (!current) return INVALID_CONTEXT; if (sticky) return sticky; } while (0)

// Threads begin so that what may disturb a capture is forbidden them while there is one, and ends it; 2 is relaxed.
static int captures, disturbed;
static __thread int mode;
static CUresult unsafe(void) {
    if (!captures || mode == 2) return 0;
    disturbed = 1;
    return CAPTURE_UNSUPPORTED;
}
CUresult cuThreadExchangeStreamCaptureMode(int *m) { int was = mode; mode = *m; *m = was; return 0; }
#define SAFE do { CUresult r_ = unsafe(); if (r_) return r_; } while (0)

CUresult cuDevicePrimaryCtxRetain(void **p, int d) {
    *p = (void *)(intptr_t)(0xc0 + d);
    LOCK; v[CONTEXTS]++; UNLOCK;
    return 0;
}
CUresult cuDevicePrimaryCtxRelease_v2(int d) {
    LOCK;
    CUresult r = sticky;
    if (--v[CONTEXTS] == 0) sticky = 0;
    UNLOCK;
    return r;
}
CUresult cuCtxSetCurrent(void *c) { current = c; return c ? sticky : 0; } // it may tell of what broke the context, too

// GPUs use each other's memory if "peers" is set. If it is more than 1, enabling access returns it as the result.
// "enabled" has bit 4·GPU+peer for each pair that was allowed to, and "across" counts copies.
static int gpu_of(void *context) { return (int)(intptr_t)context - 0xc0; }
CUresult cuDeviceCanAccessPeer(int *can, int d, int peer) { *can = v[PEERS] && d != peer; return 0; }
CUresult cuDeviceGetP2PAttribute(int *value, int attribute, int d, int peer) {
    *value = attribute == 3 && v[PEERS] && d != peer;
    return 0;
}
CUresult cuCtxEnablePeerAccess(void *peer, unsigned flags) {
    NEED_CONTEXT;
    int64_t bit = 1ll << (4 * gpu_of(current) + gpu_of(peer));
    LOCK;
    CUresult r = !v[PEERS] ? 217 : v[PEERS] > 1 ? (CUresult)v[PEERS] : v[ENABLED] & bit ? PEER_ENABLED : 0;
    if (r == 0) v[ENABLED] |= bit;
    UNLOCK;
    return r;
}
CUresult cuMemcpyPeerAsync(CUdeviceptr d, void *to, CUdeviceptr s, void *from, size_t n, void *st) {
    NEED_CONTEXT;
    if (!to || !from) return INVALID_CONTEXT;
    LOCK; v[ACROSS]++; UNLOCK;
    memcpy((void *)d, (void *)s, n);
    return 0;
}

// While "hold" is set, streams stand still: events do not pass, and frees that are queued are not done. Any wait for what stands still, or
// for the context ("waits" counts those), sets them going.
static void *held[64];
static int holds;
static void move_on(void);
CUresult cuCtxSynchronize(void) {
    NEED_CONTEXT;
    if (captures) { disturbed = 1; return CAPTURE_UNSUPPORTED; } // whatever the thread's mode is
    LOCK; v[WAITS]++; UNLOCK;
    move_on();
    return 0;
}
CUresult cuCtxSetLimit(int limit, size_t n) {
    NEED_CONTEXT;
    if (limit != 2) return 1;
    v[HEAP] = n;
    return 0;
}

// An allocation's size stands 256 bytes before it, and behind that the GPU it is of, or -1. All are in a list.
typedef struct Piece { size_t n; int gpu, pooled; struct Piece *next; } Piece;
static Piece *pieces;
static void *take(size_t n) {
    char *p = aligned_alloc(256, (n + 511) / 256 * 256);
    *(Piece *)p = (Piece){ n, -1, 0, pieces };
    pieces = (Piece *)p;
    memset(p + 256, 0xa5, n);
    return p + 256;
}
static void give(void *p) {
    Piece *x = (Piece *)((char *)p - 256);
    Piece **at = &pieces;
    while (*at != x) at = &(*at)->next;
    *at = x->next;
    free(x);
}
static Piece *piece_of(CUdeviceptr a) {
    for (Piece *x = pieces; x; x = x->next)
        if (a >= (CUdeviceptr)x + 256 && a - (CUdeviceptr)x - 256 < x->n) return x;
    return 0;
}

CUresult cuMemGetInfo_v2(size_t *f, size_t *t) {
    NEED_CONTEXT;
    *t = v[MEMORY];
    LOCK; *f = v[MEMORY] - v[USED]; UNLOCK;
    return 0;
}
CUresult cuMemAlloc_v2(CUdeviceptr *p, size_t n) {
    NEED_CONTEXT;
    SAFE;
    REFUSE(NO_MEMORY);
    LOCK;
    CUresult r = n > (size_t)(v[MEMORY] - v[USED]) ? OOM : 0;
    if (!r) { *p = (CUdeviceptr)take(n); ((Piece *)(*p - 256))->gpu = gpu_of(current); v[USED] += n; v[ALLOCS]++; }
    if (v[USED] - v[IDLE] > v[PEAK]) v[PEAK] = v[USED] - v[IDLE];
    UNLOCK;
    return r;
}
static CUresult give_back(CUdeviceptr p) {
    NEED_CONTEXT;
    LOCK;
    Piece *x = (Piece *)(p - 256);
    v[USED] -= x->n;
    if (x->pooled) { // the pool keeps some
        int64_t keeps = x->n, most = v[KEPT] - v[IDLE];
        v[POOLED] -= x->n;
        if (keeps > most) keeps = most > 0 ? most : 0;
        v[IDLE] += keeps; v[USED] += keeps;
    }
    v[ALLOCS]--; give((void *)p);
    UNLOCK;
    return 0;
}
// Those on which a driver may wait for all work are counted as "frees".
CUresult cuMemFree_v2(CUdeviceptr p) {
    LOCK; v[FREES]++; UNLOCK;
    return give_back(p);
}
static void move_on(void) {
    LOCK;
    int n = holds;
    v[HOLD] = holds = 0;
    UNLOCK;
    for (int i = 0; i < n; i++) give_back((CUdeviceptr)held[i]);
}
CUresult cuMemHostAlloc(void **p, size_t n, unsigned flags) {
    NEED_CONTEXT;
    REFUSE(NO_MEMORY);
    if (n > (size_t)1 << 40) return OOM;
    LOCK; *p = take(n); v[HOST]++; UNLOCK;
    return 0;
}
CUresult cuMemFreeHost(void *p) {
    NEED_CONTEXT;
    LOCK; v[HOST]--; v[FREES]++; give(p); UNLOCK;
    return 0;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *p, void *h, unsigned flags) { NEED_CONTEXT; *p = (CUdeviceptr)h; return 0; }

CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr d, const void *s, size_t n, void *st) { NEED_CONTEXT; memcpy((void *)d, s, n); return 0; }
CUresult cuMemcpyDtoHAsync_v2(void *d, CUdeviceptr s, size_t n, void *st) { NEED_CONTEXT; memcpy(d, (void *)s, n); return 0; }
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr d, CUdeviceptr s, size_t n, void *st) { NEED_CONTEXT; memmove((void *)d, (void *)s, n); return 0; }
CUresult cuMemsetD8Async(CUdeviceptr d, unsigned char x, size_t n, void *st) { NEED_CONTEXT; memset((void *)d, x, n); return 0; }
CUresult cuMemsetD32Async(CUdeviceptr d, unsigned x, size_t n, void *st) {
    NEED_CONTEXT;
    for (size_t i = 0; i < n; i++) ((unsigned *)d)[i] = x;
    return 0;
}

// Streams, events and modules are counted pieces of memory that begin with their kind.
typedef struct { int kind, held; struct timespec at; void *ctx; struct Graph *graph; char text[]; } Handle;

static CUresult make(int kind, void **p, const char *text) {
    NEED_CONTEXT;
    Handle *h = calloc(1, sizeof *h + strlen(text) + 1);
    h->kind = kind;
    h->ctx = current;
    strcpy(h->text, text);
    *p = h;
    LOCK; v[kind]++; UNLOCK;
    return 0;
}
static CUresult drop(int kind, Handle *h) {
    NEED_CONTEXT;
    if (h->kind != kind) return INVALID_HANDLE;
    h->kind = -1;
    free(h);
    LOCK; v[kind]--; UNLOCK;
    return 0;
}
#define NEED(h, k) do { NEED_CONTEXT; if (((Handle *)(h))->kind != (k)) return INVALID_HANDLE; } while (0)

CUresult cuStreamCreate(void **p, unsigned flags) { return flags == 1 ? make(STREAMS, p, "") : 1; }
CUresult cuStreamCreateWithPriority(void **p, unsigned flags, int priority) { return priority < 0 ? cuStreamCreate(p, flags) : 1; }
CUresult cuStreamDestroy_v2(void *s) { return drop(STREAMS, s); }
CUresult cuStreamGetCtx(Handle *s, void **c) { if (s) NEED(s, STREAMS); *c = s ? s->ctx : current; return 0; }

// A stream that is captured puts launches into its graph; what it cannot have ends the capture, as what disturbs it does.
typedef struct { const char *f; unsigned gx, bx; char params[24]; } Node;
typedef struct Graph { int nodes, broken; Node node[16]; } Graph;
CUresult cuStreamIsCapturing(Handle *s, int *status) { if (s) NEED(s, STREAMS); *status = s && s->graph ? 1 : 0; return 0; }
CUresult cuStreamBeginCapture_v2(Handle *s, int m) { NEED(s, STREAMS); s->graph = calloc(1, sizeof *s->graph); captures++; disturbed = 0; return 0; }
CUresult cuStreamEndCapture(Handle *s, Graph **g) {
    NEED(s, STREAMS);
    *g = s->graph;
    s->graph = 0;
    captures--;
    return (*g)->broken || disturbed ? CAPTURE_INVALIDATED : 0;
}
CUresult cuGraphInstantiateWithFlags(Graph **x, Graph *g, unsigned long long flags) { *x = malloc(sizeof **x); **x = *g; return 0; }
CUresult cuGraphDestroy(Graph *g) { free(g); return 0; }
CUresult cuGraphExecDestroy(Graph *g) { free(g); return 0; }
static CUresult broken(Handle *s, CUresult r) { s->graph->broken = 1; return r; }

CUresult cuStreamSynchronize(Handle *s) { if (!s) return 0; NEED(s, STREAMS); if (s->graph) return broken(s, CAPTURE_UNSUPPORTED); SAFE; REFUSE(NO_WAITS); if (s->held) move_on(); s->held = 0; return 0; }
CUresult cuStreamWaitEvent(Handle *s, Handle *e, unsigned flags) { NEED(s, STREAMS); NEED(e, EVENTS); if (s->graph) return broken(s, CAPTURE_ISOLATION); s->held |= e->held; return flags; }
CUresult cuEventCreate(void **p, unsigned flags) { return flags == 0 || flags == 2 ? make(EVENTS, p, "") : 1; }
CUresult cuEventDestroy_v2(void *e) { return drop(EVENTS, e); }
CUresult cuEventRecord(Handle *e, Handle *s) {
    NEED(s, STREAMS);
    NEED(e, EVENTS);
    REFUSE(NO_RECORDS);
    clock_gettime(CLOCK_MONOTONIC, &e->at);
    e->held = s->held = v[HOLD];
    return 0;
}
CUresult cuEventSynchronize(Handle *e) { NEED(e, EVENTS); SAFE; if (e->held) move_on(); e->held = 0; return 0; }
CUresult cuEventQuery(Handle *e) { NEED(e, EVENTS); return e->held && v[HOLD] ? NOT_READY : 0; }

// A pool is a stream's kind of handle. Its memory is like any other, but that some of what is free stays "idle", which
// is still "used".
static void trim(void) { LOCK; v[USED] -= v[IDLE]; v[IDLE] = 0; UNLOCK; }
CUresult cuMemPoolCreate(void **p, const int *props) { return v[NO_POOLS] ? (int)v[NO_POOLS] : props[0] == 1 && props[2] == 1 ? make(POOLS, p, "") : 1; }
CUresult cuMemPoolDestroy(void *p) { trim(); return drop(POOLS, p); }
CUresult cuMemPoolSetAttribute(void *p, int a, void *x) {
    NEED(p, POOLS);
    if (a == 4) v[KEPT] = (int64_t) * (uint64_t *)x;
    return a == 4 || (a == 3 && *(int *)x == 0) ? 0 : 1;
}
CUresult cuMemPoolGetAttribute(void *p, int a, void *x) {
    NEED(p, POOLS);
    if (v[UNTOLD] || (a != 5 && a != 7)) return 1;
    LOCK; *(uint64_t *)x = v[POOLED] + (a == 5 ? v[IDLE] : 0); UNLOCK;
    return 0;
}
CUresult cuMemPoolTrimTo(void *p, size_t n) { NEED(p, POOLS); v[TRIMS]++; trim(); return n ? 1 : 0; }
CUresult cuMemAllocFromPoolAsync(CUdeviceptr *a, size_t n, void *p, void *s) {
    NEED(p, POOLS);
    NEED(s, STREAMS);
    LOCK;
    int64_t idle = v[IDLE] < (int64_t)n ? v[IDLE] : (int64_t)n;
    v[IDLE] -= idle; v[USED] -= idle;
    UNLOCK;
    CUresult r = cuMemAlloc_v2(a, n);
    if (!r) { LOCK; ((Piece *)(*a - 256))->pooled = 1; v[POOLED] += n; UNLOCK; }
    else { LOCK; v[IDLE] += idle; v[USED] += idle; UNLOCK; }
    return r;
}
CUresult cuMemFreeAsync(CUdeviceptr a, Handle *s) {
    NEED(s, STREAMS);
    REFUSE(NO_FREES);
    if (!v[HOLD]) return give_back(a);
    LOCK; held[holds++] = (void *)a; UNLOCK;
    s->held = 1;
    return 0;
}
CUresult cuEventElapsedTime(float *ms, Handle *a, Handle *b) {
    NEED(a, EVENTS);
    NEED(b, EVENTS);
    *ms = (b->at.tv_sec - a->at.tv_sec) * 1e3 + (b->at.tv_nsec - a->at.tv_nsec) / 1e6;
    return 0;
}

// With "tight" the driver has memory of its own for modules and launches only if no pool keeps any.
static int short_of_memory(void) { return v[TIGHT] && v[IDLE]; }

// A module is its source. It has the kernels whose names stand in it; a kernel is known by its name's first letter.
CUresult cuModuleLoadData(void **p, const char *image) { return short_of_memory() ? OOM : strncmp(image, "\177ELF", 4) ? 200 : make(MODULES, p, image); }
CUresult cuModuleUnload(void *m) { return drop(MODULES, m); }
CUresult cuModuleGetFunction(void **p, Handle *m, const char *name) {
    NEED(m, MODULES);
    if (short_of_memory()) return OOM;
    *p = strstr(m->text, name);
    return *p ? 0 : NOT_FOUND;
}
// Beside a kernel stand variables: as large as its parameter, as a block's warps, and as its dynamic shared memory.
CUresult cuModuleGetGlobal_v2(CUdeviceptr *p, size_t *n, Handle *m, const char *name) {
    NEED(m, MODULES);
    const char *end = strrchr(name, '_');
    char kernel[64] = "";
    if (end) memcpy(kernel, name, end - name);
    if (end && !strcmp(end, "_params")) *n = v[PARAMS];
    else if (end && !strcmp(end, "_warps")) *n = 8;
    else if (end && !strcmp(end, "_shared")) *n = 1 + v[WIDE] / 16;
    else return NOT_FOUND;
    return end && strstr(m->text, kernel) ? 0 : NOT_FOUND;
}
// The dynamic shared memory that a launch may ask for is one for all kernels; SHARED is what the last one asked for.
CUresult cuFuncSetAttribute(void *f, int a, int x) {
    NEED_CONTEXT;
    if (a == 8 && x > 227 << 10) return 1;
    if (a == 8) v[DYNAMIC] = x;
    return 0;
}

// Kernels: "add" takes { u64 addr, n; u32 value }, and adds value to n words; "crash" breaks the context.
static void run(const char *f, uint64_t threads, const void *params) {
    LOCK;
    v[LAUNCHES]++;
    if (*f == 'c') sticky = v[FAULT];
    if (*f == 'a') {
        const struct { uint64_t addr, n; uint32_t value; } *p = params;
        for (uint64_t i = 0; i < p->n && i < threads; i++) ((uint32_t *)p->addr)[i] += p->value;
    }
    UNLOCK;
}
CUresult cuGraphLaunch(Graph *g, Handle *s) {
    NEED(s, STREAMS);
    for (int i = 0; i < g->nodes; i++) run(g->node[i].f, (uint64_t)g->node[i].gx * g->node[i].bx, g->node[i].params);
    return 0;
}
CUresult cuLaunchKernel(const char *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                        unsigned shared, Handle *stream, void **params, void **extra) {
    if (stream) NEED(stream, STREAMS);
    if (short_of_memory()) return OOM;
    if (gy != 1 || gz != 1 || by != 1 || bz != 1 || shared > v[DYNAMIC] || extra) return 1;
    v[SHARED] = shared;
    if (!stream || !stream->graph) {
        run(f, (uint64_t)gx * bx, params[0]);
        return 0;
    }
    Node *n = &stream->graph->node[stream->graph->nodes++];
    *n = (Node){ f, gx, bx };
    memcpy(n->params, params[0], sizeof n->params);
    return 0;
}

// Memory of others. Where "strict" is set, an address that was not allocated here is none; else it is of GPU 1, as from cudaMalloc.
CUresult cuPointerGetAttribute(int *x, int a, CUdeviceptr at) {
    NEED_CONTEXT;
    LOCK; Piece *p = piece_of(at); int gpu = p ? p->gpu : 1, pooled = p && p->pooled; UNLOCK;
    if (!p && v[STRICT]) return 1;
    switch (a) {
    case 2: *x = gpu < 0 ? 1 : 2; return 0;
    case 8: *(char *)x = 0; return 0;
    case 9: *x = gpu; return 0;
    case 10: *(char *)x = gpu >= 0 && !pooled; return 0;
    }
    return 1;
}
CUresult cuMemGetAddressRange_v2(CUdeviceptr *base, size_t *n, CUdeviceptr at) {
    NEED_CONTEXT;
    LOCK; Piece *p = piece_of(at); UNLOCK;
    if (!p) return 1;
    *base = (CUdeviceptr)p + 256;
    *n = p->n;
    return 0;
}
// A handle says where the memory is, and has a sum over all its words, so that a test sees how it was passed. "ipc" is 1 and what is open; 0: the memory is of this process.
typedef struct { uint64_t w[8]; } CUipcMemHandle;
CUresult cuIpcGetMemHandle(CUipcMemHandle *h, CUdeviceptr at) {
    NEED_CONTEXT;
    *h = (CUipcMemHandle){ { at, 1, 2, 3, 4, 5, 6, at + 21 } };
    return 0;
}
CUresult cuIpcOpenMemHandle_v2(CUdeviceptr *at, CUipcMemHandle h, unsigned flags) {
    NEED_CONTEXT;
    if (!v[IPC]) return INVALID_CONTEXT;
    uint64_t sum = 0;
    for (int i = 0; i < 7; i++) sum += h.w[i];
    if (sum != h.w[7] || flags != 1) return 1;
    *at = h.w[0];
    LOCK; v[IPC]++; UNLOCK;
    return 0;
}
CUresult cuIpcCloseMemHandle(CUdeviceptr at) { NEED_CONTEXT; LOCK; v[IPC]--; UNLOCK; return 0; }

// NVRTC: the cubin is "\177ELF", the options and the source. A source that has "#error" does not compile.
typedef struct { char *text; int bad; char log[200]; } Program;

int nvrtcVersion(int *major, int *minor) { *major = v[NVRTC_VERSION] / 1000; *minor = v[NVRTC_VERSION] % 1000 / 10; return 0; }
static int arches(int *p) {
    static const int all[] = { 50, 70, 75, 80, 86, 89, 90, 100, 103, 120 };
    int n = 0;
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i] >= v[NVRTC_OLDEST] && all[i] <= v[NVRTC_NEWEST]) { if (p) p[n] = all[i]; n++; }
    return n;
}
int nvrtcGetNumSupportedArchs(int *n) { *n = arches(0); return 0; }
int nvrtcGetSupportedArchs(int *p) { arches(p); return 0; }
int nvrtcCreateProgram(Program **p, const char *text, const char *name, int n, const char **headers, const char **names) {
    size_t bytes = strlen(text) + 1;
    for (int i = 0; i < n; i++) bytes += strlen(headers[i]) + strlen(names[i]) + 8;
    *p = calloc(1, sizeof **p);
    (*p)->bad = strstr(text, "#error") != 0;
    char *t = (*p)->text = malloc(bytes);
    t += sprintf(t, "%s", text);
    for (int i = 0; i < n; i++) t += sprintf(t, "\n// %s\n%s", names[i], headers[i]);
    snprintf((*p)->log, sizeof (*p)->log, "%s(1): error: #error directive\n", name);
    LOCK; v[PROGRAMS]++; UNLOCK;
    return 0;
}
int nvrtcDestroyProgram(Program **p) {
    LOCK; v[PROGRAMS]--; UNLOCK;
    free((*p)->text);
    free(*p);
    *p = 0;
    return 0;
}
int nvrtcCompileProgram(Program *p, int n, const char **options) {
    if (v[NVRTC_FAIL]) { p->log[0] = 0; return v[NVRTC_FAIL]; }
    if (p->bad) return 6;
    size_t bytes = strlen(p->text) + 8;
    for (int i = 0; i < n; i++) bytes += strlen(options[i]) + 1;
    char *all = malloc(bytes), *t = all;
    t += sprintf(t, "\177ELF");
    for (int i = 0; i < n; i++) t += sprintf(t, " %s", options[i]);
    sprintf(t, "\n%s", p->text);
    free(p->text);
    p->text = all;
    return 0;
}
int nvrtcGetProgramLogSize(Program *p, size_t *n) { *n = strlen(p->log) + 1; return 0; }
int nvrtcGetProgramLog(Program *p, char *s) { strcpy(s, p->log); return 0; }
int nvrtcGetCUBINSize(Program *p, size_t *n) { *n = strlen(p->text) + 1; return 0; }
int nvrtcGetCUBIN(Program *p, char *s) { strcpy(s, p->text); return 0; }
const char *nvrtcGetErrorString(int r) {
    return r == 6 ? "NVRTC_ERROR_COMPILATION" : r == 5 ? "NVRTC_ERROR_INVALID_OPTION" : "NVRTC_ERROR_UNKNOWN";
}
