"""A reader of `torch.export.save` archives (.pt2) that executes only tensor algebra.

torch.export.load unpickles whatever an archive marks as pickled and evaluates its symbolic
shapes ("Never load data from an untrusted source", says its documentation); TorchScript and
torch.load are no better. But an exported program is a list of ATen operator calls in JSON
next to raw tensors. This module reads the list, refuses every operator not known to be a pure
function, and calls the others in order, first on tensors without memory (`program_bounds`).
Random operators (dropout in training), in-place ones and precisions below float32 are
refused. The file's size bounds the memory of reading it: members are uncompressed, each
stored once.
"""

import io
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import torch

from workers.data.extractors.base import ExtractorError
from workers.data.extractors.operators import DTYPES, Operation, operation
from workers.data.extractors.program_bounds import check_live, shapes_only, storages

SCHEMA_MAJOR = 8  # of torch/_export/serde/schema.py; a new major number breaks readers
MAX_FILE = 1 << 31  # bytes of an archive
MAX_JSON = 1 << 25  # bytes of its graph, which expand many times in memory
MAX_MEMBERS = 20_000
MAX_CALLS = 50_000
CENTRAL_HEADER = b"PK\x01\x02"  # of each directory entry, APPNOTE.TXT section 4.3.12

_FORMATS = {
    1: torch.contiguous_format,
    2: torch.channels_last,
    3: torch.channels_last_3d,
    4: torch.preserve_format,
}
_PLAIN = ("as_int", "as_ints", "as_string", "as_bool", "as_bools")
_MALFORMED = (KeyError, ValueError, TypeError, IndexError, AttributeError, RuntimeError)

Values = dict[str, Any]  # tensors and sizes by their names in the graph


@dataclass(frozen=True, slots=True)
class Call:
    """One node: a function of earlier values."""

    operation: Operation
    outputs: tuple[Mapping[str, Any], ...]
    last: tuple[str, ...] = ()  # values that no later node uses

    def run(self, values: Values, *, check: bool = False) -> Values:
        """Return the outputs by name; with `check`, check the arguments first."""
        bound = self.operation.bind(lambda argument: _value(argument, values))
        if check:
            self.operation.check(bound)
        result = self.operation.call(bound)
        found: Values = {}
        if not self.outputs:  # an assertion
            return found
        several = len(self.outputs) > 1
        for output, one in zip(self.outputs, result if several else [result], strict=True):
            ((form, named),) = output.items()
            if form == "as_tensor":
                found[named["name"]] = one
            elif form == "as_tensors":
                names = [item["name"] for item in named]
                found.update(zip(names, one, strict=True))
            elif form == "as_sym_int":
                found[named["as_name"]] = int(one)
            elif form != "as_none":
                raise ExtractorError(
                    f"the program has an operator whose output is of the kind {form}, and "
                    "only tensors and sizes are read: export a plain module"
                )
        return found

    def uses(self) -> set[str]:
        """Return the names of the call's input values."""
        given = (argument for _, _, argument, _ in self.operation.arguments)
        return {name for argument in given if argument is not None for name in _names(argument)}


@dataclass(frozen=True, slots=True, eq=False)
class ExportedProgram:
    """A network with one tensor input; `shape` is the shape of one row."""

    shape: tuple[int, ...]
    calls: tuple[Call, ...]
    constants: Mapping[str, torch.Tensor]
    input: str
    output: str
    shapes: Mapping[str, torch.Size]  # of every tensor that the calls return

    def run(self, batch: torch.Tensor) -> torch.Tensor:
        """Return the output for a batch (b, *shape) float32, with the b it was read for.

        Raises ExtractorError if a kernel refuses these values, such as an index out of range.
        """
        values: Values = {**self.constants, self.input: batch}
        try:
            for call in self.calls:
                found = call.run(values)
                for name, value in found.items():
                    if isinstance(value, torch.Tensor) and value.shape != self.shapes[name]:
                        raise ExtractorError(
                            "the program gives another shape for some inputs than for zeros: "
                            "shapes may depend on the number of rows alone"
                        )
                values.update(found)
                for name in call.last:
                    del values[name]
            result: torch.Tensor = values[self.output]
        except ExtractorError:
            raise
        except Exception as error:  # torch raises various errors for unforeseen values
            raise _does_not_run(error) from error
        return result


