"""Who runs it: campaign, pipeline, controller, migration, audit, resume, public Python API.

- run and resume: run, resume, plan, verify, CampaignSettings, StopRequest
- what comes of it: CampaignResult, BestResult, VerifyResult, Plan, result_of, status
- who watches: Observer, Progress, Counts, IslandShare
- the machine: doctor, devices
- spaces for replay: record, RecordResult, Recorded
- what serves an operator: serving, serving_text
- compiling without a device: check, CheckResult, RouteCheck, Spread
"""

from typing import TYPE_CHECKING

from kernelarc.genomes import on_first_use

if TYPE_CHECKING:
    from kernelarc.engine._check import CheckResult, RouteCheck, Spread, check
    from kernelarc.engine._crash_points import CRASH_POINTS
    from kernelarc.engine._devices import DeviceFacts, devices
    from kernelarc.engine._doctor import Part, doctor
    from kernelarc.engine._observer import Counts, IslandShare, Observer, Progress
    from kernelarc.engine._plan import Plan, plan
    from kernelarc.engine._record import Recorded, RecordResult, record
    from kernelarc.engine._rerun import rerun
    from kernelarc.engine._results import BestResult, CampaignResult, result_of, workloads_of
    from kernelarc.engine._run import artefacts_of, resume, run
    from kernelarc.engine._sampling import CHECK, MEASURE, SAMPLES
    from kernelarc.engine._serving import serving, serving_text
    from kernelarc.engine._settings import CampaignSettings
    from kernelarc.engine._signals import StopRequest
    from kernelarc.engine._source import source_of
    from kernelarc.engine._status import status
    from kernelarc.engine._targets import resolve_target
    from kernelarc.engine._verify import Verified, VerifyResult, verify

__all__ = [
    "CHECK",
    "CRASH_POINTS",
    "MEASURE",
    "SAMPLES",
    "BestResult",
    "CampaignResult",
    "CampaignSettings",
    "CheckResult",
    "Counts",
    "DeviceFacts",
    "IslandShare",
    "Observer",
    "Part",
    "Plan",
    "Progress",
    "RecordResult",
    "Recorded",
    "RouteCheck",
    "Spread",
    "StopRequest",
    "Verified",
    "VerifyResult",
    "artefacts_of",
    "check",
    "devices",
    "doctor",
    "plan",
    "record",
    "rerun",
    "resolve_target",
    "result_of",
    "resume",
    "run",
    "serving",
    "serving_text",
    "source_of",
    "status",
    "verify",
    "workloads_of",
]

# Imported on first use: the runtime and the command line's help must not wait for everything.
_HOMES = {
    "_check": ("CheckResult", "RouteCheck", "Spread", "check"),
    "_crash_points": ("CRASH_POINTS",),
    "_devices": ("DeviceFacts", "devices"),
    "_doctor": ("Part", "doctor"),
    "_observer": ("Counts", "IslandShare", "Observer", "Progress"),
    "_plan": ("Plan", "plan"),
    "_record": ("Recorded", "RecordResult", "record"),
    "_rerun": ("rerun",),
    "_results": ("BestResult", "CampaignResult", "result_of", "workloads_of"),
    "_run": ("artefacts_of", "resume", "run"),
    "_sampling": ("CHECK", "MEASURE", "SAMPLES"),
    "_serving": ("serving", "serving_text"),
    "_settings": ("CampaignSettings",),
    "_signals": ("StopRequest",),
    "_source": ("source_of",),
    "_status": ("status",),
    "_targets": ("resolve_target",),
    "_verify": ("Verified", "VerifyResult", "verify"),
}

__getattr__ = on_first_use(__name__, _HOMES)
