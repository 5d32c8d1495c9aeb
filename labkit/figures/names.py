"""Where the names of points stand, so that none lies on another name or on a marker."""

from collections.abc import Sequence

LEVELS = ("middle", "top", "bottom")
PLACES = (*(f"{v} {h}" for h in ("right", "left") for v in LEVELS), "top center", "bottom center")

Box = tuple[float, float, float, float]  # left, right, lower and upper edge, in pixels


def beside(points: Sequence[tuple[str, float, float]], *, wide: float | None = None) -> list[str]:
    """The place of each point's name (name, x, y; in pixels from the lower left of the plot): the first of PLACES where
    it lies on nothing, else the one where it lies on least. wide: the plot's width; a name that would then stick out of
    it or lie on something has no place (""), for the hover text has it too."""
    markers, names, out = [(x - 6, x + 6, y - 6, y + 6) for _, x, y in points], [], []
    for own, (name, x, y) in enumerate(points):
        boxes = {p: _box(p, x, y, 7.0 * len(name)) for p in PLACES}
        others = [*markers[:own], *markers[own + 1 :], *names]

        def lies(place: str, boxes=boxes, others=others) -> float:
            box = boxes[place]
            out_of_it = wide is not None and (box[0] < 0 or box[1] > wide)
            return sum(_met(box, o) for o in others) + (box[1] - box[0] if out_of_it else 0)

        found = min(PLACES, key=lies)
        if wide is not None and lies(found):
            out.append("")
            continue
        names.append(boxes[found])
        out.append(found)
    return out


def _box(place: str, x: float, y: float, wide: float) -> Box:
    """Of a name at a place beside (x, y)."""
    level, side = place.split()
    left = {"left": x - wide - 6, "center": x - wide / 2, "right": x + 6}[side]
    low = {"bottom": y - 20, "middle": y - 8, "top": y + 4}[level]
    return left, left + wide, low, low + 16


def _met(a: Box, b: Box) -> float:
    """Area that two boxes share."""
    return max(0.0, min(a[1], b[1]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[2], b[2]))
