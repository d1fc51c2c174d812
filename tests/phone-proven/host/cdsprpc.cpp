// A stand-in for libcdsprpc.so: its DSP process is ../guest.c under qemu-hexagon, which loads the library.
//
// Environment: PROVEN_ARCH (73, 75, 79 or 81), PROVEN_LIBRARY (the library), PROVEN_QEMU (the emulator),
// PROVEN_GUEST (what is built of guest.c), PROVEN_THREADS (of vectors, 2), PROVEN_LOG (guest.c says what),
// PROVEN_SECONDS (that it waits for an answer, 300).
//
// Where the guest is gone there is a line `@lost REASON` on stdout, and the program ends with 70.
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <string>
#include <vector>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "fastrpc.h"

namespace {
struct Block {
    size_t size;
    int fd;
};
std::map<void *, Block> blocks;
std::map<int, void *> by_fd;
std::mutex lock;
int next_fd = 1000;
int rpc_out, rpc_in, q_out, q_in;
pid_t child;

const char *env(const char *name, const char *other) {
    const char *v = getenv(name);
    return v && *v ? v : other;
}
[[noreturn]] void lost(const char *what) {
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFSIGNALED(status))
        printf("\n@lost signal %d while %s\n", WTERMSIG(status), what);
    else
        printf("\n@lost exit %d while %s\n", WEXITSTATUS(status), what);
    fflush(stdout);
    _exit(70);
}
void put(int fd, const void *p, size_t n, const char *what) {
    for (const char *a = (const char *)p; n;) {
        ssize_t k = write(fd, a, n);
        if (k <= 0) {
            if (errno == EINTR) continue;
            lost(what);
        }
        a += k;
        n -= k;
    }
}
void get(int fd, void *p, size_t n, const char *what) {
    for (char *a = (char *)p; n;) {
        ssize_t k = read(fd, a, n);
        if (k <= 0) {
            if (k < 0 && errno == EINTR) continue;
            lost(what);
        }
        a += k;
        n -= k;
    }
}
void start() {
    signal(SIGPIPE, SIG_IGN);
    int a[2], b[2], c[2], d[2];
    if (pipe(a) || pipe(b) || pipe(c) || pipe(d)) abort();
    std::string pid = std::to_string(getpid()), arch = env("PROVEN_ARCH", "73");
    child = fork();
    if (!child) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        int from[4] = {a[0], b[1], c[0], d[1]};
        for (int i = 0; i < 4; i++) from[i] = fcntl(from[i], F_DUPFD, 100);
        for (int i = 0; i < 4; i++) dup2(from[i], 10 + i);
        // Its own ends of the pipes, too: it must see that the host has closed one.
        for (int i = 3; i < 2000; i++)
            if (i < 10 || i > 13) close(i);
        setenv("QEMU_CPU", ("v" + arch).c_str(), 1);
        execlp(env("PROVEN_QEMU", "qemu-hexagon"), "qemu-hexagon", env("PROVEN_GUEST", "./guest"),
               env("PROVEN_LIBRARY", ""), pid.c_str(), env("PROVEN_THREADS", "2"), env("PROVEN_LOG", "1"),
               nullptr);
        perror("qemu-hexagon");
        _exit(71);
    }
    close(a[0]);
    close(b[1]);
    close(c[0]);
    close(d[1]);
    rpc_out = a[1];
    rpc_in = b[0];
    q_out = c[1];
    q_in = d[0];
}
// Without requests the guest ends by itself, and its emulator says how many transfers there were.
__attribute__((destructor)) void finish() {
    if (!child) return;
    close(rpc_out);
    waitpid(child, nullptr, 0);
    child = 0;
}
struct Head {
    uint32_t what, scalars, n, pad;
};
struct Message {
    uint32_t flags, buffers, bytes, pad;
};
} // namespace

#define API extern "C" __attribute__((visibility("default")))

API void *rpcmem_alloc2(int, uint32_t, size_t size) {
    std::lock_guard<std::mutex> g(lock);
    int m = memfd_create("rpcmem", 0);
    size_t whole = (size + 65535) & ~size_t(65535);
    if (m < 0 || ftruncate(m, whole)) return nullptr;
    int fd = fcntl(m, F_DUPFD, next_fd);
    close(m);
    if (fd < 0) return nullptr;
    next_fd = fd + 1;
    void *p = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED) return nullptr;
    blocks[p] = {whole, fd};
    by_fd[fd] = p;
    return p;
}
API void *rpcmem_alloc(int h, uint32_t f, int n) { return rpcmem_alloc2(h, f, (size_t)n); }
API void rpcmem_free(void *p) {
    std::lock_guard<std::mutex> g(lock);
    auto it = blocks.find(p);
    if (it == blocks.end()) return;
    munmap(p, it->second.size);
    by_fd.erase(it->second.fd);
    close(it->second.fd);
    blocks.erase(it);
}
API int rpcmem_to_fd(void *p) {
    std::lock_guard<std::mutex> g(lock);
    auto it = blocks.find(p);
    return it == blocks.end() ? -1 : it->second.fd;
}
API int fastrpc_mmap(int, int, void *, int, size_t, enum fastrpc_map_flags) { return 0; }
API int fastrpc_munmap(int, int, void *, size_t) { return 0; }

