"""The textbook: closed formulas of whole models and whole phases, by chapter.

They hold for decoders whose layers are all equal. What a real model has beyond that (mixed layers, biases, QK norms,
shared blocks) is in its bill, and a test proves that the bill of a uniform decoder and the textbook say the same thing.

=====================  ==========================================================================
`parameters`           norms, feed-forwards, projections, whole models, the active part
`attention_flops`      the work of the attention core and of what stands around it
`cache`                payload of the key/value cache in all its representations
`memory_traffic`       temporary memory, weights, and bytes that go through the device memory
`crossovers`           where one cost overtakes another, in closed form
`pipeline`             chunks that follow one another through stages
`cost`                 money: hours, tokens, requests, and where owning overtakes an API
=====================  ==========================================================================
"""

from planner.textbook import attention_flops, cache, cost, crossovers, memory_traffic, parameters, pipeline

__all__ = ["attention_flops", "cache", "cost", "crossovers", "memory_traffic", "parameters", "pipeline"]
