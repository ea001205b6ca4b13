"""One background thread that works off a queue which somebody else keeps, and waits while that is empty."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable

from tenacity import RetryCallState, Retrying, wait_exponential_jitter
from tenacity.nap import sleep_using_event

logger = logging.getLogger(__name__)

FIRST_WAIT = 0.5
LONGEST_WAIT = 60.0
"""Seconds between attempts while a step keeps failing."""


class Worker:
    """Calls a step, again and again while there is more to do, and then waits to be woken.

    The thread starts with the first `wake()`, also in a forked child, and never keeps the interpreter alive:
    the queue has to be kept where it survives. A step that raises is tried again after a growing pause.

    Args:
        step: Does a piece of the work; returns whether there is more.
        name: Name of the thread.
        poll: Seconds after which it looks for work that nobody told it of, once it runs.
    """

    def __init__(self, step: Callable[[], bool], name: str, *, poll: float) -> None:
        self._step = step
        self._name = name
        self._poll = poll
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._owner = 0
        self._work = threading.Event()
        self._stop = threading.Event()

    def wake(self) -> None:
        """Tell the worker that there is something to do; costs next to nothing."""
        if self._thread is None or self._owner != os.getpid():
            self._start()
        self._work.set()

    def stop(self, timeout: float | None = None) -> None:
        """Let the current step end, and the thread with it.

        Args:
            timeout: Seconds to wait for it.
        """
        self._stop.set()
        self._work.set()
        thread = self._thread
        if thread is not None and self._owner == os.getpid() and thread is not threading.current_thread():
            thread.join(timeout)

    def _start(self) -> None:
        with self._lock:
            if self._stop.is_set() or (self._thread is not None and self._owner == os.getpid()):
                return
            self._owner = os.getpid()
            self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._work.wait(self._poll)
            self._work.clear()
            attempts = Retrying(
                sleep=sleep_using_event(self._stop),
                wait=wait_exponential_jitter(multiplier=FIRST_WAIT, max=LONGEST_WAIT),
                stop=lambda _: self._stop.is_set(),
                before_sleep=self._report,
                retry_error_callback=lambda _: False,
            )
            while not self._stop.is_set() and attempts(self._step):
                pass

    def _report(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        pause = state.next_action.sleep if state.next_action else 0
        logger.warning(
            "%s failed and is tried again in %.1f s: %s",
            self._name,
            pause,
            error,
            extra={"attempt": state.attempt_number},
        )
