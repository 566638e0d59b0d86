"""Reads an Ultralytics `.pt` archive without running anything that is pickled in it.

A `.pt` file is a zip with `data.pkl`, a pickled model object, and one file a tensor storage.
Unpickling it the usual way imports and calls whatever the file names. Here nothing is imported:
tensors become numpy arrays, the model's classes become inert records of their state, and any
other name is refused. torch is not needed.
"""

import pickle
import zipfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from models.errors import SourceError

PICKLE_LIMIT = 64 << 20  # bytes of data.pkl; YOLO archives have 0.1 to 0.5 MB
DEPTH_LIMIT = 32  # modules inside modules; YOLO networks have 8

# torch/storage.py: the storage classes a pickle may name. BFloat16 has no numpy type and is
# widened to float32 when it is read.
STORAGES: dict[str, np.dtype[Any]] = {
    "FloatStorage": np.dtype("<f4"),
    "HalfStorage": np.dtype("<f2"),
    "BFloat16Storage": np.dtype("<u2"),
    "DoubleStorage": np.dtype("<f8"),
    "LongStorage": np.dtype("<i8"),
    "IntStorage": np.dtype("<i4"),
    "ShortStorage": np.dtype("<i2"),
    "CharStorage": np.dtype("i1"),
    "ByteStorage": np.dtype("u1"),
    "BoolStorage": np.dtype("?"),
}
# Containers that are made for real; the module has its Python 2 name in torch's pickles.
CONTAINERS: dict[str, type] = {
    "set": set,
    "frozenset": frozenset,
    "list": list,
    "dict": dict,
    "tuple": tuple,
    "slice": slice,
}
# Packages whose classes become records: Ultralytics 8, YOLOv5's repository and its package.
RECORDED_PACKAGES = ("ultralytics.", "models.", "utils.", "yolov5.", "torch.nn.")
# Single names that training settings bring along; records too, so that none of them runs.
RECORDED_NAMES = {
    "argparse.Namespace",
    "types.SimpleNamespace",
    "datetime.datetime",
    "pathlib.Path",
    "pathlib.PosixPath",
    "pathlib.PurePosixPath",
    "pathlib.WindowsPath",
    "_codecs.encode",
    "numpy.dtype",
    "numpy.ndarray",
    "numpy.core.multiarray.scalar",
    "numpy._core.multiarray.scalar",
    "numpy.core.multiarray._reconstruct",
    "numpy._core.multiarray._reconstruct",
    "torch.Size",
    "torch.device",
    *(f"torch.{name}" for name in ("float16", "float32", "float64", "bfloat16", "int64")),
}


@dataclass(frozen=True)
class Module:
    """What an archive says of one module.

    kind: its class, without the package; settings: its plain attributes (bool, int, float).
    """

    kind: str
    settings: dict[str, Any]


@dataclass(frozen=True)
class Archive:
    """A published checkpoint.

    architecture: the model's own `yaml` dict; names: labels by class id; stride: of each output;
    state: the state dict, parameter or buffer name -> array in its published type; modules: by
    dotted name.
    """

    architecture: dict[str, Any]
    names: tuple[str, ...]
    stride: tuple[int, ...]
    state: dict[str, np.ndarray]
    modules: dict[str, Module]


