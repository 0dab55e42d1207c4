"""Notebook 43: the problems that are searched. The machines are made up, so all numbers are the same everywhere."""

from hybridlab.core.what.programs import classifier, mlp
from hybridlab.core.where.mesh import Mesh
from hybridlab.predict.bytes.collectives import Link
from hybridlab.predict.search.problem import Problem
from hybridlab.predict.search.profile import Rated

CLUSTER = Rated(multiply=1e13, memory=5e11, launch=1e-5, links=Link(5e-5, 1 / 10e9))
NODE = Rated(multiply=2e14, memory=1.5e12, launch=5e-6, links=Link(1e-5, 1 / 300e9))

IMAGES = Problem(classifier(512, 64, 2048, 64, 4096, 1024), Mesh(i=4), CLUSTER)
VALLEY = Problem(mlp(64, 128, 1024, 4096), Mesh(i=2, j=2), NODE)
SMALL = classifier(64, 16, 192, 64, 1024, 64)  # for real ranks
