"""Building: private cache, one clear line when there is no compiler, nothing compiled twice."""

import importlib.util
import os
import re
import shutil
import stat
import subprocess
import sys

import pytest

from labkit.errors import BadInput, LabError
from labkit.pocket import build
from labkit.pocket.engine import Engine, Sampling
from labkit.pocket.options import Options


def jit(folder, **more):
    return Options(kernel_cache=str(folder), moe_runner_backend="jit", **more)


def test_second_time_nothing_is_compiled(tmp_path, config, monkeypatch):
    monkeypatch.setattr(
        build, "COMMON", [x if x != "-O3" else "-O1" for x in build.COMMON]
    )  # quicker, and another hash
    folder = tmp_path / "kernels"
    first = build.kernels(jit(folder), config)
    assert all(seconds > 0 for seconds in first.compile_s.values())
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert set(build.kernels(jit(folder), config).compile_s.values()) == {0.0}
    other = build.kernels(Options(kernel_cache=str(folder)), config)  # the other MoE kernels: only they are new
    assert other.compile_s["engine"] == 0.0 and other.compile_s["moe-generic"] > 0
    assert not [f for f in folder.iterdir() if f.suffix != ".so" or f.name.startswith("tmp")]


def test_hash_follows_sources_flags_and_compiler(tmp_path, monkeypatch):
    for name in ("decode.c", "simd.h"):
        shutil.copy(build.SOURCES / name, tmp_path)
    monkeypatch.setattr(build, "SOURCES", tmp_path)
    first = build.digest(["cc", "-O3"], "gcc 12")
    assert first == build.digest(["cc", "-O3"], "gcc 12")
    assert len({first, build.digest(["cc", "-O2"], "gcc 12"), build.digest(["cc", "-O3"], "gcc 13")}) == 3
    (tmp_path / "simd.h").write_text("// changed")
    assert first != build.digest(["cc", "-O3"], "gcc 12")


@pytest.mark.parametrize("mode", [0o755, 0o770, 0o701])
def test_a_cache_that_others_can_enter_is_refused(tmp_path, mode):
    folder = tmp_path / "kernels"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(BadInput) as caught:
        build.private_folder(str(folder))
    assert caught.value.field == "kernel_cache" and "0700" in str(caught.value)


def test_a_cache_of_somebody_else_is_refused(tmp_path, monkeypatch):
    build.private_folder(str(tmp_path / "kernels"))
    monkeypatch.setattr(os, "getuid", lambda: 12345)
    with pytest.raises(BadInput):
        build.private_folder(str(tmp_path / "kernels"))


def test_a_linked_cache_is_refused(tmp_path):
    (tmp_path / "real").mkdir(mode=0o700)
    (tmp_path / "kernels").symlink_to(tmp_path / "real")
    with pytest.raises(BadInput):
        build.private_folder(str(tmp_path / "kernels"))


def test_a_library_that_others_may_write_is_not_loaded(tmp_path):
    library = tmp_path / "moe.so"
    library.write_bytes(b"")
    library.chmod(0o666)
    with pytest.raises(LabError, match="not loading"):
        build.load_library(library)


