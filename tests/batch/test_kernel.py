"""The end of a headless run's kernel, at the moment at which an interrupt would be seen."""

import pytest
from jupyter_client.manager import AsyncKernelManager

from labkit.batch import kernel, run

# papermill's last question, answered, and the kernel is not idle yet.
NOT_IDLE_YET = """
import inspect, time
answer = get_ipython().kernel.shell_handlers["kernel_info_request"]
async def slowly(*args):
    found = answer(*args)
    if inspect.isawaitable(found):
        await found
    time.sleep(0.5)
get_ipython().kernel.shell_handlers["kernel_info_request"] = slowly
"""


@pytest.mark.parametrize(("manager", "printed"), [(None, False), (AsyncKernelManager, True)], ids=["ours", "its base"])
def test_a_kernel_that_has_just_answered_ends_without_a_word(make, tmp_path, monkeypatch, capfd, manager, printed):
    if manager is not None:
        monkeypatch.setattr(kernel, "Kernel", manager)
    (found,) = run.run([make("02_x", NOT_IDLE_YET)], {}, tmp_path / "out").outcomes
    assert found.status == "ok"
    assert ("KeyboardInterrupt caught" in capfd.readouterr().err) == printed
