"""Windows of a text: the batches of language models."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from milabench_ng.bench import Bench
from milabench_ng.model.errors import InputError


def windows(
    bench: Bench, batch_size: int, length: int, vocabulary: int, places: torch.Generator | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of tokens [N, length] and of those that follow each, from random places of the text on the device.

    ``places``: decides on these places; without it, torch's own random numbers do, which differ from rank to rank.

    Ids are taken modulo ``vocabulary``, for models that know fewer words than the text has. Raises InputError for a
    text that is too short.
    """
    text = bench.data().tokens
    if len(text) <= length:
        raise InputError(f"--length {length}: the text has {len(text):,} tokens; use a larger --data-scale")
    tokens = torch.from_numpy(text.astype("int32")).to(bench.device)
    if int(text.max()) >= vocabulary:
        tokens %= vocabulary
    while True:
        starts = torch.randint(len(tokens) - length, (batch_size,), generator=places).tolist()
        rows = torch.stack([tokens[start : start + length + 1] for start in starts])
        yield rows[:, :-1], rows[:, 1:]
