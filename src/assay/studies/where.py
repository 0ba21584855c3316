"""Where a study computes: a device by name, and what its run says about it."""

from __future__ import annotations


def named_device(name: str | None) -> str | None:
    """The device that a name such as auto means here; a missing one is refused before anything runs."""
    if name is None:
        return None
    from assay.learning.device import chosen_device

    return str(chosen_device(name))


def device_facts(device: str | None) -> dict[str, str]:
    """What a run says about where it was computed, and whether doing it again gives the same bits."""
    if device is None:
        return {}
    import torch

    from assay.learning.device import determinism

    return {"device": device, "determinism": determinism(torch.device(device))}


def elsewhere(device: str | None) -> dict[str, str]:
    """What a cell's identity says of its device: nothing on the CPU, where naming it changes nothing."""
    return {} if device in (None, "cpu") else {"device": str(device)}


def gpus_of(device: str | None) -> float:
    """How many cards a cell needs that computes on this device."""
    return 1.0 if device is not None and device.startswith("cuda") else 0.0