def read_program(data: bytes, batch: int) -> ExportedProgram:
    """Return the program of a .pt2 archive that takes batches of `batch` rows.

    Raises ExtractorError if it is no such archive, holds pickled data, calls anything but the
    operators of `operators`, passes them invalid arguments, or would need more memory or work
    than `program_bounds` allows. No operator has run when this returns.
    """
    if len(data) > MAX_FILE or data.count(CENTRAL_HEADER) > MAX_MEMBERS:
        raise ExtractorError(
            f"the archive has more than {MAX_FILE} bytes or {MAX_MEMBERS} files"
        )
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            program = _program(archive, len(data), batch)
    except zipfile.BadZipFile:
        raise ExtractorError("the file is no archive of torch.export.save") from None
    except _MALFORMED as error:
        raise ExtractorError(
            "the archive is not what torch.export.save of torch 2.13 writes "
            f"({type(error).__name__}): export the module again"
        ) from error
    try:
        return _planned(program, batch)
    except ExtractorError:
        raise
    except Exception as error:  # torch raises various errors for a contradictory graph
        raise _does_not_run(error) from error


def _does_not_run(error: Exception) -> ExtractorError:
    return ExtractorError(
        f"the program does not run ({type(error).__name__}): check that it "
        "takes any number of rows, and export it again"
    )


def _planned(program: ExportedProgram, batch: int) -> ExportedProgram:
    """Return the program with the shapes and last uses found by a run without memory."""
    shapes: dict[str, torch.Size] = {}
    calls = _with_last_uses(program)
    names = {*program.constants, program.input}
    with shapes_only(program.constants) as (values, zeros):
        weights = storages(values.values())
        values[program.input] = zeros((batch, *program.shape))
        for call in calls:
            found = call.run(values, check=True)
            if not names.isdisjoint(found):
                raise ExtractorError(
                    "the program gives two values the same name: export it again"
                )
            names.update(found)
            values.update(found)
            check_live(values.values(), weights)
            for name, value in found.items():
                if isinstance(value, torch.Tensor):
                    shapes[name] = value.shape
            for name in call.last:
                del values[name]
    if program.output not in shapes:
        raise ExtractorError("the program never computes its output: export it again")
    return replace(program, calls=calls, shapes=shapes)


def _with_last_uses(program: ExportedProgram) -> tuple[Call, ...]:
    later, backwards = {program.output, *program.constants}, []
    for call in reversed(program.calls):
        touched = call.uses() | {name for output in call.outputs for name in _names(output)}
        backwards.append(replace(call, last=tuple(sorted(touched - later))))
        later |= touched
    return tuple(reversed(backwards))


def _names(argument: Any) -> list[str]:
    """Return every value name in an argument or output, at any depth."""
    if isinstance(argument, list):
        return [name for item in argument for name in _names(item)]
    if not isinstance(argument, Mapping):
        return []
    found = [name for name in (argument.get("name"), argument.get("as_name")) if name]
    return found + [name for item in argument.values() for name in _names(item)]


def _program(archive: zipfile.ZipFile, size: int, batch: int) -> ExportedProgram:
    members = archive.infolist()
    if any(member.compress_type != zipfile.ZIP_STORED for member in members):
        raise ExtractorError("the archive is compressed: use it as torch.export.save wrote it")
    if len({member.filename for member in members}) != len(members):
        raise ExtractorError(
            "the archive has two files of the same name: use it as torch.export.save wrote it"
        )
    if sum(member.file_size for member in members) > size:
        raise ExtractorError(
            "the archive's files overlap: use it as torch.export.save wrote it"
        )
    root = archive.namelist()[0].partition("/")[0]
    exported = _json(archive, f"{root}/models/model.json")
    if exported["schema_version"]["major"] != SCHEMA_MAJOR:
        raise ExtractorError(
            "the archive was made with another version of torch: export it with torch 2.13"
        )
    if archive.read(f"{root}/byteorder") != b"little":
        raise ExtractorError("the archive is big-endian: export it on a little-endian machine")
    tensors = {
        **_tensors(archive, root, "weights"),
        **_tensors(archive, root, "constants"),
    }
    graph, signature = exported["graph_module"]["graph"], exported["graph_module"]["signature"]
    if len(graph["nodes"]) > MAX_CALLS:
        raise ExtractorError(
            f"the program has more than {MAX_CALLS} calls of operators: export a smaller module"
        )
    constants, given = _inputs(signature["input_specs"], tensors)
    return ExportedProgram(
        shape=_shape(graph["tensor_values"][given]["sizes"], exported, batch),
        calls=tuple(
            Call(operation(node["target"], node["inputs"]), tuple(node["outputs"]))
            for node in graph["nodes"]
        ),
        constants=constants,
        input=given,
        output=_output(signature["output_specs"]),
        shapes={},
    )