API int remote_handle64_open(const char *, remote_handle64 *ph) {
    struct rlimit r = {1 << 19, 1 << 19};
    setrlimit(RLIMIT_NOFILE, &r);
    start();
    Head h = {1, 0, 0, 0};
    put(rpc_out, &h, sizeof h, "opening");
    int32_t result;
    get(rpc_in, &result, 4, "opening");
    *ph = 1;
    return result;
}
API int remote_handle64_close(remote_handle64) {
    Head h = {2, 0, 0, 0};
    put(rpc_out, &h, sizeof h, "closing");
    int32_t result;
    get(rpc_in, &result, 4, "closing");
    finish();
    return result;
}
API int remote_handle64_invoke(remote_handle64, uint32_t sc, remote_arg *pra) {
    std::lock_guard<std::mutex> g(lock);
    uint32_t in = sc >> 16 & 255, out = sc >> 8 & 255;
    Head h = {0, sc, in + out, 0};
    put(rpc_out, &h, sizeof h, "calling");
    for (uint32_t i = 0; i < in + out; i++) {
        uint32_t n = (uint32_t)pra[i].buf.nLen;
        put(rpc_out, &n, 4, "calling");
        if (i < in) put(rpc_out, pra[i].buf.pv, n, "calling");
    }
    int32_t result;
    get(rpc_in, &result, 4, "calling");
    for (uint32_t i = in; i < in + out; i++) get(rpc_in, pra[i].buf.pv, pra[i].buf.nLen, "calling");
    return result;
}
API int remote_handle_control(uint32_t, void *data, uint32_t) {
    auto *c = (struct remote_dsp_capability *)data;
    int a = atoi(env("PROVEN_ARCH", "73"));
    c->capability = (uint32_t)((a / 10) << 4 | a % 10);
    return 0;
}
API int remote_handle64_control(remote_handle64, uint32_t, void *, uint32_t) { return 0; }
API int remote_session_control(uint32_t req, void *data, uint32_t) {
    if (req == FASTRPC_GET_URI) {
        auto *u = (struct remote_rpc_get_uri *)data;
        snprintf(u->uri, u->uri_len, "%s&_dom=cdsp", u->module_uri);
    }
    return 0;
}
API AEEResult dspqueue_create(int, uint32_t, uint32_t, uint32_t, dspqueue_callback_t, dspqueue_callback_t,
                              void *, dspqueue_t *q) {
    *q = (dspqueue_t)1;
    return 0;
}
API AEEResult dspqueue_close(dspqueue_t) { return 0; }
API AEEResult dspqueue_export(dspqueue_t, uint64_t *id) {
    *id = 0x1234;
    return 0;
}
API AEEResult dspqueue_write(dspqueue_t, uint32_t flags, uint32_t n, struct dspqueue_buffer *b,
                             uint32_t bytes, const uint8_t *m, uint32_t) {
    Message h = {flags, n, bytes, 0};
    std::vector<uint8_t> t(sizeof h + n * sizeof *b + bytes);
    memcpy(t.data(), &h, sizeof h);
    memcpy(t.data() + sizeof h, b, n * sizeof *b);
    memcpy(t.data() + sizeof h + n * sizeof *b, m, bytes);
    put(q_out, t.data(), t.size(), "sending");
    return 0;
}
API AEEResult dspqueue_read(dspqueue_t, uint32_t *flags, uint32_t, uint32_t *n, struct dspqueue_buffer *b,
                            uint32_t, uint32_t *bytes, uint8_t *m, uint32_t) {
    struct pollfd p = {q_in, POLLIN, 0};
    if (poll(&p, 1, atoi(env("PROVEN_SECONDS", "300")) * 1000) == 0) {
        kill(child, SIGKILL);
        lost("no answer came");
    }
    Message h;
    get(q_in, &h, sizeof h, "computing");
    *flags = h.flags;
    *n = h.buffers;
    *bytes = h.bytes;
    get(q_in, b, h.buffers * sizeof *b, "computing");
    get(q_in, m, h.bytes, "computing");
    for (uint32_t i = 0; i < h.buffers; i++) {
        std::lock_guard<std::mutex> g(lock);
        b[i].ptr = (uint8_t *)by_fd[b[i].fd] + b[i].offset;
    }
    return 0;
}
API AEEResult dspqueue_read_noblock(dspqueue_t q, uint32_t *f, uint32_t a, uint32_t *n,
                                    struct dspqueue_buffer *b, uint32_t c, uint32_t *d, uint8_t *m) {
    return dspqueue_read(q, f, a, n, b, c, d, m, 0);
}
