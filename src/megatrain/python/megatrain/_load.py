"""Chooses between the build with CUDA and the one without, as the program does."""

import ctypes
import glob
import os
import sys
from importlib.util import find_spec
from types import ModuleType

_LIBRARIES = ("libcudart.so.13", "libnvrtc.so.13", "libcublasLt.so.13", "libcudnn.so.9")


def _load_libraries() -> str:
    """Loads CUDA's libraries, the system's or those of NVIDIA's wheels; returns the name of one that is missing."""
    folders: list[str] = []
    for root in sys.path:
        folders += glob.glob(os.path.join(root, "nvidia", "*", "lib"))
    for name in _LIBRARIES:
        for candidate in [name] + [os.path.join(folder, name) for folder in folders]:
            try:
                ctypes.CDLL(candidate, mode=ctypes.RTLD_GLOBAL)
                break
            except OSError:
                continue
        else:
            return name
    return ""


def load() -> ModuleType:
    if find_spec("megatrain._core_cuda") is not None:
        missing = _load_libraries()
        if not missing:
            try:
                from megatrain import _core_cuda  # type: ignore[attr-defined]

                return _core_cuda  # type: ignore[no-any-return]
            except ImportError as error:
                missing = str(error)
        if os.path.exists("/dev/nvidiactl") or os.path.exists("/dev/dxg"):
            print(
                f"megatrain: the GPU is not used, as CUDA's libraries did not load ({missing}); "
                "pip install 'megatrain[cuda]'",
                file=sys.stderr,
            )
    from megatrain import _core

    return _core
