"""The execution of a schedule on a rank: the player, its work, a backward in two halves, versions of weights, copies to
the host and back.
"""

from hybridlab.modes.out_of_core import Keeping, KeepingWork
from hybridlab.runtime import work
from hybridlab.runtime.copies import Coming, Leaving
from hybridlab.runtime.halves import input_half, weight_half
from hybridlab.runtime.player import Player
from hybridlab.runtime.versions import Versions

__all__ = ["Coming", "Keeping", "KeepingWork", "Leaving", "Player", "Versions", "input_half", "weight_half", "work"]
