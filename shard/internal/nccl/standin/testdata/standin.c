// A stand-in for NCCL: the functions that package nccl calls, over Unix sockets and the memory of CPU devices. A thread
// does a group's work from ncclGroupEnd on, whatever the stream, and the communicator is busy until it is done. A
// unique id is a folder, in which each rank listens.
//
// ncclCommFinalize and ncclCommDestroy are collective, as NCCL documents them for the ranks of one node. An abort, or
// the end of a process, lets the other ranks pass.
//
// What NCCL would answer with a crash, or not at all, ends the process: a call with a communicator that is freed, and
// freeing one that a call has.
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

typedef struct { char bytes[128]; } ID;
enum { OK = 0, SYSTEM = 2, ARGUMENT = 4, USAGE = 5, REMOTE = 6, BUSY = 7, MOST = 16 };

typedef struct Comm {
    int size, rank, peer[MOST];
    char dir[128];
    volatile int state, aborted;
    int inside, dead, working; // calls that have it; it is freed; there is a worker
    int final;                 // it was finalized
    pthread_t maker, worker;
} Comm;

static void misused(const char *how) {
    fprintf(stderr, "stand-in for NCCL: %s\n", how);
    abort();
}

// What is freed keeps its memory, to be known again.
static void enter(Comm *c) {
    __atomic_add_fetch(&c->inside, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->dead, __ATOMIC_SEQ_CST)) misused("a call with a communicator that is freed");
}
static void leave(Comm *c) { __atomic_sub_fetch(&c->inside, 1, __ATOMIC_SEQ_CST); }

int ncclGetVersion(int *v) { const char *e = getenv("STANDIN_VERSION"); *v = e ? atoi(e) : 22803; return OK; }
const char *ncclGetErrorString(int r) { return r == REMOTE ? "remote process exited or there was a network error" : "error of the stand-in"; }

int ncclGetUniqueId(ID *id) {
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "/tmp/standin-XXXXXX");
    return mkdtemp(id->bytes) ? OK : SYSTEM;
}

static struct sockaddr_un place(Comm *c, int rank) {
    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%.90s/%d", c->dir, rank);
    return a;
}

// Each rank goes to those before it, and lets those behind it in. A peer's socket is closed with the communicator.
static int meet(Comm *c, int l) {
    for (int r = 0; r < c->rank && !c->aborted; r++) {
        struct sockaddr_un a = place(c, r);
        int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), unmet = 1;
        while (!c->aborted && (unmet = connect(s, (void *)&a, sizeof a))) usleep(2000);
        if (unmet || send(s, &c->rank, sizeof c->rank, MSG_NOSIGNAL) != sizeof c->rank) { close(s); return REMOTE; }
        c->peer[r] = s;
    }
    for (int n = c->rank + 1; n < c->size && !c->aborted;) {
        struct pollfd p = { l, POLLIN, 0 };
        if (poll(&p, 1, 20) <= 0) continue;
        int s = accept4(l, 0, 0, SOCK_CLOEXEC), rank;
        if (read(s, &rank, sizeof rank) != sizeof rank) { close(s); return REMOTE; }
        c->peer[rank] = s;
        n++;
    }
    return c->aborted ? REMOTE : OK;
}

static void *join(void *x) {
    Comm *c = x;
    int l = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un own = place(c, c->rank);
    int state = bind(l, (void *)&own, sizeof own) || listen(l, MOST) ? SYSTEM : meet(c, l);
    close(l);
    unlink(own.sun_path);
    rmdir(c->dir); // the last one out does
    for (int r = 0; r < c->size; r++)
        if (c->peer[r] > 0) fcntl(c->peer[r], F_SETFL, O_NONBLOCK);
    c->state = state;
    return 0;
}

static int init(Comm **out, int size, int rank, const char *dir, const int *config) {
    if (getenv("STANDIN_KILL_INIT")) kill(getpid(), SIGKILL);
    if (size > MOST || !config || (unsigned)config[2] != 0xcafebeef || config[4] != 0) return ARGUMENT;
    Comm *c = calloc(1, sizeof *c);
    c->size = size;
    c->rank = rank;
    c->state = BUSY;
    strncpy(c->dir, dir, sizeof c->dir - 1);
    *out = c;
    return pthread_create(&c->maker, 0, join, c) ? SYSTEM : BUSY;
}
int ncclCommInitRankConfig(Comm **c, int size, ID id, int rank, const int *config) { return init(c, size, rank, id.bytes, config); }
int ncclCommInitRankScalable(Comm **c, int size, int rank, int ids, ID *id, const int *config) {
    return ids == 1 ? init(c, size, rank, id->bytes, config) : ARGUMENT;
}
int ncclCommGetAsyncError(Comm *c, int *r) { enter(c); *r = c->state; leave(c); return OK; }

// Sends each peer a byte, and waits for a byte of each or for its end. Nothing else is under way.
static void all_there(Comm *c) {
    char b = 1;
    for (int r = 0; r < c->size; r++)
        if (c->peer[r] > 0) send(c->peer[r], &b, 1, MSG_NOSIGNAL);
    for (int r = 0; r < c->size; r++)
        while (c->peer[r] > 0 && !c->aborted) {
            ssize_t k = recv(c->peer[r], &b, 1, 0);
            if (k >= 0 || (errno != EAGAIN && errno != EINTR)) break;
            usleep(200);
        }
}

