// y[m][row] = sum over k of w[row][k] * x[m][k] for packed tiles of 16 rows, M tokens at once. Each output's sums have one order,
// whatever M is and however many tiles run side by side.
#pragma once
#include "simd.h"

enum { SCALE_NONE, SCALE_BLOCK, SCALE_ROW };

// Ask for bytes that will be read soon, while other work goes on
INLINE void fetch(const void *p, size_t bytes) {
    for (size_t line = 0; line < bytes; line += 64) prefetch_far((const uint8_t *)p + line);
}

typedef struct {
    const uint8_t *w;       // tiles, one after another; the byte before them is read too (see simd.h) and is not used
    const float *scale;     // [tiles][k / 128] for SCALE_BLOCK, [rows] for SCALE_ROW
    int tiles, k;
} Mat;

// Tiles that run side by side: enough independent sums to hide the multiply-add's latency, few enough for the registers
#define SIDE_BY_SIDE(M) ((M) * NV >= 8 ? 1 : 8 / ((M) * NV))

#define MOST_SUMS (NV * 4 > 8 ? NV * 4 : 8)      // a constant, because a compiler keeps no variable-length array in registers

// Prefetch the same place in the tiles that come next (into the second-level cache: it is up to 24 KB away). The arena is in reading
// order, so after the last tile comes the next matrix.
#define AHEAD(bytes) ((bytes) < 4096 ? 4096 : (bytes))

// How these are written: GCC keeps an array in registers only if every index is constant before its scalar replacement, and at
// that point it has unrolled innermost loops alone. Hence one flat loop over (token, vector), i = m * T * NV + v, and EACH_VECTOR.
#define EACH_VECTOR(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define FLAT UNROLL for (int i = 0; i < T * NV * M; i++)
#define VECTORS UNROLL for (int v = 0; v < T * NV; v++)

INLINE void store_rows(const vf *total, const float *scale, int mode, float *y, int ldy, const int T, const int M) {
    FLAT {
        vf r = total[i];
        if (mode == SCALE_ROW) r *= vf_load(scale + i % (T * NV) * VL);
        vf_store(y + i / (T * NV) * ldy + i % (T * NV) * VL, r);
    }
}

#define MAX_DENSE_TOKENS 32      // activations that one product takes at most
#define LARGER(a, b) ((a) > (b) ? (a) : (b))
#define MOST_K LARGER(2 * HIDDEN, LARGER(DENSE_INTER, LARGER(HEADS * HEAD_DIM, KV_RANK)))       // of any dense matrix

// What the dense kernels read activations as. Where the machine multiplies pairs of bfloat16, activations (times FP8_X) are rounded
// to bfloat16 once, two to a word, the first in the upper half; elsewhere they stay FP32.
#if defined(BF16_PAIRS)
typedef uint32_t act;
#define PACKED(k) ((k) / 2)
INLINE const act *packed(const float *x, int *ldx, int k, int m, act *room) {
    for (int t = 0; t < m; t++) bf16_pairs(x + (size_t)t * *ldx, k, room + (size_t)t * PACKED(MOST_K));
    *ldx = PACKED(MOST_K);
    return room;
}
#define PACK_ROOM(m) ((m) * PACKED(MOST_K))
#else
typedef float act;
INLINE const act *packed(const float *x, int *ldx, int k, int m, act *room) {
    (void)ldx, (void)k, (void)m, (void)room;
    return x;
}
#define PACK_ROOM(m) 1
#endif

#if defined(BF16_PAIRS)
#define DENSE_SIDE(M) 1
#include "gemv_one.h"
#else
#define DENSE_SIDE SIDE_BY_SIDE
#include "gemv_many.h"
#endif

