"""The layers of convolutional networks by their shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Convolution:
    """A convolution of *kernel* squared, from *inputs* to *outputs* channels, of images.

    *before* and *positions* are the numbers of input and output pixels; a fully connected layer has one of
    each. *norm*: a batch normalisation follows; *bias*: it has a bias. *pooled* is the number of pixels after
    the max pooling behind it, 0 without one. The output of a *shortcut* is added to that of another layer.
    *dropout*: its output is multiplied by a random mask.
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
        """Parameters, including its normalisation's."""
        return self.inputs * self.outputs * self.kernel**2 + self.outputs * (2 * self.norm + self.bias)

    @property
    def flops(self) -> int:
        """Operations of the forward pass per image."""
        return 2 * self.inputs * self.outputs * self.kernel**2 * self.positions

    def stored_bytes(self, element_bytes: int) -> int:
        """Return the bytes per image that PyTorch keeps for the backward pass of the layer.

        The activation works in place, on the output of the convolution or of the normalisation. The latter
        keeps its input as well. The addition behind a shortcut needs neither operand. A max pooling keeps
        its results, which are the next layer's input, and their places as integers of 8 bytes. A dropout
        keeps its result and a mask of 1 byte per number.
        """
        copies = 1 + (self.norm and not self.shortcut)
        stored = self.positions * copies * element_bytes
        if self.pooled:
            stored += self.pooled * (element_bytes + _PLACE_BYTES)
        if self.dropout:
            stored += self.positions * (element_bytes + 1)
        return self.outputs * stored


_PLACE_BYTES = 8


def vgg16_layers() -> tuple[Convolution, ...]:
    """Return the layers of VGG16 before its classifier, on images of 224 x 224."""
    return tuple(_vgg16())


def _vgg16() -> Iterator[Convolution]:
    inputs, side = 3, 224
    for block, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for number in range(1, count + 1):
            name, pooled = f"block{block}.conv{number}", (side // 2) ** 2 if number == count else 0
            yield Convolution(name, inputs, outputs, 3, side**2, side**2, bias=True, pooled=pooled)
            inputs = outputs
        side //= 2
    yield Convolution("fc1", inputs * side**2, 4096, 1, 1, 1, bias=True, dropout=True)
    yield Convolution("fc2", 4096, 4096, 1, 1, 1, bias=True, dropout=True)


def resnet50_layers() -> tuple[Convolution, ...]:
    """Return the layers of ResNet-50 (v1.5) before its classifier, on images of 224 x 224."""
    return tuple(_resnet50())


def _resnet50() -> Iterator[Convolution]:
    yield Convolution("conv1", 3, 64, 7, 224**2, 112**2, norm=True, pooled=56**2)
    inputs, before = 64, 56
    for stage, (width, count, side) in enumerate(
        ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7)), start=1
    ):
        for block in range(1, count + 1):
            name, outputs = f"stage{stage}.block{block}", 4 * width
            yield Convolution(f"{name}.conv1", inputs, width, 1, before**2, before**2, norm=True)
            yield Convolution(f"{name}.conv2", width, width, 3, before**2, side**2, norm=True)
            yield Convolution(f"{name}.conv3", width, outputs, 1, side**2, side**2, norm=True)
            if block == 1:
                sizes = inputs, outputs, 1, before**2, side**2
                yield Convolution(f"{name}.shortcut", *sizes, norm=True, shortcut=True)
            inputs, before = outputs, side
