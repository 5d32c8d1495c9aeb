// Routed experts, compiled for the exact shapes (-DMOE_HIDDEN, -DMOE_INTER): tiles of 16 rows, [k/32][16] scales then codes.
#include "moe_abi.h"
#include "simd.h"

#define LOOKAHEAD 3072
#define GROUP_BYTES (TILE + FP4_GROUP / 2 * TILE)

INLINE void tile_rows(const uint8_t *w, const int K, const int8_t *xq, const float *xs, const int32_t *xb, float *y, int ldy,
                      const int M, Ahead *ahead) {
    const int groups = K / FP4_GROUP;
    const uint8_t *codes = w + groups * TILE;
    const Asking how = asking(ahead, groups * GROUP_BYTES, LOOKAHEAD);
    vf sum[NV * 4];
    UNROLL for (int i = 0; i < NV * M; i++) sum[i] = vf_zero();
    for (int g = 0; g < groups; g++, codes += 256) {
        UNROLL for (int line = 0; line < 320; line += 64) prefetch(w + g * GROUP_BYTES + how.near + line);
        if (how.whole || !(g & 1)) ask_four(ahead);
        if (how.whole && g % 4 == 3) ask(ahead);
#define ONE_VECTOR(v) if (v < NV) {                                                                                    \
            vi dot[4];                                                                                                \
            fp4_dot(codes + v * VL * 4, xq + g * FP4_GROUP, K, xb + g, groups, M, dot);                               \
            vf s = vf_from_e8m0(w + g * TILE + v * VL);                                                               \
            UNROLL for (int m = 0; m < M; m++)                                                                        \
                sum[v * M + m] = vf_fma(vf_from(dot[m]), s * vf_set1(xs[m * groups + g]), sum[v * M + m]);            \
            KEEP_LOADS_HERE;                                                                                          \
        }
        ONE_VECTOR(0) ONE_VECTOR(1) ONE_VECTOR(2) ONE_VECTOR(3)
    }
    UNROLL for (int i = 0; i < NV * M; i++) vf_store(y + i % M * ldy + i / M * VL, sum[i]);
}

#define ROWS(NAME, K, M)                                                                                              \
    NOINLINE void NAME##_##M(const uint8_t *w, int tiles, const int8_t *xq, const float *xs, const int32_t *xb, float *y, int ldy, \
                              Ahead *ahead) {                                                                          \
        for (int t = 0; t < tiles; t++, w += (K) / FP4_GROUP * GROUP_BYTES, y += TILE) tile_rows(w, K, xq, xs, xb, y, ldy, M, ahead); \
    }
#define SHAPE(NAME, K)                                                                                                \
    ROWS(NAME, K, 1) ROWS(NAME, K, 2) ROWS(NAME, K, 3) ROWS(NAME, K, 4)                                               \
    void NAME(const uint8_t *w, int n, int k, int row0, int row1, const int8_t *xq, const float *xs, const int32_t *xb, \
              float *y, int ldy, int M, Ahead *ahead) {                                                               \
        Ahead none = {0};                                                                                             \
        (void)n, (void)k;                                                                                             \
        if (!ahead) ahead = &none;                                                                                    \
        w += (size_t)row0 / TILE * ((K) / FP4_GROUP) * GROUP_BYTES;                                                   \
        for (; M > 0; M -= 4, xq += 4 * (K), xs += 4 * ((K) / FP4_GROUP), xb += 4 * ((K) / FP4_GROUP), y += 4 * ldy) { \
            const int tiles = (row1 - row0) / TILE;                                                                   \
            if (M == 1) NAME##_1(w, tiles, xq, xs, xb, y + row0, ldy, ahead);                                                \
            else if (M == 2) NAME##_2(w, tiles, xq, xs, xb, y + row0, ldy, ahead);                                           \
            else if (M == 3) NAME##_3(w, tiles, xq, xs, xb, y + row0, ldy, ahead);                                           \
            else NAME##_4(w, tiles, xq, xs, xb, y + row0, ldy, ahead);                                                       \
        }                                                                                                             \
    }

SHAPE(moe_gate_up, MOE_HIDDEN)
SHAPE(moe_down, MOE_INTER)
