// What `ggml-hexagon` uses of FastRPC's, rpcmem's and dspqueue's headers, declared for the stand-in beside
// this file. Written from what calls it; numbers are those of the library on phones where the stand-in looks
// at them.
//
// Sources include it by the names of the original headers: the build makes a file of each name that includes
// this one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef unsigned int uint32;
typedef unsigned long long uint64;

typedef int AEEResult;
enum {
    AEE_SUCCESS = 0,
    AEE_EUNABLETOLOAD = 0x06,
    AEE_EEXPIRED = 0x0c,
    AEE_EBADPARM = 0x0e,
    AEE_EUNSUPPORTEDAPI = 0x14,
    AEE_EWOULDBLOCK = 516,
};

// Libraries on the DSP, and calls of their methods.

typedef uint32_t remote_handle;
typedef uint64_t remote_handle64;
typedef union {
    struct {
        void *pv;
        size_t nLen;
    } buf;
    remote_handle64 h64;
} remote_arg;

#define REMOTE_SCALARS_MAKEX(attributes, method, in, out, handles_in, handles_out)                           \
    ((((uint32_t)(attributes) & 7) << 29) | (((uint32_t)(method) & 31) << 24) |                              \
     (((uint32_t)(in) & 255) << 16) | (((uint32_t)(out) & 255) << 8) |                                       \
     (((uint32_t)(handles_in) & 15) << 4) | ((uint32_t)(handles_out) & 15))

int remote_handle64_open(const char *name, remote_handle64 *handle);
int remote_handle64_close(remote_handle64 handle);
int remote_handle64_invoke(remote_handle64 handle, uint32_t scalars, remote_arg *arguments);
int remote_handle64_control(remote_handle64 handle, uint32_t request, void *data, uint32_t bytes);
int remote_handle_control(uint32_t request, void *data, uint32_t bytes);
int remote_session_control(uint32_t request, void *data, uint32_t bytes);

// Requests of the three functions above.

enum { DSPRPC_CONTROL_LATENCY = 1 };
enum { DSPRPC_GET_DSP_INFO = 2 };
enum { DSPRPC_CONTROL_UNSIGNED_MODULE = 2, FASTRPC_RESERVE_NEW_SESSION = 13, FASTRPC_GET_URI = 15 };
enum { ARCH_VER = 6 };

struct remote_rpc_control_latency {
    uint32_t enable;
    uint32_t latency;
};
struct remote_dsp_capability {
    uint32_t domain;
    uint32_t attribute_ID;
    uint32_t capability;
};
struct remote_rpc_control_unsigned_module {
    int domain;
    int enable;
};
struct remote_rpc_reserve_new_session {
    char *domain_name;
    uint32_t domain_name_len;
    char *session_name;
    uint32_t session_name_len;
    uint32_t effective_domain_id;
    uint32_t session_id;
};
struct remote_rpc_get_uri {
    char *domain_name;
    uint32_t domain_name_len;
    uint32_t session_id;
    char *module_uri;
    uint32_t module_uri_len;
    char *uri;
    uint32_t uri_len;
};

#define CDSP_DOMAIN_ID 3
#define CDSP_DOMAIN_NAME "cdsp"
#define MAX_DOMAIN_NAMELEN 30
typedef struct {
    int id;
    const char *uri;
} domain;
static domain supported_domains[] __attribute__((unused)) = {{CDSP_DOMAIN_ID, "&_dom=cdsp"}};

// Memory that both sides see.

#define RPCMEM_HEAP_ID_SYSTEM 25
#define RPCMEM_DEFAULT_FLAGS 1
enum fastrpc_map_flags { FASTRPC_MAP_FD = 2, FASTRPC_MAP_FD_DELAYED = 3 };

void *rpcmem_alloc(int heap, uint32_t flags, int bytes);
void *rpcmem_alloc2(int heap, uint32_t flags, size_t bytes);
void rpcmem_free(void *at);
int rpcmem_to_fd(void *at);
int fastrpc_mmap(int domain, int fd, void *at, int offset, size_t bytes, enum fastrpc_map_flags flags);
int fastrpc_munmap(int domain, int fd, void *at, size_t bytes);

// Queues of messages.

typedef void *dspqueue_t;
typedef void (*dspqueue_callback_t)(dspqueue_t queue, AEEResult error, void *context);
enum { DSPQUEUE_TIMEOUT_NONE = 0xffffffff };
enum { DSPQUEUE_BUFFER_FLAG_FLUSH_SENDER = 0x04, DSPQUEUE_BUFFER_FLAG_INVALIDATE_RECIPIENT = 0x20 };
struct dspqueue_buffer {
    uint32_t fd;
    uint32_t size;
    uint32_t offset;
    uint32_t flags;
    union {
        void *ptr;
        uint64_t address;
    };
};

AEEResult dspqueue_create(int domain, uint32_t flags, uint32_t request_bytes, uint32_t answer_bytes,
                          dspqueue_callback_t on_packet, dspqueue_callback_t on_error, void *context,
                          dspqueue_t *queue);
AEEResult dspqueue_close(dspqueue_t queue);
AEEResult dspqueue_export(dspqueue_t queue, uint64_t *id);
AEEResult dspqueue_write(dspqueue_t queue, uint32_t flags, uint32_t count, struct dspqueue_buffer *buffers,
                         uint32_t bytes, const uint8_t *message, uint32_t timeout_us);
AEEResult dspqueue_read(dspqueue_t queue, uint32_t *flags, uint32_t room, uint32_t *count,
                        struct dspqueue_buffer *buffers, uint32_t message_room, uint32_t *bytes,
                        uint8_t *message, uint32_t timeout_us);
AEEResult dspqueue_read_noblock(dspqueue_t queue, uint32_t *flags, uint32_t room, uint32_t *count,
                                struct dspqueue_buffer *buffers, uint32_t message_room, uint32_t *bytes,
                                uint8_t *message);

#ifdef __cplusplus
}
#endif

// The log of generated stubs.

#define FARF(...) ((void)0)
static inline void HAP_debug_v2(int level, const char *file, int line, const char *format, ...) {
    (void)level, (void)file, (void)line, (void)format;
}