INLINE void f32_tiles(const uint8_t *bytes, const float *scale, const int mode, int K, const float *x, int ldx, float *y, int ldy,
                      const int T, const int M) {
    const float *w = (const float *)bytes;
    vf total[MOST_SUMS];
    (void)mode;
    FLAT total[i] = vf_zero();
    for (int k = 0; k < K; k++) {
        UNROLL for (int t = 0; t < T; t++) prefetch(w + ((size_t)t * K + k) * TILE + 1024);
        FLAT total[i] = vf_fma(vf_load(w + ((size_t)(i % (T * NV) / NV) * K + k) * TILE + i % NV * VL), vf_set1(x[i / (T * NV) * ldx + k]), total[i]);
    }
    store_rows(total, scale, SCALE_NONE, y, ldy, T, M);
}

// One function per number of tokens: NAME_M(mat, first tile, end tile, x, ldx, y, ldy); y starts at row 0 of the matrix.
#define GEMV_FOR(NAME, TILES, X, SIDE, MODE, SIZE, M)                                                                          \
    NOINLINE void NAME##_##M(const Mat *w, int t, int end, const X *x, int ldx, float *y, int ldy) {                  \
        const size_t tile = (size_t)w->k * TILE * (SIZE);                                                             \
        const int per_tile = MODE == SCALE_BLOCK ? (w->k + FP8_BLOCK - 1) / FP8_BLOCK : MODE == SCALE_ROW ? TILE : 0; \
        for (; t + SIDE(M) <= end; t += SIDE(M))                                                                      \
            TILES(w->w + t * tile, w->scale + t * per_tile, MODE, w->k, x, ldx, y + t * TILE, ldy, SIDE(M), M);       \
        for (; t < end; t++)                                                                                          \
            TILES(w->w + t * tile, w->scale + t * per_tile, MODE, w->k, x, ldx, y + t * TILE, ldy, 1, M);             \
    }
// More than four tokens: tile by tile, four tokens at a time, so that a tile is read from memory once.
#define GEMV(NAME, TILES, X, SIDE, MODE, SIZE)                                                                                 \
    GEMV_FOR(NAME, TILES, X, SIDE, MODE, SIZE, 1)                                                                              \
    GEMV_FOR(NAME, TILES, X, SIDE, MODE, SIZE, 2)                                                                              \
    GEMV_FOR(NAME, TILES, X, SIDE, MODE, SIZE, 3)                                                                              \
    GEMV_FOR(NAME, TILES, X, SIDE, MODE, SIZE, 4)                                                                              \
    static void NAME(const Mat *w, int t, int end, const X *x, int ldx, float *y, int ldy, int M) {                   \
        if (M == 1) { NAME##_1(w, t, end, x, ldx, y, ldy); return; }                                                  \
        if (M == 2) { NAME##_2(w, t, end, x, ldx, y, ldy); return; }                                                  \
        if (M == 3) { NAME##_3(w, t, end, x, ldx, y, ldy); return; }                                                  \
        if (M == 4) { NAME##_4(w, t, end, x, ldx, y, ldy); return; }                                                  \
        for (; t < end; t++)                                                                                          \
            for (int m = 0; m < M; m += 4)                                                                            \
                NAME(w, t, t + 1, x + (size_t)m * ldx, ldx, y + (size_t)m * ldy, ldy, M - m < 4 ? M - m : 4);         \
    }

GEMV(gemv_fp8, fp8_tiles, act, DENSE_SIDE, SCALE_BLOCK, 1)
GEMV(gemv_fp8_rows, fp8_tiles, act, DENSE_SIDE, SCALE_ROW, 1)
GEMV(gemv_bf16_blocks, bf16_tiles, act, DENSE_SIDE, SCALE_BLOCK, 2)
GEMV(gemv_bf16, bf16_tiles, act, DENSE_SIDE, SCALE_NONE, 2)
GEMV(gemv_f32, f32_tiles, float, SIDE_BY_SIDE, SCALE_NONE, 4)

// Part `id` of `parts` of a matrix's tiles, in whole pairs (a gate tile and its up tile stay together).
INLINE void part(int tiles, int id, int parts, int *first, int *end) {
    int pairs = (tiles + 1) / 2;
    *first = pairs * id / parts * 2;
    *end = pairs * (id + 1) / parts * 2;
    if (*end > tiles) *end = tiles;
}
