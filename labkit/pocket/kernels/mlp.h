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
INLINE void prepare(Engine *e, const float *x, int ldx, int k, int m, Acts *to) {
    to->ldx = ldx;
    if (e->set.dense == DENSE_INT8) round_all(x, ldx, k, m, &to->rounded, ahead(e));
    else to->x = packed(x, &to->ldx, k, m, to->room);
}
INLINE void product(Engine *e, const Mat *w, int first, int end, const Acts *x, float *y, int ldy, int m) {
    const size_t tile = (size_t)w->k * TILE * (e->set.dense == DENSE_BF16 ? 2 : 1);
    settle(ahead(e), w->w + first * tile);
    if (e->set.dense == DENSE_INT8) gemv_int8(w, first, end, &x->rounded, y, ldy, m, ahead(e));
    else if (e->set.dense == DENSE_BF16) gemv_bf16_blocks(w, first, end, x->x, x->ldx, y, ldy, m);
    else gemv_fp8(w, first, end, x->x, x->ldx, y, ldy, m);
    if (e->set.dense != DENSE_INT8) settle(ahead(e), w->w + end * tile);      // these ask for nothing themselves
}
static void dense(Engine *e, const Mat *w, int first, int end, const float *x, int ldx, float *y, int ldy, int m) {
    Acts acts;
    prepare(e, x, ldx, w->k, m, &acts);
    product(e, w, first, end, &acts, y, ldy, m);
}

// The first tiles of a matrix that is about to be read, where nobody has asked for them: its kernel asks only for what follows.
INLINE void fetch_first(const Engine *e, const Mat *w, int id) {
    const size_t tile = (size_t)w->k * TILE;
    int first, end;
    if (e->ahead.lead > 0) return;
    part(w->tiles, id, e->set.threads, &first, &end);
    fetch(w->scale, 1024);
    fetch(w->w + first * tile, tile * DENSE_SIDE(1));
}