def _json(archive: zipfile.ZipFile, name: str) -> Any:
    if archive.getinfo(name).file_size > MAX_JSON:
        raise ExtractorError(
            f"a JSON file in the archive has more than {MAX_JSON} bytes: export a "
            "smaller module"
        )
    return json.loads(archive.read(name))


def _tensors(archive: zipfile.ZipFile, root: str, what: str) -> dict[str, torch.Tensor]:
    folder = f"{root}/data/{what}"
    config = _json(archive, f"{folder}/model_{what}_config.json")["config"]
    found: dict[str, torch.Tensor] = {}
    read: dict[str, bytearray] = {}  # tied weights name the same file, held once
    for name, entry in config.items():
        if entry["use_pickle"] or entry["tensor_meta"] is None:
            raise ExtractorError("the archive holds pickled objects: export plain tensors only")
        meta, path = entry["tensor_meta"], entry["path_name"]
        if meta["dtype"] not in DTYPES:
            raise ExtractorError("weights must be float32: convert with .float() and export")
        sizes, strides = (
            [size["as_int"] for size in meta[which]] for which in ("sizes", "strides")
        )
        if path not in read:
            read[path] = bytearray(archive.read(f"{folder}/{path}"))
        data, dtype = read[path], DTYPES[meta["dtype"]]
        flat = torch.frombuffer(data, dtype=dtype) if data else torch.empty(0, dtype=dtype)
        if prod(sizes) > len(flat):
            raise ExtractorError("a weight is larger than its file: export it contiguous")
        if dtype == torch.bool and any(byte > 1 for byte in data):
            raise ExtractorError("a weight of truth values holds another: export it again")
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
            raise ExtractorError(
                "the program has an input that is no tensor, parameter or buffer: "
                "export a plain module"
            )
    if len(given) != 1:
        raise ExtractorError(
            "the program must take exactly one tensor: export a module with one input"
        )
    return constants, given[0]


def _output(specs: list[Mapping[str, Any]]) -> str:
    if any("user_output" not in spec for spec in specs):
        raise ExtractorError("the program changes its own state: call .eval() and export again")
    if len(specs) != 1:
        raise ExtractorError(
            "the program must return exactly one tensor: export a module with one output"
        )
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
        raise ExtractorError(
            "the program's input must have at least one column beside the rows: "
            "export it with such an example"
        )
    for allowed in exported["range_constraints"].values():
        most = allowed["max_val"]
        if (allowed["min_val"] or 0) > batch or (most is not None and most < batch):
            raise ExtractorError(
                f"the program must take batches of {batch} rows: export it without "
                "bounds of the first dimension"
            )
    return shape


def _value(argument: Mapping[str, Any], values: Values) -> Any:
    """Return the value of one argument of a call, see Argument in the schema."""
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
        return DTYPES[data]
    if form == "as_memory_format":
        return _FORMATS[data]
    if form == "as_layout" and data == 7:
        return torch.strided
    if form == "as_device" and data["type"] == "cpu":
        return torch.device("cpu")
    raise ExtractorError(
        f"the program has an argument of the kind {form}, which is not read: "
        "export a plain module for the CPU"
    )


def _size(data: Mapping[str, Any], values: Values) -> int:
    return int(data["as_int"] if "as_int" in data else values[data["as_name"]])
