"""Many server starts in one go, for a machine that is there for minutes: python -m benchmarks.h200.campaign

A plan (YAML) names servers, the stops at which each is started and measured, and a wall-clock budget. Every server
imports ahead and is held before it touches the GPU (a switch of labkit's SGLang plugin); then one at a time starts, is
measured on idle CPUs by the lab's one runner (labkit.measure.runner) and is stopped. Each load has a run directory.
"""

import argparse
import json
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from labkit import waits
from labkit.engines import ladder, process
from labkit.engines.config import EngineConfig
from labkit.engines.sglang.gpu import smi
from labkit.engines.sglang.preflight import kernel_caches
from labkit.errors import BadInput, LabError
from labkit.fields import Flag, Model, Text, list_of, real, whole
from labkit.measure import client, traced
from labkit.measure.plan import Block
from labkit.measure.pool import Pool
from labkit.measure.prompts import prompts_of
from labkit.measure.results import Arm
from labkit.measure.runner import Runner
from labkit.params import Params, load_params, read_yaml
from labkit.records import RunWriter


class Visit(Model):
    """One load on a running server, `repeats` passes over its prompts. accept: simulated accept lengths that alternate,
    0 = the model's own; () = none."""

    load: Text
    repeats: whole(1, 1000)
    accept: list_of(real(0, 64)) = ()


class Stop(Model):
    """One start of one server. estimate_s decides whether it still fits the budget."""

    server: Text
    visits: list_of(Visit, least=1)
    estimate_s: real(1, 86400) = 60.0
    profile: Flag = False


class Load(Model):
    """Lengths of a load, tokens, and its number of distinct prompts; the rest is as the parameters have it."""

    prompt_tokens: whole(2, 1 << 20)
    output_tokens: whole(2, 1 << 20)
    count: whole(1, 1000) = 1


class _File(Model):
    """A plan as its file has it; `arms` come after those of the parameters."""

    params: Text
    budget_s: real(1, 86400)
    warmup: whole(0, 20) = 2
    loads: dict[str, Load]
    arms: list_of(ladder.Step) = ()
    stops: list_of(Stop, least=1)


@dataclass(frozen=True)
class Plan:
    """A whole campaign: its parameters, a server for each arm, and the loads by name."""

    params: Params
    servers: dict[str, EngineConfig]
    loads: dict[str, Load]
    stops: tuple[Stop, ...]
    budget_s: float
    warmup: int = 2
    document: dict = field(default_factory=dict)


def read_plan(path: str | Path, model: str | None = None) -> Plan:
    """A plan from YAML; `params` in it is relative to the plan. `model` replaces the model of the parameters.

    Raises BadInput naming the field.
    """
    path = Path(path)
    document = read_yaml(path)
    got = _File.checked(document)
    params = load_params(path.parent / got.params)
    if model:
        params = params.replace(engine=params.engine.replace(model=model), tokenizer=model)
    own = ladder.shipped(params.engine.engine) if params.arms is None else params.arms
    servers = {a.name: a.config for a in ladder.arms(params.engine, [*own, *got.arms])}
    for i, stop in enumerate(got.stops):
        if stop.server not in servers:
            raise BadInput(f"stops[{i}].server", stop.server, "one of " + ", ".join(servers))
        for j, visit in enumerate(stop.visits):
            if visit.load not in got.loads:
                raise BadInput(f"stops[{i}].visits[{j}].load", visit.load, "one of " + ", ".join(got.loads))
    return Plan(params, servers, got.loads, got.stops, got.budget_s, got.warmup, document)


