"""Chips as data files: peaks from data sheets, and fitted costs of each class of operator."""

from ._chip import LOW_PRECISIONS as LOW_PRECISIONS
from ._chip import Chip as Chip
from ._chip import Costs as Costs
from ._chip import Fit as Fit
from ._chip import Host as Host
from ._chip import LinkCosts as LinkCosts
from ._chip import chip_of_device as chip_of_device
from ._chip import chip_text as chip_text
from ._chip import find_chip as find_chip
from ._chip import list_chips as list_chips
from ._chip import load_chip as load_chip
from ._chip import save_chip as save_chip
