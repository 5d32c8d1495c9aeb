// The feed-forward halves: dense SwiGLU (first layers), or the router, the shared expert and the routed experts.
#pragma once
#include "gemv_int8.h"
#include "threads.h"

// Activations of m tokens in the form that the dense matrices take
typedef struct {
    union { act room[PACK_ROOM(MAX_TOKENS)]; Rounded rounded; };
    const act *x;
    int ldx;
} Acts;
INLINE void prepare(const Engine *e, const float *x, int ldx, int k, int m, Acts *to) {
    to->ldx = ldx;
    if (e->set.dense == DENSE_INT8) round_all(x, ldx, k, m, &to->rounded);
    else to->x = packed(x, &to->ldx, k, m, to->room);
}
INLINE void product(const Engine *e, const Mat *w, int first, int end, const Acts *x, float *y, int ldy, int m) {
    if (e->set.dense == DENSE_INT8) gemv_int8(w, first, end, &x->rounded, y, ldy, m);
    else if (e->set.dense == DENSE_BF16) gemv_bf16_blocks(w, first, end, x->x, x->ldx, y, ldy, m);
    else gemv_fp8(w, first, end, x->x, x->ldx, y, ldy, m);
}
static void dense(const Engine *e, const Mat *w, int first, int end, const float *x, int ldx, float *y, int ldy, int m) {
    Acts acts;
    prepare(e, x, ldx, w->k, m, &acts);
    product(e, w, first, end, &acts, y, ldy, m);
}

// The same, and meanwhile other bytes that are needed soon are read ahead. Several tokens keep the arithmetic busy and leave
// memory idle; one or two do not, and then reading ahead only moves the wait.
static void dense_and_fetch(const Engine *e, const Mat *w, int first, int end, const float *x, int ldx, float *y, int ldy, int m,
                            const void *soon, size_t bytes) {
    Acts acts;
    prepare(e, x, ldx, w->k, m, &acts);
    if (m <= 2) { product(e, w, first, end, &acts, y, ldy, m); return; }
    const int calls = (end - first + 3) / 4;
    const size_t each = calls ? (bytes / calls + 63) & ~(size_t)63 : 0;
    for (size_t done = 0; first < end; first += 4, done += each) {
        if (done < bytes) fetch((const uint8_t *)soon + done, bytes - done < each ? bytes - done : each);
        product(e, w, first, first + 4 < end ? first + 4 : end, &acts, y, ldy, m);
    }
}

// The first tiles of a matrix that is about to be read: its kernel asks only for what follows them.
INLINE void fetch_first(const Mat *w, int id, int parts) {
    const size_t tile = (size_t)w->k * TILE;
    int first, end;
    part(w->tiles, id, parts, &first, &end);
    fetch(w->scale, 1024);
    fetch(w->w + first * tile, tile * DENSE_SIDE(1));
}

// The layer's input, normalised, into this thread's room: h, and hx = h * FP8_X for the dense matrices.
static void normalise(Engine *e, Room *room, int layer, int slot, int m) {
    for (int t = 0; t < m; t++) {
        rms_norm(e->x[t], floats(e, layer, slot), 1.0f, room->h[t], HIDDEN);
        scaled(room->h[t], FP8_X, room->hx[t], HIDDEN);
    }
}

static void add_rows(Engine *e, Room *room, int first, int end, int m) {
    for (int t = 0; t < m; t++)
        for (int i = first * TILE; i < end * TILE; i += VL) vf_store(e->x[t] + i, vf_load(e->x[t] + i) + vf_load(room->out[t] + i));
    barrier(e);
}

static void dense_mlp(Engine *e, int layer, int id) {
    Room *room = &e->room[id];
    const int m = e->pass.m;
    const Mat up = mat(e, layer, SLOT_GATE_UP, 2 * DENSE_INTER, HIDDEN), down = mat(e, layer, SLOT_DOWN, HIDDEN, DENSE_INTER);
    int first, end;
    fetch_first(&up, id, e->set.threads);
    normalise(e, room, layer, SLOT_POST_NORM, m);
    part(up.tiles, id, e->set.threads, &first, &end);
    dense(e, &up, first, end, room->hx[0], 2 * HIDDEN, e->y[0], sizeof e->y[0] / 4, m);
    for (int t = 0; t < m; t++) swiglu(e->y[t], FP8_X, e->mixed[t], first / 2 * TILE, end / 2 * TILE);
    barrier(e);
    part(down.tiles, id, e->set.threads, &first, &end);
    dense(e, &down, first, end, e->mixed[0], sizeof e->mixed[0] / 4, room->out[0], HIDDEN, m);
    add_rows(e, room, first, end, m);
    lap(&e->watch, id, PART_MLP);
}

