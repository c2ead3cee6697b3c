"""Compiles a module before the clock starts, so that no window holds a compilation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import nn

from milabench_ng.bench.moving import tensors
from milabench_ng.model.errors import InputError

Context = Callable[[], AbstractContextManager[Any]]
"""Makes the context of a precision mode."""


def eager(module: nn.Module, inputs: Sequence[Any], device: torch.device, context: Context) -> None:
    """Run ``module`` forward once as it is, for who watches its calls; leaves random numbers as they were."""
    with _same_random_numbers(device), torch.no_grad(), context():
        module(*inputs)


def compiled(
    module: nn.Module, inputs: Sequence[Any], device: torch.device, context: Context, parts: Iterable[nn.Module] = ()
) -> Callable[..., Any]:
    """``module`` compiled by ``torch.compile``, and run on ``inputs``, which is when the compiler works.

    ``parts``: modules in it, each of which is compiled by itself, in place of all of it in one piece. In training mode
    it runs forward and backward, otherwise forward in inference mode. Leaves weights, gradients and random numbers as
    they were; the running statistics of batch normalisation see the inputs. Raises InputError if the compiler fails.
    """
    from torch._dynamo.exc import BackendCompilerFailed  # takes a second, which other launches need not wait

    function = _in_parts(module, parts)
    try:
        with _same_random_numbers(device), torch.inference_mode(not module.training), context():
            outputs = tensors(function(*inputs))
            if module.training:
                sum(output.float().sum() for output in outputs).backward()  # type: ignore[union-attr]
    except BackendCompilerFailed as error:
        cause = error.inner_exception
        reason = str(cause).strip().partition("\n")[0] or type(cause).__name__
        raise InputError(
            f"torch.compile failed for {type(module).__name__}: {reason}. It needs a C++ compiler, and on GPUs Triton: "
            "install them, or run without --compile"
        ) from error
    module.zero_grad(set_to_none=True)
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return function


def _in_parts(module: nn.Module, parts: Iterable[nn.Module]) -> Callable[..., Any]:
    """``module`` whose ``parts`` will be compiled, or all of it if there is none."""
    several = list(parts)
    for part in several:
        part.compile()
    function: Callable[..., Any] = module if several else torch.compile(module)
    return function


def _same_random_numbers(device: torch.device) -> AbstractContextManager[None]:
    """A context after which those on the host and on ``device`` go on as before it."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])