class Campaign:
    """Runs a plan. out: one folder per load below it, plus profile.json. work: logs and control files."""

    def __init__(self, plan: Plan, out: Path, work: Path, started: float | None = None):
        self.plan, self.out, self.work = plan, out, work
        self.began = time.monotonic() if started is None else started
        self.held: list[HeldServer] = []
        self.skipped: list[str] = []
        self.profiles: dict[str, dict] = {}
        self.writers: dict[str, Writer] = {}

    def left(self) -> float:
        return self.plan.budget_s - (time.monotonic() - self.began)

    def params(self, load: str, **changes: object) -> Params:
        """The plan's parameters under one of its loads."""
        return self.plan.params.replace(warmup=self.plan.warmup, **self.plan.loads[load].model_dump(), **changes)

    def run(self) -> None:
        """All stops that fit. Rows, profiles and what was skipped are on disk at every moment."""
        self.work.mkdir(parents=True, exist_ok=True)
        for name in self.plan.loads:
            parameters = {**self.params(name).as_dict(), "plan": self.plan.document}
            self.writers[name] = Writer(self.out / name, parameters, label=f"campaign {name}")
        try:
            for i, stop in enumerate(self.plan.stops):
                self.held.append(HeldServer(self, i, stop))
            self._probe()
            for one in self.held:
                if self.left() < one.stop.estimate_s:
                    self.skip(one.label, f"{self.left():.0f} s left, needs {one.stop.estimate_s:.0f}")
                    continue
                try:
                    self._at(one)
                except Exception as e:  # one broken stop must not cost the others: the machine is there only once
                    self.skip(one.label, str(e) if isinstance(e, LabError) else repr(e))
                one.end()
        finally:
            for one in self.held:
                one.cancel()
            for one in self.held:
                one.end()
            for writer in self.writers.values():
                writer.finish(summary={"skipped": self.skipped, "wall_s": self.plan.budget_s - self.left()})

    def _probe(self) -> None:
        """What the GPU's memory sustains, while the servers import and nobody uses it."""
        if any(c.engine != "sglang" for c in self.plan.servers.values()):
            return
        command = [sys.executable, "-m", "labkit.engines.sglang.gpu"]
        try:
            got = waits.run(command, what="the GPU's bandwidth probe", timeout_s=90.0)
            found = json.loads(got.stdout) if got.returncode == 0 else {"error": got.stderr[-500:]}
        except (waits.TookTooLong, ValueError) as e:
            found = {"error": str(e)}
        say(f"gpu: {found}")
        for writer in self.writers.values():
            writer.meta["gpu"] = found
            writer.save()

    def skip(self, label: str, why: str) -> None:
        self.skipped.append(f"{label}: {why}")
        say(f"-- {label} not measured: {why}")
        for writer in self.writers.values():
            writer.meta["summary"]["skipped"] = self.skipped
            writer.save()

    def _at(self, one: "HeldServer") -> None:
        began = time.monotonic()
        engine = one.go()
        started_s = time.monotonic() - began
        say(f"== {one.label}: ready {started_s:.1f} s after go, {self.left():.0f} s left")
        # Importing servers would share the CPUs with a measurement.
        while not all(other.quiet() for other in self.held) and time.monotonic() - began < started_s + 60:
            time.sleep(0.25)
        for visit in one.stop.visits:
            self._visit(one, engine, visit, started_s)
        if one.stop.profile and self.left() > 20:
            self._profile(one, engine)

    def _visit(self, one: "HeldServer", engine, visit: Visit, started_s: float) -> None:
        """One block of the runner: the server's arms, one for each accept length, alternate request by request."""
        writer, arms, engines = self.writers[visit.load], [], []
        for accept in visit.accept or (None,):
            config = one.config.replace(simulate_acc_len=accept or None)
            name = f"{one.stop.server} a={accept:g}" if accept else one.stop.server
            arms.append(Arm(name, name, config, self.params(visit.load, engine=config)))
            engines.append(_At(engine, one, accept))
        writer.switched = bool(visit.accept)
        writer.visit = {
            "start": one.again,
            "start_seconds": round(started_s, 2),
            "gpu": smi(),
            "kernel_caches_before": one.caches,
        }
        stop, first = threading.Event(), one.repeats_before(visit)
        blocks = [Block(arms, visit.repeats, first, one.again)]
        for progress in Runner(_Here(engines)).run(blocks, writer, cancel=stop):
            if progress.row is not None:
                say(_line(progress.row))
            if self.left() < 5:
                stop.set()
        if stop.is_set():
            raise LabError(f"budget spent at {visit.load}")

    def _profile(self, one: "HeldServer", engine) -> None:
        """Passes under the engine's own profiler, summed by kernel."""
        one.accept(3.9 if any(v.accept for v in one.stop.visits) else None)
        prompt = prompts_of(self.params(one.stop.visits[0].load))[0]
        client.flush(engine.url)
        try:
            got = traced.capture(engine.url, self.work / f"profile-{one.label}", input_ids=prompt.input_ids)
        except LabError as e:
            say(f"   {e}")
            return
        self.profiles[one.label] = got
        say(f"   profile: span {got['span_s'] * 1e3:.2f} ms a pass, busy {got['busy_s'] * 1e3:.2f} ms")
        (self.out / "profile.json").write_text(json.dumps(self.profiles))


class Writer(RunWriter):
    """A record whose arms also describe each start of their server (`visit`), and whether accept lengths were switched
    while it ran."""

    visit: dict = {}
    switched = False

    def add_arm(self, name: str, **described: object) -> None:
        earlier = next((a["starts"] for a in self.meta["arms"] if a["name"] == name), [])
        more = {"starts": [*earlier, self.visit], "accept_switched_at_run_time": self.switched}
        super().add_arm(name, **described, **more)


class _Here(Pool):
    """The engines of one block, which run already."""

    def __init__(self, engines: list["_At"]):
        super().__init__()
        self._engines = engines

    def ensure(self, configs, run_dir, *, cancel=None, on_event=None) -> list["_At"]:
        return self._engines


