"""00: is this machine ready, what can its memory do, and what do the engine's first tokens look like?"""

from collections.abc import Mapping

import plotly.graph_objects as go

from labkit.evidence import Evidence
from labkit.figures import decode, runs
from labkit.measure.results import Arm, Result
from labkit.notebook.experiment import Experiment
from labkit.notebook.reading import NOTHING, present, waiting
from labkit.notebook.render import Line
from labkit.notebook.settings import COUNT, OUTPUT, REPEATS, WORKLOAD, Guess
from labkit.roofline import floors


class StartHere(Experiment):
    """One engine, a few requests, and what they say about this machine."""

    name = "00_start_here"
    guess = Guess("How many tokens per second will the engine write on this machine?", "tok/s", 0.1, 100_000, 10, 100)
    settings = (WORKLOAD, OUTPUT, COUNT, REPEATS)

    def __init__(self, **parameters):
        super().__init__(**parameters)
        self.sample = ("", "")  # a prompt's end, and what the engine wrote

    def arms(self) -> list[Arm]:
        return [self.arm(self.subject)]

    def after(self, pool) -> None:
        """Let the engine write one answer, to be read."""
        from labkit.measure import client
        from labkit.measure.runner import prompts_of

        arm = self.arms()[0]
        engine = pool.get(arm.config)
        if engine is None:
            return
        prompt = prompts_of(arm.params)[0]
        sampling = {**prompt.sampling, "max_new_tokens": prompt.max_new_tokens, "ignore_eos": False}
        answer = client.generate(
            engine.url,
            text=prompt.text,
            input_ids=prompt.input_ids,
            sampling=sampling,
            api_key=engine.api_key,
            dialect=engine.dialect,
        )
        asked = prompt.text or f"{len(prompt.input_ids)} token ids"
        self.sample = (asked, answer.text)

    def extra(self) -> dict:
        return {"sample": {"asked": self.sample[0], "wrote": self.sample[1]}} if self.sample[1] else {}

    def machine_lines(self) -> list[Line]:
        """What this machine is."""
        from labkit.records import environment

        found = environment.machine()
        return [
            ("processor", found["cpu"], f"{found['architecture']}, {found['usable_cores']} usable cores"),
            ("memory", f"{found['memory_bytes'] / 1e9:.1f} GB", ""),
            ("compiler", environment.compiler() or "none found", "the pocket engine compiles its kernels with it"),
            *((f"GPU {i}", g["name"], g.get("memory.total", "")) for i, g in enumerate(found["gpus"])),
        ]

    def predictions(self, results: Mapping[str, Result]) -> list[Line]:
        lines = self.machine_lines()
        threads = self.params.engine.threads or 1
        how = "one thread reading" if threads == 1 else f"{threads} threads reading"
        lines.append(("memory sustains", self.bandwidth, f"{how}, measured once per boot"))
        config = self.subject.config
        if self.shape_known:
            account = self.account_of(config, context=256)
            floor = floors.floor_s(account.evidence(), self.bandwidth)
            lines += [
                ("bytes of one step", account.evidence(), "at 256 tokens of context"),
                ("byte floor per token", floor, ""),
                ("tokens per second at that floor", (1 / floor).to("tok/s"), f"the most that {how} allows"),
            ]
        return lines

    def floors_of(self, results: Mapping[str, Result]) -> list[tuple[Result, Evidence]]:
        config = self.subject.config
        if not self.shape_known:
            return []
        return [
            (r, floors.floor_s(self.account_of(config, context=r.context).evidence(), self.bandwidth))
            for r in present(results, [a.name for a in self.arms()])
        ]

    def figures(self, results: Mapping[str, Result], guess: float | None) -> list[go.Figure]:
        found = present(results, [a.name for a in self.arms()])
        floor = []
        config = self.subject.config
        if self.shape_known:
            account = self.account_of(config, context=found[0].context if found else 256)
            floor = [(self.arms()[0].name, floors.floor_s(account.evidence(), self.bandwidth))]
        return [
            decode.tpot(
                [(r.name, r.tpot) for r in found],
                floors=floor,
                arms=[a.name for a in self.arms()],
                guess_s=None if guess is None else 1 / guess,
            ),
            runs.arrivals([row for r in found for row in r.used][:6]) if found else waiting("Tokens as they arrive"),
        ]

    def findings(self, results: Mapping[str, Result]) -> list[Line]:
        found = present(results, [a.name for a in self.arms()])
        if not found:
            return [NOTHING]
        r = found[0]
        lines: list[Line] = [
            ("engine", f"{r.info.get('engine', '')} {r.info.get('version', '')}", f"started in {r.start_s or 0:.1f} s"),
            *(
                [("kernels", str(r.info["kernel_variant"]), "chosen for this processor")]
                if "kernel_variant" in r.info
                else []
            ),
            ("TPOT", r.tpot, "median time per output token"),
            ("decode throughput", r.throughput, "all requests together"),
            ("TTFT", r.ttft, "time to the first token"),
        ]
        if self.guessed is not None:
            lines.append(
                (
                    "your guess",
                    f"{self.guessed:g} tok/s",
                    f"{r.throughput.value / self.guessed:.2f} times the guess was measured",
                )
            )
        if self.sample[1]:
            lines += [
                ("asked", _end(self.sample[0]), ""),
                ("it wrote", self.sample[1].strip()[:600], "generated by the engine just now"),
            ]
        return lines

    def verdict(self, results: Mapping[str, Result]) -> list[str]:
        if not present(results, [a.name for a in self.arms()]):
            return []
        return [
            "The engine runs, answers and can be timed here: the other notebooks will work.",
            *self.impossible(results),
            "A few requests show how long a token takes now, not how stable that is: 02 measures it with repeats.",
        ]


def _end(text: str) -> str:
    return text if len(text) <= 300 else "... " + text[-300:]
