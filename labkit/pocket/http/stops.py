"""Stop strings in streamed text."""


class Stops:
    """Watches text that arrives in pieces for the first of several stop strings.

    What might still become a stop string is held back, so that a client never sees half of one.
    """

    def __init__(self, stops: tuple[str, ...], trim: bool):
        self._stops, self._trim, self._held = stops, trim, ""
        self.matched: str | None = None

    def push(self, text: str) -> str:
        """The text that can go out now. After a match (`matched` is set) nothing more does."""
        if self.matched is not None:
            return ""
        if not self._stops:
            return text
        text = self._held + text
        hits = [(at, -len(s), s) for s in self._stops if (at := text.find(s)) >= 0]
        if hits:
            at, _, self.matched = min(hits)  # the earliest; of two that start together, the longer
            self._held = ""
            return text[: at if self._trim else at + len(self.matched)]
        keep = max(_overlap(text, stop) for stop in self._stops)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        """What was held back, once no more text comes."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a proper beginning of `stop`."""
    for n in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:n]):
            return n
    return 0
