"""Every quantity once: the word that code, columns and cells use, the letter of the papers, the unit and the meaning.

A formula's arguments are these words, so each of its inputs can be shown, explained and asked for without being
described again. Units are base units: a prefix exists only where a person reads or writes (`planner.units`).
"""

import re
from dataclasses import dataclass

from planner.errors import PlannerError, UnknownName

UNITS = frozenset("1 token token/USD B B/token B/s FLOP FLOP/s FLOP/B s h year W USD USD/h USD/kWh".split())

# Both ways in which a spreadsheet names its cells, whatever the case: B1, TP8, and R1C1 with R, C, RC, R1, C1.
_CELL = re.compile(r"[A-Za-z]{1,3}[0-9]+|[Rr][0-9]*|[Rr]?[0-9]*[Cc][0-9]*")
_WORD = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*")


@dataclass(frozen=True, slots=True)
class Quantity:
    """A quantity of the vocabulary.

    >>> quantity("head_dim")
    Quantity(word='head_dim', letter='d_h', unit='1', meaning='width of a query or key head')

    Raises `PlannerError` for a word that a spreadsheet would take for a cell, and for an unknown unit.
    """

    word: str
    letter: str
    unit: str
    meaning: str

    def __post_init__(self) -> None:
        if not _WORD.fullmatch(self.word):
            raise PlannerError(f"quantity {self.word!r}: a word is made of a-z, 0-9 and single underscores")
        if _CELL.fullmatch(self.word):
            raise PlannerError(f"quantity {self.word!r}: a spreadsheet takes this word for a cell; choose a longer one")
        check_unit(self.unit, f"quantity {self.word!r}")


def check_unit(unit: str, place: str) -> None:
    """Raise `PlannerError` if a unit is not one of the base units."""
    if unit not in UNITS:
        raise PlannerError(f"{place}: unit {unit!r} is none of {', '.join(sorted(UNITS))}")


def quantity(word: str) -> Quantity:
    """Return the quantity of that word; raises `UnknownName`, with the nearest word, if there is none."""
    if word not in QUANTITIES:
        raise UnknownName("quantity", word, QUANTITIES)
    return QUANTITIES[word]


def described(word: str) -> str:
    """Return a word as an error sentence names it: with its meaning, if it is in the vocabulary.

    >>> described("batch"), described("layers[0].count")
    ('batch (sequences that are resident at once)', 'layers[0].count')
    """
    return f"{word} ({QUANTITIES[word].meaning})" if word in QUANTITIES else word


_VOCABULARY = (
    # the decoder
    ("n_layers", "L", "1", "layers"),
    ("d_model", "d", "1", "width of the residual stream"),
    ("vocab_size", "V", "1", "entries of the vocabulary"),
    ("n_heads", "H_q", "1", "query heads"),
    ("n_kv_heads", "H_{kv}", "1", "distinct key/value heads"),
    ("head_dim", "d_h", "1", "width of a query or key head"),
    ("v_head_dim", "d_v", "1", "width of a value head"),
    ("kv_lora_rank", "d_c", "1", "width of the joint key/value latent"),
    ("rope_head_dim", "d_h^R", "1", "width of the decoupled rotary key"),
    ("window", "w", "token", "positions that a query sees, itself included"),
    ("index_heads", "H_I", "1", "heads of the indexer of sparse attention"),
    ("index_dim", "d_I", "1", "width of an indexer head"),
    ("index_top_k", "k_I", "token", "positions that a query of sparse attention reads"),
    ("d_ff", "d_f", "1", "hidden width of the feed-forward, or of one expert"),
    ("width_multiple", "m", "1", "number that a hidden width is rounded up to a multiple of"),
    ("n_experts", "E", "1", "routed experts of a layer"),
    ("top_k", "k", "1", "routed experts that a token uses"),
    ("parameters", "N", "1", "all stored parameters"),
    ("routed_parameters", "N_r", "1", "parameters of the routed experts"),
    ("active_parameters", "N_a", "1", "parameters that one token uses"),
    # the load
    ("batch", "B", "1", "sequences that are resident at once"),
    ("context", "S", "token", "positions of a sequence"),
    ("resident_tokens", r"S_{\Sigma}", "token", "cached positions of all sequences together"),
    ("past", "P", "token", "positions already cached"),
    ("new", "T", "token", "positions processed after them"),
    ("emitted", "T_e", "token", "positions whose logits are computed"),
    # bytes and work
    ("kv_elem_bytes", "b_{kv}", "B", "bytes of one cached element"),
    ("weight_elem_bytes", "b_w", "B", "bytes of one stored weight"),
    ("elem_bytes", "b", "B", "bytes of one element of a temporary tensor"),
    ("weight_bytes", "W", "B", "bytes of all weights"),
    ("kv_bytes_per_token", "c_{kv}", "B/token", "cache bytes of one position in all layers"),
    ("core_flops_per_pair", "f_c", "FLOP", "work of the attention core on one query-key pair"),
    ("index_flops_per_pair", "f_I", "FLOP", "work of the indexer on one query-key pair"),
    # the device
    ("flops_per_s", r"\pi", "FLOP/s", "rate of arithmetic that is reached"),
    ("memory_bytes_per_s", r"\beta", "B/s", "bandwidth of the device memory"),
    ("link_bytes_per_s", r"\beta_{\ell}", "B/s", "bandwidth of the link that a stored cache comes over"),
    ("on_chip_bytes", "M", "B", "on-chip memory that one tile of attention may fill"),
    ("accelerators", "n_a", "1", "accelerators that are paid for"),
    ("power_w", r"\Pi", "W", "power that an accelerator draws"),
    ("pue", r"\eta", "1", "power of the site for each watt of its machines"),
    # a pipeline
    ("chunks", "n_c", "1", "chunks of a prompt that follow one another through the stages"),
    ("through_s", r"t_{\Sigma}", "s", "time of a chunk on all stages together"),
    ("slowest_s", r"t_{\max}", "s", "time of a chunk on the slowest stage"),
    # money and rates
    ("tokens", "n", "token", "tokens that are priced, of whichever class"),
    ("seconds", r"\tau", "s", "time that accelerators work for them"),
    ("usd_per_hour", "p_h", "USD/h", "price of an hour"),
    ("hours", "h", "h", "hours that are paid for"),
    ("usd_per_kwh", "p_e", "USD/kWh", "price of electrical energy"),
    ("purchase_usd", "p_0", "USD", "price of buying an accelerator with its share of the machine"),
    ("amortisation_years", "Y", "year", "years over which a purchase is written off"),
    ("fleet_usd", "K", "USD", "cost of the fleet in some time"),
    ("api_usd_per_request", "p_r", "USD", "price of one request at an API"),
)

QUANTITIES = {word: Quantity(word, letter, unit, meaning) for word, letter, unit, meaning in _VOCABULARY}
