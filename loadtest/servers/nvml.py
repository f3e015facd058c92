"""The GPUs of this machine as NVIDIA's management library (NVML) tells them; nothing where it is not installed.

Only what is on this machine can be read: servers elsewhere declare their GPUs. Nothing is set.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
TEXT = 96  # bytes of NVML's longest name, its end included
MB = 1e6
_GRAPHICS, _MEMORY = 0, 2  # nvmlClockType_t
_GPU_SENSOR = 0  # nvmlTemperatureSensors_t


class _Memory(ctypes.Structure):
    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One GPU at one moment; what it does not tell is None."""

    index: int
    name: str | None
    clock_mhz: int | None  # of its processors, now and at most
    clock_max_mhz: int | None
    memory_clock_mhz: int | None
    power_w: float | None
    power_limit_w: float | None
    temperature_c: int | None
    memory_used_mb: float | None
    memory_mb: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpus:
    """The GPUs of a machine, and their driver."""

    driver: str | None
    gpus: tuple[Gpu, ...]


def library() -> Any:
    """Return NVML; None where it is not installed."""
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError:
        return None


def read_gpus(nvml: Any) -> Gpus | None:
    """Return the GPUs that a library tells of; None without a library, or where it cannot be used."""
    if nvml is None or nvml.nvmlInit_v2() != 0:
        return None
    try:
        count = ctypes.c_uint()
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return None
        return Gpus(driver=_text(nvml.nvmlSystemGetDriverVersion),
                    gpus=tuple(_gpu(nvml, index) for index in range(count.value)))  # fmt: skip
    finally:
        nvml.nvmlShutdown()


def _gpu(nvml: Any, index: int) -> Gpu:
    handle = ctypes.c_void_p()
    nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
    memory = _Memory()
    told = nvml.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0
    power, limit = (_number(ask, handle) for ask in (nvml.nvmlDeviceGetPowerUsage,
                                                      nvml.nvmlDeviceGetEnforcedPowerLimit))  # fmt: skip
    return Gpu(
        index=index, name=_text(lambda *given: nvml.nvmlDeviceGetName(handle, *given)),
        clock_mhz=_number(nvml.nvmlDeviceGetClockInfo, handle, _GRAPHICS),
        clock_max_mhz=_number(nvml.nvmlDeviceGetMaxClockInfo, handle, _GRAPHICS),
        memory_clock_mhz=_number(nvml.nvmlDeviceGetClockInfo, handle, _MEMORY),
        power_w=None if power is None else power / 1000, power_limit_w=None if limit is None else limit / 1000,
        temperature_c=_number(nvml.nvmlDeviceGetTemperature, handle, _GPU_SENSOR),
        memory_used_mb=memory.used / MB if told else None, memory_mb=memory.total / MB if told else None,
    )  # fmt: skip


def _number(ask: Callable[..., int], handle: Any, *kind: int) -> int | None:
    found = ctypes.c_uint()
    given = [ctypes.c_uint(number) for number in kind]
    return found.value if ask(handle, *given, ctypes.byref(found)) == 0 else None


def _text(ask: Callable[..., int]) -> str | None:
    found = ctypes.create_string_buffer(TEXT)
    return found.value.decode("utf-8", "replace") if ask(found, ctypes.c_uint(TEXT)) == 0 else None
