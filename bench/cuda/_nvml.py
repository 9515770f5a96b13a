"""What the device says about itself: clocks, power, temperature, who else uses it. Only reads.

The management library is called directly: the bindings that wrap it differ between versions, and
eight calls do not need one.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any

_GRAPHICS, _SM, _MEMORY = 0, 1, 2
_GPU_TEMPERATURE = 0
_MOST_PROCESSES = 64


class _Process(ctypes.Structure):
    _fields_ = (
        ("pid", ctypes.c_uint),
        ("used", ctypes.c_ulonglong),
        ("instance", ctypes.c_uint),
        ("compute", ctypes.c_uint),
    )


class Nvml:
    """One device as the management library sees it; reads nothing where that is missing.

    Args:
        bus_id: The device's PCI bus id.
    """

    def __init__(self, bus_id: str) -> None:
        self._device = ctypes.c_void_p()
        self._library = self._load()
        if self._library is not None and self._call(
            "nvmlDeviceGetHandleByPciBusId_v2", bus_id.encode(), ctypes.byref(self._device)
        ):
            self._library = None

    @staticmethod
    def _load() -> Any:
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
        except OSError:
            return None
        return library if library.nvmlInit_v2() == 0 else None

    def _call(self, name: str, *arguments: Any) -> int:
        if self._library is None:
            return -1
        function = getattr(self._library, name, None)
        return -1 if function is None else int(function(*arguments))

    def _number(self, name: str, *before: Any) -> int | None:
        held = ctypes.c_uint()
        if self._call(name, self._device, *before, ctypes.byref(held)):
            return None
        return int(held.value)

    def driver(self) -> str:
        """Return the driver's version, empty where it is not told."""
        held = ctypes.create_string_buffer(96)
        failed = self._call("nvmlSystemGetDriverVersion", held, ctypes.c_uint(len(held)))
        return "" if failed else held.value.decode()

    def highest_clocks_mhz(self) -> tuple[int | None, int | None]:
        """Return the highest clocks of multiprocessors and memory."""
        name = "nvmlDeviceGetMaxClockInfo"
        return self._number(name, ctypes.c_int(_SM)), self._number(name, ctypes.c_int(_MEMORY))

    def processes(self) -> list[int] | None:
        """Return the process ids that compute on the device, ours excepted."""
        count = ctypes.c_uint(_MOST_PROCESSES)
        held = (_Process * _MOST_PROCESSES)()
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if self._call(name, self._device, ctypes.byref(count), held):
            return None
        return sorted({int(held[i].pid) for i in range(count.value)} - {os.getpid()})

    def readings(self) -> dict[str, str]:
        """Return clocks, power, temperature and foreign processes, as far as they are told."""
        power = self._number("nvmlDeviceGetPowerUsage")
        found = {
            "clock_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_int(_SM)),
            "memory_clock_mhz": self._number("nvmlDeviceGetClockInfo", ctypes.c_int(_MEMORY)),
            "temperature_c": self._number(
                "nvmlDeviceGetTemperature", ctypes.c_int(_GPU_TEMPERATURE)
            ),
            "power_w": None if power is None else power // 1000,
        }
        shown = {name: str(value) for name, value in found.items() if value is not None}
        others = self.processes()
        if others is not None:
            shown["foreign_processes"] = ",".join(map(str, others)) or "none"
        return shown