static void *finalize(void *x) {
    Comm *c = x;
    all_there(c);
    c->state = c->aborted ? REMOTE : OK;
    return 0;
}

int ncclCommFinalize(Comm *c) {
    enter(c);
    int r = c->state == OK ? BUSY : USAGE;
    if (r == BUSY) {
        if (c->working) pthread_join(c->worker, 0);
        c->state = BUSY;
        c->final = 1;
        c->working = !pthread_create(&c->worker, 0, finalize, c);
    }
    leave(c);
    return r;
}

static int release(Comm *c) {
    for (int r = 0; r < c->size; r++)
        if (c->peer[r] > 0) shutdown(c->peer[r], SHUT_RDWR);
    pthread_join(c->maker, 0);
    if (c->working) pthread_join(c->worker, 0);
    for (int r = 0; r < c->size; r++)
        if (c->peer[r] > 0) close(c->peer[r]);
    __atomic_store_n(&c->dead, 1, __ATOMIC_SEQ_CST);
    if (__atomic_load_n(&c->inside, __ATOMIC_SEQ_CST) > 1) misused("a communicator is freed that a call has");
    leave(c);
    return OK;
}
int ncclCommAbort(Comm *c) { enter(c); c->aborted = 1; return release(c); }
int ncclCommDestroy(Comm *c) {
    enter(c);
    if (c->working) pthread_join(c->worker, 0);
    c->working = 0;
    if (!c->final) all_there(c);
    all_there(c);
    return release(c);
}

// The operations of a group, in order for each peer and direction.
typedef struct { char *at; size_t left; int peer, out; } Op;
typedef struct { Comm *comm; int count; Op ops[]; } Group;
static __thread Op ops[4096];
static __thread int count, depth;
static __thread Comm *comm;

int ncclGroupStart(void) { count = 0; depth = 1; comm = 0; return OK; }
static int add(void *at, size_t n, int type, int peer, Comm *c, int out) {
    const char *slow = getenv("STANDIN_SLOW"); // microseconds
    if (comm && comm != c) return ARGUMENT;
    if (!comm) enter(comm = c);
    if (slow) usleep(atoi(slow));
    if (!depth || type != 1 || peer < 0 || peer >= c->size || peer == c->rank || count == 4096) return ARGUMENT;
    if (c->state != OK) return USAGE;
    if (n) ops[count++] = (Op){ at, n, peer, out };
    return OK;
}
int ncclSend(void *at, size_t n, int type, int peer, Comm *c, void *stream) { return add(at, n, type, peer, c, 1); }
int ncclRecv(void *at, size_t n, int type, int peer, Comm *c, void *stream) { return add(at, n, type, peer, c, 0); }

// "STANDIN_KILL" kills the process in the middle of so manyth a group.
static void maybe_die(void) {
    static int groups;
    const char *e = getenv("STANDIN_KILL");
    if (e && ++groups == atoi(e)) kill(getpid(), SIGKILL);
}

static int move(Comm *c, Op *ops, int count) {
    for (int moved = 0;; moved = 0) {
        int left = 0, first[MOST][2];
        memset(first, -1, sizeof first);
        for (int i = count - 1; i >= 0; i--)
            if (ops[i].left) first[ops[i].peer][ops[i].out] = i, left++;
        if (!left) return OK;
        struct pollfd p[MOST];
        int n = 0;
        for (int r = 0; r < c->size; r++)
            if (first[r][0] >= 0 || first[r][1] >= 0) p[n++] = (struct pollfd){ c->peer[r], (first[r][0] >= 0 ? POLLIN : 0) | (first[r][1] >= 0 ? POLLOUT : 0), 0 };
        if (c->aborted) return REMOTE;
        poll(p, n, 50);
        for (int r = 0; r < c->size; r++)
            for (int out = 0; out < 2; out++) {
                if (first[r][out] < 0) continue;
                Op *o = &ops[first[r][out]];
                size_t most = o->left < 1 << 16 ? o->left : 1 << 16;
                ssize_t k = out ? send(c->peer[r], o->at, most, MSG_NOSIGNAL) : recv(c->peer[r], o->at, most, 0);
                if (k == 0 || (k < 0 && errno != EAGAIN && errno != EINTR)) return REMOTE;
                if (k > 0) { o->at += k; o->left -= k; moved = 1; }
            }
        if (moved) maybe_die();
    }
}

static void *work(void *x) {
    Group *g = x;
    g->comm->state = move(g->comm, g->ops, g->count);
    free(g);
    return 0;
}

int ncclGroupEnd(void) {
    Comm *c = comm;
    int r = OK;
    depth = 0;
    if (count) {
        Group *g = malloc(sizeof *g + count * sizeof *ops);
        g->comm = c;
        g->count = count;
        memcpy(g->ops, ops, count * sizeof *ops);
        if (c->working) pthread_join(c->worker, 0);
        c->state = BUSY;
        c->working = !pthread_create(&c->worker, 0, work, g);
        r = c->working ? BUSY : SYSTEM;
    }
    if (c) leave(c);
    return r;
}
