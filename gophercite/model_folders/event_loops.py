"""Event loops for Orbax, which closes them while they are still in use."""

import asyncio
import contextlib
from collections.abc import Iterator


class _PatientLoop(asyncio.SelectorEventLoop):
    """Waits for its tasks before it closes; what is cancelled would still report to it."""

    def close(self) -> None:
        if not self.is_closed() and not self.is_running() and (tasks := asyncio.all_tasks(self)):
            self.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        super().close()


class _PatientPolicy(asyncio.DefaultEventLoopPolicy):
    def new_event_loop(self) -> asyncio.AbstractEventLoop:
        return _PatientLoop()


@contextlib.contextmanager
def waiting_event_loops() -> Iterator[None]:
    """Lets Orbax close an event loop only when nothing reads or writes for it any more.

    Orbax reads or writes all arrays at once. When one fails, it closes the loop and raises, while
    TensorStore's threads are still busy with others. What they then report to the closed loop is
    printed as tracebacks, around the message that the user should see.
    """
    before = asyncio.get_event_loop_policy()
    asyncio.set_event_loop_policy(_PatientPolicy())
    try:
        yield
    finally:
        asyncio.set_event_loop_policy(before)
