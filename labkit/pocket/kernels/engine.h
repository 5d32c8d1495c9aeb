// The model in memory: where the weights are, what the past left behind, and room to work in.
#pragma once
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include "gemv.h"
#include "moe_abi.h"
#include "profile.h"
#include "slots.h"

// Shapes come from config.json as -D: HIDDEN VOCAB LAYERS MLA_EVERY DENSE_LAYERS HEADS HEAD_DIM EXPERTS TOP_K INTER
// SHARED_INTER DENSE_INTER KV_RANK ROPE_DIM CONV_TAPS; and numbers RMS_EPS GATE_FLOOR ROUTE_SCALE ROPE_THETA.
#define WIDTH (HEADS * HEAD_DIM)
#define KDA_ROWS (5 * WIDTH)
#define Q_ROWS (HEADS * (HEAD_DIM + ROPE_DIM))
#define LATENT (KV_RANK + ROPE_DIM)
#define MLA_ROWS (Q_ROWS + LATENT + WIDTH)
#define ROUTER_ROWS ((EXPERTS + TILE - 1) / TILE * TILE)
#define NEXTN LAYERS
#define WHOLE (LAYERS + 1)          // slots of the model as a whole
#define MLA_LAYERS (LAYERS / MLA_EVERY)
#define MAX_TOKENS MAX_DENSE_TOKENS  // one pass takes at most this many: a prefill chunk
#define MAX_NODES 32                // of a draft tree in the making; MAX_VERIFY of them are kept
#define MAX_VERIFY 16
#define MAX_DEPTH 9                 // steps + 1
#define MAX_TOPK 4
#define MAX_OWN (VOCAB < 4096 ? VOCAB / 4 / TILE * TILE : 1024)
#define BLOCK_KEYS 64               // attention works through the past in blocks of this many positions

#define MAX(a, b) ((a) > (b) ? (a) : (b))
_Static_assert(HIDDEN % 128 == 0 && INTER % 128 == 0 && SHARED_INTER % 16 == 0 && DENSE_INTER % 16 == 0, "packed tiles");
_Static_assert(HEAD_DIM % (4 * VL) == 0 || HEAD_DIM % VL == 0, "KDA columns");
_Static_assert(LATENT % 32 == 0 && KV_RANK % 32 == 0 && VOCAB % 16 == 0, "vectors");

// Tokens of one pass, as a tree over the committed past: a chain for plain decode and prefill.
typedef struct {
    int past;                       // committed positions before node 0
    int first, m;                   // this pass runs nodes first .. first + m - 1
    bool certain;                   // all of them are already part of the text
    int token[MAX_NODES], parent[MAX_NODES], depth[MAX_NODES];
} Pass;

#define LINE __attribute__((aligned(64)))   // a vector must not straddle two lines of the cache

typedef struct {                    // one KDA layer's past
    LINE float state[HEADS][HEAD_DIM][HEAD_DIM];             // [key][value], without the updates that `waiting` names
    LINE float conv[CONV_TAPS - 1][3 * WIDTH];               // the last projected q, k, v, oldest first
    LINE float projected[MAX_TOKENS][KDA_ROWS];
    // Updates of this pass and of the pass before: S = diag(decay) S + key (x) change. Waiting ones are applied when the
    // next pass reads the state anyway, so that rejected drafts cost nothing to take back.
    LINE float decay[2][MAX_TOKENS][WIDTH], key[2][MAX_TOKENS][WIDTH], change[2][MAX_TOKENS][WIDTH];
} Kda;

