"""Word language model: a recurrent network over a text that carries its hidden state from window to window."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from milabench_ng.bench import Bench, Legacy2020, workload
from milabench_ng.datasets.text.wikitext_2 import WikiText2

IGNORED = ("epochs", "log_interval", "save")
OPTIONS_OF_2020 = {
    "model_name": "model",
    "emsize": "embedding",
    "nhid": "hidden",
    "nlayers": "layers",
    "lr": "learning_rate",
    "clip": "clip_norm",
}


class LanguageModel(nn.Module):
    """Embedding, recurrent layers, linear output over the vocabulary; dropout around and between the layers."""

    def __init__(self, model: str, vocabulary: int, embedding: int, hidden: int, layers: int, dropout: float) -> None:
        super().__init__()
        self.dropout = nn.Dropout(dropout)
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.recurrent = {"GRU": nn.GRU, "LSTM": nn.LSTM}[model](embedding, hidden, layers, dropout=dropout)
        self.output = nn.Linear(hidden, vocabulary)
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.uniform_(self.output.weight, -0.1, 0.1)
        nn.init.zeros_(self.output.bias)

    def forward(self, tokens: Tensor, state: Tensor | tuple[Tensor, ...] | None) -> tuple[Tensor, Tensor]:
        """Tokens [T, N] to logits [T, N, V], and the new state; ``state`` None: zeros."""
        outputs, state = self.recurrent(self.dropout(self.embedding(tokens)), state)
        return self.output(self.dropout(outputs)), state  # type: ignore[return-value]


def detached(state: Tensor | tuple[Tensor, ...]) -> Tensor | tuple[Tensor, ...]:
    """The same values without their history, to truncate back-propagation through time."""
    return state.detach() if isinstance(state, Tensor) else tuple(part.detach() for part in state)


@workload(
    unit="tokens",
    most_items="batch_size * bptt",
    data=WikiText2,
    bound="gpu-compute",
    ram_gib=1.0,
    classic_factor=1 / 35,
    legacy_2020=(
        Legacy2020(experiment="milarun.models.wlm:main", options=OPTIONS_OF_2020, ignored=IGNORED),
        Legacy2020(
            experiment="milarun.models.wlm:main_fp16",
            options=OPTIONS_OF_2020,
            ignored=IGNORED,
            implied={
                "": {"precision": "half_master_static", "vocabulary_multiple": 8},
                "dynamic_loss_scale": {"precision": "half_master"},
            },
        ),
    ),
)
def wlm(
    bench: Bench,
    *,
    model: Literal["GRU", "LSTM"] = "LSTM",
    batch_size: int = 64,
    embedding: int = 200,
    hidden: int = 200,
    layers: int = 2,
    dropout: float = 0.2,
    bptt: int = 35,
    learning_rate: float = 20.0,
    clip_norm: float = 0.25,
    vocabulary_multiple: int = 1,
) -> None:
    """Predict the next word of WikiText-2 with a recurrent network (Zaremba et al., arXiv:1409.2329): bound by the GPU.

    Embedding, GRU or LSTM, linear layer over 33,278 words, not tied; cross entropy; plain SGD, gradients clipped. The
    text is on the device, in as many columns as the batch is large; truncated back-propagation through time carries the
    state from one window to the next. An item is one token (2020 counted a window of 35 as one). Timed: forward,
    backward, clipping, step. (2020 lowered the learning rate by the loss on the validation split; here it is constant.)

    The twin's words have no order, so the loss cannot fall below the entropy of their frequencies, 7.67, and at the
    learning rate of 2020 the network hardly learns: from 10.41 on, the loss swings and falls towards it. In fp16, 2020
    had a static loss scale of 128: precision half_master_static.

    Options:
        model: the recurrent layers.
        batch_size: columns of the text, each with its own state.
        embedding: width of the embedding.
        hidden: width of the recurrent layers.
        layers: number of recurrent layers.
        dropout: probability.
        bptt: tokens of a column per step.
        learning_rate: of SGD.
        clip_norm: largest norm of the gradient.
        vocabulary_multiple: the vocabulary is padded to a multiple of this; 8 suits fp16 matrix units.
    """
    text = bench.data()
    vocabulary = -(-text.vocabulary // vocabulary_multiple) * vocabulary_multiple
    columns = text.columns(batch_size).to(bench.device)
    windows = list(zip(columns[:-1].split(bptt), columns[1:].split(bptt), strict=True))
    network = bench.place(LanguageModel(model, vocabulary, embedding, hidden, layers, dropout))
    optimizer = torch.optim.SGD(network.parameters(), lr=learning_rate)
    state = None
    for tokens, following in bench.measure(windows, count=lambda window: window[1].numel()):
        logits, state = network(tokens, state if state is None else detached(state))
        bench.step(F.cross_entropy(logits.flatten(0, 1), following.flatten()), optimizer, clip_norm=clip_norm)
