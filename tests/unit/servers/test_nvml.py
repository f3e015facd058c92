"""GPUs as NVML tells them: through a library of C with its calling form, and nothing where there is none."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import pytest

from loadtest.servers.nvml import Gpu, library, read_gpus

SOURCE = r"""
#include <string.h>
typedef struct { unsigned long long total, free, used; } memory_t;
static int devices[2] = {0, 1};
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *n) { *n = 2; return 0; }
int nvmlSystemGetDriverVersion(char *to, unsigned size) { strncpy(to, "570.86.15", size); return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **to) { *to = &devices[i]; return 0; }
int nvmlDeviceGetName(int *d, char *to, unsigned size) {
  if (*d) return 3; strncpy(to, "NVIDIA H100 80GB HBM3", size); return 0; }
int nvmlDeviceGetClockInfo(int *d, unsigned kind, unsigned *to) { *to = kind == 0 ? 1755 : 2619; return *d ? 3 : 0; }
int nvmlDeviceGetMaxClockInfo(int *d, unsigned kind, unsigned *to) { *to = 1980; return *d ? 3 : 0; }
int nvmlDeviceGetPowerUsage(int *d, unsigned *to) { *to = 412500; return *d ? 3 : 0; }
int nvmlDeviceGetEnforcedPowerLimit(int *d, unsigned *to) { *to = 700000; return *d ? 3 : 0; }
int nvmlDeviceGetTemperature(int *d, unsigned sensor, unsigned *to) { *to = 61 + sensor; return *d ? 3 : 0; }
int nvmlDeviceGetMemoryInfo(int *d, memory_t *to) {
  to->total = 85899345920ull; to->used = 42949672960ull; return *d ? 3 : 0; }
"""
UNKNOWN = dict.fromkeys(("name", "clock_mhz", "clock_max_mhz", "memory_clock_mhz", "power_w", "power_limit_w",
                         "temperature_c", "memory_used_mb", "memory_mb"))  # fmt: skip


@pytest.fixture(scope="module")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("there is no C compiler (cc) to build a library with NVML's calling form")
    folder: Path = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(SOURCE)
    subprocess.run([compiler, "-shared", "-fPIC", "-w", "-o", "nvml.so", "nvml.c"], cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "nvml.so"))


def test_what_a_gpu_tells_is_read_and_what_it_refuses_is_none(nvml: ctypes.CDLL) -> None:
    found = read_gpus(nvml)
    assert found is not None
    assert found.driver == "570.86.15"
    assert found.gpus == (
        Gpu(index=0, name="NVIDIA H100 80GB HBM3", clock_mhz=1755, clock_max_mhz=1980, memory_clock_mhz=2619,
            power_w=412.5, power_limit_w=700.0, temperature_c=61, memory_used_mb=42949.67296, memory_mb=85899.34592),
        Gpu(index=1, **UNKNOWN),
    )  # fmt: skip


def test_without_the_library_nothing_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("loadtest.servers.nvml.LIBRARY", "libno-such-library.so.1")
    assert library() is None
    assert read_gpus(None) is None
