"""The keys of a config.json, ticked off as they are read: each reader says what a value must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from planner.errors import ContractError
from planner.spec import shown

LARGEST = 2**53
_REQUIRED = object()

# Keys that decide nothing about shapes, arithmetic or cache in any family.
WITHOUT_INFLUENCE = frozenset(
    """
    _attn_implementation _attn_implementation_autoset _commit_hash _flash_attn_2_enabled _name_or_path _num_labels
    architectures attn_implementation auto_map cache_implementation chunk_size_feed_forward custom_pipelines dtype
    finetuning_task gradient_checkpointing is_decoder is_encoder_decoder keys_to_ignore_at_inference max_length
    min_length name name_or_path neftune_noise_alpha pretraining_tp pruned_heads return_dict tie_encoder_decoder
    torch_dtype torchscript transformers_version unsloth_fixed unsloth_version use_bfloat16 use_cache use_return_dict

    bos_token_id decoder_start_token_id eos_token_id model_max_length pad_token_id sep_token_id tokenizer_class
    tokenizer_name unk_token_id

    attention_dropout attention_dropout_prob attention_probs_dropout_prob attn_dropout attn_dropout_prob attn_pdrop
    classifier_dropout dropout dropout_rate emb_dropout_prob emb_pdrop embd_pdrop embed_dropout embedding_dropout
    expert_dropout ffn_dropout hidden_dropout hidden_dropout_prob layerdrop mlp_dropout resid_dropout resid_pdrop
    residual_dropout

    aux_loss_alpha aux_loss_coef embedding_initializer_range init_device init_std initializer_cutoff_factor
    initializer_factor initializer_range input_jitter_noise moe_aux_loss_coef rescale_prenorm_residual
    router_aux_loss_coef router_jitter_noise router_z_loss_coef seq_aux z_loss_coefficient

    id2label label2id num_labels output_attentions output_hidden_states output_router_logits output_scores prefix
    problem_type summary_activation summary_first_dropout summary_proj_to_labels summary_type summary_use_proj
    task_specific_params

    bad_words_ids begin_suppress_tokens diversity_penalty do_sample early_stopping encoder_no_repeat_ngram_size
    exponential_decay_length_penalty forced_bos_token_id forced_eos_token_id length_penalty no_repeat_ngram_size
    num_beam_groups num_beams num_return_sequences remove_invalid_values repetition_penalty return_dict_in_generate
    suppress_tokens temperature top_k top_p typical_p
    """.split()
)


class Config:
    """The keys of one table. A reader takes several spellings of one key; null counts as absent."""

    def __init__(self, table: dict[str, Any], source: str) -> None:
        self.table = table
        self.source = source
        self.used: set[str] = {"model_type"}
        self.notes: list[str] = []
        self.inner_tables: dict[str, Config] = {}

    @property
    def model_type(self) -> str:
        return str(self.table["model_type"])

    def raw(self, *names: str, default: Any = None) -> Any:
        """The value under the first spelling that is there.

        Raises `ContractError` where two spellings contradict each other.
        """
        self.used.update(names)
        present = [(name, self.table[name]) for name in names if self.table.get(name) is not None]
        if not present:
            if default is _REQUIRED:
                raise self.refuse(f"{names[0]} is missing")
            return default
        first, value = present[0]
        for name, other in present[1:]:
            if other != value:
                raise self.refuse(f"{first} = {shown(value)} contradicts {name} = {shown(other)}")
        return value

    def _checked(self, names: tuple[str, ...], default: Any, check: Callable[[Any], bool], rule: str) -> Any:
        value = self.raw(*names, default=default)
        if value is not default and not check(value):
            name = next(name for name in names if self.table.get(name) is not None)
            raise self.refuse(f"{name} = {shown(value)} is not {rule}")
        return value

    def whole(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A whole number of at least 0."""
        return self._checked(names, default, lambda v: _is_whole(v) and v >= 0, "a whole number from 0 to 2^53")

    def count(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A whole number of at least 1."""
        return self._checked(names, default, lambda v: _is_whole(v) and v >= 1, "a whole number from 1 to 2^53")

    def number(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A finite number, as a float."""
        value = self._checked(names, default, is_number, "a finite number")
        return value if value is default else float(value)

    def positive(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A finite number above 0, as a float."""
        value = self._checked(names, default, lambda v: is_number(v) and v > 0, "a finite number above 0")
        return value if value is default else float(value)

    def flag(self, *names: str, default: bool = False) -> bool:
        """True or false."""
        return bool(self._checked(names, default, lambda v: isinstance(v, bool), "true or false"))

    def text(self, *names: str, default: Any = _REQUIRED) -> Any:
        """A text."""
        return self._checked(names, default, lambda v: isinstance(v, str), "a text")

    def list(self, *names: str, of: type = int) -> list[Any] | None:
        """A list of whole numbers, texts or numbers (float), or None."""
        check = {int: _is_whole, float: is_number}.get(of, lambda v: type(v) is of)
        words = {int: "whole numbers", float: "numbers", str: "texts", bool: "true and false"}.get(of, of.__name__)
        found: list[Any] | None = self._checked(
            names, None, lambda value: isinstance(value, list) and all(map(check, value)), f"a list of {words}"
        )
        return found

    def table_of(self, name: str) -> dict[str, Any] | None:
        """A nested table, or None."""
        found: dict[str, Any] | None = self._checked((name,), None, lambda value: isinstance(value, dict), "a table")
        return found

    def inner(self, name: str) -> Config:
        """A nested table as a reader of its own, whose unread keys are reported too; empty where there is none."""
        if name not in self.inner_tables:
            table = {"model_type": self.model_type, **(self.table_of(name) or {})}
            self.inner_tables[name] = Config(table, ": ".join(part for part in (self.source, name) if part))
        return self.inner_tables[name]

    def has(self, *names: str) -> bool:
        """Whether one of the keys is there and not null."""
        return any(self.table.get(name) is not None for name in names)

    def stated(self, name: str) -> bool:
        """Whether the key is there, be it null: for families where null and absent differ."""
        self.used.add(name)
        return name in self.table

    def fixed(self, *names: str, to: Any) -> None:
        """Refuse another value than the only one that is built; absent is fine."""
        for name in names:
            value = self.raw(name, default=to)
            if value != to or type(value) is not type(to):
                raise self.refuse(f"{name} = {shown(value)} is not built for {self.model_type}, only {shown(to)}")

    def assume(self, name: str, value: Any) -> None:
        """Take the published class's own value for a size that the family's files leave out, and say so."""
        if not self.has(name):
            self.table = {**self.table, name: value}
            self.note(f"{self.source}: {name} is missing; {value:,} is what the class {self.model_type} has")

    def ignore(self, *names: str) -> None:
        """Tick off keys that decide nothing in this family."""
        self.used.update(names)

    def note(self, sentence: str) -> None:
        """Say something about the reading that its user should know."""
        if sentence not in self.notes:
            self.notes.append(sentence)

    def refuse(self, rule: str) -> ContractError:
        """The error for a value of this config."""
        return ContractError(rule, source=self.source)

    def unknown_keys(self) -> tuple[str, ...]:
        """Keys with a value that nobody read, those of nested tables with the table's name before them."""
        read = self.used | WITHOUT_INFLUENCE
        own = [key for key, value in self.table.items() if value is not None and key not in read]
        nested = [f"{name}.{key}" for name, inner in self.inner_tables.items() for key in inner.unknown_keys()]
        return tuple(sorted(own + nested))


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def is_number(value: Any) -> bool:
    """Whether a value is a number that a float holds: neither true nor false, infinite or not a number."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e300 < value < 1e300
