"""The list: one entry for each figure and table of the papers' evaluations.

``paper`` is the paper's own figure, where it is known word for word; empty: it is in a plot, or was not at hand.
Devices that the papers used and that are absent are answered by the model, which is told apart from a measurement.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import rollergen as rg
from benches import seeds
from benches.seeds.finding import Finding
from rollergen.bench.suites import suite

CONTRACTIONS = ("matmul", "conv2d")
SMALL_FLOPS = 1e9
"""An operator below it is small: a V100 computes it in less than 0.1 ms."""


def T(name: str, shape: tuple[int, ...]) -> rg.Tensor:  # as a name of its own it would load the language
    return rg.tensor(name, shape)


@dataclass(frozen=True, slots=True)
class Claim:
    """``id`` names the entry; ``of``: paper and place; ``what``: what is shown, and on which operators; ``linked``: it
    is read in another bench's results, and asked again each time."""

    id: str
    of: str
    what: str
    run: Callable[[], Finding]
    paper: str = ""
    linked: bool = False


def the_119() -> seeds.predicted.Named:
    return seeds.predicted.named(suite("roller").entries)


def resnet_18() -> seeds.predicted.Named:
    return seeds.predicted.named(suite("autotvm-resnet18").entries)


def contractions() -> seeds.predicted.Named:
    return seeds.predicted.named(entry for entry in suite("roller").entries if entry.kind in CONTRACTIONS)


def irregular() -> seeds.predicted.Named:
    """Convolutions whose image has an odd side."""
    return seeds.predicted.named(
        entry for entry in suite("roller").entries if entry.kind == "conv2d" and entry.fields["output"]["shape"][-1] % 2
    )


def small() -> seeds.predicted.Named:
    """All operators of the 119 with batch 1 where they have one, that come below `SMALL_FLOPS`."""
    found = []
    for entry in suite("roller").entries:
        fields = entry.fields
        batch = fields["inputs"][0]["shape"][0] if entry.kind in ("conv2d", "depthwise_conv2d", "avg_pool2d") else 1
        if fields["flops"] / batch < SMALL_FLOPS:
            alone = _alone(fields) if batch > 1 else fields
            found.append((entry.id, partial(entry.build, alone)))
    return found


def _alone(fields: dict) -> dict:
    """The operator on one image."""
    first, *others = fields["inputs"]
    return {**fields, "inputs": [{**first, "shape": [1, *first["shape"][1:]]}, *others]}


def halves() -> seeds.predicted.Named:
    """Matrix products and convolutions of the 119 in float16."""
    return [
        (entry.id, partial(entry.build, {**entry.fields, "dtype": "float16"}))
        for entry in suite("roller").entries
        if entry.kind in CONTRACTIONS
    ]


def product(m: int) -> rg.Tensor:
    return rg.ops.matmul(T("A", (m, 1024)), T("B", (1024, 4096)), name="C")


def square_weights(m: int) -> rg.Tensor:
    return rg.ops.matmul(T("A", (m, 1024)), T("B", (1024, 1024)), name="C")


def image(batch: int) -> rg.Tensor:
    return rg.ops.conv2d(T("X", (batch, 128, 28, 28)), T("W", (128, 128, 3, 3)), padding=1, name="O")


def on_the_cpu() -> seeds.predicted.Named:
    """What a core can run in a moment: one operator of each class."""
    return [
        ("matmul 1024x1024x1024", lambda: rg.ops.matmul(T("A", (1024, 1024)), T("B", (1024, 1024)))),
        ("matmul 128x1000x2048", lambda: rg.ops.matmul(T("A", (128, 2048)), T("B", (2048, 1000)))),
        ("conv 3x3 64x56x56 to 64", lambda: rg.ops.conv2d(T("X", (1, 64, 56, 56)), T("W", (64, 64, 3, 3)), padding=1)),
        ("average pool 3x3 192x35x35", lambda: rg.ops.avg_pool2d(T("X", (1, 192, 35, 35)), 3, 1, 1)),
        ("relu of 64 MB", lambda: rg.ops.relu(T("X", (1 << 24,)))),
        ("sum of the rows of 4096x1024", lambda: rg.ops.sum(T("X", (4096, 1024)), 1)),
    ]


