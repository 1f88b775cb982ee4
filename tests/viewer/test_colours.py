"""Colours that carry meaning must stay apart for everybody, and be seen on what they are drawn on."""

from itertools import combinations

import numpy as np
import pytest

from chakrascope.viewer._theme import KIND_COLOURS, ON_KIND_INK, PATH_COLOUR
from chakrascope.viewer.charts._diff import COLOURS

# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as seen without one sort of cone.
VISIONS = {
    "usual": np.eye(3),
    "deuteranopia": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "protanopia": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "tritanopia": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}
DISTINCT_VERDICTS = {name: COLOURS[name] for name in ("more", "less", "undecided", "step")}
PAPER = {"light": "#ffffff", "dark": "#242424"}


def linear(colour):
    channels = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def lab(light):
    """Return CIE L*a*b* (D65) of linear RGB."""
    matrix = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.clip(matrix @ light, 1e-9, None) / np.array([0.9505, 1.0, 1.089]))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def contrast(one, other):
    """Return the contrast of WCAG 2, from 1 to 21."""
    bright = sorted(float(np.dot([0.2126, 0.7152, 0.0722], linear(colour))) for colour in (one, other))
    return (bright[1] + 0.05) / (bright[0] + 0.05)


@pytest.mark.parametrize("colours", [KIND_COLOURS, DISTINCT_VERDICTS], ids=["kinds", "verdicts"])
@pytest.mark.parametrize("vision", VISIONS)
def test_colours_stay_apart(vision, colours):
    seen = {name: lab(np.clip(VISIONS[vision] @ linear(colour), 0, 1)) for name, colour in colours.items()}
    apart = {pair: np.linalg.norm(seen[pair[0]] - seen[pair[1]]) for pair in combinations(seen, 2)}
    assert min(apart.values()) >= 13, min(apart, key=apart.get)


@pytest.mark.parametrize("scheme", PAPER)
@pytest.mark.parametrize("colour", [*KIND_COLOURS.values(), *DISTINCT_VERDICTS.values(), PATH_COLOUR])
def test_colours_stand_out_from_the_page(scheme, colour):
    assert contrast(colour, PAPER[scheme]) >= 1.9


@pytest.mark.parametrize("colour", KIND_COLOURS.values())
def test_names_can_be_read_on_their_slices(colour):
    assert contrast(ON_KIND_INK, colour) >= 4.5