def test_no_compiler(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    gone = subprocess.CompletedProcess([], 1, "", "No module named ziglang")
    monkeypatch.setattr(build.waits, "run", lambda *a, **k: gone)
    with pytest.raises(LabError) as caught:
        build.find_compiler()
    assert "apt install gcc" in str(caught.value) and "pip install ziglang" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_ziglang_is_the_last_resort(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(build.waits, "run", lambda *a, **k: subprocess.CompletedProcess([], 0, "0.13.0", ""))
    assert build.find_compiler() == [sys.executable, "-m", "ziglang", "cc"]


def test_cc_is_taken_word_by_word(monkeypatch):
    monkeypatch.setenv("CC", "gcc -fno-omit-frame-pointer")
    assert build.find_compiler() == ["gcc", "-fno-omit-frame-pointer"]
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(LabError, match="no-such-compiler"):
        build.find_compiler()


def test_a_compiler_error_is_shown_and_leaves_nothing(tmp_path, config):
    folder = build.private_folder(str(tmp_path / "kernels"))
    with pytest.raises(LabError, match="compiling engine"):
        build.compile_units([shutil.which("cc") or "cc"], {"engine": ["-c", "/dev/null/none.c"]}, folder)
    assert not list(folder.iterdir())


def test_variant_that_this_machine_lacks():
    lacking = next(v for v in ("neon", "avx512") if v not in build.available_variants())
    with pytest.raises(BadInput) as caught:
        build.pick_variant(lacking)
    assert caught.value.field == "kernel_variant" and "portable" in str(caught.value)


@pytest.mark.parametrize(
    ("vendor", "first"), [("AuthenticAMD", ["avx512bf16", "avx512"]), ("GenuineIntel", ["avx512", "avx512bf16"])]
)
def test_bfloat16_pairs_come_first_where_they_are_fast(monkeypatch, vendor, first):
    flags = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_vnni", "avx512_bf16", "avx2", "fma"}
    monkeypatch.setattr(build, "_cpuinfo", lambda *keys: {vendor} if keys == ("vendor_id",) else flags)
    monkeypatch.setattr(build.platform, "machine", lambda: "x86_64")
    assert build.available_variants() == [*first, "avx2", "portable"]


@pytest.mark.parametrize(
    ("features", "there"),
    [
        ({"asimddp"}, ["neon", "portable"]),
        ({"asimddp", "bf16"}, ["neon", "neonbf16", "portable"]),
        ({"bf16"}, ["portable"]),
    ],
)
def test_an_arm_core_runs_only_what_it_says_it_can(monkeypatch, features, there):
    monkeypatch.setattr(build, "cpu_flags", lambda: features)
    monkeypatch.setattr(build.platform, "machine", lambda: "aarch64")
    monkeypatch.setattr(build.sys, "platform", "linux")
    assert build.available_variants() == there
    assert build.pick_variant("auto") == there[0]
    if "neonbf16" not in there:
        with pytest.raises(BadInput, match="neonbf16"):
            build.pick_variant("neonbf16")


@pytest.mark.parametrize(
    ("variant", "flags"),
    [
        ("avx512", "x86"),
        ("avx512bf16", "x86"),
        pytest.param("avx2", "x86", marks=pytest.mark.slow),
        pytest.param("portable", "any", marks=pytest.mark.slow),
    ],
)
def test_every_variant_compiles_without_a_warning(tmp_path, config, variant, flags):
    if flags == "x86" and os.uname().machine != "x86_64":
        pytest.skip("x86 only")
    for name, arguments in build.units(variant, "jit", config).items():
        arguments = [a if a != "-O3" else "-O1" for a in arguments]
        done = subprocess.run(
            [
                *build.find_compiler(),
                "-Wall",
                "-Wextra",
                "-Wno-unused-function",
                *arguments,
                "-o",
                str(tmp_path / name),
            ],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0 and not done.stderr, done.stderr[-2000:]


def only_ziglang(monkeypatch, folder):
    """A machine with no compiler but the one that pip installed."""
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(folder))


@pytest.mark.parametrize("name", ["gcc", "clang", "ziglang"])
def test_every_compiler_gives_the_same_text(tmp_path, engines, prompts, monkeypatch, name):
    """Whichever of them is here, found as build.py finds it: compiled, loaded, and the tokens of the usual engine."""
    options = {"moe_runner_backend": "jit", "speculative_algorithm": "NEXTN"}
    sampling = Sampling(temperature=0, max_new_tokens=40, ignore_eos=True)
    usual = engines(**options).start(prompts[12], sampling)
    usual.join(240)
    if not (importlib.util.find_spec(name) if name == "ziglang" else shutil.which(name)):
        pytest.skip(f"{name} is not installed")
    if name == "ziglang":
        only_ziglang(monkeypatch, tmp_path / "empty")
    else:
        monkeypatch.setenv("CC", name)
    with Engine(Options(kernel_cache=str(tmp_path / "kernels"), **options)) as engine:
        assert engine.describe()["compiler"].endswith(name if name != "ziglang" else "-m ziglang cc")
        generation = engine.start(prompts[12], sampling)
        stats = generation.join(240)
    assert generation.poll() == usual.poll() and stats.histogram == usual.stats.histogram


def test_zig_is_told_a_cpu_in_its_own_words(config):
    """Told none it would compile for this very machine; and it knows no -march=armv8.2-a."""
    zig, gcc = [sys.executable, "-m", "ziglang", "cc"], ["/usr/bin/gcc"]
    for variant, cpu in (("neon", "generic+v8_2a+dotprod"), ("avx2", "baseline"), ("portable", "baseline")):
        for arguments in build.units(variant, "jit", config).values():
            assert build.spelled(gcc, arguments) == arguments
            said = build.spelled(zig, arguments)
            assert said[0] == f"-mcpu={cpu}" and not [a for a in said if a.startswith("-march")]
            assert build.spelled(["/opt/zig", "cc"], arguments) == said


@pytest.mark.skipif(not importlib.util.find_spec("ziglang"), reason="ziglang is not installed")
def test_zig_compiles_the_neon_variant(tmp_path, config):
    zig = [sys.executable, "-m", "ziglang", "cc"]
    for moe in ("jit", "generic"):
        arguments = build.spelled(zig, build.units("neon", moe, config)[f"moe-{moe}"])
        out = str(tmp_path / moe)
        subprocess.run([*zig, "-target", "aarch64-linux-gnu", *arguments, "-o", out], check=True)


@pytest.mark.slow
@pytest.mark.skipif(os.uname().machine != "x86_64", reason="reads x86 assembly")
@pytest.mark.parametrize("compiler", ["gcc", "clang"])
@pytest.mark.parametrize("variant", ["avx2", "avx512"])
def test_running_sums_stay_in_registers(config, compiler, variant):
    """A compiler that unrolls too late leaves them on the stack, and several tokens take longer than one by one."""
    if not shutil.which(compiler):
        pytest.skip(f"{compiler} is not installed")
    arguments = [a for a in build.units(variant, "jit", config)["engine"] if not a.startswith(("-shared", "-l"))]
    done = subprocess.run([compiler, *arguments, "-S", "-o", "-"], capture_output=True, text=True, check=True)
    for m in (1, 2, 3, 4):
        name = rf"gemv_f32_{m}(?:\.\w+)*"
        body = re.search(rf"^{name}:[^\n]*\n(.*?)^\t\.size\t{name},", done.stdout, re.M | re.S)[1]
        assert len(re.findall(r"(?:%rsp|%rbp)\).*%[xyz]mm|%[xyz]mm.*(?:%rsp|%rbp)\)", body)) <= 4, m
