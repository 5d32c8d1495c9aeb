"""Notebook 01's sections on speed: the roofline, utilisation, what the lower bound depends on, the published gain."""

import plotly.graph_objects as go

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import Evidence, spec
from labkit.figures import bounds, decode
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.bytes.counted import published
from labkit.notebook.render import Line
from labkit.roofline.floors import (
    Work,
    compare_utilisation,
    effective_bandwidth,
    floor_s,
    intensity,
    ridge,
    utilisation,
)
from labkit.roofline.predictions import sensitivity, split_curve
from labkit.roofline.simple import simple

Lines = list[Line]


def work(at: Choice) -> list[tuple[str, Evidence, Evidence]]:
    """(name, FLOP per byte, FLOP/s): at the known time, or else where the lower bound would put it."""
    active = spec(at.simple().active_parameters, "FLOP", at.base.source)
    time, found = at.known_time(), []
    for name, step in (("per-tensor account", at.account().evidence()), ("simple account", at.simple_step())):
        seconds = floor_s(step, at.machine.bandwidth) if time is None else time
        label = name + (", at its lower bound" if time is None else "")
        found.append((label, intensity(active, step), 2 * active / seconds))
    return found


def roof_figure(at: Choice) -> go.Figure:
    points, first = work(at), next(iter(at.machine.peaks), None)
    if first is not None:  # the corner of the roof, so that the way to it can be seen
        points.append(("ridge point", ridge(first.flops, at.machine.bandwidth), first.flops * 1))
    name = f"compute roof, {first.precision} {'sparse' if first.sparse else 'dense'}" if first else ""
    return decode.roofline(
        points,
        at.machine.bandwidth,
        peak=None if first is None else first.flops,
        peak_name=name,
        title="Roofline: far left, under the slope",
    )


def roof_lines(at: Choice) -> Lines:
    lines: Lines = [(f"work per byte, {name}", place, "") for name, place, _ in work(at)]
    return lines + [
        (
            "ridge point",
            ridge(p.flops, at.machine.bandwidth),
            f"{p.precision}, {'sparse' if p.sparse else 'dense'} peak",
        )
        for p in at.machine.peaks
    ]


def used_lines(at: Choice) -> Lines:
    time = at.known_time()
    if time is None:
        return [("a time for these settings", "none is known", "give tpot_ms, or go back to the published setting")]
    lines: Lines = [("time per token", time, time.source)]
    works = []
    for name, step in (("simple", at.simple_step()), ("per tensor", at.account().evidence())):
        used = utilisation(step, time, at.machine.bandwidth)
        works.append((Work(name, at.base.name, str(at.quant.as_dict()), "synthetic"), used.value))
        lines += [
            (f"bandwidth, {name}", effective_bandwidth(step, time), ""),
            (f"U, {name}", used.to("%"), f"{1 - used.value:.0%} left, by this account"),
        ]
    try:
        compare_utilisation(*works)
    except BadInput as refusal:
        lines.append(("ratio of the two U", "refused", str(refusal)))
    return lines


def story(_: Choice) -> tuple[list, float, Evidence]:
    """(the split over c, the stated c, the gain) of the published speed-up: always its own machine and model."""
    ends = {name: (catalog.result(e["result"]), e["bits"]) for name, e in published()["split"].items()}
    steps = {}
    for name, (result, bits) in ends.items():
        model = catalog.model(result.model)
        active = model.published["active_parameters"].si
        steps[name] = simple(model.config, bits, active_parameters=active).total_bytes
    base, fast = ends["base"][0].metrics, ends["fast"][0].metrics
    curve = split_curve(
        [1.2 + 0.02 * i for i in range(81)],
        a=fast["accept_length"].si,
        step_bytes=steps["fast"],
        base_bytes=steps["base"],
        tpot=fast["tpot"].si,
        base_tpot=base["tpot"].si,
    )
    return curve, fast["verify_cost_ratio"], base["tpot"] / fast["tpot"]


def story_figure(at: Choice) -> go.Figure:
    curve, stated, gain = story(at)
    return bounds.split(curve, stated.value, gain.value)


def story_lines(at: Choice) -> Lines:
    _, stated, gain = story(at)
    return [("total gain", gain, "published times"), ("stated c", stated, "its head format is not published")]


def depends_figure(at: Choice) -> go.Figure:
    a, speed = at.account(), at.machine.bandwidth
    sizes = {g.name: g.total_bytes for g in a.groups}
    experts, head = (sizes.get(n, 0.0) for n in ("routed experts", "head"))
    parts = {
        "bandwidth": speed.si,
        "dense weights": a.weight_bytes - experts - head,
        "routed experts": experts,
        "head": head,
        "context": a.kv_bytes,
        "linear-attention state": a.state_bytes + a.convolution_bytes,
    }

    def floor(bandwidth: float, **sizes: float) -> float:
        return sum(sizes.values()) / bandwidth

    found = sensitivity(floor, {k: v for k, v in parts.items() if v})
    return bounds.tornado(found, floor_s(a.evidence(), speed), 0.1)
