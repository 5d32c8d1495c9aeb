// Gated multi-head latent attention, absorbed: the cache holds one latent (and one rotated key part) a position, in bfloat16,
// and every head reads it through its own query in latent space.
#pragma once
#include "mlp.h"

// What turns each node of the pass: a cosine and a sine for every pair, worked out once for all layers and heads
static void plan_turns(Engine *e) {
    const Pass *pass = &e->pass;
    for (int t = 0; t < pass->m; t++)
        for (int i = 0; i < ROPE_DIM / 2; i++) {
            const float angle = (float)(pass->past + pass->depth[pass->first + t]) * e->rope_rate[i];
            e->turn_cos[t][i] = cosf(angle), e->turn_sin[t][i] = sinf(angle);
        }
}

// Interleaved rotary embedding of ROPE_DIM values of the pass's token t
static void rotate(const Engine *e, float *x, int t) {
    for (int i = 0; i < ROPE_DIM / 2; i++) {
        const float c = e->turn_cos[t][i], s = e->turn_sin[t][i], a = x[2 * i], b = x[2 * i + 1];
        x[2 * i] = a * c - b * s;
        x[2 * i + 1] = a * s + b * c;
    }
}

// Where node t sees position `pos`: the committed past, or the slot of its own ancestor
static int ancestors(const Pass *pass, int t, int *slot) {
    int n = pass->depth[t] + 1;
    for (int i = n; i--; t = pass->parent[t]) slot[i] = pass->past + t;
    return n;
}

#define KEYS 2      // keys in flight at once: with all heads, enough sums to hide the multiply-add's latency

// A cache entry holds its values in the order that bf16_0 and bf16_1 take apart: of every 2 VL, i and i + VL side by side.
INLINE void write_entry(uint16_t *to, const float *entry) {
    for (int c = 0; c < LATENT; c += 2 * VL)
        for (int i = 0; i < VL; i++) to[c + 2 * i] = to_bf16(entry[c + i]), to[c + 2 * i + 1] = to_bf16(entry[c + VL + i]);
}

INLINE void scores_of(const uint16_t *const *key, const float *query, float score[HEADS][BLOCK_KEYS], int j, const int n) {
    vf s[KEYS * HEADS];
    UNROLL for (int i = 0; i < n * HEADS; i++) s[i] = vf_zero();
    for (int c = 0; c < LATENT; c += 2 * VL) {
        vi q[KEYS];
        UNROLL for (int k = 0; k < n; k++) q[k] = vi_load(key[j + k] + c);
        UNROLL for (int half = 0; half < 2; half++)
            UNROLL for (int h = 0; h < HEADS; h++) {
                vf x = vf_load(query + h * LATENT + c + half * VL);
                PIN(x);         // or the compiler loads it once a key, and loads are what runs out first
                UNROLL for (int k = 0; k < n; k++) s[h * n + k] = vf_fma(half ? bf16_1(q[k]) : bf16_0(q[k]), x, s[h * n + k]);
            }
    }
    UNROLL for (int i = 0; i < n * HEADS; i++) score[i / n][j + i % n] = vf_sum(s[i]);
}

