"""The sizes of transformers and convolutional networks, with the parameters and operations of each part."""

from __future__ import annotations

from dataclasses import dataclass, field

from ....errors import UsageError


@dataclass(frozen=True)
class Convolution:
    """A convolution of images with a square *kernel*, from *inputs* to *outputs* channels.

    *before* and *positions* are the numbers of input and output pixels. Both numbers are 1 for a fully
    connected layer. A batch normalisation follows if *norm* is set. The convolution has a bias if *bias* is
    set. *pooled* is the number of pixels after the max pooling that follows, or 0 without pooling. The output
    of a *shortcut* is added to the output of another layer. If *dropout* is true, the output is multiplied by
    a random mask.
    """

    name: str
    inputs: int
    outputs: int
    kernel: int
    before: int
    positions: int
    norm: bool = False
    bias: bool = False
    pooled: int = 0
    shortcut: bool = False
    dropout: bool = False

    @property
    def params(self) -> int:
        """The number of parameters, including those of the normalisation."""
        return self.inputs * self.outputs * self.kernel**2 + self.outputs * (2 * self.norm + self.bias)

    @property
    def flops(self) -> int:
        """The operations of the forward pass per image."""
        return 2 * self.inputs * self.outputs * self.kernel**2 * self.positions

    def stored_bytes(self, element_bytes: int) -> int:
        """Return the bytes per image that PyTorch keeps for the backward pass of the layer.

        The activation function works in place on the output of the convolution or of the normalisation. The
        normalisation also keeps its input. The addition after a shortcut needs neither operand in the
        backward pass. A max pooling keeps its results, which are the next layer's input, and the positions of
        the results as integers of 8 bytes. A dropout keeps its result and a mask of 1 byte per number.
        """
        copies = 1 + (self.norm and not self.shortcut)
        stored = self.positions * copies * element_bytes
        if self.pooled:
            stored += self.pooled * (element_bytes + _PLACE_BYTES)
        if self.dropout:
            stored += self.positions * (element_bytes + 1)
        return self.outputs * stored


_PLACE_BYTES = 8


