"""`labkit check` on running servers, as a user types it."""

import json
import shlex

import pytest
from compared import compared

from labkit.checks.causes import judge
from labkit.checks.servers import DRAFTS, INFO, Script, serve
from labkit.cli import main, parser
from labkit.engines import ladder


def checked(capsys, url, *more):
    code = main(["check", "--url", url, "--json", *more])
    return code, {c["name"]: c for c in json.loads(capsys.readouterr().out)["checks"]}


def test_without_expectations_it_checks_what_any_measurement_needs(capsys):
    with serve(Script(step_s=0.001)) as url:
        code, found = checked(capsys, url)
    assert code == 0 and {"who is serving", "memory", "prefix cache", "requests"} <= set(found)
    with serve(Script(info={**INFO, "max_total_num_tokens": 100}, step_s=0.001, cached=7)) as url:
        code, found = checked(capsys, url)
    assert code == 1 and found["memory"]["verdict"] == found["prefix cache"]["verdict"] == "fail"


def test_against_the_same_server_without_the_change(capsys):
    drafts = Script(info={**INFO, **DRAFTS}, accepted=(2, 3, 1, 2), step_s=0.004)
    with serve(drafts) as url, serve(Script(step_s=0.004)) as plain:
        code, found = checked(capsys, url, "--expect", "mtp", "--against", plain, "--repeats", "3")
    assert code == 0 and found["after against before"]["verdict"] == found["after: a against c"]["verdict"] == "pass"


@pytest.mark.parametrize("accept", [None, 1.4])
@pytest.mark.parametrize("expect", ladder.EXPECT)
@pytest.mark.parametrize("again", [None, "labkit ladder", "labkit ladder -f params/pocket.yaml"])
def test_each_candidate_s_next_experiment_is_one_command_that_the_lab_takes(expect, accept, again):
    step = compared(0.9, 0.85, 0.95, accept=accept, c=accept and 2.0)
    found = judge("s", step, expect=expect, where="--url http://h:1", again=again)
    for cause in found.causes:
        program, *words = shlex.split(cause.command.replace("<", "").replace(">", "").replace("N", "4096"))
        assert program == "labkit" and parser().parse_args(words).command == words[0]
