// Whole passes: tokens to hidden states, hidden states to logits, and the NEXTN layer.
#pragma once
#include "kda.h"
#include "mla.h"

// Every pass reads the next copy of the weights, so that none of it can still be in the last-level cache.
static void next_replica(Engine *e) {
    e->replica = (e->replica + 1) % e->set.replicas;
    e->w = e->set.arena + e->replica * e->set.stride;
}

static void embed(const Engine *e, int token, float *out) {
    for (int i = 0; i < HIDDEN; i += VL) vf_store(out + i, vf_from_bf16(e->set.embedding + (size_t)token * HIDDEN + i));
}

static void model_job(Engine *e, int id) {
    const int m = e->pass.m;
    if (id == 0) {
        expect_nothing(e);
        expect_layer(e, 0);
        plan_turns(e);
        for (int t = 0; t < m; t++) embed(e, e->pass.token[t], e->x[t]);
    }
    barrier(e);
    lap(&e->watch, id, PART_REST);
    for (int layer = 0; layer < LAYERS; layer++) {
        if (is_mla(layer)) mla(e, layer, id); else kda(e, layer, id);
        if (e->taps && id == 0) memcpy(e->taps + 2 * layer * sizeof e->x / 4, e->x, sizeof e->x);
        if (is_moe(layer)) moe(e, layer, id); else dense_mlp(e, layer, id);
        if (e->taps && id == 0) memcpy(e->taps + (2 * layer + 1) * sizeof e->x / 4, e->x, sizeof e->x);
    }
    if (id == 0)
        for (int t = 0; t < m; t++) rms_norm(e->x[t], floats(e, WHOLE, SLOT_FINAL_NORM), 1.0f, e->hidden[t], HIDDEN);
    barrier(e);
}

// What the NEXTN layer reads: each node's token, as its embedding, and e->mixin, mixed into e->x
static void mix(Engine *e, int id) {
    const Pass *pass = &e->pass;
    Room *room = &e->room[id];
    const Mat w = mat(e, NEXTN, SLOT_MIX, HIDDEN, 2 * HIDDEN);
    int first, end;
    for (int t = 0; t < pass->m; t++) {
        float token[HIDDEN];
        embed(e, pass->token[pass->first + t], token);
        rms_norm(token, floats(e, NEXTN, SLOT_EMBED_NORM), FP8_X, room->hx[t], HIDDEN);
        rms_norm(e->mixin[t], floats(e, NEXTN, SLOT_HIDDEN_NORM), FP8_X, room->hx[t] + HIDDEN, HIDDEN);
    }
    if (id == 0) plan_turns(e);
    part(w.tiles, id, e->set.threads, &first, &end);
    dense(e, &w, first, end, room->hx[0], 2 * HIDDEN, e->x[0], HIDDEN, pass->m);
    barrier(e);
    lap(&e->watch, id, PART_NEXTN_MIX);
}

// The layer, which leaves its normalised output in e->mixin
static void nextn_job(Engine *e, int id) {
    if (id == 0) {
        expect_nothing(e);
        expect_layer(e, NEXTN);
    }
    mix(e, id);
    mla(e, NEXTN, id);
    moe(e, NEXTN, id);
    if (id == 0)
        for (int t = 0; t < e->pass.m; t++) rms_norm(e->x[t], floats(e, NEXTN, SLOT_FINAL_NORM), 1.0f, e->mixin[t], HIDDEN);
    barrier(e);
}

// For tokens that nothing is drafted from: their entries in the cache and no more
static void nextn_cache_job(Engine *e, int id) {
    Room *room = &e->room[id];
    if (id == 0) expect_nothing(e);
    const int tiles = LATENT / TILE, before = Q_ROWS / TILE;
    const Mat in = mat(e, NEXTN, SLOT_ATTN_IN, MLA_ROWS, HIDDEN);
    int first, end;
    mix(e, id);
    normalise(e, room, NEXTN, SLOT_INPUT_NORM, e->pass.m);
    part(tiles, id, e->set.threads, &first, &end);
    dense(e, &in, before + first, before + end, room->hx[0], 2 * HIDDEN, e->y[0], sizeof e->y[0] / 4, e->pass.m);
    barrier(e);
    if (id == 0) cache_latents(e, NEXTN, e->kv[MLA_LAYERS]);
    barrier(e);
    lap(&e->watch, id, PART_MLA_PROJECTIONS);
}

enum { HEAD_BF16, HEAD_FP8, HEAD_BARE };
static void head_rows(const Mat *w, int kind, int first, int end, const act *x, int ldx, float *logits, int m) {
    if (kind == HEAD_FP8) gemv_fp8_rows(w, first, end, x, ldx, logits, VOCAB, m);
    else gemv_bf16(w, first, end, x, ldx, logits, VOCAB, m);
}

