"""NumPy for the forwards, and the element-wise functions that they share.

Counting a model needs no arrays, so NumPy is imported when a forward first uses it, by the stand-in `np`; a component's
file then reads like any other NumPy code, and reading a config costs nothing.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    np = numpy
    Array: TypeAlias = NDArray[Any]
else:

    class _Deferred:
        """The module NumPy, imported when one of its names is first asked for."""

        def __getattr__(self, name: str) -> Any:
            import numpy

            return getattr(numpy, name)

    np = _Deferred()
    Array = Any


def sigmoid(x: Array) -> Array:
    """``1 / (1 + exp(-x))``, without overflow on either side."""
    small = np.exp(-np.abs(x))  # in (0, 1]
    return np.asarray(np.where(x >= 0, 1, small) / (1 + small))


def softplus(x: Array) -> Array:
    """``log(1 + exp(x))``."""
    return np.asarray(np.logaddexp(x, x.dtype.type(0)))


def softmax(x: Array) -> Array:
    """Exponentials over their sum along the last axis; a row of -inf gives zeros."""
    top = np.max(x, axis=-1, keepdims=True, initial=-np.inf)
    weights = np.exp(x - np.where(np.isfinite(top), top, 0))
    total = np.sum(weights, axis=-1, keepdims=True)
    return np.asarray(weights / np.where(total == 0, 1, total))


def soft_capped(x: Array, cap: float | None) -> Array:
    """Bounded to (-cap, cap) by a tanh (Gemma Team 2024, Gemma 2, section 2); None leaves it as it is."""
    return x if cap is None else np.asarray(cap * np.tanh(x / cap))


def erf(x: Array) -> Array:
    """The error function, element by element: NumPy has none."""
    return np.vectorize(math.erf, otypes=[x.dtype])(x)


def activate(name: str, x: Array) -> Array:
    """An activation by its name in the contract (Hendrycks and Gimpel 2016 for both forms of GELU)."""
    match name:
        case "relu":
            return np.maximum(x, 0)
        case "relu2":  # So et al. 2021, Primer
            return np.maximum(x, 0) ** 2
        case "gelu":
            return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))
        case "gelu_tanh":
            return np.asarray(0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))))
        case "gelu_quick" | "swiglu_oai":
            return x * sigmoid(1.702 * x)
        case "silu":
            return x * sigmoid(x)
        case "sigmoid":
            return sigmoid(x)
    raise AssertionError(f"activation {name} has no forward")