@dataclass(frozen=True, kw_only=True)
class Transformer:
    """A decoder of identical layers, or an encoder if it is not *causal*.

    * Attention heads have *head_size* columns (by default hidden / heads). *kv_heads* is the number of heads
      of keys and values.
    * A *gated* feed-forward part has three matrices instead of two.
    * With *experts* above 0, layers after the first *dense_layers* have *experts* feed-forward parts of width
      *expert_ffn*. Only the last of every *expert_every* layers has experts.
    * Each token uses *top_k* experts in addition to *shared_experts*. The *top_k* experts are in *top_groups*
      of *expert_groups* equal groups. Outputs of experts may have biases (*expert_bias*).
    * Inputs of activations in gated layers may be *clamped*.
    * If *kv_rank* is not 0, attention is latent (DeepSeek). Keys and values are computed from *kv_rank*
      numbers per token, and queries from *query_rank* numbers, with *rope_size* more columns per head.
    * *classes* is the number of classes of a vision transformer, which has no vocabulary.
    * *loss_bytes* are the stored bytes of the loss per logit (0: the framework's default).
    * *convolutions* are the layers of a convolutional network before a classifier with *hidden* units. In
      such a network, a token is an image.
    * A token attends to the last *window* tokens, or to the previous tokens in its *chunk* of tokens.
    * Layers with a number divisible by *full_every* (0: none) have full attention. Their attention is
      averaged over all layers.
    * *remarks* lists the parts of the model that these sizes do not describe.

    The constructor raises `UsageError` for impossible sizes.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    ffn: int
    vocab: int
    sequence: int
    kv_heads: int = 0
    head_size: int = 0
    gated: bool = False
    experts: int = 0
    top_k: int = 0
    expert_ffn: int = 0
    expert_bias: bool = False
    clamped: bool = False
    shared_experts: int = 0
    dense_layers: int = 0
    expert_every: int = 1
    expert_groups: int = 1
    top_groups: int = 1
    kv_rank: int = 0
    query_rank: int = 0
    rope_size: int = 0
    learned_positions: bool = False
    tied: bool = False
    causal: bool = True
    classes: int = 0
    loss_bytes: int = 0
    window: int = 0
    chunk: int = 0
    full_every: int = 0
    convolutions: tuple[Convolution, ...] = ()
    remarks: tuple[str, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if not self.kv_heads:
            object.__setattr__(self, "kv_heads", self.heads)
        if not self.head_size:
            if self.heads > 0 and self.hidden % self.heads:
                raise UsageError(
                    f"The model '{self.name}' has {self.hidden} hidden units and {self.heads} heads, but "
                    "the number of heads must divide the hidden units. Correct 'heads', or give 'head_size'."
                )
            object.__setattr__(self, "head_size", self.hidden // max(self.heads, 1))
        for key in ("layers", "hidden", "heads", "ffn", "sequence", "kv_heads", "head_size"):
            value = getattr(self, key)
            if not 1 <= value <= 1 << 31:
                raise UsageError(f"The model '{self.name}': '{key}' must be a number above 0, not {value}.")
        for key in ("vocab", "window", "chunk", "full_every", "kv_rank", "query_rank", "rope_size", "experts",
                    "dense_layers", "shared_experts", "classes"):  # fmt: skip
            if getattr(self, key) < 0:
                raise UsageError(f"The model '{self.name}': '{key}' must not be below 0.")
        if self.window and self.chunk:
            raise UsageError(
                f"The model '{self.name}' has both 'window' and 'chunk', which exclude each other. Leave "
                "one of them out."
            )
        if self.experts and min(self.expert_ffn, self.expert_every) < 1:
            raise UsageError(
                f"The model '{self.name}' has experts, whose 'expert_ffn' and 'expert_every' must be above 0."
            )
        if not 1 <= self.top_groups <= self.expert_groups or self.experts % self.expert_groups:
            raise UsageError(
                f"The model '{self.name}' has {self.experts} experts in {self.expert_groups} groups, and a "
                f"token uses {self.top_groups} groups; 'expert_groups' must divide the number of experts, "
                "and 'top_groups' must be from 1 to 'expert_groups'."
            )
        if self.experts and not 1 <= self.top_k <= self.experts:
            raise UsageError(
                f"The model '{self.name}' has {self.experts} experts, of which each token uses {self.top_k}; "
                f"'top_k' must be from 1 to {self.experts}."
            )

    @property
    def query_size(self) -> int:
        """The width of the queries of all heads, per token."""
        return self.heads * self.head_size

    @property
    def kv_size(self) -> int:
        """The width of all keys, or of all values, per token."""
        return self.kv_heads * self.head_size

    def kv_size_on(self, tp: int) -> float:
        """Return the width of all keys per token on one of *tp* ranks; heads fewer than ranks are copied."""
        return self.kv_size / min(tp, self.kv_heads)

    @property
    def matrices(self) -> int:
        """The number of matrices of a feed-forward part."""
        return 3 if self.gated else 2

    @property
    def attention_params(self) -> int:
        """The number of parameters of the attention of a layer."""
        if self.kv_rank:
            per_head = self.head_size + self.rope_size
            queries = (
                self.query_rank * (self.hidden + self.heads * per_head)
                if self.query_rank
                else self.hidden * self.heads * per_head
            )
            keys = self.hidden * (self.kv_rank + self.rope_size) + self.kv_rank * 2 * self.query_size
            return queries + keys + self.query_size * self.hidden
        return self.hidden * (2 * self.query_size + 2 * self.kv_size)

    @property
    def attention_inputs(self) -> float:
        """The output width of the projection matrices before attention, per token."""
        return (self.attention_params - self.query_size * self.hidden) / self.hidden

    def adapter_params(self, lora: int) -> float:
        """Return the parameters of a layer's adapter of rank *lora*, on queries, keys and values."""
        return lora * (self.hidden + self.attention_inputs)

    @property
    def dense_params(self) -> int:
        """The number of parameters of a dense feed-forward part."""
        return self.matrices * self.hidden * self.ffn

    @property
    def expert_params(self) -> int:
        """The number of parameters of one expert."""
        return self.matrices * self.hidden * self.expert_ffn

    @property
    def embedding_params(self) -> int:
        """The number of parameters of the embeddings before the layers."""
        positions = self.sequence * self.hidden if self.learned_positions else 0
        return self.vocab * self.hidden + positions

    @property
    def output_params(self) -> int:
        """The number of parameters after the layers, or 0 if they are shared with the embedding."""
        return 0 if self.tied else (self.classes or self.vocab) * self.hidden

    def is_expert_layer(self, layer: int) -> bool:
        """Return whether *layer* has experts."""
        return self.experts > 0 and layer >= self.dense_layers and (layer + 1) % self.expert_every == 0

    def layer_params(self, layer: int, *, active: bool = False) -> int:
        """Return the number of parameters of *layer*; with *active*, only a token's experts count."""
        if self.convolutions:
            return self.convolutions[layer].params
        if not self.is_expert_layer(layer):
            return self.attention_params + self.dense_params
        used = (self.top_k if active else self.experts) + self.shared_experts
        return self.attention_params + used * self.expert_params + self.experts * self.hidden

    def shared_params_on(self, tp: int, layer: int) -> float:
        """Return the non-expert parameters of *layer* on one of *tp* ranks, including copied keys."""
        experts = self.experts * self.expert_params if self.is_expert_layer(layer) else 0
        copied = 0.0
        if not self.convolutions and not self.kv_rank:
            copied = 2 * self.hidden * (self.kv_size_on(tp) - self.kv_size / tp)
        return (self.layer_params(layer) - experts) / tp + copied

    def params(self, *, active: bool = False) -> int:
        """Return the number of parameters of the model; with *active*, only a token's experts count."""
        layers = sum(self.layer_params(layer, active=active) for layer in range(self.layers))
        return layers + self.embedding_params + self.output_params

    def flops_per_token(self, sequence: int, *, trained: bool = True) -> float:
        """Return the required operations per token of a step, forward and backward, without recomputation.

        Each parameter of a matrix counts six operations, or four operations if it is not *trained*. Attention
        counts the whole square of the sequence, as is usual when utilisation is stated.
        """
        last = (self.classes or self.vocab) * self.hidden
        if self.convolutions:
            return 3.0 * sum(layer.flops for layer in self.convolutions) + 6.0 * last
        weights = sum(self.layer_params(layer, active=True) for layer in range(self.layers)) + last
        return (6.0 if trained else 4.0) * weights + 12.0 * self.layers * self.query_size * self.reach(
            sequence
        )

    def reach(self, sequence: int) -> float:
        """Return the length of a fully attended sequence with the same mean number of attended tokens.

        The length is *sequence*, or less with windows or chunks. The first tokens of a causal window see
        fewer tokens than the window has, and the last chunk may be shorter.
        """
        if not 0 < (self.window or self.chunk) < sequence:
            return sequence
        if self.chunk:
            chunks, rest = divmod(sequence, self.chunk)
            within = (chunks * self.chunk**2 + rest**2) / sequence
        else:
            within = 2 * self.window - self.window**2 / sequence if self.causal else self.window
        full = 1 / self.full_every if self.full_every else 0.0
        return full * sequence + (1 - full) * within