// The layer's input, normalised, into this thread's room: h, and hx = h * FP8_X for the dense matrices.
static void normalise(Engine *e, Room *room, int layer, int slot, int m) {
    for (int t = 0; t < m; t++) {
        ask(ahead(e));
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
    fetch_first(e, &up, id);
    expect_next(e, layer);
    normalise(e, room, layer, SLOT_POST_NORM, m);
    part(up.tiles, id, e->set.threads, &first, &end);
    dense(e, &up, first, end, room->hx[0], 2 * HIDDEN, e->y[0], sizeof e->y[0] / 4, m);
    for (int t = 0; t < m; t++) swiglu(e->y[t], FP8_X, e->mixed[t], first / 2 * TILE, end / 2 * TILE, ahead(e));
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
    settle(ahead(e), router.w);
    gemv_f32(&router, 0, router.tiles, room->h[0], HIDDEN, room->logits[0], ROUTER_ROWS, m);
    for (int i = 0; i < EXPERTS; i++) share[i].tokens = 0;
    const Mat up = mat(e, layer, SLOT_GATE_UP, 2 * SHARED_INTER, HIDDEN);
    if (ahead(e)) e->ahead.lead -= ROUTER_BYTES;
    fetch_first(e, &up, room - e->room);
    for (int t = 0; t < m; t++) {
        float *score = room->logits[t], choice[ROUTER_ROWS], sum = 0;
        bool chosen[EXPERTS] = {false};
        for (int i = 0; i < ROUTER_ROWS; i += VL) vf_store(score + i, vf_sigmoid(vf_load(score + i)));
        for (int i = 0; i < EXPERTS; i++) choice[i] = score[i] + bias[i];
        for (int k = 0; k < TOP_K; k++) {
            int best = 0;
            ask(ahead(e));
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

// What is read from here on: the chosen experts, then the next layer
static void expect_experts(Engine *e, int layer, const int *list, int n) {
    const uint8_t *experts = at(e, layer, SLOT_EXPERTS);
    for (int i = 0; i < n && e->set.jit; i++)       // the other kind of kernel asks for what it reads itself
        expect(e, experts + list[i] * e->set.expert_bytes, experts + (list[i] + 1) * e->set.expert_bytes);
    expect_next(e, layer);
}

// The experts in use and the tokens of each; a token's place among all experts' tokens is its slot
typedef struct { Share share[EXPERTS]; int list[EXPERTS], slot[EXPERTS], n; } Chosen;

// Gate and up of the i-th expert, this thread's rows
static void expert_up(Engine *e, Room *room, int layer, const Chosen *c, int i, int first, int end) {
    const Share *s = &c->share[c->list[i]];
    const uint8_t *w = (const uint8_t *)at(e, layer, SLOT_EXPERTS) + c->list[i] * e->set.expert_bytes;
    const int8_t *q = room->xq[0];
    const float *sc = room->xs[0];
    const int32_t *b = room->xb[0];
    const int i0 = first / 2 * TILE, i1 = end / 2 * TILE;
    if (s->tokens < e->pass.m) {
        for (int j = 0; j < s->tokens; j++) {
            memcpy(room->gathered_q + j * HIDDEN, room->xq[s->token[j]], HIDDEN);
            memcpy(room->gathered_s + j * (HIDDEN / 32), room->xs[s->token[j]], HIDDEN / 8);
            memcpy(room->gathered_b + j * (HIDDEN / 32), room->xb[s->token[j]], HIDDEN / 8);
        }
        q = room->gathered_q, sc = room->gathered_s, b = room->gathered_b;
    }
    e->set.gate_up(w, 2 * INTER, HIDDEN, first * TILE, end * TILE, q, sc, b, e->gates[c->slot[i]], sizeof e->gates[0] / 4, s->tokens, ahead(e));
    for (int slot = c->slot[i]; slot < c->slot[i] + s->tokens; slot++) {
        LINE float inner[INTER];
        swiglu(e->gates[slot], 1.0f, inner, i0, i1, ahead(e));
        quantise_fp4(inner + i0, e->inner_q[slot] + i0, e->inner_s[slot] + i0 / 32, e->inner_b[slot] + i0 / 32, i1 - i0, ahead(e));
    }
}

// Down, this thread's rows, added to its tokens. Experts come in ascending order, so that a token's sum has one order whatever m is.
static void expert_down(Engine *e, Room *room, int layer, const Chosen *c, int i, int first, int end) {
    const Share *s = &c->share[c->list[i]];
    const uint8_t *w = (const uint8_t *)at(e, layer, SLOT_EXPERTS) + c->list[i] * e->set.expert_bytes + e->set.expert_down;
    const int slot = c->slot[i];
    e->set.down(w, HIDDEN, INTER, first * TILE, end * TILE, e->inner_q[slot], e->inner_s[slot], e->inner_b[slot], room->part[0], HIDDEN, s->tokens, ahead(e));
    for (int j = 0; j < s->tokens; j++) {
        float *out = room->out[s->token[j]];
        ask(ahead(e));
        for (int k = first * TILE; k < end * TILE; k += VL)
            vf_store(out + k, vf_fma(vf_load(room->part[j] + k), vf_set1(s->weight[j]), vf_load(out + k)));
    }
}

static void shared_down(Engine *e, Room *room, int layer, int first, int end) {
    const Mat down = mat(e, layer, SLOT_DOWN, HIDDEN, SHARED_INTER);
    dense(e, &down, first, end, e->mixed[0], sizeof e->mixed[0] / 4, room->out[0], HIDDEN, e->pass.m);
    lap(&e->watch, room != e->room, PART_MLP);
}

static void moe(Engine *e, int layer, int id) {
    Room *room = &e->room[id];
    const int m = e->pass.m, parts = e->set.threads;
    const Mat up = mat(e, layer, SLOT_GATE_UP, 2 * SHARED_INTER, HIDDEN);
    Chosen c = {.n = 0};
    int first, end, row, stop;
    normalise(e, room, layer, SLOT_POST_NORM, m);
    route(e, room, layer, c.share);
    if (e->recording && id == 0) record(e, layer, c.share);
    for (int i = 0, slot = 0; i < EXPERTS; slot += c.share[i++].tokens)
        if (c.share[i].tokens) c.slot[c.n] = slot, c.list[c.n++] = i;
    if (id == 0 && e->watch.on) e->watch.sum.experts[e->watch.phase] += c.n;
    expect_experts(e, layer, c.list, c.n);
    lap(&e->watch, id, PART_ROUTER);
    for (int t = 0; t < m; t++) quantise_fp4(room->h[t], room->xq[t], room->xs[t], room->xb[t], HIDDEN, ahead(e));
    part(up.tiles, id, parts, &first, &end);
    dense(e, &up, first, end, room->hx[0], 2 * HIDDEN, e->y[0], sizeof e->y[0] / 4, m);
    for (int t = 0; t < m; t++) swiglu(e->y[t], FP8_X, e->mixed[t], first / 2 * TILE, end / 2 * TILE, ahead(e));
    lap(&e->watch, id, PART_MLP);
    part(2 * INTER / TILE, id, parts, &first, &end);
    part(HIDDEN / TILE, id, parts, &row, &stop);
    if (parts == 1) {               // an expert is read in one go
        shared_down(e, room, layer, row, stop);
        for (int i = 0; i < c.n; i++) {
            expert_up(e, room, layer, &c, i, first, end);
            expert_down(e, room, layer, &c, i, row, stop);
        }
    } else {                        // one wait for the other thread's rows, not one an expert
        for (int i = 0; i < c.n; i++) expert_up(e, room, layer, &c, i, first, end);
        barrier(e);
        lap(&e->watch, id, PART_EXPERTS);
        shared_down(e, room, layer, row, stop);
        for (int i = 0; i < c.n; i++) expert_down(e, room, layer, &c, i, row, stop);
    }
    add_rows(e, room, row, stop, m);
    lap(&e->watch, id, PART_EXPERTS);
}
