"""The witness: a decoder in NumPy that really does what the bill says, and counts.

`decoder` is the whole of it on one screen; the forwards stand beside the lists in `components`.

>>> import planner
>>> model = planner.witness.scaled_down(planner.load("gqa-8")).architecture
>>> weights = planner.witness.random_weights(model)
>>> planner.witness.logits(model, weights, [[1, 2, 3], [4, 5, 6]]).shape
(2, 3, 67)
"""

from planner.witness.cache import Cache
from planner.witness.meter import Meter
from planner.witness.report import Check, Report
from planner.witness.scaling import Scaled, scaled_down
from planner.witness.session import Witness, logits, random_weights

__all__ = ["Cache", "Check", "Meter", "Report", "Scaled", "Witness", "logits", "random_weights", "scaled_down"]
