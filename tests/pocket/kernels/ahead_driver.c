// Reading ahead with the requests written down instead of made: see test_ahead.py.
#include <stdint.h>
static const uint8_t *asked[1 << 16];
static int count;
static inline void note(const void *p) { asked[count++] = p; }
#define AHEAD_FETCH note
#include "ahead.h"

// Stretches from[i] .. end[i] (offsets). First `idle` lines are asked for while nothing is read; then all is read, in turns of `turn`
// bytes, fours first and then single lines. -> how many were asked for; to: their offsets; most: the longest lead
int walk(const uint8_t *base, const int64_t *from, const int64_t *end, int n, int idle, int turn, int64_t *to, int64_t *most) {
    Stretch list[64];
    Ahead a = {.list = list, .n = n};
    count = 0, *most = 0;
    for (int i = 0; i < n; i++) list[i] = (Stretch){base + from[i], base + end[i]};
    for (int i = 0; i < idle; i++) ask(&a);
    *most = a.lead;
    for (int i = 0; i < n; i++) {
        settle(&a, base + from[i]);
        for (int64_t at = from[i]; at < end[i]; at += turn) {
            const Asking how = asking(&a, at + turn < end[i] ? turn : (int)(end[i] - at), 4096);
            ask_four(&a);
            if (how.whole) ask_four(&a);
            ask(&a);
            if (a.lead > *most) *most = a.lead;
        }
    }
    for (int i = 0; i < 4096; i++) a.lead = 0, ask(&a);         // what is left
    for (int i = 0; i < count; i++) to[i] = asked[i] - base;
    return count;
}
