"""Maps FOLDER/tasks onto FOLDER/target (METIS files) with Mt-KaHyPar, at most CAPACITY tasks a PU.

Prints `milliseconds M`, then the PU of every task. Only the mapping itself is timed.
"""
import sys
import time

import mtkahypar

folder, capacity = sys.argv[1], int(sys.argv[2])
tool = mtkahypar.initialize(2)
mtkahypar.set_seed(1)
context = tool.context_from_preset(mtkahypar.PresetType.QUALITY)
context.logging = False
graph = tool.graph_from_file(folder + "/tasks", context, mtkahypar.FileFormat.METIS)
target = tool.target_graph_from_file(folder + "/target", context, mtkahypar.FileFormat.METIS)
pus = target.num_nodes()
context.set_partitioning_parameters(pus, 0.0, mtkahypar.Objective.CUT)
context.set_individual_target_block_weights([capacity] * pus)
start = time.perf_counter()
mapped = graph.map_onto_graph(target, context)
print("milliseconds", 1e3 * (time.perf_counter() - start))
print(*mapped.get_partition())
