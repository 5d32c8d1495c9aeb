// Small pieces between the matrices: RMS norm, dot products, rounding activations to int8.
#pragma once
#include "ahead.h"

INLINE float dot(const float *a, const float *b, int n) {
    vf s = vf_zero(), t = vf_zero();
    int i = 0;
    for (; i + 2 * VL <= n; i += 2 * VL) {
        s = vf_fma(vf_load(a + i), vf_load(b + i), s);
        t = vf_fma(vf_load(a + i + VL), vf_load(b + i + VL), t);
    }
    for (; i < n; i += VL) s = vf_fma(vf_load(a + i), vf_load(b + i), s);
    return vf_sum(s + t);
}
INLINE float dot_bf16(const uint16_t *a, const float *b, int n) {
    vf s = vf_zero(), t = vf_zero();
    for (int i = 0; i < n; i += 2 * VL) {
        s = vf_fma(vf_from_bf16(a + i), vf_load(b + i), s);
        t = vf_fma(vf_from_bf16(a + i + VL), vf_load(b + i + VL), t);
    }
    return vf_sum(s + t);
}
INLINE uint16_t to_bf16(float x) {      // nearest, ties to even
    uint32_t u;
    memcpy(&u, &x, 4);
    return (uint16_t)((u + 0x7fff + ((u >> 16) & 1)) >> 16);
}

// out = x / rms(x) * weight * by
INLINE void rms_norm(const float *x, const float *weight, float by, float *out, int n) {
    vf s = vf_set1(by / sqrtf(dot(x, x, n) / n + RMS_EPS));
    for (int i = 0; i < n; i += VL) vf_store(out + i, vf_load(x + i) * s * vf_load(weight + i));
}
INLINE void scaled(const float *x, float by, float *out, int n) {
    for (int i = 0; i < n; i += VL) vf_store(out + i, vf_load(x + i) * vf_set1(by));
}

// int8 per group of 32: q = round(x * 127 / max), scale = max / 127 * by, bias = offset * sum of q
INLINE void quantise(const float *x, int8_t *q, float *scale, int32_t *bias, int n, float by, int offset, Ahead *ahead) {
    for (int g = 0; g < n / 32; g++, x += 32, q += 32) {
        vf top = vf_zero();
        ask(ahead);
        for (int i = 0; i < 32; i += VL) top = vf_max(top, (vf)((vi)vf_load(x + i) & vi_set1(0x7fffffff)));
        float most = vf_largest(top), inverse = most > 0 ? 127.0f / most : 0;
        vi sum = vi_set1(0), r[32 / VL];
        UNROLL for (int i = 0; i < 32 / VL; i++) {
            r[i] = vi_from(vf_load(x + i * VL) * vf_set1(inverse));
            sum += r[i];
        }
        store_int8(q, r);
        scale[g] = most / 127.0f * by;
        bias[g] = offset * vi_sum(sum);
    }
}

// For MXFP4: the integer sums are of twice the weights, of which 12 is added to each (see simd_avx2.h)
INLINE void quantise_fp4(const float *x, int8_t *q, float *scale, int32_t *bias, int n, Ahead *ahead) {
    quantise(x, q, scale, bias, n, 0.5f, 12, ahead);
}

// out = silu(gate) * up * by, where gate and up come in turns of 16 values
INLINE void swiglu(const float *gate_up, float by, float *out, int first, int end, Ahead *ahead) {
    for (int i = first; i < end; i += TILE)
        for (int j = 0; j < TILE; j += VL, ask(ahead))
            vf_store(out + i + j, vf_silu(vf_load(gate_up + 2 * i + j)) * vf_load(gate_up + 2 * i + TILE + j) * vf_set1(by));
}