@dataclass
class _At:
    """A running server at one simulated accept length, which it takes at the flush before each request."""

    engine: process.EngineProcess
    held: "HeldServer"
    length: float | None

    def prepare(self) -> None:
        self.held.accept(self.length)

    def __getattr__(self, name: str) -> object:
        return getattr(self.engine, name)


class HeldServer:
    """One start of one server. SGLang starts at once and is held before it uses the GPU; others start at go()."""

    def __init__(self, campaign: Campaign, number: int, stop: Stop):
        self.stop, self.campaign, self.number = stop, campaign, number
        self.again = sum(s.server == stop.server for s in campaign.plan.stops[:number])
        self.label = f"{number:02d}-{stop.server}"
        self.config = campaign.plan.servers[stop.server]
        self._folder = campaign.work / self.label
        self._folder.mkdir(parents=True, exist_ok=True)
        self._gate, self._accept = self._folder / "go", self._folder / "accept"
        self._engine = self._error = None
        self.caches: dict[str, bool] = {}
        self._cancel, self._begun = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._start, args=(number,), daemon=True)
        if self.config.engine == "sglang":
            self._thread.start()
            self._begun.wait(30)  # one after the other: the lab's ownership and the port are settled by then

    def _start(self, number: int) -> None:
        config = self.config
        if config.engine == "sglang":
            env = {"LABKIT_HOLD_FILE": str(self._gate)}
            if any(v.accept for v in self.stop.visits):
                env["LABKIT_SIMULATE_ACC_LEN_FILE"] = str(self._accept)
            # Ports apart, because SGLang takes some more next to its own, and held servers bind theirs late.
            port = config.port or 30000 + 37 * (number + 1)
            config = config.replace(env={**config.env, **env}, port=port)
        try:
            self._engine = process.start(
                config, self._folder, lambda event: self._begun.set(), beside=True, cancel=self._cancel, grace_s=2.0
            )
        except Exception as e:  # reported by go(), in the thread that waits for it
            self._error = e
        self._begun.set()

    def go(self):
        """Let it start; returns the running engine. Raises LabError with the engine's own reason."""
        self.caches = kernel_caches()
        self._gate.touch()
        if not self._thread.is_alive() and self._engine is None and self._error is None:
            self._thread.start()
        self._thread.join(max(1.0, self.campaign.left()))
        if self._error is not None:
            raise LabError(str(self._error))
        if self._engine is None:
            raise LabError("did not start within the budget")
        return self._engine

    def repeats_before(self, visit: Visit) -> int:
        """Passes of this load by earlier starts of this server: repeats are numbered on."""
        earlier = self.campaign.plan.stops[: self.number]
        return sum(v.repeats for s in earlier if s.server == self.stop.server for v in s.visits if v.load == visit.load)

    def quiet(self) -> bool:
        """Whether it does nothing now: waiting at its gate with both of SGLang's processes, running, failed or over."""
        if not self._thread.is_alive():
            return True
        return len(list(self._folder.glob("go.held.*"))) >= 2

    def accept(self, length: float | None) -> None:
        """Set the simulated accept length; the engine takes it at the next cache flush."""
        if length is not None:
            self._accept.write_text(f"{length if length else -1:g}")

    def cancel(self) -> None:
        """Give up a start that still goes on."""
        self._cancel.set()

    def end(self) -> None:
        """Stop it, or give up starting it."""
        self.cancel()
        if self._thread.is_alive():
            self._thread.join(30)
        if self._engine is not None:
            self._engine.stop()
            self._engine = None


def _line(row: dict) -> str:
    tpot = f"{row['tpot_s'] * 1e3:.3f} ms" if row["tpot_s"] else "-"
    return f"   {row['arm']:24s} {row['prompt_tokens']:6d} {row['status']:7s} tpot {tpot} a {row['accept_length']}"


def say(line: str) -> None:
    print(line, flush=True)


def main(argv: list[str] | None = None) -> int:
    """Command line of a campaign; see the module's first line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.h200.campaign", description=__doc__.splitlines()[0])
    parser.add_argument("plan")
    parser.add_argument("--out", required=True, type=Path)
    parser.add_argument("--work", required=True, type=Path, help="folder for logs and control files")
    parser.add_argument("--model", help="folder or hub id instead of the plan's")
    parser.add_argument("--reverse", action="store_true", help="the stops in reversed order, for a second visit")
    parser.add_argument("--budget-s", type=float, help="wall clock instead of the plan's")
    args = parser.parse_args(argv)
    try:
        plan = read_plan(args.plan, args.model)
        if args.budget_s:
            plan = replace(plan, budget_s=args.budget_s)
        if args.reverse:
            plan = replace(plan, stops=plan.stops[::-1])
        Campaign(plan, args.out, args.work).run()
    except LabError as e:
        print(e, file=sys.stderr)
        return 2 if isinstance(e, BadInput) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
