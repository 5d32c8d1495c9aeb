"""The end of notebook 01: the reader's own three numbers, and questions with computed answers."""

from labkit import catalog
from labkit.errors import BadInput
from labkit.evidence import derived
from labkit.measure import machine as machines
from labkit.notebook.bytes.choice import Choice
from labkit.notebook.render import Line
from labkit.roofline.account import Account, per_tensor
from labkit.roofline.floors import floor_s, utilisation
from labkit.roofline.predictions import context_crossover, room
from labkit.roofline.sizes import checkpoint_bytes


def your_lines(at: Choice, my_model: str, my_machine: str) -> list[Line]:
    """Lower bounds of the reader's own model on their own machine, at the chosen context."""
    config, machine = catalog.load_config(my_model), machines.find(my_machine)
    context = min(at.context, config.fields.get("max_position_embeddings", at.context))
    step = per_tensor(config, context=context).evidence()
    floor = floor_s(step, machine.bandwidth)
    try:
        cross = f"{context_crossover(config):,.0f} tokens"
    except BadInput:
        cross = "no length"
    most = f"{machine.name}, {machine.bandwidth}: at most {1 / floor.value:.4g} tokens per second"
    lines: list[Line] = [
        ("1. bytes of a step", step, f"{config.name}, context {context:,}"),
        ("2. time per token, at least", floor, most),
        ("3. KV equals the weights at", cross, "◇ derived"),
    ]
    if machine.memory is not None:
        held = derived(checkpoint_bytes(config), "B", "all tensors in their formats", step.inputs)
        lines.append(("room beside the weights", room(machine.memory, held), "before KV and the system's own part"))
    return lines


def questions(at: Choice) -> list[tuple[str, str]]:
    """(question, answer) at the present settings."""
    speed, plain, four = at.machine.bandwidth, at.account(), at.account(positions=4)
    saved = at.account(head="bf16").evidence() - at.account(head="fp8").evidence()
    twice = at.account(context=2 * at.context)
    found = [
        (
            "An FP8 head instead of BF16: how many bytes less, and how much time at least?",
            f"{saved.quantity()} less, {(saved / speed).quantity()} at {speed.quantity('g')}. A little less than"
            " half of the head, because its scales are new.",
        ),
        (
            "Twice the context: does a step read twice as much?",
            f"No, {twice.total_bytes / plain.total_bytes:.3f} times as much. Only the KV doubles, and it was "
            f"{plain.kv_bytes / plain.total_bytes:.1%} of the step.",
        ),
        *_experts(at, four),
        (
            "Four positions in one step: four times the bytes?",
            f"No, {four.total_bytes / plain.total_bytes:.2f} times. Dense weights, head and KV are read once.",
        ),
    ]
    time = at.known_time()
    if time is not None:
        u = utilisation(plain.evidence(), time, speed).value
        found.append(
            (
                f"U is {u:.0%}. Will better kernels save the other {1 - u:.0%}?",
                "U alone cannot say. It is an estimate of bytes over a time, compared with a nominal figure; "
                "memory does not sustain the nominal figure, and not all of the time is memory time.",
            )
        )
    return found


def _experts(at: Choice, four: Account) -> list[tuple[str, str]]:
    if not at.shape.experts:
        return []
    answer = (
        f"About {four.distinct_experts:.1f}, not {4 * at.top_k}, if the choices are independent. "
        "Neighbouring tokens may share more of them; the engine can count."
    )
    return [("Four positions choose their experts. How many distinct experts does a layer read?", answer)]
