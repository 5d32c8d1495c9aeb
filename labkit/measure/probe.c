/* Sustained read bandwidth with the access pattern of decoding: long sequential runs (a layer's tensors), the runs spread over
   a working set that no cache holds, four independent accumulators so that latency is hidden as in the engine's kernels. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

typedef uint64_t vec __attribute__((vector_size(64)));

static double clock_s(clockid_t id) {
    struct timespec t;
    clock_gettime(id, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec;
}

/* Memory for `bytes`, in huge pages where the system grants them, touched. NULL when there is none. */
void *probe_alloc(size_t bytes) {
    size_t huge = (size_t)2 << 20;
    char *raw = mmap(NULL, bytes + huge, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return NULL;
    char *memory = (char *)(((uintptr_t)raw + huge - 1) & ~(uintptr_t)(huge - 1));
    munmap(raw, memory - raw);                       /* the unaligned ends go back, so that probe_free frees it all */
    munmap(memory + bytes, raw + huge - memory);
#ifdef MADV_HUGEPAGE
    madvise(memory, bytes, MADV_HUGEPAGE);
#endif
    memset(memory, 1, bytes);
    return memory;
}

void probe_free(void *memory, size_t bytes) { munmap(memory, bytes); }

/* Four tiles side by side, asked for one group of tiles ahead, as the engine's matrix products read them. `bytes` is a whole
   number of groups. */
enum { TILE = 8192, GROUP = 4 * TILE };

static vec run(const char *p, size_t bytes) {
    vec a = {0}, b = {0}, c = {0}, d = {0};
    for (const char *end = p + bytes; p < end; p += GROUP)
        for (size_t i = 0; i < TILE; i += 64) {
            for (size_t tile = 0; tile < GROUP; tile += TILE) __builtin_prefetch(p + GROUP + tile + i, 0, 2);
            a += *(const vec *)(p + i);
            b += *(const vec *)(p + TILE + i);
            c += *(const vec *)(p + 2 * TILE + i);
            d += *(const vec *)(p + 3 * TILE + i);
        }
    return a + b + c + d;
}

/* Read `blocks` runs of `block` bytes in the given order, `passes` times. wall_s, cpu_s: [passes]. Returns a checksum. */
uint64_t probe_read(const char *memory, size_t block, const uint32_t *order, size_t blocks, int passes, double *wall_s,
                    double *cpu_s) {
    vec sum = {0};
    for (int pass = 0; pass < passes; pass++) {
        double wall = clock_s(CLOCK_MONOTONIC), cpu = clock_s(CLOCK_THREAD_CPUTIME_ID);
        for (size_t i = 0; i < blocks; i++) sum += run(memory + (size_t)order[i] * block, block);
        wall_s[pass] = clock_s(CLOCK_MONOTONIC) - wall;
        cpu_s[pass] = clock_s(CLOCK_THREAD_CPUTIME_ID) - cpu;
    }
    return sum[0] + sum[1] + sum[2] + sum[3] + sum[4] + sum[5] + sum[6] + sum[7];
}
