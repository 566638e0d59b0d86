"""Reading an Ultralytics archive: what it holds, and that nothing pickled in it ever runs.

The archives are written here with pickle and zipfile in torch's layout, so no torch is needed.
"""

import io
import os
import pickle
import sys
import types
import zipfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from models.errors import SourceError
from models.ultralytics.archive import read_archive

WEIGHT = np.arange(24, dtype=np.float16).reshape(2, 3, 4)


@pytest.fixture(autouse=True)
def published(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """Makes classes and functions that pickle as if they were of a published package."""

    def make(full: str, kind: str = "class") -> Any:
        if full in known:
            return known[full]
        module, name = full.rsplit(".", 1)
        parts = module.split(".")
        for end in range(1, len(parts) + 1):
            each = ".".join(parts[:end])
            if each not in modules:
                modules[each] = types.ModuleType(each)
            monkeypatch.setitem(sys.modules, each, modules[each])
        made = type(name, (), {"__module__": module, "__qualname__": name})
        if kind == "function":

            def made(*_: object) -> None:
                raise AssertionError("it ran")

            made.__module__, made.__qualname__, made.__name__ = module, name, name
        setattr(modules[module], name, made)
        known[full] = made
        return made

    modules: dict[str, types.ModuleType] = {}
    known: dict[str, Any] = {}
    return make


class Tensor:
    """Pickles as torch writes a tensor: a call that rebuilds it from a persistent storage."""

    def __init__(self, rebuild: Any, storage: Any, view: tuple[Any, ...]) -> None:
        self.parts = rebuild, storage, view

    def __reduce__(self) -> Any:
        rebuild, storage, (offset, size, stride) = self.parts
        return rebuild, (storage, offset, size, stride, False, OrderedDict())


class Storage:
    def __init__(self, kind: Any, key: str, count: int) -> None:
        self.pid = ("storage", kind, key, "cpu", count)


class Pickler(pickle.Pickler):
    def persistent_id(self, obj: Any) -> Any:
        return obj.pid if isinstance(obj, Storage) else None


def write(path: Path, content: Any, storages: dict[str, bytes], **options: Any) -> Path:
    stream = io.BytesIO()
    Pickler(stream, protocol=2).dump(content)
    with zipfile.ZipFile(path, "w", **options) as archive:
        archive.writestr("net/data.pkl", stream.getvalue())
        archive.writestr("net/byteorder", "little")
        for key, data in storages.items():
            archive.writestr(f"net/data/{key}", data)
    return path


@pytest.fixture
def network(published: Any) -> Callable[..., Any]:
    """A pickled-to-be detection model with one convolution; `view` is how its weight is stored."""

    def make(view: Any = (0, (2, 3, 4), (12, 4, 1)), count: int = 24, **changes: Any) -> Any:
        rebuild = published("torch._utils._rebuild_tensor_v2", "function")
        half, integers = published("torch.HalfStorage"), published("torch.LongStorage")
        weight = Tensor(rebuild, Storage(half, "0", count), view)
        conv = published("torch.nn.modules.conv.Conv2d")()
        conv.__dict__ |= {
            "_parameters": OrderedDict(weight=weight, bias=None),
            "_buffers": OrderedDict(seen=weight, scratch=weight),
            "_non_persistent_buffers_set": {"scratch"},
            "_modules": OrderedDict(),
        }
        model = published("ultralytics.nn.tasks.DetectionModel")()
        model.__dict__ |= {
            "_parameters": OrderedDict(),
            "_buffers": OrderedDict(),
            "_modules": OrderedDict(conv=conv),
            "yaml": {"nc": 2, "backbone": [], "head": []},
            "names": {0: "cat", 1: "dog"},
            "stride": Tensor(rebuild, Storage(integers, "1", 3), (0, (3,), (1,))),
        }
        model.__dict__ |= changes
        return model

    return make


STORAGES = {"0": WEIGHT.tobytes(), "1": np.array([8, 16, 32]).tobytes()}


@pytest.mark.parametrize("key", ["model", "ema", None])
def test_an_archive_is_its_architecture_labels_strides_and_state(
    key: str | None, network: Any, tmp_path: Path
) -> None:
    content = (
        network() if key is None else {"epoch": -1, "ema": None, "model": None, key: network()}
    )
    found = read_archive(write(tmp_path / "net.pt", content, STORAGES))
    assert found.architecture == {"nc": 2, "backbone": [], "head": []}
    assert found.names == ("cat", "dog")
    assert found.stride == (8, 16, 32)
    assert sorted(found.state) == ["conv.seen", "conv.weight"]  # scratch is not persistent
    assert found.state["conv.weight"].dtype == np.float16
    np.testing.assert_array_equal(found.state["conv.weight"], WEIGHT)
    assert {name: module.kind for name, module in found.modules.items()} == {
        "": "DetectionModel",
        "conv": "Conv2d",
    }


def test_the_averaged_weights_are_preferred(network: Any, tmp_path: Path) -> None:
    content = {"model": network(names=["old", "older"]), "ema": network()}
    assert read_archive(write(tmp_path / "net.pt", content, STORAGES)).names == ("cat", "dog")


def test_a_transposed_tensor_is_read_in_its_own_order(network: Any, tmp_path: Path) -> None:
    content = network(view=(0, (4, 3, 2), (1, 4, 12)))
    found = read_archive(write(tmp_path / "net.pt", content, STORAGES))
    np.testing.assert_array_equal(found.state["conv.weight"], WEIGHT.T)


class Call:
    """Pickles as a call."""

    def __init__(self, function: Any, *arguments: Any) -> None:
        self.parts = function, arguments

    def __reduce__(self) -> Any:
        return self.parts


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (os.system, rf"{os.system.__module__}\.system"),
        (exec, r"__builtin__\.eval|__builtin__\.exec|builtins\.exec"),
        (getattr, r"__builtin__\.getattr"),
        (__import__, r"__builtin__\.__import__"),
    ],
    ids=["os.system", "exec", "getattr", "import"],
)
def test_a_malicious_archive_is_refused_by_name_and_nothing_runs(
    function: Any, name: str, network: Any, tmp_path: Path
) -> None:
    marker = tmp_path / "it-ran"
    attack = f"touch {marker}" if function is os.system else f"open({str(marker)!r}, 'w')"
    content = {"model": network(), "train_args": Call(function, attack)}
    with pytest.raises(SourceError, match=rf"^net\.pt names ({name}), .* nothing in it has run$"):
        read_archive(write(tmp_path / "net.pt", content, STORAGES))
    assert not marker.exists()