#define ROUTER_BYTES (ROUTER_ROWS * HIDDEN * 4)

typedef struct { int tokens, token[MAX_TOKENS]; float weight[MAX_TOKENS]; } Share;      // one expert's tokens

// Sigmoid scores; the bias only chooses. -> per expert its tokens and their weights
static void route(Engine *e, Room *room, int layer, Share *share) {
    const int m = e->pass.m;
    const Mat router = {at(e, layer, SLOT_ROUTER), 0, ROUTER_ROWS / TILE, HIDDEN};
    const float *bias = floats(e, layer, SLOT_ROUTER_BIAS);
    gemv_f32(&router, 0, router.tiles, room->h[0], HIDDEN, room->logits[0], ROUTER_ROWS, m);
    for (int i = 0; i < EXPERTS; i++) share[i].tokens = 0;
    const Mat up = mat(e, layer, SLOT_GATE_UP, 2 * SHARED_INTER, HIDDEN);
    fetch_first(&up, 0, 1);
    for (int t = 0; t < m; t++) {
        float *score = room->logits[t], choice[ROUTER_ROWS], sum = 0;
        bool chosen[EXPERTS] = {false};
        for (int i = 0; i < ROUTER_ROWS; i += VL) vf_store(score + i, vf_sigmoid(vf_load(score + i)));
        for (int i = 0; i < EXPERTS; i++) choice[i] = score[i] + bias[i];
        for (int k = 0; k < TOP_K; k++) {
            int best = 0;
            for (int i = 1; i < EXPERTS; i++) best = choice[i] > choice[best] ? i : best;
            chosen[best] = true;
            choice[best] = -INFINITY;
        }
        for (int i = 0; i < EXPERTS; i++) sum += chosen[i] ? score[i] : 0;
        for (int i = 0; i < EXPERTS; i++)
            if (chosen[i]) {
                share[i].token[share[i].tokens] = t;
                share[i].weight[share[i].tokens++] = score[i] / sum * ROUTE_SCALE;
            }
    }
}

static void record(Engine *e, int layer, const Share *share) {
    int distinct = 0;
    for (int i = 0; i < EXPERTS; i++) {
        e->experts.counts[layer][i] += share[i].tokens;
        distinct += share[i].tokens > 0;
    }
    if (e->decoding && e->pass.m <= MAX_VERIFY) {
        e->experts.passes[layer][e->pass.m]++;
        e->experts.distinct[layer][e->pass.m] += distinct;
    }
}

