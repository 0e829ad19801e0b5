"""Prepares batches in a thread while a device samples the batches before them."""

import collections
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

_Item = TypeVar("_Item")
_Made = TypeVar("_Made")


def made_ahead(
    make: Callable[[_Item], _Made], items: Iterable[_Item], ahead: int = 1
) -> Iterator[tuple[_Item, _Made]]:
    """Yields each item with `make(item)`, which a thread computes at most `ahead` items early.

    Args:
      make: does the host's work for an item; called once for each item, in order, and never
        concurrently.
      items: consumed as they are needed.
      ahead: 0 makes each item when it is needed, without a thread.
    """
    if not ahead:
        for item in items:
            yield item, make(item)
        return
    waiting: collections.deque[tuple[_Item, Future[_Made]]] = collections.deque()
    pool = ThreadPoolExecutor(1, thread_name_prefix="prepare")
    try:
        source, failed = iter(items), None
        while True:
            try:
                item = next(source)
            except StopIteration:
                break
            except Exception as error:  # raised below, after the items before it have been yielded
                failed = error
                break
            waiting.append((item, pool.submit(make, item)))
            if len(waiting) > ahead:
                first, future = waiting.popleft()
                yield first, future.result()
        while waiting:
            first, future = waiting.popleft()
            yield first, future.result()
        if failed is not None:
            raise failed
    finally:
        pool.shutdown(cancel_futures=True)
