// y[m][row] = sum over k of w[row][k] * x[m][k] for packed tiles of 16 rows, M tokens at once.
// Each output has one accumulator per block of 128 k, walked in k order, whatever M is and however many tiles run side by side.
#pragma once
#include "simd.h"

enum { SCALE_NONE, SCALE_BLOCK, SCALE_ROW };

typedef struct {
    const uint8_t *w;       // tiles, one after another
    const float *scale;     // [tiles][k / 128] for SCALE_BLOCK, [rows] for SCALE_ROW
    int tiles, k;
} Mat;

// Tiles that run side by side: enough independent sums to hide the multiply-add's latency, few enough for the registers
#define SIDE_BY_SIDE(M) ((M) * NV >= 8 ? 1 : 8 / ((M) * NV))

// Prefetch the same place in the tiles that come next: the arena is in reading order, so after the last tile comes the next matrix.
#define AHEAD(bytes) ((bytes) < 4096 ? 4096 : (bytes))

INLINE void finish_rows(vf *total, const float *scale, int mode, float *y, int ldy, const int T, const int M) {
    UNROLL for (int v = 0; v < T * NV; v++)
        UNROLL for (int m = 0; m < M; m++) {
            vf r = total[v * M + m];
            if (mode == SCALE_ROW) r *= vf_load(scale + v * VL);
            vf_store(y + m * ldy + v * VL, r);
        }
}

INLINE void fp8_tiles(const uint8_t *w, const float *scale, const int mode, int K, const float *x, int ldx, float *y, int ldy,
                      const int T, const int M) {
    const size_t tile = (size_t)K * TILE, ahead = AHEAD(T * tile);
    const int blocks = (K + FP8_BLOCK - 1) / FP8_BLOCK;
    vf total[T * NV * M];
    UNROLL for (int i = 0; i < T * NV * M; i++) total[i] = vf_zero();
    for (int b = 0; b < blocks; b++) {
        const int end = (b + 1) * FP8_BLOCK < K ? (b + 1) * FP8_BLOCK : K;
        vf sum[T * NV * M];
        UNROLL for (int i = 0; i < T * NV * M; i++) sum[i] = vf_zero();
        for (int k = b * FP8_BLOCK; k < end; k += 4) {
            const uint8_t *at = w + (size_t)k * TILE;
            UNROLL for (int t = 0; t < T; t++) prefetch(at + t * tile + ahead);
            UNROLL for (int v = 0; v < T * NV; v++) {
                vf f[4];
                fp8_decode(vi_load(at + (v / NV) * tile + (v % NV) * VL * 4), f);
                UNROLL for (int j = 0; j < 4; j++)
                    UNROLL for (int m = 0; m < M; m++)
                        sum[v * M + m] = vf_fma(f[j], vf_set1(x[m * ldx + k + j]), sum[v * M + m]);
            }
        }
        UNROLL for (int v = 0; v < T * NV; v++) {
            vf s = vf_set1(mode == SCALE_BLOCK ? scale[(v / NV) * blocks + b] * FP8_S : FP8_S);
            UNROLL for (int m = 0; m < M; m++) total[v * M + m] = vf_fma(sum[v * M + m], s, total[v * M + m]);
        }
    }
    finish_rows(total, scale, mode, y, ldy, T, M);
}

INLINE void bf16_tiles(const uint8_t *w, const float *scale, const int mode, int K, const float *x, int ldx, float *y, int ldy,
                       const int T, const int M) {
    const size_t tile = (size_t)K * TILE * 2, ahead = AHEAD(T * tile);
    const int blocks = (K + FP8_BLOCK - 1) / FP8_BLOCK;
    vf total[T * NV * M];
    UNROLL for (int i = 0; i < T * NV * M; i++) total[i] = vf_zero();
    for (int b = 0; b < blocks; b++) {
        const int end = (b + 1) * FP8_BLOCK < K ? (b + 1) * FP8_BLOCK : K;
        vf sum[T * NV * M];
        UNROLL for (int i = 0; i < T * NV * M; i++) sum[i] = vf_zero();
        for (int k = b * FP8_BLOCK; k < end; k += 2) {
            const uint8_t *at = w + (size_t)k * TILE * 2;
            UNROLL for (int t = 0; t < T; t++) prefetch(at + t * tile + ahead);
            UNROLL for (int v = 0; v < T * NV; v++) {
                vf f[2];
                bf16_decode(vi_load(at + (v / NV) * tile + (v % NV) * VL * 4), f);
                UNROLL for (int j = 0; j < 2; j++)
                    UNROLL for (int m = 0; m < M; m++)
                        sum[v * M + m] = vf_fma(f[j], vf_set1(x[m * ldx + k + j]), sum[v * M + m]);
            }
        }
        UNROLL for (int v = 0; v < T * NV; v++) {
            // Activations carry FP8_X here too, so that FP8 weights expanded to BF16 give the same numbers.
            vf s = vf_set1(mode == SCALE_BLOCK ? scale[(v / NV) * blocks + b] * (1.0f / FP8_X) : 1.0f / FP8_X);
            UNROLL for (int m = 0; m < M; m++) total[v * M + m] = vf_fma(sum[v * M + m], s, total[v * M + m]);
        }
    }
    finish_rows(total, scale, mode, y, ldy, T, M);
}

