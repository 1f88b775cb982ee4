"""The layers of convolutional networks by their shapes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class Convolution:
    """A convolution of *kernel* squared, from *inputs* to *outputs* channels, of images.

    *before* and *positions* are the numbers of input and output pixels; a fully connected layer has one of
    each. *norm*: a batch normalisation follows; *bias*: it has a bias.
    """

    name: str
    inputs: int
    outputs: int
    kernel: int
    before: int
    positions: int
    norm: bool = False
    bias: bool = False

    @property
    def params(self) -> int:
        """Parameters, including its normalisation's."""
        return self.inputs * self.outputs * self.kernel**2 + self.outputs * (2 * self.norm + self.bias)

    @property
    def flops(self) -> int:
        """Operations of the forward pass per image."""
        return 2 * self.inputs * self.outputs * self.kernel**2 * self.positions


def vgg16_layers() -> tuple[Convolution, ...]:
    """Return the layers of VGG16 before its classifier, on images of 224 x 224."""
    return tuple(_vgg16())


def _vgg16() -> Iterator[Convolution]:
    inputs, side = 3, 224
    for block, (outputs, count) in enumerate(((64, 2), (128, 2), (256, 3), (512, 3), (512, 3)), start=1):
        for number in range(1, count + 1):
            name = f"block{block}.conv{number}"
            yield Convolution(name, inputs, outputs, 3, side**2, side**2, bias=True)
            inputs = outputs
        side //= 2
    yield Convolution("fc1", inputs * side**2, 4096, 1, 1, 1, bias=True)
    yield Convolution("fc2", 4096, 4096, 1, 1, 1, bias=True)


def resnet50_layers() -> tuple[Convolution, ...]:
    """Return the layers of ResNet-50 (v1.5) before its classifier, on images of 224 x 224."""
    return tuple(_resnet50())


def _resnet50() -> Iterator[Convolution]:
    yield Convolution("conv1", 3, 64, 7, 224**2, 112**2, norm=True)
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
                yield Convolution(f"{name}.shortcut", inputs, outputs, 1, before**2, side**2, norm=True)
            inputs, before = outputs, side
