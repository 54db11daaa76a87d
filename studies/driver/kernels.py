"""The kernels that the studies run in place of the papers' benchmarks, and their sizes.

Sizes are 13 to 40 MB, because the studies' machines have caches of a quarter: last-level caches of 1 to 9 MB. `{threads}`
is the number of threads. A kernel's name says its program; the class is that of the papers' benchmarks which it stands for.
"""
from collections import namedtuple

Kernel = namedtuple("Kernel", "name words kind stands_for")


def _(name, words, kind, stands_for):
    program, *arguments = words.split()
    return Kernel(name, ["target/workloads/" + program, *arguments], kind, stands_for)


KERNELS = [
    _("stencil2d", "stencil2d 1536 3", "stencil in two dimensions, memory of the main thread", "SP, BT"),
    _("waves-main", "studies/waves3d 96 4 1", "finite differences in three dimensions, memory of the main thread", "Ondes3D"),
    _("waves-own", "studies/waves3d 96 4 2", "the same, each thread initialises its part", "Ondes3D, memory-aware"),
    _("multigrid", "studies/multigrid 1024 1", "multigrid in two dimensions", "MG"),
    _("cg", "studies/cg 160000 3", "conjugate gradients, irregular matrix", "CG"),
    _("transpose", "transpose 1536 2", "transpose of a square matrix", "FT"),
    _("buckets", "verdict/buckets 1500000 1", "sorting into buckets", "IS"),
    _("wavefront", "verdict/wavefront {threads} 600 3200 2", "wavefront over a grid", "LU"),
    _("ep", "ep 2048 400", "independent work", "EP"),
    _("pipeline", "studies/pipeline 600 4096", "pipeline with queues", "Dedup, Ferret, X264"),
    _("cluster", "studies/stream_cluster 200000 1", "stream clustering", "Streamcluster"),
    _("cells", "studies/cells 4000 24 2", "particles in cells, memory of the main thread", "Fluidanimate"),
    _("hash-join", "studies/hash_join 300000 600000", "hash join", "Canneal, RandomAccess"),
]
