"""A published config.json -> Architecture: strict, every key accounted for, an unknown family refused by name."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from planner.contract import Architecture
from planner.errors import ContractError, InputError, UnknownName, suggest
from planner.spec import shown

MAX_BYTES = 4_000_000
MAX_DEPTH = 60
_REQUIRED = object()

FAMILIES: dict[str, Callable[[Config], Architecture]] = {}
"""model_type -> the function that reads its config; the modules of `families` fill it."""

# Keys that decide nothing about shapes, arithmetic or cache: training, tokens, generation, the framework's own switches.
WITHOUT_INFLUENCE = frozenset(
    """
    _attn_implementation _name_or_path architectures attention_dropout attn_pdrop auto_map bos_token_id classifier_dropout
    embd_pdrop embed_dropout dropout eos_token_id ffn_dropout ffn_dropout_prob gradient_checkpointing hidden_dropout
    id2label init_std initializer_range initializer_cutoff_factor keys_to_ignore_at_inference label2id layerdrop
    layer_norm_elementwise_affine_init max_length mlp_dropout n_ctx num_return_sequences output_attentions
    output_hidden_states output_router_logits pad_token_id prefix pretraining_tp problem_type resid_pdrop
    rescale_prenorm_residual return_dict router_aux_loss_coef aux_loss_alpha seq_aux router_jitter_noise router_dtype
    input_jitter_noise routed_scaling_loss scale_attn_weights sep_token_id task_specific_params tokenizer_class
    torch_dtype dtype transformers_version unk_token_id use_bfloat16 use_cache use_flash_attn attn_implementation
    slow_but_exact masked_softmax_fusion skip_bias_add skip_bias_add_qkv bias_dropout_fusion offset_alibi seq_length
    n_special predict_special_tokens summary_activation summary_first_dropout summary_proj_to_labels
    summary_type summary_use_proj reorder_and_upcast_attn scale_attn_by_inverse_layer_idx ep_size
    moe_layer_freq_unused name cache_implementation hidden_dropout_prob attention_probs_dropout_prob
    embedding_dropout embedding_pdrop layer_types_unused initial_context_length model_max_length
    """.split()
)


@dataclass(slots=True)
class Reading:
    """What a config gave: the contract, and the keys that were not understood."""

    architecture: Architecture
    unknown_keys: tuple[str, ...] = ()


class Config:
    """A config.json whose keys are ticked off as they are read; each reader says what a value must be."""

    def __init__(self, table: dict[str, Any], source: str) -> None:
        self.table = table
        self.source = source
        self.used: set[str] = {"model_type"}

    @property
    def model_type(self) -> str:
        return str(self.table["model_type"])

    def raw(self, *names: str, default: Any = None) -> Any:
        """The value under the first of several spellings of one key that is there; null counts as absent.

        Raises `ContractError` where two spellings contradict each other.
        """
        present = {name: self.table[name] for name in names if self.table.get(name) is not None}
        self.used.update(names)
        if not present:
            if default is _REQUIRED:
                raise ContractError(f"{names[0]} is missing", source=self.source)
            return default
        (first, value), *others = present.items()
        for name, other in others:
            if other != value:
                raise self.refuse(f"{first} = {shown(value)} contradicts {name} = {shown(other)}")
        return value

    def whole(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A whole number of at least 0."""
        value = self.raw(*names, default=default)
        if value is default and default is not _REQUIRED:
            return value
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self.refuse(f"{names[0]} = {shown(value)} is not a whole number of at least 0")
        return value

    def number(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A finite number."""
        value = self.raw(*names, default=default)
        if value is default and default is not _REQUIRED:
            return value
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise self.refuse(f"{names[0]} = {shown(value)} is not a finite number")
        return float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false."""
        value = self.raw(*names, default=default)
        if not isinstance(value, bool):
            raise self.refuse(f"{names[0]} = {shown(value)} is not true or false")
        return value

    def text(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A text."""
        value = self.raw(*names, default=default)
        if value is not default and not isinstance(value, str):
            raise self.refuse(f"{names[0]} = {shown(value)} is not a text")
        return value

    def list(self, name: str, of: type = int) -> list[Any] | None:
        """A list of whole numbers, texts or tables, or None."""
        value = self.raw(name)
        if value is not None and not (isinstance(value, list) and all(type(item) is of for item in value)):
            raise self.refuse(f"{name} = {shown(value)} is not a list of {of.__name__}")
        return value

    def table_of(self, name: str) -> dict[str, Any] | None:
        """A nested table, or None."""
        value = self.raw(name)
        if value is not None and not isinstance(value, dict):
            raise self.refuse(f"{name} = {shown(value)} is not a table")
        return value

    def has(self, *names: str) -> bool:
        """Whether one of the keys is there and not null."""
        return any(self.table.get(name) is not None for name in names)

    def ignore(self, *names: str) -> None:
        """Tick off keys that decide nothing in this family."""
        self.used.update(names)

    def refuse(self, rule: str) -> ContractError:
        """The error for a value of this config."""
        return ContractError(rule, source=self.source)

    def unknown_keys(self) -> tuple[str, ...]:
        """Keys that nobody read."""
        return tuple(sorted(key for key in self.table if key not in self.used and key not in WITHOUT_INFLUENCE))


def family(*model_types: str) -> Callable[[Callable[[Config], Architecture]], Callable[[Config], Architecture]]:
    """Register the function that reads configs of these model types."""

    def register(function: Callable[[Config], Architecture]) -> Callable[[Config], Architecture]:
        FAMILIES.update(dict.fromkeys(model_types, function))
        return function

    return register


def parse_json(text: str, source: str) -> dict[str, Any]:
    """The table of a config.json text. Raises `InputError` with one sentence for anything else."""
    if len(text) > MAX_BYTES:
        raise InputError(f"{source}: {len(text):,} characters are more than a config.json has (at most {MAX_BYTES:,})")

    def no_constant(name: str) -> Any:
        raise InputError(f"{source}: {name} is not valid JSON; write a finite number or null")

    def once(pairs: Iterable[tuple[str, Any]]) -> dict[str, Any]:
        table: dict[str, Any] = {}
        for key, value in pairs:
            if key in table and table[key] != value:
                raise InputError(f"{source}: {key[:60]!r} stands twice with different values")
            table[key] = value
        return table

    try:
        table = json.loads(text.removeprefix("\ufeff"), parse_constant=no_constant, object_pairs_hook=once)
    except json.JSONDecodeError as error:
        raise InputError(f"{source}: not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except (RecursionError, ValueError):
        raise InputError(f"{source}: not valid JSON: nested too deeply, or a number too long") from None
    if not isinstance(table, dict):
        raise InputError(f"{source}: a config.json holds a table, not {shown(table)}")
    return table


def read_config(table: dict[str, Any], source: str, name: str | None = None) -> Reading:
    """An Architecture from the keys of a config.json.

    Raises `UnknownName` for a model_type that is not known, `ContractError` for values that are missing, of the wrong
    type, or contradict each other.
    """
    model_type = table.get("model_type")
    if model_type is None:
        raise ContractError("model_type is missing; it says which family the other keys belong to", source=source)
    if model_type not in FAMILIES:
        nested = text_part(table)
        if nested is not None:
            return read_config(nested, source, name)
        raise unknown_family(model_type, source)
    config = Config(table, source)
    try:
        architecture = FAMILIES[model_type](config)
    except ContractError as error:
        raise error.within(error.source or source) from None
    if name is not None:
        import dataclasses

        architecture = dataclasses.replace(architecture, name=name)
    return Reading(architecture, config.unknown_keys())


def text_part(table: dict[str, Any]) -> dict[str, Any] | None:
    """The language model's own table in a multimodal config, or None."""
    nested = table.get("text_config")
    if not isinstance(nested, dict) or not isinstance(nested.get("model_type"), str):
        return None
    return nested


def unknown_family(model_type: Any, source: str) -> UnknownName:
    """The error for a family that is not built, with those that are."""
    known = ", ".join(sorted(FAMILIES))
    error = UnknownName("model_type", shown(model_type), ())
    near = suggest(model_type, FAMILIES) if isinstance(model_type, str) else ""
    error.args = (
        f"{source}: model_type {shown(model_type)} is not known{near}; known are {known}; "
        "describe any other decoder in TOML (planner contract NAME shows one)",
    )
    return error
