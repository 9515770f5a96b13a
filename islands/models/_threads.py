"""The models' matrices are small: one thread is the fastest, and the same on every machine."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache

import numpy as np
from threadpoolctl import ThreadpoolController


@cache
def _libraries() -> ThreadpoolController:
    np.linalg.inv(np.eye(2))  # only libraries that are loaded by now are found
    return ThreadpoolController()


def one_thread() -> AbstractContextManager[object]:
    """Hold NumPy's BLAS to one thread while the context is open.

    Its threads wait for one another by spinning. For a few hundred rows that costs more than it
    brings, and where other programs need the cores it costs fifty times as much. Besides, how a
    sum is divided among threads decides its last digits.
    """
    limited: AbstractContextManager[object] = _libraries().limit(limits=1, user_api="blas")
    return limited
