"""The searching process. Run as ``python -m kernelarc.engine.tuning._program DESCRIPTOR LIFELINE``.

It reads a pickled ``Order`` from standard input, searches, and writes one JSON object to the
descriptor: ``{"campaign": number}`` or ``{"fault": line}``. It ends when the lifeline closes.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernelarc.bench.kernelfile import kernel_target
from kernelarc.bench.kernels import KernelDevice
from kernelarc.engine._run import resume, run
from kernelarc.engine._settings import CampaignSettings
from kernelarc.engine.tuning._job import TuningJob
from kernelarc.engine.tuning._known import look_up
from kernelarc.engine.tuning._writing import write_file
from kernelarc.genomes import Axis, KernelarcError, Operator, Workload
from kernelarc.genomes.kernels import Clear
from kernelarc.genomes.triton import (
    TritonKernel,
    imported,
    launch_values,
    traced,
    written_parameters,
)

_RETRY_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is asked of the process.

    Attributes:
        file: Where the kernel file goes.
        store: Where the campaign goes.
        budget: Unique evaluations, None for none.
        seconds: Wall seconds of searching, None for none.
        wait_s: How long a store or device that is in use is waited for.
    """

    job: TuningJob
    file: Path
    store: str
    budget: int | None
    seconds: float | None
    wait_s: float


def written_buffers(job: TuningJob, file: Path) -> frozenset[str]:
    """Return the buffers that the kernel writes, by compiling its first seed.

    Args:
        job: The job.
        file: Where its kernel file goes; one in which everything is written is put there.
    """
    write_file(job, [buffer.name for buffer in job.call.buffers], file)
    module = imported(file, "kernelarc_every_buffer")
    said: TritonKernel = module.KERNEL
    operator = Operator(
        name=job.subject.kernel,
        axes={name: Axis(name=name, kind="var") for name in job.subject.axes},
        inputs=said.specs("inputs"),
        outputs=said.specs("outputs"),
    )
    workload = Workload(operator=operator.fingerprint, axes=job.subject.axes)
    clears: list[Clear] = []
    calls = traced(
        module,
        said.launch,
        said.kernel,
        values=launch_values(said, operator, workload, clears),
        genes=dict(job.subject.seeds[0]),
        clears=clears,
    )
    parameters = written_parameters(calls[0], job.subject.arch)
    views = job.call.views
    return frozenset(views[name].buffer for name in parameters if name in views)


def search(order: Order) -> int | None:
    """Search as ordered; return the campaign's number."""
    job = order.job
    write_file(job, written_buffers(job, order.file), order.file)
    target = kernel_target(str(order.file))
    device = KernelDevice(job.subject.device, [target.route])
    known = look_up(order.store, job.subject.identity, job.subject.device_model)
    if known is not None and not known.finished:
        return resume(order.store, known.campaign, device=device).campaign_id
    settings = CampaignSettings(
        target=str(order.file),
        device=job.subject.device,
        budget=order.budget,
        seconds=order.seconds,
        store=order.store,
    )
    return run(settings, device=device, problem=target.problem).campaign_id


def _patiently(order: Order) -> int | None:
    """Search; wait for a store or a device that another process uses."""
    until = time.monotonic() + order.wait_s
    while True:
        try:
            return search(order)
        except KernelarcError as error:
            if not error.busy or time.monotonic() > until:
                raise
            time.sleep(_RETRY_S)


def _end_with(lifeline: int) -> None:
    """End this process, and what it started through its pipes, when the caller is gone."""
    os.read(lifeline, 1)
    os._exit(3)


def main(descriptor: int, lifeline: int) -> int:
    """Do what standard input orders."""
    threading.Thread(target=_end_with, args=(lifeline,), daemon=True).start()
    order: Order = pickle.load(sys.stdin.buffer)
    answer: dict[str, Any]
    try:
        answer = {"campaign": _patiently(order)}
    except KernelarcError as error:
        answer = {"fault": str(error)}
    except Exception as error:
        text = str(error).strip().partition("\n")[0]
        answer = {"fault": f"{type(error).__name__}: {text}"}
        sys.excepthook(type(error), error, error.__traceback__)
    with os.fdopen(descriptor, "w") as file:
        json.dump(answer, file)
    return 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
