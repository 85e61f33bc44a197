"""See inside a small GPT: train it, cache it, split its logits exactly, and check what you see.

The public names stand in `__init__.pyi`, for type checkers too; each is imported when first used,
so that `import interp` is quick.
"""

import lazy_loader

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
