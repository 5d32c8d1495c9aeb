// W8A8: INT8 weights in tiles (one scale for 16 rows by 128 columns) times activations that are rounded to INT8 in groups of
// 32, as for the experts. Sums of 32 products are exact integers, so only the order of the groups matters, and that is one for all.
#pragma once
#include "ahead.h"
#include "gemv.h"
#include "norm.h"

typedef struct {            // m tokens' activations, rounded
    int8_t q[MAX_DENSE_TOKENS * MOST_K];
    float scale[MAX_DENSE_TOKENS * MOST_K / 32];
    int32_t bias[MAX_DENSE_TOKENS * MOST_K / 32];
} Rounded;

static void round_all(const float *x, int ldx, int k, int m, Rounded *to, Ahead *ahead) {
    for (int t = 0; t < m; t++)
        quantise(x + (size_t)t * ldx, to->q + (size_t)t * k, to->scale + t * (k / 32), to->bias + t * (k / 32), k, 1.0f / FP8_X, 128, ahead);
}

INLINE void int8_tile(const uint8_t *w, const float *scale, int K, const int8_t *xq, const float *xs, const int32_t *xb, float *y,
                      int ldy, const int M, Ahead *ahead) {
    const int groups = K / 32;
    const Asking how = asking(ahead, K * TILE, 4096);
    vf sum[NV * 4];
    UNROLL for (int i = 0; i < NV * M; i++) sum[i] = vf_zero();
    for (int g = 0; g < groups; g++, w += 512) {
        for (int line = 0; line < 512; line += 64) prefetch(w + how.near + line);
        ask_four(ahead);
        if (how.whole) ask_four(ahead);
        const float block = scale[g / 4];
#define INT8_VECTOR(v) if (v < NV) {                                                                                  \
            vi dot[4];                                                                                                \
            int8_dot(w + v * VL * 4, xq + g * 32, K, xb + g, groups, M, dot);                                         \
            UNROLL for (int m = 0; m < M; m++)                                                                        \
                sum[v * M + m] = vf_fma(vf_from(dot[m]), vf_set1(xs[m * groups + g] * block), sum[v * M + m]);        \
            KEEP_LOADS_HERE;                                                                                          \
        }
        INT8_VECTOR(0) INT8_VECTOR(1) INT8_VECTOR(2) INT8_VECTOR(3)
    }
    UNROLL for (int i = 0; i < NV * M; i++) vf_store(y + i % M * ldy + i / M * VL, sum[i]);
}

#define INT8_FOR(M)                                                                                                   \
    NOINLINE void gemv_int8_##M(const Mat *w, int t, int end, const int8_t *xq, const float *xs, const int32_t *xb, float *y, int ldy, \
                            Ahead *ahead) {                                                                            \
        const int blocks = (w->k + FP8_BLOCK - 1) / FP8_BLOCK;                                                        \
        for (; t < end; t++)                                                                                          \
            int8_tile(w->w + (size_t)t * w->k * TILE, w->scale + t * blocks, w->k, xq, xs, xb, y + t * TILE, ldy, M, ahead); \
    }
INT8_FOR(1) INT8_FOR(2) INT8_FOR(3) INT8_FOR(4)

static void gemv_int8(const Mat *w, int t, int end, const Rounded *x, float *y, int ldy, int M, Ahead *ahead) {
    Ahead none = {0};
    if (!ahead) ahead = &none;
    if (M > 4) {            // tile by tile, four tokens at a time, so that a tile is read from memory once
        for (; t < end; t++)
            for (int m = 0; m < M; m += 4) {
                void (*const some[])(const Mat *, int, int, const int8_t *, const float *, const int32_t *, float *, int, Ahead *) =
                    {gemv_int8_4, gemv_int8_1, gemv_int8_2, gemv_int8_3};
                const int g = m * (w->k / 32);
                some[M - m < 4 ? M - m : 0](w, t, t + 1, x->q + (size_t)m * w->k, x->scale + g, x->bias + g, y + (size_t)m * ldy, ldy, m ? &none : ahead);
            }
        return;
    }
    if (M == 1) gemv_int8_1(w, t, end, x->q, x->scale, x->bias, y, ldy, ahead);
    else if (M == 2) gemv_int8_2(w, t, end, x->q, x->scale, x->bias, y, ldy, ahead);
    else if (M == 3) gemv_int8_3(w, t, end, x->q, x->scale, x->bias, y, ldy, ahead);
    else gemv_int8_4(w, t, end, x->q, x->scale, x->bias, y, ldy, ahead);
}