typedef struct {                    // a thread's own room
    LINE float h[MAX_TOKENS][HIDDEN], hx[MAX_TOKENS][2 * HIDDEN];        // normalised input; times FP8_X
    LINE float wide[MAX_TOKENS][MAX(DENSE_INTER, WIDTH)];
    LINE float logits[MAX_TOKENS][ROUTER_ROWS];
    LINE int8_t xq[MAX_TOKENS][HIDDEN], gathered_q[MAX_TOKENS * MAX(HIDDEN, INTER)];
    LINE float xs[MAX_TOKENS][HIDDEN / 32], gathered_s[MAX_TOKENS * MAX(HIDDEN, INTER) / 32];
    LINE int32_t xb[MAX_TOKENS][HIDDEN / 32], gathered_b[MAX_TOKENS * MAX(HIDDEN, INTER) / 32];
    LINE float out[MAX_TOKENS][HIDDEN], part[MAX_TOKENS][HIDDEN];
    LINE float branch[MAX_VERIFY][HEAD_DIM * HEAD_DIM];                  // KDA states of a tree's branches, one strip at a time
    LINE float attn_sum[MAX_TOKENS][HEADS][KV_RANK], attn_max[MAX_TOKENS][HEADS], attn_mass[MAX_TOKENS][HEADS];
} Room;

enum { DENSE_FP8, DENSE_BF16, DENSE_INT8 };     // how dense weights lie in memory; binding.py counts on the order

typedef struct {                    // set by Python, see binding.py
    const uint8_t *arena;
    const uint16_t *embedding;
    const int32_t *draft_ids;       // [draft_rows] or NULL when the draft uses the whole vocabulary
    moe_gemv *gate_up, *down;
    int64_t stride;                 // bytes from one replica to the next
    int64_t expert_bytes, expert_down;
    int64_t at[LAYERS + 2][SLOTS];
    int32_t replicas, threads, context, fp8_head, dense, jit, speculative, steps, topk, draft_tokens, draft_rows, bare_head;
    float simulate;                 // accept length to force, below 0: off
    uint64_t seed;
} Setup;

typedef struct {                    // expert choices since recording began
    int64_t counts[LAYERS + 1][EXPERTS];
    int64_t passes[LAYERS + 1][MAX_VERIFY + 1], distinct[LAYERS + 1][MAX_VERIFY + 1];     // by tokens of a decode pass
} ExpertRecord;

typedef struct Engine Engine;
struct Engine {
    Setup set;
    const uint8_t *w;               // this pass's replica
    int replica, parity, waiting, waiting_node[MAX_TOKENS];
    Ahead ahead;                    // of the one thread; two share the bandwidth, and read on their own
    Stretch stretches[2 * EXPERTS + 8 * LAYERS];
    Pass pass;
    bool recording, decoding;
    ExpertRecord experts;
    Stopwatch watch;
    bool alone;                     // one kind of half layer is run, see inspect.h
    int piece;                      // what piece_job runs, see inspect.h
    float *taps;                    // tests: the residual stream after each half layer [2 * LAYERS][MAX_TOKENS][HIDDEN]
    // threads
    void (*job)(Engine *, int);
    atomic_int job_number, jobs_done, arrived, phase;
    atomic_bool quit;
    bool parked;
    pthread_t worker;
    pthread_mutex_t lock;
    pthread_cond_t wake;
    // the past
    Kda kda[LAYERS];
    uint16_t *kv[MLA_LAYERS + 1];   // [context + MAX_TOKENS][LATENT] bfloat16, the last one for NEXTN
    int draft_past;                 // positions in the NEXTN layer's cache
    float rope_rate[ROPE_DIM / 2];
    // shared between the threads of a pass
    float turn_cos[MAX_TOKENS][ROPE_DIM / 2], turn_sin[MAX_TOKENS][ROPE_DIM / 2];
    LINE float x[MAX_TOKENS][HIDDEN];
    LINE float y[MAX_TOKENS][MAX(MLA_ROWS, 2 * DENSE_INTER)];
    LINE float mixed[MAX_TOKENS][MAX(HEADS * LATENT, MAX(DENSE_INTER, WIDTH))];
    LINE float keys[MAX_TOKENS][HEADS * LATENT];
    LINE float gates[MAX_TOKENS * (TOP_K + 1)][2 * MAX(INTER, SHARED_INTER)];
    LINE int8_t inner_q[MAX_TOKENS * TOP_K][INTER];
    LINE float inner_s[MAX_TOKENS * TOP_K][INTER / 32];
    LINE int32_t inner_b[MAX_TOKENS * TOP_K][INTER / 32];
    // A reduced draft vocabulary is widened by the request's own tokens: their rows of the head, copied as they turn up
    bool in_draft[VOCAB];
    int own_rows, own_ids[MAX_OWN];
    float own_scale[MAX_OWN];
    LINE uint8_t own_head[MAX_OWN * HIDDEN * 2];
    LINE float hidden[MAX_TOKENS][HIDDEN];       // after the final norm
    LINE float mixin[MAX_TOKENS][HIDDEN];        // NEXTN: the hidden states it reads
    LINE float logits[MAX_TOKENS][VOCAB];
    int head_rows, head_m, head_kind;       // what the head job computes
    float *head_in;
    Room room[2];
};