static void head_job(Engine *e, int id) {
    lap(&e->watch, id, PART_REST);
    Room *room = &e->room[id];
    const bool draft = e->head_kind & 4, reduced = draft && e->set.draft_ids;
    const int slot = reduced ? SLOT_DRAFT_HEAD : SLOT_HEAD, kind = e->head_kind & 3;
    const Mat w = mat(e, WHOLE, slot, reduced && kind != HEAD_BARE ? e->set.draft_rows : e->head_rows, HIDDEN);
    int first, end;
    if (id == 0 && e->set.threads == 1) settle(&e->ahead, w.w);
    fetch_first(e, &w, id);
    for (int t = 0; t < e->head_m; t++) scaled(e->head_in + (size_t)t * HIDDEN, FP8_X, room->hx[t], HIDDEN);
    part(w.tiles, id, e->set.threads, &first, &end);
    act pairs[PACK_ROOM(MAX_TOKENS)];
    int ldx = 2 * HIDDEN;
    const act *x = packed(room->hx[0], &ldx, HIDDEN, e->head_m, pairs);
    head_rows(&w, kind, first, end, x, ldx, e->logits[0], e->head_m);
    if (reduced && kind != HEAD_BARE && id == 0) {
        const Mat own = {e->own_head, e->own_scale, (e->own_rows + TILE - 1) / TILE, HIDDEN};
        head_rows(&own, kind, 0, own.tiles, x, ldx, e->logits[0] + e->set.draft_rows, e->head_m);
        for (int t = 0; t < e->head_m; t++)
            for (int i = e->own_rows; i < own.tiles * TILE; i++) e->logits[t][e->set.draft_rows + i] = -INFINITY;
    }
    barrier(e);
    lap(&e->watch, id, PART_HEAD);
}

static void model_pass(Engine *e) { next_replica(e); run_job(e, model_job); }
static void nextn_pass(Engine *e) { next_replica(e); run_job(e, nextn_job); }

// Logits [m][VOCAB] of hidden states [m][HIDDEN] (with the same replica as the pass before)
static void head(Engine *e, float *hidden, int m) {
    e->head_in = hidden, e->head_m = m, e->head_rows = VOCAB, e->head_kind = e->set.fp8_head ? HEAD_FP8 : HEAD_BF16;
    run_job(e, head_job);
}

// Draft logits over e->head_rows rows. The draft shares the whole head module; under the fault `bare_head` it gets only the
// tensor, and reads the FP8 head's bytes as if they were bfloat16 (half as many rows fit in them).
static void draft_head(Engine *e, float *hidden, int m) {
    e->head_in = hidden, e->head_m = m, e->head_rows = e->set.draft_rows;
    e->head_kind = 4 | (!e->set.fp8_head ? HEAD_BF16 : e->set.bare_head ? HEAD_BARE : HEAD_FP8);
    if ((e->head_kind & 3) == HEAD_BARE) e->head_rows = e->set.draft_rows / 2 / TILE * TILE;
    else e->head_rows += (e->own_rows + TILE - 1) / TILE * TILE;
    run_job(e, head_job);
}

static int draft_token(const Engine *e, int row) {
    if (!e->set.draft_ids) return row;
    return row < e->set.draft_rows ? e->set.draft_ids[row] : e->own_ids[row - e->set.draft_rows];
}

// A token of this request: what was said once is likely to be said again, so a reduced draft vocabulary takes it in.
static void meet(Engine *e, int token) {
    if (!e->set.draft_ids || e->in_draft[token] || e->own_rows == MAX_OWN || e->set.draft_rows + e->own_rows + TILE > VOCAB) return;
    const int width = e->set.fp8_head ? HIDDEN : 2 * HIDDEN, row = e->own_rows++;
    const uint8_t *from = e->set.arena + e->set.at[WHOLE][SLOT_HEAD] + (size_t)(token / TILE) * TILE * width + token % TILE * 4;
    uint8_t *to = e->own_head + (size_t)(row / TILE) * TILE * width + row % TILE * 4;
    for (int i = 0; i < width / 4; i++) memcpy(to + i * TILE * 4, from + i * TILE * 4, 4);
    if (e->set.fp8_head) e->own_scale[row] = ((const float *)(e->set.arena + e->set.at[WHOLE][SLOT_HEAD_SCALE]))[token];
    e->own_ids[row] = token;
    e->in_draft[token] = true;
}

static void chain(Pass *pass, const int32_t *tokens, int m, int past) {
    pass->past = past, pass->first = 0, pass->m = m, pass->certain = true;
    for (int t = 0; t < m; t++) pass->token[t] = tokens[t], pass->parent[t] = t - 1, pass->depth[t] = t;
}

// Run m known tokens after `past` ones and make them the past. Hidden states in e->hidden.
static void advance(Engine *e, const int32_t *tokens, int m, int past) {
    int path[MAX_TOKENS];
    chain(&e->pass, tokens, m, past);
    model_pass(e);
    for (int t = 0; t < m; t++) path[t] = t;
    kda_commit(e, path, m, m - 1);
}

static void forget(Engine *e) {
    for (int layer = 0; layer < LAYERS; layer++) {
        if (is_mla(layer)) continue;
        memset(e->kda[layer].state, 0, sizeof e->kda[layer].state);
        memset(e->kda[layer].conv, 0, sizeof e->kda[layer].conv);
    }
    e->waiting = 0;
    e->draft_past = 0;
    e->own_rows = 0;
    if (e->set.draft_ids) {
        memset(e->in_draft, 0, sizeof e->in_draft);
        for (int i = 0; i < e->set.draft_rows; i++) e->in_draft[e->set.draft_ids[i]] = true;
    }
}
