"""voxpop: one honest number from many noisy answers.

The public names are listed in ``__init__.pyi`` and loaded when they are first used, so that
``import voxpop`` costs nothing.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