INLINE const void *at(const Engine *e, int layer, int slot) { return e->w + e->set.at[layer][slot]; }
INLINE const float *floats(const Engine *e, int layer, int slot) { return at(e, layer, slot); }
INLINE Mat mat(const Engine *e, int layer, int slot, int rows, int k) {     // the scale slot follows its matrix's slot
    return (Mat){at(e, layer, slot), floats(e, layer, slot + 1), rows / TILE, k};
}
INLINE bool is_mla(int layer) { return layer == NEXTN || (layer + 1) % MLA_EVERY == 0; }
INLINE bool is_moe(int layer) { return layer >= DENSE_LAYERS; }
INLINE Ahead *ahead(Engine *e) { return e->set.threads == 1 ? &e->ahead : NULL; }

// What will be read, in order: a stretch after those already there
static void expect(Engine *e, const void *from, const void *end) {
    Ahead *a = &e->ahead;
    if (e->set.threads > 1) return;
    if (a->next) memmove(a->list, a->list + a->next, (a->n - a->next) * sizeof(Stretch)), a->n -= a->next, a->next = 0;
    if (a->n > a->next && a->list[a->n - 1].end == from) { a->list[a->n - 1].end = end; return; }
    if (a->n < (int)(sizeof e->stretches / sizeof *e->stretches)) a->list[a->n++] = (Stretch){from, end};
}
static void expect_nothing(Engine *e) { e->ahead = (Ahead){.list = e->stretches}; }

static const void *dense_end(const Engine *e, int layer) {      // of a dense layer's weights
    return (const uint8_t *)at(e, layer, SLOT_DOWN) + HIDDEN * DENSE_INTER * (e->set.dense == DENSE_BF16 ? 2 : 1);
}
static void expect_half(Engine *e, int layer) {                 // the first half of a layer
    const void *from = at(e, layer, layer == NEXTN ? SLOT_EMBED_NORM : SLOT_INPUT_NORM);
    if (!is_mla(layer)) {
        const Kda *a = &e->kda[layer];
        const int before = !e->parity, n = e->waiting;
        expect(e, from, at(e, layer, SLOT_ATTN_OUT_SCALE));
        expect(e, a->conv, a->conv + CONV_TAPS - 1);
        expect(e, a->decay[before], a->decay[before] + n);
        expect(e, a->key[before], a->key[before] + n);
        expect(e, a->change[before], a->change[before] + n);
        expect(e, a->state, a->state + HEADS);
        from = at(e, layer, SLOT_ATTN_OUT_SCALE);
    }
    expect(e, from, at(e, layer, SLOT_POST_NORM));
}
static void expect_second(Engine *e, int layer) {               // the second half, where there are experts what comes before them
    expect(e, at(e, layer, SLOT_POST_NORM), is_moe(layer) ? at(e, layer, SLOT_EXPERTS) : dense_end(e, layer));
}
static void expect_layer(Engine *e, int layer) { expect_half(e, layer), expect_second(e, layer); }
// What comes after a layer
static void expect_next(Engine *e, int layer) {
    if (e->alone) {
        if (layer + 1 < LAYERS && is_moe(layer) == is_moe(layer + 1)) expect_second(e, layer + 1);
        return;
    }
    if (layer < LAYERS - 1) { expect_layer(e, layer + 1); return; }
    const uint8_t *head = at(e, WHOLE, layer == NEXTN && e->set.draft_ids ? SLOT_DRAFT_HEAD : SLOT_HEAD);
    expect(e, head, head + AHEAD_MOST);
}
