"""The operators that an exported program may call, and the checks of their arguments.

A file's argument names prove nothing: each argument is bound to the operator's schema, in
order, and the schema's values are checked, defaults included. Some torch kernels trust their
shapes (a bias of one element is read past its end), because torch's upper layers check them;
here this module checks.
"""

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, prod
from typing import Any

import torch

from workers.data.extractors.base import ExtractorError

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
DTYPES = {4: torch.int32, 5: torch.int64, 7: torch.float32, 12: torch.bool}
MAX_SIZE = 1 << 40  # of a dimension, or of arithmetic on sizes
MAX_PARTS = 10_000  # tensors that one call may return
KEYWORD = 2  # ArgumentKind of the schema

Argument = Mapping[str, Any]  # as in the file, see Argument in the schema
Bound = Mapping[str, Any]  # values by the schema's names


@dataclass(frozen=True, slots=True)
class Operation:
    """A function, and its arguments in the schema's order: name, keyword or not, value.

    A value is the file's, or None for the schema's default.
    """

    target: str
    function: Callable[..., Any]
    arguments: tuple[tuple[str, bool, Argument | None, Any], ...]

    def bind(self, value: Callable[[Argument], Any]) -> dict[str, Any]:
        """Return every argument's value by its name."""
        return {
            name: default if given is None else value(given)
            for name, _, given, default in self.arguments
        }

    def call(self, bound: Bound) -> Any:
        """Return the function's result for the values of its arguments."""
        plain = [bound[name] for name, keyword, _, _ in self.arguments if not keyword]
        named = {name: bound[name] for name, keyword, _, _ in self.arguments if keyword}
        found = self.function(*plain, **named)
        if isinstance(found, int) and not -MAX_SIZE < found < MAX_SIZE:
            raise ExtractorError(
                f"{self.target} computes a size that is too large for a tensor: export "
                "a smaller module"
            )
        return found

    def check(self, bound: Bound) -> None:
        """Raise ExtractorError unless these values are safe for the kernel."""
        name = self.target.removeprefix("torch.ops.aten.").partition(".")[0]
        try:
            if name in CHECKS and not CHECKS[name](bound):
                raise ExtractorError(
                    f"{self.target} is given shapes or values that do not fit together: "
                    "export the module again"
                )
        except (AttributeError, IndexError, TypeError, ZeroDivisionError):
            raise ExtractorError(
                f"{self.target} is given arguments of a wrong type: export the module again"
            ) from None
        # For every operator: by the schema's names, with the schema's defaults.
        if bound.get("train") or bound.get("training") or bound.get("dropout_p"):
            raise ExtractorError(
                f"{self.target} is in training mode: call .eval() and export again"
            )


def operation(target: str, inputs: Sequence[Mapping[str, Any]]) -> Operation:
    """Return the function of a node and its arguments, bound to the schema.

    Raises ExtractorError for an unknown operator, and for arguments outside its schema.
    Malformed nodes raise KeyError, TypeError or AttributeError.
    """
    if target in _SIZES:
        pair = tuple((str(i), False, entry["arg"], None) for i, entry in enumerate(inputs))
        if len(pair) != 2:
            raise ExtractorError(
                f"{target} takes two sizes, and is given another number: export the "
                "module again"
            )
        return Operation(target, _SIZES[target], pair)
    function = _function(target)
    given: dict[str, Argument] = {}
    for position, entry in enumerate(inputs):
        name, arguments = entry["name"], function._schema.arguments
        places = [index for index, one in enumerate(arguments) if one.name == name]
        keyword = entry["kind"] == KEYWORD
        # torch.export writes the schema's names in the schema's order.
        if name in given or not places or not (keyword or places == [position]):
            raise ExtractorError(
                f"{target} is given an argument that it does not have: export the "
                "module again with torch 2.13"
            )
        scalar = entry["arg"].get("as_scalar_type")
        if scalar is not None and scalar not in DTYPES:
            raise ExtractorError(f"{target} leaves float32: export the module in float32")
        given[name] = entry["arg"]
    bound = []
    for one in function._schema.arguments:
        if one.name not in given and not one.has_default_value():
            raise ExtractorError(
                f"{target} lacks a required argument: export the module again with torch 2.13"
            )
        bound.append((one.name, one.kwarg_only, given.get(one.name), one.default_value))
    return Operation(target, function, tuple(bound))