def test_a_function_of_a_known_package_is_recorded_and_not_called(
    published: Any, network: Any, tmp_path: Path
) -> None:
    content = {"model": network(), "loss": Call(published("ultralytics.utils.run", "function"), 1)}
    assert read_archive(write(tmp_path / "net.pt", content, STORAGES)).names == ("cat", "dog")


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (lambda data: data[: len(data) // 2], r"^net\.pt is not a whole torch archive"),
        (lambda data: b"", r"^net\.pt is not a whole torch archive"),
        (lambda data: b"\x80\x02}q\x00.", r"^net\.pt is not a whole torch archive"),
        (
            lambda data: data.replace(b"net/byteorder", b"net/bytXorder").replace(
                b"ultralytics.nn.tasks", b"ultralytics.nn.t\x00sks"
            ),
            r"^net\.pt is not a whole torch archive \(Bad CRC",
        ),
    ],
    ids=["half", "empty", "not a zip", "flipped byte"],
)
def test_a_damaged_file_is_one_sentence(
    damage: Callable[[bytes], bytes], sentence: str, network: Any, tmp_path: Path
) -> None:
    path = write(tmp_path / "net.pt", network(), STORAGES)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(SourceError, match=sentence):
        read_archive(path)


def test_a_zip_without_a_pickle_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "net.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no model")
    with pytest.raises(SourceError, match=r"it has no data\.pkl$"):
        read_archive(path)


@pytest.mark.parametrize(
    ("storages", "view", "sentence"),
    [
        ({"1": STORAGES["1"]}, None, r"has no member net/data/0$"),
        (STORAGES | {"0": b"\0" * 47}, None, r"data/0 has 47 bytes, data\.pkl says 24 x 2$"),
        (STORAGES, (0, (2, 3, 5), (12, 4, 1)), "reaches past its storage"),
        (STORAGES, (20, (8,), (1,)), "reaches past its storage"),
        (STORAGES, (0, (10**12,), (0,)), "reaches past its storage"),
        (STORAGES, (0, (-1,), (1,)), "tensor of size"),
        (STORAGES, (0, (2,), (1, 1)), "tensor of size"),
    ],
    ids=["no storage", "short storage", "too long", "offset", "expanded", "negative", "ranks"],
)
def test_a_tensor_that_its_storage_does_not_hold_is_refused(
    storages: dict[str, bytes], view: Any, sentence: str, network: Any, tmp_path: Path
) -> None:
    content = network(view) if view else network()
    with pytest.raises(SourceError, match=sentence):
        read_archive(write(tmp_path / "net.pt", content, storages))


def test_a_compressed_archive_is_refused_before_it_can_unfold(network: Any, tmp_path: Path) -> None:
    path = write(tmp_path / "net.pt", network(), STORAGES, compression=zipfile.ZIP_DEFLATED)
    with pytest.raises(SourceError, match="is compressed"):
        read_archive(path)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"yaml": None}, "has no `yaml` dict"),
        ({"names": {0: "cat", 2: "dog"}}, "not labels by class id"),
        ({"names": None}, "not labels by class id"),
    ],
)
def test_a_model_that_does_not_describe_itself_is_refused(
    changes: dict[str, Any], sentence: str, network: Any, tmp_path: Path
) -> None:
    with pytest.raises(SourceError, match=sentence):
        read_archive(write(tmp_path / "net.pt", network(**changes), STORAGES))


def test_modules_that_contain_themselves_are_refused(network: Any, tmp_path: Path) -> None:
    model = network()
    model._modules["again"] = model
    with pytest.raises(SourceError, match="nested more than 32 deep"):
        read_archive(write(tmp_path / "net.pt", model, STORAGES))


def test_weights_alone_are_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match="holds no pickled model"):
        read_archive(write(tmp_path / "net.pt", {"model": {"weight": 1}}, STORAGES))
