"""How a headless run ends its kernels."""

import asyncio
import time

from jupyter_client.manager import AsyncKernelManager

ASKED_S = 1.0  # for a kernel that has nothing left to do to end by itself
POLL_S = 0.02


class Kernel(AsyncKernelManager):
    """Asks before it interrupts. Its base sends SIGINT first; where that meets a kernel that has just answered and is
    not idle yet, the kernel prints "KeyboardInterrupt caught in kernel" below a run in which nothing went wrong. A
    kernel that is still busy (a cell ran out of time) does not end when asked, and is then interrupted as before."""

    async def shutdown_kernel(self, now: bool = False, restart: bool = False) -> None:
        if not now and self.owns_kernel and await self.is_alive():
            self.shutting_down = True
            await self.request_shutdown(restart=restart)
            until = time.monotonic() + ASKED_S
            while await self.is_alive() and time.monotonic() < until:
                await asyncio.sleep(POLL_S)
        await super().shutdown_kernel(now=now, restart=restart)