// One block of positions for one token: softmax carried along, blocks at fixed positions, so that every sum has one order.
static void attend_block(Room *room, int t, const uint16_t *const *key, int n, const float *query) {
    float score[HEADS][BLOCK_KEYS];
    int j = 0;
    for (; j + KEYS <= n; j += KEYS) scores_of(key, query, score, j, KEYS);
    for (; j < n; j++) scores_of(key, query, score, j, 1);
    for (int h = 0; h < HEADS; h++) {
        for (j = n; j < BLOCK_KEYS; j++) score[h][j] = -INFINITY;
        vf most = vf_set1(room->attn_max[t][h]), mass = vf_zero();
        for (j = 0; j < BLOCK_KEYS; j += VL) most = vf_max(most, vf_load(score[h] + j));
        const float top = vf_largest(most), fade = expf(room->attn_max[t][h] - top);
        for (j = 0; j < BLOCK_KEYS; j += VL) {
            vf w = vf_exp(vf_load(score[h] + j) - vf_set1(top));
            mass += w;
            vf_store(score[h] + j, w);
        }
        room->attn_max[t][h] = top;
        room->attn_mass[t][h] = room->attn_mass[t][h] * fade + vf_sum(mass);
        if (fade != 1.0f)
            for (int c = 0; c < KV_RANK; c += VL) vf_store(room->attn_sum[t][h] + c, vf_load(room->attn_sum[t][h] + c) * vf_set1(fade));
    }
    for (int c = 0; c < KV_RANK; c += 2 * VL) {
        vf s[2 * HEADS];
        UNROLL for (int h = 0; h < HEADS; h++)
            s[2 * h] = vf_load(room->attn_sum[t][h] + c), s[2 * h + 1] = vf_load(room->attn_sum[t][h] + c + VL);
        for (j = 0; j < n; j++) {
            const vi q = vi_load(key[j] + c);
            const vf a = bf16_0(q), b = bf16_1(q);
            UNROLL for (int h = 0; h < HEADS; h++) {
                s[2 * h] = vf_fma(vf_set1(score[h][j]), a, s[2 * h]);
                s[2 * h + 1] = vf_fma(vf_set1(score[h][j]), b, s[2 * h + 1]);
            }
        }
        UNROLL for (int h = 0; h < HEADS; h++)
            vf_store(room->attn_sum[t][h] + c, s[2 * h]), vf_store(room->attn_sum[t][h] + c + VL, s[2 * h + 1]);
    }
}

// Tokens id, id + threads, ... of the pass; a block of the past is read once for all of them.
static void attend(Engine *e, Room *room, const uint16_t *cache, int id) {
    const Pass *pass = &e->pass;
    int slot[MAX_TOKENS][MAX_NODES], deepest = 0;
    for (int t = id; t < pass->m; t += e->set.threads) {
        int n = ancestors(pass, pass->first + t, slot[t]);
        deepest = n > deepest ? n : deepest;
        for (int h = 0; h < HEADS; h++) room->attn_max[t][h] = -1e30f, room->attn_mass[t][h] = 0;
        memset(room->attn_sum[t], 0, sizeof room->attn_sum[t]);
    }
    if (id == 0 && e->watch.on) e->watch.sum.positions[e->watch.phase] += pass->past + deepest;
    for (int start = 0; start < pass->past + deepest; start += BLOCK_KEYS)
        for (int t = id; t < pass->m; t += e->set.threads) {
            const uint16_t *key[BLOCK_KEYS];
            const int end = pass->past + pass->depth[pass->first + t] + 1;
            int n = 0;
            for (int pos = start; pos < end && n < BLOCK_KEYS; pos++, n++)
                key[n] = cache + (size_t)(pos < pass->past ? pos : slot[t][pos - pass->past]) * LATENT;
            ask(ahead(e));
            if (n) attend_block(room, t, key, n, e->keys[t]);
        }
    for (int t = id; t < pass->m; t += e->set.threads)
        for (int h = 0; h < HEADS; h++)
            scaled(room->attn_sum[t][h], FP8_X / room->attn_mass[t][h], e->keys[t] + h * KV_RANK, KV_RANK);
}

// The pass's entries in a cache, from the projected latents [m][LATENT] in e->y
static void cache_latents(Engine *e, int layer, uint16_t *cache) {
    const Pass *pass = &e->pass;
    for (int t = 0; t < pass->m; t++) {
        float entry[LATENT], *y = e->y[t] + Q_ROWS;
        uint16_t *to = cache + (size_t)(pass->past + pass->first + t) * LATENT;
        rms_norm(y, floats(e, layer, SLOT_KV_NORM), 1.0f, entry, KV_RANK);
        memcpy(entry + KV_RANK, y + KV_RANK, ROPE_DIM * 4);
        rotate(e, entry + KV_RANK, t);
        write_entry(to, entry);
    }
}

