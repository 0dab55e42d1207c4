"""Named layouts: small programs of operators (`programs`), the strategies of each operator, and a run of a program with
tensors sharded by a table of rules.
"""

from hybridlab.core.what import programs
from hybridlab.core.what.operators import every_rules
from hybridlab.core.where.layout import Cut, Layout, Param
from hybridlab.doors import doors
from hybridlab.modes.products.layouts import prepared, run

__all__ = ["Cut", "Layout", "Param", "every_rules", "prepared", "programs", "run"]

every_rules, prepared, run = doors(every_rules, prepared, run)
