// Where things lie in the arena: one offset per layer and slot. The packer reads the names from this file.
// Layers 0 .. LAYERS-1 are the model's, LAYERS is the NEXTN layer, LAYERS+1 holds what belongs to no layer.
#pragma once
enum {
    SLOT_INPUT_NORM, SLOT_POST_NORM,
    SLOT_ATTN_IN, SLOT_ATTN_IN_SCALE, SLOT_ATTN_OUT, SLOT_ATTN_OUT_SCALE,       // KDA: q k v f g; MLA: q kv_a g
    SLOT_BETA, SLOT_CONV, SLOT_DECAY_RATE, SLOT_DECAY_BIAS, SLOT_HEAD_NORM,      // KDA
    SLOT_KV_NORM, SLOT_K_UP, SLOT_K_UP_SCALE, SLOT_V_UP, SLOT_V_UP_SCALE,        // MLA
    SLOT_GATE_UP, SLOT_GATE_UP_SCALE, SLOT_DOWN, SLOT_DOWN_SCALE,                // dense MLP or shared expert
    SLOT_ROUTER, SLOT_ROUTER_BIAS, SLOT_EXPERTS,
    SLOT_EMBED_NORM, SLOT_HIDDEN_NORM, SLOT_MIX, SLOT_MIX_SCALE,                 // NEXTN
    SLOT_FINAL_NORM,                                                             // NEXTN and the model
    SLOT_HEAD, SLOT_HEAD_SCALE, SLOT_DRAFT_HEAD, SLOT_DRAFT_HEAD_SCALE,          // the model
    SLOTS
};