def read_archive(path: Path) -> Archive:
    """The checkpoint in `path`: the averaged weights (`ema`) where there are any, else `model`.

    Raises:
        SourceError: the file is damaged, names something that is not on the list above, or holds
            no detection model. Nothing has run then either.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            content = _Unpickler(_Storages(archive, path.name)).load()
    except zipfile.BadZipFile as error:
        raise SourceError(
            f"{path.name} is not a whole torch archive ({error}): it is truncated, or was not "
            f"written by torch 1.6 or newer"
        ) from error
    except (
        # whatever else a pickle can provoke in the unpickler and in the records
        pickle.UnpicklingError,
        EOFError,
        AttributeError,
        IndexError,
        KeyError,
        TypeError,
        ValueError,
        OverflowError,
        RecursionError,
        MemoryError,
        NotImplementedError,  # zipfile: a compression method it does not know
        RuntimeError,  # zipfile: an encrypted member
    ) as error:
        raise SourceError(f"{path.name}: damaged data.pkl ({error!r})") from error
    model = content
    if isinstance(content, dict):
        model = content.get("ema") or content.get("model")
    if not isinstance(model, _Record):
        raise SourceError(f"{path.name} holds no pickled model (`model` or `ema`)")
    return _archive_of(model, path.name)


def _archive_of(model: "_Record", where: str) -> Archive:
    state: dict[str, np.ndarray] = {}
    modules: dict[str, Module] = {}
    for name, record in _walk(model, where):
        fields = record.fields
        modules[name] = Module(
            type(record).__name__,
            {key: each for key, each in fields.items() if isinstance(each, bool | int | float)},
        )
        passing = fields.get("_non_persistent_buffers_set", ())
        for group in ("_parameters", "_buffers"):
            for key, value in _dict(fields, group, where).items():
                if value is None or key in passing:
                    continue
                if not isinstance(value, np.ndarray):
                    raise SourceError(f"{where}: {name}.{key} is not a tensor")
                state[f"{name}.{key}" if name else key] = value
    fields = model.fields
    architecture, stride = fields.get("yaml"), fields.get("stride")
    if not isinstance(architecture, dict) or not isinstance(stride, np.ndarray):
        raise SourceError(f"{where}: its {type(model).__name__} has no `yaml` dict or no `stride`")
    return Archive(
        architecture=architecture,
        names=_names(fields.get("names"), where),
        stride=tuple(int(each) for each in stride.ravel()),
        state=state,
        modules=modules,
    )


def _names(value: object, where: str) -> tuple[str, ...]:
    """Labels by class id, from a list or a dict id -> label."""
    found = dict(enumerate(value)) if isinstance(value, list) else value
    if not isinstance(found, dict) or sorted(found, key=str) != sorted(range(len(found)), key=str):
        raise SourceError(f"{where}: the model's `names` are not labels by class id")
    return tuple(str(found[index]) for index in range(len(found)))


def _walk(model: "_Record", where: str) -> Iterator[tuple[str, "_Record"]]:
    """Each module with its dotted name, the model itself (with an empty name) first."""
    pending = [("", model, 0)]
    while pending:
        name, record, depth = pending.pop()
        if depth > DEPTH_LIMIT:
            raise SourceError(f"{where}: modules are nested more than {DEPTH_LIMIT} deep")
        yield name, record
        for key, inner in _dict(record.fields, "_modules", where).items():
            if isinstance(inner, _Record):
                pending.append((f"{name}.{key}" if name else str(key), inner, depth + 1))


def _dict(fields: dict[str, Any], key: str, where: str) -> dict[str, Any]:
    value = fields.get(key, {})
    if not isinstance(value, dict):
        raise SourceError(f"{where}: `{key}` of a module is not a dict")
    return value


class _Record:
    """Stands for an object of a class that is not imported: keeps its state, does nothing."""

    fields: dict[str, Any]

    def __new__(cls, *_arguments: object, **_named: object) -> "_Record":
        record = object.__new__(cls)
        object.__setattr__(record, "fields", {})
        return record

    def __setstate__(self, state: object) -> None:
        parts = state if isinstance(state, tuple) else (state,)
        for part in parts:  # (dict, slots) where the class has slots
            if isinstance(part, dict):
                self.fields.update(part)


class _Rebuild:
    """A function that `data.pkl` may call. An object without a dict, so that a pickle cannot set
    attributes on it as it could on a function."""

    __slots__ = ("_function",)

    def __init__(self, function: Callable[..., np.ndarray]) -> None:
        self._function = function

    def __call__(self, *arguments: Any) -> np.ndarray:
        return self._function(*arguments)

    def __setstate__(self, state: object) -> None:
        raise pickle.UnpicklingError("state for a function")


class _Unpickler(pickle.Unpickler):
    def __init__(self, storages: "_Storages") -> None:
        super().__init__(storages.pickle(), encoding="utf-8")
        self._storages = storages

    def find_class(self, module: str, name: str) -> Any:
        full = f"{module}.{name}"
        if full in REBUILDS:
            return _Rebuild(REBUILDS[full])
        if module == "collections" and name == "OrderedDict":
            return OrderedDict
        if module in ("builtins", "__builtin__") and name in CONTAINERS:
            return CONTAINERS[name]
        if module == "torch" and name in STORAGES:
            return type(name, (_Record,), {})
        if full in RECORDED_NAMES or full.startswith(RECORDED_PACKAGES):
            return type(name, (_Record,), {})
        raise SourceError(
            f"{self._storages.where} names {module}.{name}, which no YOLO checkpoint needs: the "
            f"file is refused, and nothing in it has run"
        )

    def persistent_load(self, pid: Any) -> np.ndarray:
        kind, storage, key, _location, count = pid
        if kind != "storage":
            raise pickle.UnpicklingError(f"persistent id of kind {kind!r}")
        return self._storages.read(storage.__name__, str(key), count)


class _Storages:
    """The members of the zip that hold tensors' values."""

    def __init__(self, archive: zipfile.ZipFile, where: str) -> None:
        self.where = where
        self._archive = archive
        self._read: dict[str, np.ndarray] = {}
        found = [name for name in archive.namelist() if name.split("/")[1:] == ["data.pkl"]]
        if len(found) != 1:
            raise SourceError(f"{where} is a zip file, but not a torch archive: it has no data.pkl")
        self._folder = found[0].removesuffix("data.pkl")
        order = f"{self._folder}byteorder"
        if order in archive.namelist() and archive.read(order) != b"little":
            raise SourceError(f"{where} was written on a big-endian machine")

    def pickle(self) -> Any:
        """data.pkl as a stream."""
        info = self._member("data.pkl")
        if info.file_size > PICKLE_LIMIT:
            raise SourceError(f"{self.where}: data.pkl has {info.file_size} bytes")
        return self._archive.open(info)

    def read(self, kind: str, key: str, count: int) -> np.ndarray:
        """The storage `key` as a flat array of `count` elements."""
        if key not in self._read:
            dtype: np.dtype[Any] = STORAGES[kind]
            info = self._member(f"data/{key}")
            if info.file_size != count * dtype.itemsize:
                raise SourceError(
                    f"{self.where}: data/{key} has {info.file_size} bytes, data.pkl says "
                    f"{count} x {dtype.itemsize}"
                )
            values: np.ndarray = np.frombuffer(self._archive.read(info), dtype)
            if kind == "BFloat16Storage":
                values = (values.astype(np.uint32) << 16).view(np.float32)
            self._read[key] = values
        return self._read[key]

    def _member(self, name: str) -> zipfile.ZipInfo:
        try:
            info = self._archive.getinfo(self._folder + name)
        except KeyError as error:
            raise SourceError(f"{self.where} has no member {self._folder}{name}") from error
        if info.compress_type != zipfile.ZIP_STORED:  # torch stores; compression hides bombs
            raise SourceError(f"{self.where}: {info.filename} is compressed; torch stores it plain")
        return info