def linears(phase: str) -> seeds.predicted.Named:
    """Linear layers of one phase, float16."""
    return seeds.predicted.named(
        entry for entry in suite("pruner-linears").entries if entry.dtype == "float16" and phase in entry.id
    )


def attention(context: int) -> seeds.predicted.Named:
    found = suite("pruner-attention").entries
    return seeds.predicted.named(entry for entry in found if f"context {context}" in entry.id)


POWERS = tuple(2**n for n in range(0, 19, 2))
"""Of M in a product whose result is M x 4096: 2^20 rows of it are all of a V100's memory."""
LARGE = tuple(2**n for n in range(10, 21))
BATCHES = (1, 2, 4, 8, 16, 32, 64, 128)
ROLLER, AUTOTVM, PRUNER = "ROLLER (OSDI 2022)", "AutoTVM (NeurIPS 2018)", "Pruner (ASPLOS 2025)"
AUTOTVM_NETWORKS = ("ResNet-18", "MobileNet-V2", "LSTM cells", "DQN", "DCGAN")
PRUNER_NETWORKS = (
    "ResNet-50", "Inception-V3", "MobileNet-V2", "DenseNet-121", "DeepLab-V3", "ViT-B/16", "BERT-base", "GPT-2",
)  # fmt: skip

CLAIMS = (
    Claim(
        "roller-fig10",
        f"{ROLLER}, Fig. 10",
        "The 119 operators on a V100",
        lambda: seeds.predicted.operators("v100", the_119()),
    ),
    Claim(
        "roller-fig11",
        f"{ROLLER}, Fig. 11",
        "Time from expression to ten sources, the 119 operators, V100",
        lambda: seeds.predicted.construction("v100", the_119()),
        "seconds for an operator, where searches take hours",
    ),
    Claim(
        "roller-fig12",
        f"{ROLLER}, Fig. 12",
        "Matrix product with a growing M, K = 1024 and N = 4096, V100",
        lambda: seeds.predicted.scaling("v100", POWERS, product, "M"),
    ),
    Claim(
        "roller-fig13",
        f"{ROLLER}, Fig. 13",
        "Convolution 3x3 of 128 channels, 28x28, with a growing batch, V100",
        lambda: seeds.predicted.scaling("v100", BATCHES, image, "batch"),
    ),
    Claim(
        "roller-fig14-m",
        f"{ROLLER}, Fig. 14",
        "Time to ten sources of that product as M grows",
        lambda: seeds.predicted.construction_scaling("v100", POWERS, product, "M"),
    ),
    Claim(
        "roller-fig14-flat",
        f"{ROLLER}, Fig. 14",
        "Time to ten sources of a matrix product with M from 2^10 to 2^20, K = N = 1024, V100: how flat",
        lambda: seeds.predicted.construction_scaling("v100", LARGE, square_weights, "M"),
    ),
    Claim(
        "roller-fig14-batch",
        f"{ROLLER}, Fig. 14",
        "Time to ten sources of that convolution as the batch grows",
        lambda: seeds.predicted.construction_scaling("v100", BATCHES, image, "batch"),
    ),
    Claim(
        "roller-fig15",
        f"{ROLLER}, Fig. 15",
        "Tensor cores: contractions of the 119 in float16, over the same without matrix instructions, V100",
        lambda: seeds.predicted.against_plain(
            "v100",
            halves(),
            rg.BuildOptions(shapes=rg.CodeShapes(matrix_instructions=False)),
            rg.BuildOptions(),
            "tensor cores",
        ),
    ),
    Claim(
        "roller-fig16",
        f"{ROLLER}, Fig. 16",
        "Small operators: those of the 119 on one image that come below a GFLOP, V100",
        lambda: seeds.predicted.operators("v100", small()),
    ),
    Claim(
        "roller-fig17",
        f"{ROLLER}, Fig. 17",
        "Irregular shapes: convolutions of the 119 with an odd side, with and without axis fusion and padding, V100",
        lambda: seeds.predicted.irregular("v100", irregular()),
    ),
    Claim(
        "roller-fig18",
        f"{ROLLER}, Fig. 18",
        "Throughput of each layer, V100",
        lambda: seeds.predicted.layers("v100", contractions()),
    ),
    Claim(
        "roller-fig18-cpu",
        f"{ROLLER}, Fig. 18",
        "Throughput of each layer, predicted and measured, this machine's CPU",
        lambda: seeds.measured.layers(on_the_cpu()),
    ),
    Claim(
        "roller-fig19",
        f"{ROLLER}, Fig. 19",
        "The 119 operators on an IPU (Mk1)",
        lambda: seeds.predicted.operators("ipu", the_119()),
    ),
    Claim(
        "roller-table2",
        f"{ROLLER}, Table 2",
        "Utilisation of the saturated layer, V100",
        lambda: seeds.predicted.saturation("v100", contractions()),
    ),
    Claim(
        "roller-table2-cpu",
        f"{ROLLER}, Table 2",
        "Utilisation of the saturated layer, this machine's CPU",
        lambda: seeds.measured.saturation(on_the_cpu()),
    ),
    Claim(
        "roller-table3",
        f"{ROLLER}, Table 3",
        "Alignment rules added one by one: matrix products and convolutions, V100",
        lambda: seeds.predicted.rules("v100", contractions()),
    ),
    Claim(
        "roller-table3-cpu",
        f"{ROLLER}, Table 3",
        "Alignment rules added one by one, on a CPU",
        lambda: seeds.linked.linked("ablation_*.json", "rollergen bench run ablation", seeds.linked.alignment_rules),
        linked=True,
    ),
    Claim(
        "roller-table4",
        f"{ROLLER}, Table 4",
        "Whole networks, batch 128, V100; BERT-large of 512 words",
        lambda: seeds.networks.networks(
            "v100", [("ResNet-50", 128), ("BERT-large", 128), ("NASNet", 128)],
            "LSTM left out: 1,000 cells, each imported as nodes of its own, take too long to import",
        ),
        "ResNet-50 142 ms, BERT-large 4850 ms; LSTM 20 ms",
    ),
    Claim(
        "roller-table5",
        f"{ROLLER}, Table 5",
        "The 119 operators on a K80",
        lambda: seeds.predicted.operators("k80", the_119()),
    ),
    Claim(
        "roller-table6",
        f"{ROLLER}, Table 6",
        "The 119 operators on an MI50",
        lambda: seeds.predicted.operators("mi50", the_119()),
    ),
    Claim(
        "autotvm-table1",
        f"{AUTOTVM}, Table 1",
        "Convolutions C1 to C12 of ResNet-18 on this machine's CPU, one core",
        lambda: seeds.measured.convolutions(suite("autotvm-resnet18").entries),
    ),
    Claim(
        "autotvm-table1-v100",
        f"{AUTOTVM}, Table 1",
        "Convolutions C1 to C12 of ResNet-18 on a V100 (the paper's card, a TITAN X, has no spec here)",
        lambda: seeds.predicted.operators("v100", resnet_18()),
    ),
    Claim(
        "autotvm-fig9",
        f"{AUTOTVM}, Fig. 9",
        "Convolutions C1 to C12 of ResNet-18 on a K80 (the paper's card, a TITAN X, has no spec here)",
        lambda: seeds.predicted.operators("k80", resnet_18()),
    ),
    *(
        Claim(
            f"autotvm-fig10-{device}",
            f"{AUTOTVM}, Fig. 10",
            f"Convolutions C1 to C12 of ResNet-18 on {device}",
            lambda device=device: seeds.predicted.operators(device, resnet_18()),
        )
        for device in ("cortex-a53", "mali-g71")
    ),
    *(
        Claim(
            f"autotvm-fig11-{device}",
            f"{AUTOTVM}, Fig. 11",
            f"Whole networks, batch 1, on {device}; MobileNet-V2 in place of the first",
            lambda device=device: seeds.networks.networks(device, [(name, 1) for name in AUTOTVM_NETWORKS]),
        )
        for device in ("k80", "cortex-a53", "mali-g71")
    ),
    Claim(
        "autotvm-trials",
        f"{AUTOTVM}, Fig. 4 to 8",
        "Trials to reach a quality, random, genetic, ranking trees and others: programs measured until one is within "
        "2 % of the best, means over 90 operators on a CPU",
        lambda: seeds.linked.linked(
            "verifier/searches.json", "rollergen verify evaluate --part searches", seeds.linked.trials
        ),
        linked=True,
    ),
    Claim(
        "pruner-search-time",
        f"{PRUNER}, search time",
        "Candidates measured until one is within 2 % of the best, from drafts, beside a search without them (AutoTVM's "
        "by ranking trees), 90 operators on a CPU; the online residual is adaptation",
        lambda: seeds.linked.linked(
            "verifier/searches.json", "rollergen verify evaluate --part searches", seeds.linked.fewer_trials
        ),
        "time of 2,000 trials, mean of three GPUs: Pruner 2.6 times faster than Ansor, 4.82 with adaptation; 4.75 "
        "times faster than TenSetMLP",
        linked=True,
    ),
    Claim(
        "pruner-best-k",
        f"{PRUNER}, Best_k",
        "Drafts: the best time over the best among the draft's first k, 90 operators on a CPU",
        lambda: seeds.linked.linked("verifier/evaluation.json", "rollergen verify evaluate", seeds.linked.drafts),
        "Best_1 of drafts of 50, 128, 256, 512: .914, .968, .986, .995 (five networks on GPUs)",
        linked=True,
    ),
    Claim(
        "pruner-top-k",
        f"{PRUNER}, top-k",
        "Verifiers: scores of rankers on structures that they have not seen, 90 operators on a CPU",
        lambda: seeds.linked.linked("verifier/evaluation.json", "rollergen verify evaluate", seeds.linked.rankers),
        "top-1 / top-5: T4 PaCM .892 / .962, TLP .862 / .935, TenSetMLP .859 / .941; K80 .897 / .969, .880 / .947, "
        ".878 / .958",
        linked=True,
    ),
    Claim(
        "pruner-networks-a100",
        f"{PRUNER}, Tables 5 to 7, Fig. 9",
        "Whole networks, batch 1, float32, A100",
        lambda: seeds.networks.networks("a100", [(name, 1) for name in PRUNER_NETWORKS]),
        "ResNet-50 1.444 ms, BERT-base 3.527 ms",
    ),
    Claim(
        "pruner-table8",
        f"{PRUNER}, Table 8",
        "Linear layers of BERT, 128 rows, float16, A100 with tensor cores",
        lambda: seeds.table_8.found(),
        "library 13.2, 11.0, 14.0, 19.0 us; Pruner 11.6, 9.5, 12.8, 23.5 us",
    ),
    Claim(
        "pruner-linears-a100",
        f"{PRUNER}, Tables 3, 4",
        "Linear layers of language models, a prompt of 128, float16, A100",
        lambda: seeds.predicted.operators("a100", linears("prefill b1")),
    ),
    Claim(
        "pruner-decode-a100",
        f"{PRUNER}, Fig. 10",
        "Linear layers of a decoded token (of any context), batch 32, float16, A100",
        lambda: seeds.predicted.operators("a100", linears("decode b32")),
    ),
    *(
        Claim(
            f"pruner-fig10-{n}k",
            f"{PRUNER}, Fig. 10",
            f"Attention of a decoded token at {n} K context, batch 32, A100",
            lambda n=n: seeds.predicted.operators("a100", attention(1024 * n)),  # type: ignore[misc]
        )
        for n in (1, 4)
    ),
)
"""In the order of the papers."""


def chosen(text: str) -> list[Claim]:
    """The entry of that name, else all whose names contain it."""
    return [claim for claim in CLAIMS if claim.id == text] or [claim for claim in CLAIMS if text in claim.id]
