// From logits to a token. The random number of a token depends only on the request's seed and the token's place in the output,
// so that speculation, which asks for the same numbers in other groups, gives the very same text.
#pragma once
#include <stdlib.h>
#include "engine.h"

typedef struct { float temperature, top_p, min_p; int32_t top_k; uint64_t seed; } Sampling;

static uint64_t mix64(uint64_t x) {     // the finaliser of splitmix64 (public domain, Vigna)
    x += 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}
static double uniform(uint64_t seed, uint64_t index) { return (double)(mix64(mix64(seed) ^ mix64(~index)) >> 11) * 0x1p-53; }

static int argmax(const float *x, int n) {
    vf best = vf_set1(-INFINITY);
    for (int i = 0; i < n; i += VL) best = vf_max(vf_load(x + i), best);
    float top = vf_largest(best);
    for (int i = 0; i < n; i += VL)
        if (vi_any(vf_load(x + i) == vf_set1(top)))
            for (int j = i;; j++) if (x[j] == top) return j;
    return 0;       // nothing comparable (a broken head): some token
}

// probs[i] = softmax(logits / temperature)
static void softmax(const float *logits, float temperature, float *probs, int n) {
    vf best = vf_set1(-INFINITY), sum = vf_zero();
    for (int i = 0; i < n; i += VL) best = vf_max(vf_load(logits + i), best);
    vf top = vf_set1(vf_largest(best)), inverse = vf_set1(1.0f / temperature);
    for (int i = 0; i < n; i += VL) {
        vf w = vf_exp((vf_load(logits + i) - top) * inverse);
        sum += w;
        vf_store(probs + i, w);
    }
    vf scale = vf_set1(1.0f / vf_sum(sum));
    for (int i = 0; i < n; i += VL) vf_store(probs + i, vf_load(probs + i) * scale);
}

typedef struct { float p; int32_t id; } Candidate;
static int by_probability(const void *a, const void *b) {
    const Candidate *x = a, *y = b;
    return x->p != y->p ? (x->p < y->p) - (x->p > y->p) : (x->id > y->id) - (x->id < y->id);
}

// The most probable tokens in order, at least as many as top_k, top_p and min_p can keep. A histogram of the probabilities'
// exponents finds a floor first, so that only a few have to be sorted.
static int leading(const float *probs, const Sampling *s, Candidate *out) {
    double mass[256] = {0};
    int count[256] = {0}, n = 0, floor = 255;
    for (int i = 0; i < VOCAB; i++) {
        uint32_t bits;
        memcpy(&bits, probs + i, 4);
        mass[bits >> 23] += probs[i];
        count[bits >> 23]++;
    }
    const double enough = (double)s->top_p + 1e-4;      // above rounding: the exact cut is made on the sorted ones
    double sum = 0;
    for (int have = 0; floor > 0; floor--) {
        sum += mass[floor], have += count[floor];
        if ((s->top_k > 0 && have >= s->top_k) || (s->top_p < 1 && sum > enough)) break;
    }
    for (int i = 0; i < VOCAB; i++) {
        uint32_t bits;
        memcpy(&bits, probs + i, 4);
        if ((int)(bits >> 23) >= floor) out[n++] = (Candidate){probs[i], i};
    }
    qsort(out, n, sizeof *out, by_probability);
    return n;
}

// Token number `index` of the output. Keeps a token if its rank is below top_k, the mass before it is at most top_p and its
// probability is at least min_p times the largest (all on the softmax at `temperature`, as SGLang does).
static int sample(const float *logits, const Sampling *s, uint64_t index, float *probs, Candidate *list) {
    if (s->temperature <= 0) return argmax(logits, VOCAB);
    softmax(logits, s->temperature, probs, VOCAB);
    const double u = uniform(s->seed, index);
    if (s->top_k <= 0 && s->top_p >= 1 && s->min_p <= 0) {
        double sum = 0, total = 0;
        int last = 0;
        for (int i = 0; i < VOCAB; i++) total += probs[i];
        for (int i = 0; i < VOCAB; i++) {
            if (probs[i] > 0) last = i;
            if ((sum += probs[i]) > u * total) return i;
        }
        return last;
    }
    const int n = leading(probs, s, list);
    double kept = 0, sum = 0;
    int k = 0;
    for (; k < n; k++) {
        if ((s->top_k > 0 && k >= s->top_k) || kept > s->top_p || list[k].p < s->min_p * list[0].p) break;
        kept += list[k].p;
    }
    for (int i = 0; i < k; i++)
        if ((sum += list[i].p) > u * kept) return list[i].id;
    return list[k ? k - 1 : 0].id;
}