static void mla(Engine *e, int layer, int id) {
    Room *room = &e->room[id];
    const Pass *pass = &e->pass;
    const int m = pass->m, parts = e->set.threads, ldy = sizeof e->y[0] / 4, ldk = sizeof e->keys[0] / 4, ldm = sizeof e->mixed[0] / 4;
    const Mat in = mat(e, layer, SLOT_ATTN_IN, MLA_ROWS, HIDDEN), out = mat(e, layer, SLOT_ATTN_OUT, HIDDEN, WIDTH);
    const Mat k_up = mat(e, layer, SLOT_K_UP, HEADS * KV_RANK, HEAD_DIM), v_up = mat(e, layer, SLOT_V_UP, WIDTH, KV_RANK);
    uint16_t *cache = e->kv[layer == NEXTN ? MLA_LAYERS : layer / MLA_EVERY];
    int first, end;
    fetch_first(e, &in, id);
    normalise(e, room, layer, SLOT_INPUT_NORM, m);
    part(in.tiles, id, parts, &first, &end);
    dense(e, &in, first, end, room->hx[0], 2 * HIDDEN, e->y[0], ldy, m);
    barrier(e);
    const float scale = 1.0f / sqrtf(HEAD_DIM + ROPE_DIM);
    for (int h = id; h < HEADS; h += parts) {       // this head's query, brought into latent space
        for (int t = 0; t < m; t++) scaled(e->y[t] + h * (HEAD_DIM + ROPE_DIM), FP8_X * scale, room->wide[t], HEAD_DIM);
        const int tiles = KV_RANK / TILE;
        dense(e, &k_up, h * tiles, (h + 1) * tiles, room->wide[0], sizeof room->wide[0] / 4, e->keys[0] + h * ROPE_DIM, ldk, m);
        for (int t = 0; t < m; t++) {
            float *rope = e->keys[t] + h * LATENT + KV_RANK;
            scaled(e->y[t] + h * (HEAD_DIM + ROPE_DIM) + HEAD_DIM, scale, rope, ROPE_DIM);
            rotate(e, rope, t);
        }
    }
    if (id == 0) cache_latents(e, layer, cache);
    barrier(e);
    lap(&e->watch, id, PART_MLA_PROJECTIONS);
    attend(e, room, cache, id);
    barrier(e);
    lap(&e->watch, id, PART_MLA_ATTENTION);
    for (int h = id; h < HEADS; h += parts) {
        const int tiles = HEAD_DIM / TILE;
        dense(e, &v_up, h * tiles, (h + 1) * tiles, e->keys[0] + h * KV_RANK, ldk, e->mixed[0], ldm, m);
        for (int t = 0; t < m; t++)
            for (int i = h * HEAD_DIM; i < (h + 1) * HEAD_DIM; i += VL)
                vf_store(e->mixed[t] + i, vf_load(e->mixed[t] + i) * vf_set1(FP8_X) * vf_sigmoid(vf_load(e->y[t] + Q_ROWS + LATENT + i)));
    }
    barrier(e);
    part(out.tiles, id, parts, &first, &end);
    dense(e, &out, first, end, e->mixed[0], ldm, room->out[0], HIDDEN, m);
    add_rows(e, room, first, end, m);
    lap(&e->watch, id, PART_MLA_PROJECTIONS);
}

// Move the accepted nodes' entries to where their positions are. A node's number is never below its depth, so going up is safe.
static void kv_commit(Engine *e, int cache, const int *path, int n) {
    for (int i = 0; i < n; i++)
        if (path[i] != i)
            memmove(e->kv[cache] + (size_t)(e->pass.past + i) * LATENT, e->kv[cache] + (size_t)(e->pass.past + path[i]) * LATENT, LATENT * 2);
}
