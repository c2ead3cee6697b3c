"""Matrix products that take all the power of a GPU, and are verified."""

from itertools import repeat

import torch

from milabench_ng.bench import Bench, Count, Derived, workload
from milabench_ng.workloads.models.narrow_layers import refuse_narrow
from milabench_ng.workloads.stress.chain import CHAINS, VALUES, Numbers
from milabench_ng.workloads.stress.pulse import Hertz, waiting

TFLOPS = "rate * 2 * side * side * side / 1e12"


@workload(
    unit="products",
    most_items="products",
    bound="gpu-compute",
    paced_by="pulse_hz",
    own_types=True,
    derived=(Derived("TFLOP/s", TFLOPS),),
)
def burn(
    bench: Bench, *, numbers: Numbers = "bf16", side: Count = 8192, products: Count = 32, pulse_hz: Hertz = 0.0
) -> None:
    """Multiply large matrices of normal random numbers, and compare what a chain of products comes to: bound by power.

    A lap is a chain of products, each of which multiplies what the last one came to. All laps begin with the same
    matrices, so that each must end with the same bits: a wrong result in any of its products goes on to the last. Its
    digest is compared with that of the first lap, and all digests with those of other tenants. After the last lap the
    matrices that all begin with are compared, too. An item is one product. Timed: products and digests.

    Options:
        numbers: type of the matrices; fp8 (e4m3) needs a GPU of compute capability 8.9 or later. fp32 computes in TF32
            with --precision tf32.
        side: of the square matrices.
        products: of a lap.
        pulse_hz: how often a second all tenants work and pause together, up to 20; 0: without pauses.
    """
    burn_on(bench, numbers, side, products, pulse_hz)


@workload(
    unit="products",
    most_items="products",
    bound="cpu",
    paced_by="pulse_hz",
    cpu_only=True,
    ram_gib=1,
    derived=(Derived("GFLOP/s", "rate * 2 * side * side * side / 1e9"),),
)
def burn_cpu(bench: Bench, *, side: Count = 1024, products: Count = 16, pulse_hz: Hertz = 0.0) -> None:
    """Multiply matrices in fp32 on all CPUs, and compare what a chain of products comes to: bound by their arithmetic.

    As `burn`, on CPUs of the tenant. An item is one product. Timed: products and digests.

    Options:
        side: of the square matrices.
        products: of a lap.
        pulse_hz: how often a second all tenants work and pause together, up to 20; 0: without pauses.
    """
    burn_on(bench, "fp32", side, products, pulse_hz)


def burn_on(bench: Bench, numbers: Numbers, side: int, products: int, pulse_hz: float) -> None:
    """Work in laps until the stop; see `burn`."""
    refuse_narrow(bench.device, numbers)
    chain = CHAINS[numbers](bench.device, side, products)
    tflop = products * 2 * side**3 / 1e12
    check = bench.verifier
    check.begin("TFLOP", VALUES)
    wait = waiting(pulse_hz, bench.device)
    last = chain.lap(wait)
    check.know("product", chain.digest(last))
    check.know("input", chain.inputs())
    check.note("number", torch.count_nonzero(~last.float().isfinite()))
    for _ in bench.measure(repeat(()), count=products):
        digest = chain.digest(chain.lap(wait))
        check.compare("product", digest, tflop)
        bench.result(digest)
    check.compare("input", chain.inputs())
    check.report()
