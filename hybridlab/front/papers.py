"""Numbers published in papers, and predictions compared with them."""

from hybridlab.predict.judged.megatron import dgxc
from hybridlab.predict.judged.scores import by, judged
from hybridlab.predict.papers.googlenet import MODULES, branches
from hybridlab.predict.papers.published import published
from hybridlab.predict.papers.sc21 import figure, fitted, table_2

__all__ = ["MODULES", "branches", "by", "dgxc", "figure", "fitted", "judged", "published", "table_2"]
