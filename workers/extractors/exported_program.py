"""A reader of `torch.export.save` archives (.pt2) that executes nothing but tensor algebra.

torch.export.load unpickles whatever an archive marks as pickled and evaluates its symbolic
shapes ("Never load data from an untrusted source", says its documentation); TorchScript and
torch.load are no better. An exported program is a list of calls of ATen operators, though,
written in JSON beside raw tensors. So this reads the list, refuses every operator that it
does not know to be a function of its arguments, and calls the rest in order. What is random
(dropout in training), in place, or in a precision below float32 is refused with it.
"""

import io
import json
import operator
import zipfile
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import torch

from workers.extractors.base import ExtractorError

SCHEMA_MAJOR = 8  # of torch/_export/serde/schema.py; a new major number breaks readers

# Functions of their arguments, whatever the overload: no randomness, files or state.
_NAMES = """
_adaptive_avg_pool2d _assert_tensor_metadata _log_softmax
_native_batch_norm_legit_no_training _softmax _to_copy _unsafe_view _upsample_bicubic2d_aa
_upsample_bilinear2d_aa abs adaptive_avg_pool1d adaptive_avg_pool2d adaptive_max_pool2d
add addcmul addmm alias amax amin any arange argmax avg_pool1d avg_pool2d baddbmm
batch_norm bmm cat chunk clamp clamp_max clamp_min clone concat constant_pad_nd contiguous
conv1d conv2d conv3d convolution cos cumsum detach div dropout einsum elu embedding eq erf
exp expand expand_as eye flatten flip floor full full_like gather ge gelu group_norm gt
hardsigmoid hardswish hardtanh index index_select instance_norm layer_norm le leaky_relu
lift_fresh_copy linalg_vector_norm linear log log1p log_softmax logical_and logical_not
logical_or lt masked_fill matmul max max_pool1d max_pool2d max_pool2d_with_indices maximum
mean min minimum mish mm mul native_group_norm native_layer_norm ne neg new_full new_ones
new_zeros norm ones ones_like pad permute pixel_shuffle pow prelu reciprocal relu relu6
repeat repeat_interleave reshape rms_norm roll round rsqrt rsub scalar_tensor
scaled_dot_product_attention select select_scatter selu sigmoid sign silu sin slice
slice_scatter softmax softplus split split_with_sizes sqrt square squeeze stack std
std_mean sub sum sym_size t tan tanh tile to transpose tril triu unbind unflatten unfold
unsqueeze upsample_bicubic2d upsample_bilinear2d upsample_nearest2d var var_mean view
view_as where zeros zeros_like
"""
OPERATORS = frozenset(_NAMES.split())
# Arithmetic on sizes.
_SIZES: dict[str, Callable[[int, int], int]] = {
    "_operator.add": operator.add,
    "_operator.floordiv": operator.floordiv,
    "_operator.mod": operator.mod,
    "_operator.mul": operator.mul,
    "_operator.sub": operator.sub,
}
_DTYPES = {4: torch.int32, 5: torch.int64, 7: torch.float32, 12: torch.bool}
_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}
_PLAIN = ("as_int", "as_ints", "as_string", "as_bool", "as_bools")
_MALFORMED = (KeyError, ValueError, TypeError, IndexError, AttributeError, RuntimeError)

Values = dict[str, Any]  # tensors and sizes by the names the graph gives them


@dataclass(frozen=True, slots=True)
class Call:
    """One node: a function of values that were computed before it."""

    function: Callable[..., Any]
    positional: tuple[Mapping[str, Any], ...]
    keywords: Mapping[str, Mapping[str, Any]]
    outputs: tuple[Mapping[str, Any], ...]

    def run(self, values: Values) -> None:
        """Add the outputs to `values`."""
        result = self.function(
            *(_value(argument, values) for argument in self.positional),
            **{name: _value(argument, values) for name, argument in self.keywords.items()},
        )
        if not self.outputs:  # an assertion
            return
        several = len(self.outputs) > 1
        for output, found in zip(self.outputs, result if several else [result], strict=True):
            ((form, named),) = output.items()
            if form == "as_tensor":
                values[named["name"]] = found
            elif form == "as_tensors":
                names = [item["name"] for item in named]
                values.update(zip(names, found, strict=True))
            elif form == "as_sym_int":
                values[named["as_name"]] = int(found)
            elif form != "as_none":
                raise ExtractorError(f"the program has an output of an unknown kind ({form})")