def _rebuild_tensor(
    storage: np.ndarray, offset: int, size: tuple[int, ...], stride: tuple[int, ...], *_: object
) -> np.ndarray:
    """torch._utils._rebuild_tensor_v2: a view of a storage; here a copy, bounds checked."""
    if len(size) != len(stride) or min((offset, *size, *stride)) < 0:
        raise ValueError(f"tensor of size {size} and stride {stride}")
    last = offset + sum((length - 1) * step for length, step in zip(size, stride, strict=True))
    count = prod(size)
    if count > len(storage) or (count and last >= len(storage)):
        raise ValueError(f"tensor of size {size} and stride {stride} reaches past its storage")
    if not count:
        return np.zeros(size, storage.dtype)
    steps = tuple(step * storage.itemsize for step in stride)
    return np.lib.stride_tricks.as_strided(storage[offset:], size, steps).copy()


def _rebuild_parameter(data: np.ndarray, *_: object) -> np.ndarray:
    """torch._utils._rebuild_parameter: the tensor itself."""
    return data


REBUILDS: dict[str, Callable[..., np.ndarray]] = {
    "torch._utils._rebuild_tensor_v2": _rebuild_tensor,
    "torch._utils._rebuild_parameter": _rebuild_parameter,
    "torch._utils._rebuild_parameter_with_state": _rebuild_parameter,
}
