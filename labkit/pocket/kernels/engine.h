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

typedef struct {                    // one KDA layer's past
    float state[HEADS][HEAD_DIM][HEAD_DIM];             // [key][value], without the updates that `waiting` names
    float conv[CONV_TAPS - 1][3 * WIDTH];               // the last projected q, k, v, oldest first
    float projected[MAX_TOKENS][KDA_ROWS];
    // Updates of this pass and of the pass before: S = diag(decay) S + key (x) change. Waiting ones are applied when the
    // next pass reads the state anyway, so that rejected drafts cost nothing to take back.
    float decay[2][MAX_TOKENS][WIDTH], key[2][MAX_TOKENS][WIDTH], change[2][MAX_TOKENS][WIDTH];
} Kda;

typedef struct {                    // a thread's own room
    float h[MAX_TOKENS][HIDDEN], hx[MAX_TOKENS][2 * HIDDEN];        // normalised input; times FP8_X
    float wide[MAX_TOKENS][MAX(DENSE_INTER, WIDTH)];
    float logits[MAX_TOKENS][ROUTER_ROWS];
    int8_t xq[MAX_TOKENS][HIDDEN], gathered_q[MAX_TOKENS * MAX(HIDDEN, INTER)];
    float xs[MAX_TOKENS][HIDDEN / 32], gathered_s[MAX_TOKENS * MAX(HIDDEN, INTER) / 32];
    int32_t xb[MAX_TOKENS][HIDDEN / 32], gathered_b[MAX_TOKENS * MAX(HIDDEN, INTER) / 32];
    float out[MAX_TOKENS][HIDDEN], part[MAX_TOKENS][HIDDEN];
    float branch[MAX_VERIFY][HEAD_DIM * HEAD_DIM];                  // KDA states of a tree's branches, one strip at a time
    float attn_sum[MAX_TOKENS][HEADS][KV_RANK], attn_max[MAX_TOKENS][HEADS], attn_mass[MAX_TOKENS][HEADS];
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
    int32_t replicas, threads, context, fp8_head, dense, speculative, steps, topk, draft_tokens, draft_rows, bare_head;
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
    Pass pass;
    bool recording, decoding;
    ExpertRecord experts;
    Stopwatch watch;
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
    float x[MAX_TOKENS][HIDDEN];
    float y[MAX_TOKENS][MAX(MLA_ROWS, 2 * DENSE_INTER)];
    float mixed[MAX_TOKENS][MAX(HEADS * LATENT, MAX(DENSE_INTER, WIDTH))];
    float keys[MAX_TOKENS][HEADS * LATENT];
    float gates[MAX_TOKENS * (TOP_K + 1)][2 * MAX(INTER, SHARED_INTER)];
    int8_t inner_q[MAX_TOKENS * TOP_K][INTER];
    float inner_s[MAX_TOKENS * TOP_K][INTER / 32];
    int32_t inner_b[MAX_TOKENS * TOP_K][INTER / 32];
    // A reduced draft vocabulary is widened by the request's own tokens: their rows of the head, copied as they turn up
    bool in_draft[VOCAB];
    int own_rows, own_ids[MAX_OWN];
    float own_scale[MAX_OWN];
    uint8_t own_head[MAX_OWN * HIDDEN * 2];
    float hidden[MAX_TOKENS][HIDDEN];       // after the final norm
    float mixin[MAX_TOKENS][HIDDEN];        // NEXTN: the hidden states it reads
    float logits[MAX_TOKENS][VOCAB];
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
