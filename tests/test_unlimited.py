"""No obvious wait without a limit in the code: each form is looked for, and each exception has its reason here."""

import ast
import re
from pathlib import Path

import labkit

ROOT = Path(labkit.__file__).parents[1]
PROGRAMS = {"run", "call", "check_call", "check_output"}  # of subprocess: waits.run ends what the program started, too
CONNECT = {"urlopen", "HTTPConnection", "HTTPSConnection", "create_connection", "communicate"}
POOL = re.compile(r"(Executor|Pool|LocalCluster)$")
PIPE = re.compile(r"(stdin|stdout|stderr)(\.buffer)?$")
LOCK = re.compile(r"(lock|busy|mutex|seat)$|^_turn$")

# (file, call): why it may wait for as long as it takes.
MAY = {
    (
        "labkit/pocket/http/reply.py",
        "self._wake.wait()",
    ): "the client waits for its tokens, and ends this by hanging up; in close() a timeout stands around it",
    ("labkit/pocket/http/queue.py", "self._seat"): "a place in the queue, given up when the client hangs up "
    "(responses.while_connected)",
    (
        "labkit/pocket/http/responses.py",
        "asyncio.wait([task])",
    ): "a cancelled request frees the engine: Run.close has a limit",
    ("labkit/pocket/build.py", "running[name].result()"): "a compiler, which waits.run ends after COMPILE_S",
    ("labkit/measure/probe.py", "gate.wait()"): "the barrier itself has a timeout",
    ("labkit/measure/wire.py", "self._socket.recv(65536)"): "the socket has a timeout of 0.1 s, the request its own",
    ("labkit/engines/running.py", "self._lock"): "held while another thread ends this engine: grace_s + 11 s at most",
    ("labkit/engines/running.py", "ownership.acquire()"): "tries once",
    ("labkit/engines/llamacpp/serve.py", "threading.Event().wait()"): "a server serves until ended; its starter's "
    "watcher ends it, and ends itself with its starter",
    ("labkit/engines/running.py", "watch.stdout.read()"): "its writer has ended, and nobody else holds the pipe",
    ("labkit/engines/watch.py", "sys.stdin.buffer.readline()"): "its task, from the process that has just started it; "
    "that one's end closes the pipe",
    ("labkit/engines/watch.py", "os.read(0, 4096)"): "poll has said that something is there, or the end",
    ("labkit/engines/watch.py", "os.read(fd, 65536)"): "the pipe does not block",
    ("labkit/engines/watch.py", "os.read(wake_out, 4096)"): "the pipe does not block",
    ("labkit/waits.py", "os.read(fd, 1)"): "select has said that something is there, or the end",
    ("labkit/pocket/binding.py", "os.read(self.read_fd, 8)"): "the pipe does not block",
    ("labkit/pocket/build.py", "ThreadPoolExecutor()"): "compilers, which waits.run ends after COMPILE_S",
    (
        "training/corpus.py",
        "get_context('spawn').Pool(workers)",
    ): "a person makes a training text, and watches",
    ("labkit/engines/owner.py", "_turn"): "held for a lock that is tried once, and one small file",
}


def _unlimited(node: ast.AST) -> str | None:
    """The source of a wait without a limit."""
    if isinstance(node, ast.With | ast.AsyncWith):
        for item in node.items:
            called = getattr(item.context_expr, "func", item.context_expr)
            name = getattr(called, "attr", getattr(called, "id", ""))
            if LOCK.search(name) or POOL.search(name):  # a pool waits for its work at the end
                return ast.unparse(item.context_expr)
    if isinstance(node, ast.For) and PIPE.search(ast.unparse(node.iter)):
        return f"for ... in {ast.unparse(node.iter)}"
    if not isinstance(node, ast.Call):
        return None
    source, given = ast.unparse(node), len(node.args) + len(node.keywords)
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    owner = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
    timed = any(k.arg in ("timeout", "timeout_s", "block") for k in node.keywords)
    found = (
        (name in ("wait", "join", "acquire", "get", "result") and given == 0)
        or (name in ("wait", "join", "acquire") and given == 1 and "None" in [ast.unparse(a) for a in node.args])
        or (owner == "subprocess" and name in PROGRAMS)
        or (name in CONNECT and not timed and not (name == "create_connection" and len(node.args) > 1))
        or (owner == "httpx" and name in ("get", "post", "stream", "Client", "AsyncClient") and not timed)
        or (owner == "select" and name == "select" and len(node.args) < 4)
        or (owner == "fcntl" and name in ("flock", "lockf") and not re.search("LOCK_NB|LOCK_UN", source))
        or (owner == "asyncio" and name == "wait" and not timed)
        or (owner == "os" and name in ("waitpid", "waitid", "wait") and "WNOHANG" not in source)
        or (owner == "os" and name == "read")
        or (PIPE.search(owner) and name in ("read", "readline", "readlines"))
        or (name in ("as_completed", "wait_for", "gather") and not timed and given < 2)
        or (owner.split(".")[-1] in ("futures", "distributed") and name == "wait" and not timed)
        or (name == "accept" and given == 0)
        or name in ("recv", "recvfrom", "recv_into")
    )
    return source if found else None


def _all() -> set[tuple[str, str]]:
    out = set()
    for folder in ("labkit", "benchmarks", "training"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if source := _unlimited(node):
                    out.add((str(path.relative_to(ROOT)), source))
    return out


def test_every_wait_has_a_limit_or_a_reason():
    found = _all()
    assert found - set(MAY) == set(), "give it a limit (labkit.waits), or a reason in MAY"
    assert set(MAY) - found == set(), "no longer there: take it out of MAY"


def test_the_forms_are_seen():
    seen = """child.wait(); thread.join(); lock.acquire(); queue.get(); future.result(); child.wait(None)
subprocess.run(x, timeout=3); urlopen(u); http.client.HTTPConnection(h); socket.create_connection(a)
httpx.get(u); select.select([], [], []); fcntl.flock(f, fcntl.LOCK_EX); asyncio.wait([t]); os.waitpid(p, 0); s.recv(9)
child.communicate(); child.stdout.readline(); sys.stdin.read(); os.read(0, 9); as_completed(f); futures.wait(f)"""
    unseen = """child.wait(3); thread.join(3); ", ".join(x); lock.acquire(timeout=3); d.get(k); queue.get(timeout=3)
waits.run(x, what="", timeout_s=3); urlopen(u, timeout=3); socket.create_connection(a, 3); httpx.get(u, timeout=3)
select.select([], [], [], 3); fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB); os.waitpid(-1, os.WNOHANG)
file.read(); file.readline(); as_completed(f, timeout=3); futures.wait(f, timeout=3)"""
    for text, expected in ((seen, True), (unseen, False)):
        for call in (n for line in text.splitlines() for n in ast.parse(line).body):
            assert bool(_unlimited(call.value)) == expected, ast.unparse(call)
    assert _unlimited(ast.parse("with self._lock: pass").body[0])
    assert _unlimited(ast.parse("with ThreadPoolExecutor() as pool: pass").body[0])
    assert _unlimited(ast.parse("for line in child.stdout: pass").body[0])
    assert not _unlimited(ast.parse("for line in file: pass").body[0])
    assert not _unlimited(ast.parse("with waits.holding(self._lock, 'x', 3): pass").body[0])