static void moe(Engine *e, int layer, int id) {
    Room *room = &e->room[id];
    const int m = e->pass.m, parts = e->set.threads;
    const uint8_t *experts = at(e, layer, SLOT_EXPERTS);
    const Mat up = mat(e, layer, SLOT_GATE_UP, 2 * SHARED_INTER, HIDDEN), down = mat(e, layer, SLOT_DOWN, HIDDEN, SHARED_INTER);
    Share share[EXPERTS];
    int list[EXPERTS], n = 0, first, end, slot = 0;
    if (m <= 2) fetch(at(e, layer, SLOT_ROUTER), ROUTER_BYTES);
    normalise(e, room, layer, SLOT_POST_NORM, m);
    route(e, room, layer, share);
    if (e->recording && id == 0) record(e, layer, share);
    for (int i = 0; i < EXPERTS; i++)
        if (share[i].tokens) list[n++] = i;
    if (id == 0 && e->watch.on) e->watch.sum.experts[e->watch.phase] += n;
    lap(&e->watch, id, PART_ROUTER);
    for (int t = 0; t < m; t++) quantise_fp4(room->h[t], room->xq[t], room->xs[t], room->xb[t], HIDDEN);
    // First halves: gate and up, this thread's rows of every expert in use
    part(up.tiles, id, parts, &first, &end);
    dense_and_fetch(e, &up, first, end, room->hx[0], 2 * HIDDEN, e->y[0], sizeof e->y[0] / 4, m,
                    experts + list[0] * e->set.expert_bytes, e->set.expert_down);
    for (int t = 0; t < m; t++) swiglu(e->y[t], FP8_X, e->mixed[t], first / 2 * TILE, end / 2 * TILE);
    lap(&e->watch, id, PART_MLP);
    part(2 * INTER / TILE, id, parts, &first, &end);
    for (int i = 0; i < n; i++) {
        const Share *s = &share[list[i]];
        const uint8_t *w = experts + list[i] * e->set.expert_bytes;
        const uint8_t *next = i + 1 < n ? experts + list[i + 1] * e->set.expert_bytes : experts + list[0] * e->set.expert_bytes + e->set.expert_down;
        const int8_t *q = room->xq[0];
        const float *sc = room->xs[0];
        const int32_t *b = room->xb[0];
        if (s->tokens < m) {
            for (int j = 0; j < s->tokens; j++) {
                memcpy(room->gathered_q + j * HIDDEN, room->xq[s->token[j]], HIDDEN);
                memcpy(room->gathered_s + j * (HIDDEN / 32), room->xs[s->token[j]], HIDDEN / 8);
                memcpy(room->gathered_b + j * (HIDDEN / 32), room->xb[s->token[j]], HIDDEN / 8);
            }
            q = room->gathered_q, sc = room->gathered_s, b = room->gathered_b;
        }
        e->set.gate_up(w, 2 * INTER, HIDDEN, first * TILE, end * TILE, q, sc, b, e->gates[slot], sizeof e->gates[0] / 4, s->tokens, next);
        for (int j = 0; j < s->tokens; j++, slot++) {
            const int i0 = first / 2 * TILE, i1 = end / 2 * TILE;
            float inner[INTER];
            swiglu(e->gates[slot], 1.0f, inner, i0, i1);
            quantise_fp4(inner + i0, e->inner_q[slot] + i0, e->inner_s[slot] + i0 / 32, e->inner_b[slot] + i0 / 32, i1 - i0);
        }
    }
    barrier(e);
    lap(&e->watch, id, PART_EXPERTS);
    // Second halves: down, this thread's rows; experts in ascending order, so that a token's sum has one order whatever m is
    part(down.tiles, id, parts, &first, &end);
    dense_and_fetch(e, &down, first, end, e->mixed[0], sizeof e->mixed[0] / 4, room->out[0], HIDDEN, m,
                    experts + list[0] * e->set.expert_bytes + e->set.expert_down, e->set.expert_bytes - e->set.expert_down);
    lap(&e->watch, id, PART_MLP);
    slot = 0;
    for (int i = 0; i < n; i++) {
        const Share *s = &share[list[i]];
        const uint8_t *w = experts + list[i] * e->set.expert_bytes + e->set.expert_down;
        const uint8_t *next = i + 1 < n ? experts + list[i + 1] * e->set.expert_bytes + e->set.expert_down
                                        : (const uint8_t *)at(e, layer == NEXTN || layer + 1 == LAYERS ? WHOLE : layer + 1, layer == NEXTN || layer + 1 == LAYERS ? SLOT_HEAD : SLOT_ATTN_IN);
        e->set.down(w, HIDDEN, INTER, first * TILE, end * TILE, e->inner_q[slot], e->inner_s[slot], e->inner_b[slot], room->part[0], HIDDEN, s->tokens, next);
        for (int j = 0; j < s->tokens; j++)
            for (int c = first * TILE; c < end * TILE; c += VL) {
                float *out = room->out[s->token[j]] + c;
                vf_store(out, vf_fma(vf_load(room->part[j] + c), vf_set1(s->weight[j]), vf_load(out)));
            }
        slot += s->tokens;
    }
    add_rows(e, room, first, end, m);
    lap(&e->watch, id, PART_EXPERTS);
}
