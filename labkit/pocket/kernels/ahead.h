// Reading ahead: memory delivers while arithmetic runs. One place in the weights is kept, in the order in which they will be read, from
// which lines are asked for into the second-level cache: by the products, about as many as they read, and by everything else that
// computes without reading. So memory rests neither in norms and activations nor where reading jumps from one expert to the next.
#pragma once
#include "simd.h"

#define AHEAD_MOST (96 << 10)   // bytes asked for and not read yet: they must still be there when their turn comes
#ifndef AHEAD_FETCH
#define AHEAD_FETCH prefetch_far
#endif
#define NEAR 1024

typedef struct { const uint8_t *from, *end; } Stretch;
typedef struct {
    const uint8_t *at, *end;    // where asking goes on, and the end of this stretch
    const uint8_t *began;       // of the stretch
    int64_t lead;               // bytes asked for, of any stretch, and not read yet
    Stretch *list;              // stretches after it
    int next, n;
} Ahead;

INLINE bool next_stretch(Ahead *a) {
    if (a->next == a->n) return false;
    a->at = a->began = a->list[a->next].from;
    a->end = a->list[a->next++].end;
    return true;
}

// Ask for a line of 64 bytes, if there is one and the lead is not too long. A core has few requests under way at once, and one more has
// to wait, with all that comes after it: so computing asks for a line every twenty cycles or so, never for many together.
INLINE void ask(Ahead *a) {
    if (!a || a->lead >= AHEAD_MOST || (a->at >= a->end && !next_stretch(a))) return;
    AHEAD_FETCH(a->at);
    a->at += 64, a->lead += 64;
}
NOINLINE void ask_singly(Ahead *a) {
    for (int i = 0; i < 4; i++) ask(a);
}
// For products: four lines
INLINE void ask_four(Ahead *a) {
    if (a->end - a->at < 4 * 64) { ask_singly(a); return; }
    UNROLL for (int i = 0; i < 4; i++) AHEAD_FETCH(a->at + i * 64);
    a->at += 4 * 64, a->lead += 4 * 64;
}
// A product is about to read `bytes`. Where the lead is long it asks for half as many, so that what computing has gained is spent before
// the lead is full. near: how far ahead of itself it fetches. What was asked for only has to come nearer; else it has to reach out,
// `alone` bytes, and at its end reaches for what is not read next.
typedef struct { bool whole; int near; } Asking;
INLINE Asking asking(Ahead *a, int bytes, int alone) {
    const Asking how = {a->lead <= AHEAD_MOST / 2, a->lead > 4 * NEAR ? NEAR : alone};
    a->lead -= bytes;
    return how;
}

// Reading is at w. In the stretch at hand the lead is then known; what was read without asking is skipped.
static inline void settle(Ahead *a, const uint8_t *w) {
    if (!a) return;
    do {
        if (w >= a->began && w < a->end) {
            if (a->at < w) a->at = w;
            a->lead = a->at - w;
            return;
        }
    } while (a->lead <= 0 && next_stretch(a));
    if (a->lead < 0) a->lead = 0;
}
