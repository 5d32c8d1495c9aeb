// The dense tiles where pairs of bfloat16 are multiplied in one instruction: one tile at a time, so that memory is read strictly
// forwards, whatever the number of tokens. A block of 128 k has two sums an output, which are added when the block ends.
#pragma once

INLINE void pairs(const vi q[2], const act *x, int ldx, vf *sum, const int M) {       // q: k 0 and 1, k 2 and 3
    UNROLL for (int i = 0; i < M; i++) sum[2 * i] = vf_dot_pairs(q[0], x[i * ldx], sum[2 * i]);
    UNROLL for (int i = 0; i < M; i++) sum[2 * i + 1] = vf_dot_pairs(q[1], x[i * ldx + 1], sum[2 * i + 1]);
}
// An e4m3 code becomes a bfloat16 by two shifts and a mask (see simd.h), a pair at once.
INLINE void fp8_four(const uint8_t *at, const act *x, int ldx, vf *sum, const int M) {
    const vi c = vi_load(at), mask = vi_set1((int32_t)0x87f087f0);
    const vi q[2] = {(vi)((vh)c >> 4) & mask, (vi)((vh)c << 8 >> 4) & mask};
    pairs(q, x, ldx, sum, M);
}
INLINE void bf16_four(const uint8_t *at, const act *x, int ldx, vf *sum, const int M) {
    const vi q[2] = {vi_load(at), vi_load(at + TILE * 4)};
    pairs(q, x, ldx, sum, M);
}

#define ONE_TILE(NAME, FOUR, SIZE, UNIT)                                                                              \
    INLINE void NAME(const uint8_t *w, const float *scale, const int mode, int K, const act *x, int ldx, float *y, int ldy, const int T, \
                     const int M) {                                                                                   \
        const int blocks = (K + FP8_BLOCK - 1) / FP8_BLOCK;                                                           \
        vf total[NV * 4];                                                                                             \
        UNROLL for (int i = 0; i < NV * M; i++) total[i] = vf_zero();                                                 \
        for (int b = 0; b < blocks; b++) {                                                                            \
            const int end = (b + 1) * FP8_BLOCK < K ? (b + 1) * FP8_BLOCK : K;                                        \
            const vf by = vf_set1(mode == SCALE_BLOCK ? scale[b] * (UNIT) : (UNIT));                                  \
            for (int v = 0; v < NV; v++) {      /* short vectors: a block again for each, from the first-level cache */\
                vf sum[8];                                                                                            \
                UNROLL for (int i = 0; i < 2 * M; i++) sum[i] = vf_zero();                                            \
                for (int k = b * FP8_BLOCK; k < end; k += 4) {                                                        \
                    const uint8_t *at = w + (size_t)k * TILE * (SIZE);                                                \
                    for (int line = v * 64; line < 4 * TILE * (SIZE); line += NV * 64) prefetch(at + 4096 + line);    \
                    FOUR(at + v * VL * 4, x + k / 2, ldx, sum, M);                                                    \
                }                                                                                                     \
                UNROLL for (int i = 0; i < M; i++) total[i * NV + v] = vf_fma(sum[2 * i] + sum[2 * i + 1], by, total[i * NV + v]);\
            }                                                                                                         \
        }                                                                                                             \
        store_rows(total, scale, mode, y, ldy, T, M);                                                                 \
    }

ONE_TILE(fp8_tiles, fp8_four, 1, FP8_S)
// Activations carry FP8_X here too, so that FP8 weights expanded to BF16 give the same numbers.
ONE_TILE(bf16_tiles, bf16_four, 2, 1.0f / FP8_X)
