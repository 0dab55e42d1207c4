"""Numbers published in papers, and predictions compared with them."""

from hybridlab.doors import door, doors, each_is, one_of
from hybridlab.predict.judged.megatron import dgxc
from hybridlab.predict.judged.scores import GROUPS, Judged, by, judged
from hybridlab.predict.papers.googlenet import MODULES, branches
from hybridlab.predict.papers.published import published
from hybridlab.predict.papers.sc21 import Row, figure, fitted, table_2

__all__ = ["MODULES", "branches", "by", "dgxc", "figure", "fitted", "judged", "published", "table_2"]

branches, figure, published, table_2 = doors(branches, figure, published, table_2)
by = door(by, some=each_is(Judged, "give rows of hl.papers.judged()"), name=one_of(GROUPS))
fitted = door(fitted, rows=each_is(Row, "give rows of hl.papers.figure"))
