"""The components of a decoder, one file a kind: its Spec, its lists and its NumPy forward.

Importing this package makes every kind known to the contract; a new kind is one more file here.
"""

from importlib import import_module
from pkgutil import iter_modules

for _module in iter_modules(__path__):
    import_module(f"{__name__}.{_module.name}")
