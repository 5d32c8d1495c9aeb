// The dense tiles where vectors are short: as many tiles side by side as hide the multiply-add's latency, one sum an output and block
// of 128 k, walked in k order.
#pragma once

INLINE void fp8_tiles(const uint8_t *w, const float *scale, const int mode, int K, const act *x, int ldx, float *y, int ldy,
                      const int T, const int M) {
    const size_t tile = (size_t)K * TILE, ahead = AHEAD(T * tile);
    const int blocks = (K + FP8_BLOCK - 1) / FP8_BLOCK;
    vf total[MOST_SUMS];
    FLAT total[i] = vf_zero();
    for (int b = 0; b < blocks; b++) {
        const int end = (b + 1) * FP8_BLOCK < K ? (b + 1) * FP8_BLOCK : K;
        vf sum[MOST_SUMS];
        FLAT sum[i] = vf_zero();
        for (int k = b * FP8_BLOCK; k < end; k += 4) {
            const uint8_t *at = w + (size_t)k * TILE;
            const float *xk = x + k;
            UNROLL for (int t = 0; t < T; t++) prefetch_far(at + t * tile + ahead);
            if (M <= 2) {       // many tiles, few tokens: decode a vector, use it up
#define ONE_VECTOR(v) if (v < T * NV) {                                                                              \
                vf f[4];                                                                                             \
                fp8_decode(at + v / NV * tile + v % NV * VL * 4, f);                                                 \
                UNROLL for (int m = 0; m < M; m++) {                                                                 \
                    vf s = vf_fma(f[0], vf_set1(xk[m * ldx]), sum[m * T * NV + v]);                                  \
                    s = vf_fma(f[1], vf_set1(xk[m * ldx + 1]), s);                                                   \
                    s = vf_fma(f[2], vf_set1(xk[m * ldx + 2]), s);                                                   \
                    sum[m * T * NV + v] = vf_fma(f[3], vf_set1(xk[m * ldx + 3]), s);                                 \
                }                                                                                                    \
                if (M > 1) KEEP_LOADS_HERE;                                                                          \
            }
                EACH_VECTOR(ONE_VECTOR)
            } else {            // one tile, several tokens: an activation is broadcast once for all vectors
                vi q[NV * 2];
                vf f[NV * 2];
                VECTORS q[v] = fp8_pair(at + v / NV * tile + v % NV * VL * 4);
                VECTORS f[v] = fp8_upper(q[v]);
                FLAT sum[i] = vf_fma(f[i % (T * NV)], vf_set1(xk[i / (T * NV) * ldx]), sum[i]);
                VECTORS f[v] = fp8_lower(q[v]);
                FLAT sum[i] = vf_fma(f[i % (T * NV)], vf_set1(xk[i / (T * NV) * ldx + 1]), sum[i]);
                VECTORS q[v] = fp8_pair(at - 1 + v / NV * tile + v % NV * VL * 4);
                VECTORS f[v] = fp8_upper(q[v]);
                FLAT sum[i] = vf_fma(f[i % (T * NV)], vf_set1(xk[i / (T * NV) * ldx + 2]), sum[i]);
                VECTORS f[v] = fp8_lower(q[v]);
                FLAT sum[i] = vf_fma(f[i % (T * NV)], vf_set1(xk[i / (T * NV) * ldx + 3]), sum[i]);
            }
        }
        FLAT total[i] = vf_fma(sum[i], vf_set1(mode == SCALE_BLOCK ? scale[i % (T * NV) / NV * blocks + b] * FP8_S : FP8_S), total[i]);
    }
    store_rows(total, scale, mode, y, ldy, T, M);
}

// Activations carry FP8_X here too, so that FP8 weights expanded to BF16 give the same numbers.
INLINE void bf16_tiles(const uint8_t *w, const float *scale, const int mode, int K, const act *x, int ldx, float *y, int ldy,
                       const int T, const int M) {
    const size_t tile = (size_t)K * TILE * 2, ahead = AHEAD(T * tile);
    const int blocks = (K + FP8_BLOCK - 1) / FP8_BLOCK;
    vf total[MOST_SUMS];
    FLAT total[i] = vf_zero();
    for (int b = 0; b < blocks; b++) {
        const int end = (b + 1) * FP8_BLOCK < K ? (b + 1) * FP8_BLOCK : K;
        vf sum[MOST_SUMS];
        FLAT sum[i] = vf_zero();
        for (int k = b * FP8_BLOCK; k < end; k += 2) {
            const uint8_t *at = w + (size_t)k * TILE * 2;
            const float *xk = x + k;
            vi q[NV * 8];
            vf f[NV * 8];
            UNROLL for (int t = 0; t < T; t++) prefetch_far(at + t * tile + ahead);
            if (M <= 2) {
#define ONE_PAIR(v) if (v < T * NV) {                                                                                \
                vi pair = vi_load(at + v / NV * tile + v % NV * VL * 4);                                             \
                UNROLL for (int m = 0; m < M; m++) {                                                                 \
                    vf s = vf_fma(bf16_1(pair), vf_set1(xk[m * ldx]), sum[m * T * NV + v]);                          \
                    sum[m * T * NV + v] = vf_fma(bf16_0(pair), vf_set1(xk[m * ldx + 1]), s);                         \
                }                                                                                                    \
            }
                EACH_VECTOR(ONE_PAIR)
            } else {
                VECTORS q[v] = vi_load(at + v / NV * tile + v % NV * VL * 4);
                VECTORS f[v] = bf16_1(q[v]);
                FLAT sum[i] = vf_fma(f[i % (T * NV)], vf_set1(xk[i / (T * NV) * ldx]), sum[i]);
                VECTORS f[v] = bf16_0(q[v]);
                FLAT sum[i] = vf_fma(f[i % (T * NV)], vf_set1(xk[i / (T * NV) * ldx + 1]), sum[i]);
            }
        }
        const float s = 1.0f / FP8_X;
        FLAT total[i] = vf_fma(sum[i], vf_set1(mode == SCALE_BLOCK ? scale[i % (T * NV) / NV * blocks + b] * s : s), total[i]);
    }
    store_rows(total, scale, mode, y, ldy, T, M);
}

