"""A stand-in for the module ``amdsmi``, with the GPUs that a test describes.

The dictionaries have the keys, types and units that AMD documents for an MI300X; nobody recorded them on one.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any


class AmdSmiException(Exception):  # noqa: N818
    pass


class AmdSmiLibraryException(AmdSmiException):
    """As of the library: with a code, and a text of several lines."""

    def __init__(self, err_code: int, info: str) -> None:
        super().__init__(err_code)
        self.err_code = err_code
        self.info = info

    def __str__(self) -> str:
        return f"Error code:\n\t{self.err_code} | {self.info}"


NOT_SUPPORTED = AmdSmiLibraryException(2, "AMDSMI_STATUS_NOT_SUPPORTED - Feature not supported")
DRM_ERROR = AmdSmiLibraryException(6, "AMDSMI_STATUS_DRM_ERROR - Error when called libdrm")
DRIVER_NOT_LOADED = AmdSmiLibraryException(34, "AMDSMI_STATUS_DRIVER_NOT_LOADED - Driver not loaded")


class AmdSmiClkType(IntEnum):
    GFX = 0
    MEM = 4


class AmdSmiMemoryType(IntEnum):
    VRAM = 0


def metrics(**changed: Any) -> dict[str, Any]:
    """What ``amdsmi_get_gpu_metrics_info`` answers, as far as it is read."""
    return {
        "temperature_edge": "N/A",
        "temperature_hotspot": 61,
        "temperature_mem": 48,
        "average_gfx_activity": 97,
        "average_socket_power": "N/A",
        "energy_accumulator": 65_536_000,
        "current_gfxclk": "N/A",
        "current_uclk": 1300,
        "throttle_status": "N/A",
        "pcie_link_width": 16,
        "pcie_link_speed": 320,
        "current_socket_power": 702,
        "current_gfxclks": [2100, 2098, 2096, 2094, 2100, 2098, 2096, 2094],
        "pcie_replay_count_acc": 3,
        "accumulation_counter": 1000,
        "prochot_residency_acc": 0,
        "ppt_residency_acc": 500,
        "socket_thm_residency_acc": 20,
        "vr_thm_residency_acc": 0,
        "hbm_thm_residency_acc": 0,
        **changed,
    }


class FakeAmdGpu:
    """Answers by question (``"gpu_metrics_info"``), or by question and first argument; an answer that is an exception
    is raised, one that is missing is not supported."""

    def __init__(self, uuid: str, bdf: str, render: int = 128, **answers: Any) -> None:
        self.answers: dict[Any, Any] = {
            "gpu_device_bdf": bdf,
            "gpu_enumeration_info": {"drm_render": render, "drm_card": 1, "hsa_id": 1, "hip_id": 0, "hip_uuid": uuid},
            "gpu_asic_info": {"market_name": "AMD Instinct MI300X", "asic_serial": "0x1A2B3C4D5E6F7081"},
            ("gpu_memory_total", 0): 192 << 30,
            ("gpu_memory_usage", 0): 5 << 30,
            "gpu_compute_partition": "SPX",
            "gpu_driver_info": {"driver_name": "amdgpu", "driver_version": "6.14.14", "driver_date": "N/A"},
            "gpu_activity": {"gfx_activity": 97, "umc_activity": 40, "mm_activity": "N/A"},
            "gpu_metrics_info": metrics(),
            "power_cap_info": {
                "power_cap": 750_000_000,
                "default_power_cap": 750_000_000,
                "dpm_cap": 0,
                "min_power_cap": 0,
                "max_power_cap": 750_000_000,
            },
            ("clock_info", 0): {"clk": 2100, "min_clk": 500, "max_clk": 2100, "clk_locked": False},
            ("clock_info", 4): {"clk": 1300, "min_clk": 900, "max_clk": 1300, "clk_locked": "N/A"},
            "pcie_info": {
                "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000, "pcie_interface_version": 5},
                "pcie_metric": {"pcie_width": 16, "pcie_speed": 32000},
            },
            "gpu_vbios_info": {"name": "NAME", "build_date": "2024", "part_number": "113", "version": "022.040.003"},
            "gpu_ecc_enabled": 0b1,
            "gpu_total_ecc_count": {"correctable_count": 1, "uncorrectable_count": 0, "deferred_count": 0},
            "gpu_bad_page_info": [],
            "gpu_process_list": [{"name": "N/A", "pid": 11}, {"name": "N/A", "pid": 22}],
            "gpu_xgmi_link_status": {"status": ["X", "U", "U", "U", "U", "U", "U", "U"], "total_links": 8},
        }
        self.answers |= answers
        self.asked: list[str] = []


class FakeAmdSmi:
    """Has the functions of ``amdsmi`` that are asked of it."""

    AmdSmiException = AmdSmiException
    AmdSmiClkType = AmdSmiClkType
    AmdSmiMemoryType = AmdSmiMemoryType

    def __init__(self, *gpus: FakeAmdGpu, lacking: tuple[str, ...] = ()) -> None:
        self.gpus = gpus
        self.open = 0
        self.lacking = lacking
        """Functions that this version does not have."""

    def amdsmi_init(self) -> None:
        self.open += 1

    def amdsmi_shut_down(self) -> None:
        self.open -= 1

    def amdsmi_get_processor_handles(self) -> list[FakeAmdGpu]:
        return list(self.gpus)

    def __getattr__(self, name: str) -> Any:
        question = name.removeprefix("amdsmi_get_")
        if question == name or question in self.lacking:
            raise AttributeError(name)

        def ask(gpu: FakeAmdGpu, *args: Any) -> Any:
            gpu.asked.append(question)
            answer = gpu.answers.get((question, *args[:1]), gpu.answers.get(question, NOT_SUPPORTED))
            if isinstance(answer, AmdSmiException):
                raise answer
            return answer

        return ask