@dataclass(frozen=True, slots=True, eq=False)
class ExportedProgram:
    """A network of one tensor input; `shape` is that of one row, without the batch."""

    shape: tuple[int, ...]
    calls: tuple[Call, ...]
    constants: Mapping[str, torch.Tensor]
    input: str
    output: str

    def run(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the output for a batch (b, *shape) float32."""
        values: Values = {**self.constants, self.input: batch}
        for call in self.calls:
            call.run(values)
        found: torch.Tensor = values[self.output]
        return found


def read_program(data: bytes, batch: int) -> ExportedProgram:
    """Return the program of a .pt2 archive that takes batches of `batch` rows.

    Raises ExtractorError if it is no such archive, holds pickled data, or calls for
    anything but the operators above; the message names the operator.
    """
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return _program(archive, batch)
    except zipfile.BadZipFile:
        raise ExtractorError("the file is no archive of torch.export.save") from None
    except _MALFORMED as error:
        raise ExtractorError(
            "the archive is not what torch.export.save of torch 2.13 writes "
            f"({type(error).__name__}): export the module again"
        ) from error


def _program(archive: zipfile.ZipFile, batch: int) -> ExportedProgram:
    if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
        raise ExtractorError("the archive is compressed: use it as torch.export.save wrote it")
    root = archive.namelist()[0].partition("/")[0]
    exported = json.loads(archive.read(f"{root}/models/model.json"))
    if exported["schema_version"]["major"] != SCHEMA_MAJOR:
        raise ExtractorError("the archive is of another torch: export it with torch 2.13")
    if archive.read(f"{root}/byteorder") != b"little":
        raise ExtractorError("the archive is big-endian: export it on a little-endian machine")
    tensors = {
        **_tensors(archive, root, "weights"),
        **_tensors(archive, root, "constants"),
    }
    graph, signature = exported["graph_module"]["graph"], exported["graph_module"]["signature"]
    constants, given = _inputs(signature["input_specs"], tensors)
    return ExportedProgram(
        shape=_shape(graph["tensor_values"][given]["sizes"], exported, batch),
        calls=tuple(_call(node) for node in graph["nodes"]),
        constants=constants,
        input=given,
        output=_output(signature["output_specs"]),
    )


def _tensors(archive: zipfile.ZipFile, root: str, what: str) -> dict[str, torch.Tensor]:
    folder = f"{root}/data/{what}"
    config = json.loads(archive.read(f"{folder}/model_{what}_config.json"))["config"]
    found = {}
    for name, entry in config.items():
        if entry["use_pickle"] or entry["tensor_meta"] is None:
            raise ExtractorError("the archive holds pickled objects: export plain tensors only")
        meta = entry["tensor_meta"]
        if meta["dtype"] not in _DTYPES:
            raise ExtractorError("weights must be float32: convert with .float() and export")
        sizes, strides = (
            [size["as_int"] for size in meta[which]] for which in ("sizes", "strides")
        )
        data = bytearray(archive.read(f"{folder}/{entry['path_name']}"))
        dtype = _DTYPES[meta["dtype"]]
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        found[name] = flat.as_strided(sizes, strides, meta["storage_offset"]["as_int"])
    return found


def _inputs(
    specs: Iterable[Mapping[str, Any]], tensors: Mapping[str, torch.Tensor]
) -> tuple[dict[str, torch.Tensor], str]:
    """Return the constants by their names in the graph, and the name of the one input."""
    constants: dict[str, torch.Tensor] = {}
    given: list[str] = []
    for spec in specs:
        ((form, entry),) = spec.items()
        if form == "user_input":
            given.append(entry["arg"]["as_tensor"]["name"])
        elif form in ("parameter", "buffer", "tensor_constant"):
            constants[entry["arg"]["name"]] = tensors[entry[f"{form}_name"]]
        else:
            raise ExtractorError("the program takes more than tensors: export a plain module")
    if len(given) != 1:
        raise ExtractorError("the program must take exactly one tensor")
    return constants, given[0]


def _output(specs: list[Mapping[str, Any]]) -> str:
    if any("user_output" not in spec for spec in specs):
        raise ExtractorError("the program changes its own state: call .eval() and export again")
    if len(specs) != 1:
        raise ExtractorError("the program must return exactly one tensor")
    name: str = specs[0]["user_output"]["arg"]["as_tensor"]["name"]
    return name


def _shape(
    sizes: list[Mapping[str, Any]], exported: Mapping[str, Any], batch: int
) -> tuple[int, ...]:
    first, *rest = sizes
    if "as_expr" not in first or any("as_int" not in size for size in rest):
        raise ExtractorError(
            "the program's first dimension, and no other, must be dynamic: export with "
            "dynamic_shapes=({0: torch.export.Dim.DYNAMIC},)"
        )
    shape = tuple(size["as_int"] for size in rest)
    if not shape or prod(shape) < 1:
        raise ExtractorError("the program's input must have columns")
    for allowed in exported["range_constraints"].values():
        most = allowed["max_val"]
        if (allowed["min_val"] or 0) > batch or (most is not None and most < batch):
            raise ExtractorError(f"the program must take batches of {batch} rows")
    return shape


def _call(node: Mapping[str, Any]) -> Call:
    target = node["target"]
    arguments = {entry["name"]: entry["arg"] for entry in node["inputs"]}
    for name, argument in arguments.items():
        _check_argument(target, name, argument)
    # Kind 2: keyword; ArgumentKind of the schema.
    positional = [entry["arg"] for entry in node["inputs"] if entry["kind"] != 2]
    keywords = {entry["name"]: entry["arg"] for entry in node["inputs"] if entry["kind"] == 2}
    return Call(_function(target), tuple(positional), keywords, tuple(node["outputs"]))


def _function(target: str) -> Callable[..., Any]:
    if target in _SIZES:
        return _SIZES[target]
    name, _, overload = target.removeprefix("torch.ops.aten.").partition(".")
    if not target.startswith("torch.ops.aten.") or name.rstrip("_") not in OPERATORS:
        raise ExtractorError(f"the program calls {target}, which this reader does not run")
    function = getattr(getattr(torch.ops.aten, name), overload)
    if function._schema.is_mutable:
        raise ExtractorError(
            f"the program calls {target}, which works in place: save "
            "torch.export.export(...).run_decompositions({})"
        )
    called: Callable[..., Any] = function
    return called


def _check_argument(target: str, name: str, argument: Mapping[str, Any]) -> None:
    training = name in ("train", "training") and argument.get("as_bool")
    if training or (name == "dropout_p" and argument.get("as_float")):
        raise ExtractorError(f"{target} is in training mode: call .eval() and export again")
    if "as_scalar_type" in argument and argument["as_scalar_type"] not in _DTYPES:
        raise ExtractorError(f"{target} leaves float32: export the module in float32")


def _value(argument: Mapping[str, Any], values: Values) -> Any:
    """Return what one argument of a call stands for, see Argument in the schema."""
    ((form, data),) = argument.items()
    if form in _PLAIN:
        return data
    if form == "as_float":
        return float(data)  # JSON has no infinity: it is the string "Infinity" here
    if form == "as_floats":
        return [float(number) for number in data]
    if form == "as_tensor":
        return values[data["name"]]
    if form == "as_tensors":
        return [values[item["name"]] for item in data]
    if form == "as_sym_int":
        return _size(data, values)
    if form == "as_sym_ints":
        return [_size(item, values) for item in data]
    if form == "as_optional_tensor":
        return _value(data, values)
    if form == "as_optional_tensors":
        return [_value(item, values) for item in data]
    if form == "as_none":
        return None
    if form == "as_scalar_type":
        return _DTYPES[data]
    if form == "as_memory_format":
        return _FORMATS[data]
    if form == "as_layout" and data == 7:
        return torch.strided
    if form == "as_device" and data["type"] == "cpu":
        return torch.device("cpu")
    raise ExtractorError(f"the program has an argument of an unknown kind ({form})")


def _size(data: Mapping[str, Any], values: Values) -> int:
    return int(data["as_int"] if "as_int" in data else values[data["as_name"]])
