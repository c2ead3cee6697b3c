"""The shapes that the language models of the family ``modern`` have by default."""

from __future__ import annotations

from milabench_ng.workloads.models.dimensions import Dimensions

LLAMA_8B = Dimensions(layers=32, width=4096, heads=32, kv_heads=8, inner=14_336, vocabulary=128_256, tied=False)
"""The shape of Llama 3.1 8B (arXiv:2407.21783)."""
LLAMA_1B = Dimensions(layers=16, width=2048, heads=32, kv_heads=8, inner=8192, vocabulary=128_256)
"""The shape of Llama 3.2 1B."""
DENSE_0_8B = Dimensions(layers=16, width=2048, heads=16, kv_heads=8, inner=5632, vocabulary=32_768)
"""A dense model that trains on one GPU."""
ROUTED_0_9B = Dimensions(layers=8, width=1024, heads=8, kv_heads=8, inner=512, vocabulary=32_768, experts=64, active=8)
"""Half as wide and half as deep as OLMoE (arXiv:2409.02060)."""
LLAMA_70B = Dimensions(layers=80, width=8192, heads=64, kv_heads=8, inner=28_672, vocabulary=128_256, tied=False)
"""The shape of Llama 3.1 70B."""
ROUTED_21B = Dimensions(
    layers=24,
    width=2880,
    heads=64,
    kv_heads=8,
    head_width=64,
    inner=2880,
    vocabulary=201_088,
    tied=False,
    experts=32,
    active=4,
)
"""The shape of GPT-OSS 20B (arXiv:2508.10925), without biases and sinks."""