def _function(target: str) -> Any:
    name, _, overload = target.removeprefix("torch.ops.aten.").partition(".")
    if not target.startswith("torch.ops.aten.") or name.rstrip("_") not in OPERATORS:
        raise ExtractorError(
            f"the program calls {target}, which is not among the operators that are "
            "run: replace it in the module"
        )
    function = getattr(getattr(torch.ops.aten, name), overload)
    if not isinstance(function, torch._ops.OpOverload):
        raise ExtractorError(
            f"the program calls {target}, which is no operator of torch 2.13: "
            "export the module again"
        )
    if function._schema.is_mutable:
        raise ExtractorError(
            f"the program calls {target}, which works in place: save "
            "torch.export.export(...).run_decompositions({})"
        )
    # Other overloads of the same names work on strings and lists; prim_* take a type by number.
    kinds = {str(one.type) for one in function._schema.returns}
    if overload.startswith("prim_") or not (
        kinds <= {"Tensor", "List[Tensor]"} or target == "torch.ops.aten.sym_size.int"
    ):
        raise ExtractorError(
            f"the program calls {target}, which is not among the operators that are "
            "run: replace it in the module"
        )
    return function


def _pair_of(size: Any, extent: int) -> list[int]:
    sizes = [size] if isinstance(size, int) else list(size)
    return sizes * extent if len(sizes) == 1 else sizes


def _vectors(bound: Bound, names: Iterable[str], length: int) -> bool:
    """Return whether each of these tensors is absent or has one float32 per channel."""
    return all(
        bound[name] is None
        or (bound[name].shape == (length,) and bound[name].dtype == torch.float32)
        for name in names
    )


def _batch_norm(bound: Bound) -> bool:
    x, names = bound["input"], ("weight", "bias", "running_mean", "running_var")
    given = bound["running_mean"] is not None and bound["running_var"] is not None
    return given and x.dim() >= 2 and _float(x) and _vectors(bound, names, x.shape[1])


def _instance_norm(bound: Bound) -> bool:
    x, names = bound["input"], ("weight", "bias", "running_mean", "running_var")
    own = bound["use_input_stats"] is True  # or it is a batch norm
    return own and x.dim() >= 3 and _float(x) and _vectors(bound, names, x.shape[1])


def _group_norm(bound: Bound) -> bool:
    x, groups = bound["input"], bound["num_groups"]
    fits = x.dim() >= 2 and groups > 0 and x.shape[1] % groups == 0
    return fits and _float(x) and _vectors(bound, ("weight", "bias"), x.shape[1])


def _native_group_norm(bound: Bound) -> bool:
    x = bound["input"]
    fits = x.dim() >= 2 and (bound["N"], bound["C"], bound["HxW"]) == (
        x.shape[0],
        x.shape[1],
        prod(x.shape[2:]),
    )
    return fits and _group_norm({**bound, "num_groups": bound["group"]})


def _layer_norm(bound: Bound) -> bool:
    x, shape = bound["input"], tuple(bound["normalized_shape"])
    fits = len(shape) > 0 and tuple(x.shape[x.dim() - len(shape) :]) == shape
    given = [bound[name] for name in ("weight", "bias") if bound.get(name) is not None]
    return (
        fits and _float(x) and all(tuple(one.shape) == shape and _float(one) for one in given)
    )


def _convolution(bound: Bound) -> bool:
    x, weight, groups = bound["input"], bound["weight"], bound["groups"]
    extents = weight.dim() - 2
    if bound.get("transposed") or extents < 1 or groups < 1 or not _float(x, weight):
        return False
    stride, dilation = (_pair_of(bound[name], extents) for name in ("stride", "dilation"))
    padding = bound["padding"]
    padded = [0] if isinstance(padding, str) else _pair_of(padding, extents)
    return (
        x.dim() in (extents + 1, extents + 2)
        and x.shape[-extents - 1] == weight.shape[1] * groups
        and weight.shape[0] % groups == 0
        and min(weight.shape) > 0
        and min(*stride, *dilation) > 0
        and min(padded) >= 0
        and max(*stride, *dilation, *padded) < 1 << 16
        and _vectors(bound, ("bias",), weight.shape[0])
    )