INLINE void f32_tiles(const uint8_t *bytes, const float *scale, const int mode, int K, const float *x, int ldx, float *y, int ldy,
                      const int T, const int M) {
    const float *w = (const float *)bytes;
    vf total[T * NV * M];
    (void)scale, (void)mode;
    UNROLL for (int i = 0; i < T * NV * M; i++) total[i] = vf_zero();
    for (int k = 0; k < K; k++) {
        UNROLL for (int t = 0; t < T; t++) prefetch(w + ((size_t)t * K + k) * TILE + 1024);
        UNROLL for (int v = 0; v < T * NV; v++)
            UNROLL for (int m = 0; m < M; m++)
                total[v * M + m] = vf_fma(vf_load(w + ((size_t)(v / NV) * K + k) * TILE + (v % NV) * VL), vf_set1(x[m * ldx + k]), total[v * M + m]);
    }
    finish_rows(total, scale, SCALE_NONE, y, ldy, T, M);
}

// One function per number of tokens: NAME_M(mat, first tile, end tile, x, ldx, y, ldy); y starts at row 0 of the matrix.
#define GEMV_FOR(NAME, TILES, MODE, SIZE, M)                                                                          \
    NOINLINE void NAME##_##M(const Mat *w, int t, int end, const float *x, int ldx, float *y, int ldy) {              \
        const size_t tile = (size_t)w->k * TILE * (SIZE);                                                             \
        const int per_tile = MODE == SCALE_BLOCK ? (w->k + FP8_BLOCK - 1) / FP8_BLOCK : MODE == SCALE_ROW ? TILE : 0; \
        for (; t + SIDE_BY_SIDE(M) <= end; t += SIDE_BY_SIDE(M))                                                      \
            TILES(w->w + t * tile, w->scale + t * per_tile, MODE, w->k, x, ldx, y + t * TILE, ldy, SIDE_BY_SIDE(M), M); \
        for (; t < end; t++)                                                                                          \
            TILES(w->w + t * tile, w->scale + t * per_tile, MODE, w->k, x, ldx, y + t * TILE, ldy, 1, M);             \
    }
// More than four tokens: tile by tile, four tokens at a time, so that a tile is read from memory once.
#define GEMV(NAME, TILES, MODE, SIZE)                                                                                 \
    GEMV_FOR(NAME, TILES, MODE, SIZE, 1)                                                                              \
    GEMV_FOR(NAME, TILES, MODE, SIZE, 2)                                                                              \
    GEMV_FOR(NAME, TILES, MODE, SIZE, 3)                                                                              \
    GEMV_FOR(NAME, TILES, MODE, SIZE, 4)                                                                              \
    static void NAME(const Mat *w, int t, int end, const float *x, int ldx, float *y, int ldy, int M) {               \
        if (M == 1) { NAME##_1(w, t, end, x, ldx, y, ldy); return; }                                                  \
        if (M == 2) { NAME##_2(w, t, end, x, ldx, y, ldy); return; }                                                  \
        if (M == 3) { NAME##_3(w, t, end, x, ldx, y, ldy); return; }                                                  \
        if (M == 4) { NAME##_4(w, t, end, x, ldx, y, ldy); return; }                                                  \
        for (; t < end; t++)                                                                                          \
            for (int m = 0; m < M; m += 4)                                                                            \
                NAME(w, t, t + 1, x + (size_t)m * ldx, ldx, y + (size_t)m * ldy, ldy, M - m < 4 ? M - m : 4);         \
    }

GEMV(gemv_fp8, fp8_tiles, SCALE_BLOCK, 1)
GEMV(gemv_fp8_rows, fp8_tiles, SCALE_ROW, 1)
GEMV(gemv_bf16_blocks, bf16_tiles, SCALE_BLOCK, 2)
GEMV(gemv_bf16, bf16_tiles, SCALE_NONE, 2)
GEMV(gemv_f32, f32_tiles, SCALE_NONE, 4)

// Part `id` of `parts` of a matrix's tiles, in whole pairs (a gate tile and its up tile stay together).
INLINE void part(int tiles, int id, int parts, int *first, int *end) {
    int pairs = (tiles + 1) / 2;
    *first = pairs * id / parts * 2;
    *end = pairs * (id + 1) / parts * 2;
    if (*end > tiles) *end = tiles;
}