def _attention(bound: Bound) -> bool:
    q, k, v, mask = (bound[name] for name in ("query", "key", "value", "attn_mask"))
    fits = (
        q.dim() == k.dim() == v.dim() >= 2
        and q.shape[:-2] == k.shape[:-2] == v.shape[:-2]
        and q.shape[-1] == k.shape[-1]
        and k.shape[-2] == v.shape[-2]
        and _float(q, k, v)
        and not bound["enable_gqa"]
    )
    if not fits or mask is None:
        return fits
    whole = (*q.shape[:-1], k.shape[-2])
    tail = whole[len(whole) - mask.dim() :]
    return (
        2 <= mask.dim() <= len(whole)
        and all(one in (1, all_) for one, all_ in zip(mask.shape, tail, strict=True))
        and mask.dtype in (torch.bool, torch.float32)
    )


def _resize(bound: Bound) -> bool:
    x, wanted = bound["self"] if "self" in bound else bound["input"], bound["output_size"]
    if x.dim() != 4 or min(x.shape) < 1:
        return False
    if "scale_factors" in bound:
        scales = bound["scale_factors"]
        if (wanted is None) == (scales is None):
            return False
        wanted = wanted or [int(size * s) for size, s in zip(x.shape[2:], scales, strict=True)]
    else:
        scales = [bound["scales_h"], bound["scales_w"]]
    # The scale sets where the kernel reads: one that contradicts the sizes reads out of
    # bounds.
    fitting = all(
        scale is None or (scale > 0 and abs(size * scale - target) < 1 + 1e-3 * target)
        for size, target, scale in zip(x.shape[2:], wanted, scales or (None, None), strict=True)
    )
    return len(wanted) == 2 and min(wanted) > 0 and fitting


def _pool(bound: Bound) -> bool:
    kernel = _pair_of(bound["kernel_size"], 1)
    numbers = [*kernel, *_pair_of(bound["padding"], 1), *_pair_of(bound["stride"] or [1], 1)]
    numbers += _pair_of(bound.get("dilation", 1), 1)
    return min(kernel) > 0 and max(numbers) < 1 << 16 and prod(kernel) <= 1 << 16


def _parts(bound: Bound) -> bool:
    size = bound["self"].shape[bound["dim"]]
    if "chunks" in bound:
        count = bound["chunks"]
    elif isinstance(split := bound.get("split_size", 1), int):
        count = ceil(size / split)
    else:
        count = 0  # as many as the file lists
    return bool(0 <= count <= MAX_PARTS)


def _prelu(bound: Bound) -> bool:
    x, weight = bound["self"], bound["weight"]
    channels = x.shape[1] if x.dim() > 1 else 1
    return _float(x, weight) and weight.dim() <= 1 and weight.numel() in (1, channels)


def _embedding(bound: Bound) -> bool:
    weight, indices = bound["weight"], bound["indices"]
    whole = indices.dtype in (torch.int32, torch.int64)
    return whole and weight.dim() == 2 and weight.shape[0] > 0 and bound["sparse"] is False


def _float(*tensors: torch.Tensor) -> bool:
    return all(tensor.dtype == torch.float32 for tensor in tensors)


CHECKS: dict[str, Callable[[Bound], bool]] = {
    "_native_batch_norm_legit_no_training": _batch_norm,
    "batch_norm": _batch_norm,
    "instance_norm": _instance_norm,
    "group_norm": _group_norm,
    "native_group_norm": _native_group_norm,
    "layer_norm": _layer_norm,
    "native_layer_norm": _layer_norm,
    "rms_norm": _layer_norm,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d", "convolution"), _convolution),
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys((name for name in OPERATORS if "upsample" in name), _resize),
    **dict.fromkeys(("avg_pool1d", "avg_pool2d", "max_pool1d", "max_pool2d"), _pool),
    "max_pool2d_with_indices": _pool,
    "unbind": _parts,
    "chunk": _parts,
    "split": _parts,
    "prelu": _prelu,
    "embedding": _embedding,
}
