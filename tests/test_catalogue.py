"""The accelerators against what vendors publish, and files of one's own."""

import math
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import catalogue
from planner.catalogue import accelerator, accelerators, fact_table, find, names
from planner.device import BOUNDS, Accelerator
from planner.errors import InputError, PlannerError, UnknownName, UsageError
from planner.loading import write_toml

FOLDER = Path(__file__).parents[1] / "presets"
DEVICES = [accelerator(name) for name in names()]
FACTS = [(device, figure, fact) for device in DEVICES for figure, fact in device.facts.items()]
GIB, MIB = 2**30, 2**20


def test_there_are_enough_of_them():
    assert len(names()) >= 60


@pytest.mark.parametrize("device", DEVICES, ids=names())
def test_every_file_is_complete(device):
    """A name as people write it, and for every figure a source that is listed, a grade and a provenance."""
    assert re.fullmatch(r"[a-z0-9]+([.-][a-z0-9]+)*", device.name)
    assert (FOLDER / "accelerators" / f"{device.name}.toml").is_file()
    present = {name for name in BOUNDS if name != "peak_flops" and getattr(device, name) is not None}
    assert set(device.facts) == present | {f"peak_flops.{format}" for format in device.peak_flops}
    assert device.title != device.name
    assert device.vendor


def test_every_fact_has_a_listed_source_and_a_grade():
    listed = set(tomllib.loads((FOLDER / "hardware_sources.toml").read_text(encoding="utf-8"))["sources"].values())
    for device, figure, fact in FACTS:
        place = f"{device.name}: {figure}"
        assert fact.confidence in "ABCD", place
        assert fact.provenance in ("datasheet", "measured", "assumed"), place
        assert fact.provenance != "assumed" or fact.note, f"{place} is assumed and no note says how"
        rest = fact.source
        for title in sorted(listed, key=len, reverse=True):
            rest = rest.replace(title, "")
        assert not rest.strip("; "), f"{place}: {rest} is no listed source"


def test_every_listed_source_is_used():
    listed = tomllib.loads((FOLDER / "hardware_sources.toml").read_text(encoding="utf-8"))["sources"]
    used = "; ".join(fact.source for _, _, fact in FACTS)
    assert [key for key, title in listed.items() if title not in used] == []


@pytest.mark.parametrize(
    ("name", "figures"),
    [
        ("h100-sxm", {"bf16": 989.4e12, "fp8": 1978.9e12, "bandwidth": 3.35e12, "link": 450e9, "domain": 8, "w": 700}),
        (
            "a100-80gb-sxm",
            {"bf16": 312e12, "int8": 624e12, "bandwidth": 2.039e12, "link": 300e9, "domain": 8, "w": 400},
        ),
        ("h200", {"bf16": 989.4e12, "bandwidth": 4.8e12, "memory": 143_771 * MIB}),
        ("b200", {"bf16": 2.25e15, "fp8": 4.5e15, "nvfp4": 9e15, "bandwidth": 7.7e12, "link": 900e9}),
        ("gb200", {"domain": 72, "memory": 189_471 * MIB}),
        ("mi300x", {"bf16": 1307.4e12, "fp8": 2614.9e12, "bandwidth": 5.3e12, "memory": 196_592 * MIB, "link": 448e9}),
        ("l40s", {"bf16": 362e12, "fp8": 733e12, "bandwidth": 864e9, "memory": 46_068 * MIB, "domain": 1}),
        ("l4", {"bf16": 121e12, "fp8": 242.5e12, "bandwidth": 300e9, "w": 72}),
        ("tpu-v5e", {"bf16": 197e12, "int8": 394e12, "bandwidth": 819e9, "memory": 15.75 * GIB}),
        ("m3-ultra", {"bandwidth": 819.2e9, "memory": 384 * GIB}),
    ],
)
def test_figures_of_the_data_sheets(name, figures):
    device = accelerator(name)
    fields = {"memory": "memory_bytes", "bandwidth": "bandwidth_bytes_per_s", "link": "link_bytes_per_s"}
    fields |= {"domain": "domain_size", "w": "power_w"}
    for key, value in figures.items():
        assert (getattr(device, fields[key]) if key in fields else device.peak(key)) == value, key


@pytest.mark.parametrize(
    ("name", "units", "flops_per_cycle", "clock_hz"),
    [
        ("a100-80gb-sxm", 108, 2048, 1.41e9),
        ("h100-sxm", 132, 4096, 1.83e9),
        ("h100-pcie", 114, 4096, 1.62e9),
        ("rtx-a6000", 84, 1024, 1.80e9),
        ("l4", 58, 1024, 2.04e9),
        ("l40s", 142, 1024, 2.52e9),
        ("rtx-4090", 128, 512, 2.52e9),
        ("rtx-5090", 170, 512, 2.407e9),
        ("rtx-pro-6000-workstation", 188, 1024, 2.617e9),
        ("mi300x", 304, 2048, 2.1e9),
        ("mi355x", 256, 4096, 2.4e9),
        ("tpu-v5e", 4, 2 * 128 * 128, 1.5e9),
    ],
)
def test_a_dense_peak_is_units_times_width_times_clock(name, units, flops_per_cycle, clock_hz):
    """A sparse figure would be twice this."""
    assert accelerator(name).peak("bf16") == pytest.approx(units * flops_per_cycle * clock_hz, rel=0.015)


@pytest.mark.parametrize(
    ("name", "bus_bits", "bits_per_s"),
    [
        ("a100-80gb-sxm", 5120, 3.186e9),
        ("h200", 6144, 6.25e9),
        ("mi300x", 8192, 5.2e9),
        ("l40s", 384, 18e9),
        ("rtx-4090", 384, 21e9),
        ("rtx-5090", 512, 28e9),
        ("gb10", 256, 8.533e9),
    ],
)
def test_bandwidth_is_bus_width_times_rate(name, bus_bits, bits_per_s):
    assert accelerator(name).bandwidth_bytes_per_s == pytest.approx(bus_bits / 8 * bits_per_s, rel=0.01)


def test_no_peak_is_a_sparse_figure():
    """The trap: data sheets print the sparse figure first, and it is about twice the dense one."""
    named = [(device, figure.partition(".")[2], fact.sparse) for device, figure, fact in FACTS if fact.sparse]
    assert len(named) >= 15
    for device, format, sparse in named:
        assert 1.9 <= sparse / device.peak(format) <= 4, (device.name, format)  # AWS prunes 12 of 16
    assert accelerator("l40s").facts["peak_flops.fp8"].sparse == 1466e12


def test_peaks_halve_with_the_width():
    """On matrix units a narrower format is never slower, but for the fp16 of one and the int8 cut from two."""
    for device in DEVICES:
        for wide, narrow in (("fp32", "bf16"), ("bf16", "fp8"), ("fp8", "nvfp4"), ("fp8", "mxfp4")):
            if wide in device.peak_flops and narrow in device.peak_flops:
                assert device.peak(wide) <= device.peak(narrow), (device.name, wide, narrow)


def test_usable_memory_is_what_a_driver_shows():
    """A discrete card shows at least its decimal figure; a machine that shares memory hands out less."""
    for device in DEVICES:
        share = device.memory_bytes / device.marketing_memory_bytes
        if device.unified_memory:
            assert 0.65 < share <= 1, device.name
        elif device.vendor in ("NVIDIA", "AMD"):
            assert 1 <= share < 1.08, device.name


def test_apple_hands_two_thirds_or_three_quarters_to_its_gpu():
    for device in DEVICES:
        if device.vendor == "Apple":
            installed = device.marketing_memory_bytes // 10**9
            share = 2 / 3 if installed <= 36 else 3 / 4
            assert device.memory_bytes == pytest.approx(installed * GIB * share, abs=MIB), device.name


def test_aliases_are_of_one_device_and_no_name():
    folded = [alias for device in DEVICES for alias in device.aliases]
    assert len(folded) == len(set(folded))
    assert not set(folded) & set(names())
    for device in DEVICES:
        assert all(find(alias) == device.name for alias in device.aliases)


@pytest.mark.parametrize(
    ("text", "name"),
    [("H100-SXM", "h100-sxm"), (" nvidia l40s ", "l40s"), ("AMD MI300X", "mi300x"), ("apple_m3_ultra", "m3-ultra")],
)
def test_names_as_people_write_them(text, name):
    assert accelerator(text).name == name


@pytest.mark.parametrize(
    ("text", "kind", "sentence"),
    [
        ("h100-smx", UnknownName, "unknown accelerator 'h100-smx'; did you mean 'h100-sxm'?"),
        ("zebra", UnknownName, "unknown accelerator 'zebra'; planner accelerators lists those that are known"),
        ("", UnknownName, "unknown accelerator ''; planner accelerators lists those that are known"),
        ("h100", UsageError, "accelerator 'h100' may be h100-nvl or h100-pcie or h100-sxm; name one of them"),
        ("no.toml", InputError, "no.toml: cannot be read: No such file or directory"),
    ],
)
def test_what_is_not_there(text, kind, sentence):
    with pytest.raises(kind) as refusal:
        accelerator(text)
    assert str(refusal.value) == sentence


def write(tmp_path, text):
    path = tmp_path / "mine.toml"
    path.write_text(text, encoding="utf-8")
    return str(path)


PLAIN = 'memory_bytes = "24 GiB"\nbandwidth_bytes_per_s = "1.008 TB/s"\n[peak_flops]\nbf16 = "165.2 TFLOP/s"\n'


def test_a_file_of_ones_own(tmp_path):
    path = write(tmp_path, PLAIN)
    device = accelerator(path)
    assert (device.name, device.memory_bytes, device.peak("bf16")) == ("mine", 24 * GIB, 165.2e12)
    assert device.link_bytes_per_s is None
    fact = device.facts["memory_bytes"]
    assert (fact.source, fact.provenance, fact.confidence) == (path, "given", "given")


def test_a_file_states_only_what_differs(tmp_path):
    path = write(tmp_path, 'base = "H100 SXM"\nname = "ours"\npower_w = 500\n[peak_flops]\nfp8 = "1.5 PFLOP/s"\n')
    ours, theirs = accelerator(path), accelerator("h100-sxm")
    assert (ours.name, ours.power_w, ours.peak("fp8"), ours.peak("bf16")) == ("ours", 500, 1.5e15, theirs.peak("bf16"))
    assert ours.facts["power_w"].provenance == "given"
    assert ours.facts["peak_flops.fp8"].sparse is None
    assert ours.facts["memory_bytes"] == theirs.facts["memory_bytes"]
    assert theirs.power_w == 700


@pytest.mark.parametrize("name", names())
def test_a_device_is_written_as_the_keys_of_a_file(name):
    device = accelerator(name)
    assert catalogue.from_table(tomllib.loads(write_toml(catalogue.to_table(device))), "x.toml") == device


def test_a_device_without_facts_is_given_when_it_comes_back():
    own = Accelerator(
        name="own", title="own", vendor="", memory_bytes=10**10, bandwidth_bytes_per_s=1e12, peak_flops={"bf16": 1e14}
    )
    again = catalogue.from_table(catalogue.to_table(own), "plan.xlsx")
    assert (again.name, again.memory_bytes, again.peak_flops) == (own.name, own.memory_bytes, own.peak_flops)
    assert again.facts["memory_bytes"] == catalogue.Fact(source="plan.xlsx", confidence="given", provenance="given")


def test_another_memory_size_needs_no_number_on_the_box(tmp_path):
    device = accelerator(write(tmp_path, 'base = "m3-ultra"\nmemory_bytes = "72 GiB"\n'))
    assert (device.memory_bytes, device.marketing_memory_bytes) == (72 * GIB, None)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("memory_bytes = 80\nbandwidth_bytes_per_s = 3.35e12", "memory_bytes = 80 B is not between 100 MB and 10 TB"),
        ('memory_bytes = "80"', "memory_bytes: '80' has no unit"),
        ('memory_bytes = "80 Gb"', "memory_bytes: '80 Gb' has the unknown unit 'Gb'"),
        ("memory_bytes = nan", "memory_bytes: nan is not a number"),
        ('memory_bytes = "24 GiB"', "bandwidth_bytes_per_s is missing"),
        (PLAIN + 'fp8 = "0 TFLOP/s"', "peak_flops.fp8 = 0 FLOP/s is not between 1 TFLOP/s and 1 EFLOP/s"),
        (PLAIN + "fp8 = -5e14", "peak_flops.fp8: -500000000000000.0 is negative"),
        (PLAIN + "fp8 = {}", "peak_flops.fp8: None is not a number"),
        (PLAIN + 'fp9 = "1 PFLOP/s"', "peak_flops: 'fp9' is no compute format; did you mean 'fp8'?"),
        (
            PLAIN + 'fp8 = { value = 7e14, sourec = "me" }',
            "peak_flops.fp8: sourec: unknown key; did you mean 'source'?",
        ),
        (PLAIN + 'fp8 = { value = 7e14, confidence = "Z" }', "peak_flops.fp8: 'Z' is none of A, B, C, D, given"),
        ("memroy_bytes = 8e10", "memroy_bytes: unknown key; did you mean 'memory_bytes'?"),
        ('base = "h100-smx"', "base = 'h100-smx' is no accelerator of the catalogue; did you mean 'h100-sxm'?"),
        ('base = "h100-sxm"\nmemory_bytes = "80 MB"', "memory_bytes = 80 MB is not between 100 MB and 10 TB"),
        ('base = "h100-sxm"\nunified_memory = "yes"', "unified_memory = 'yes' has the wrong type"),
        ('base = "h100-sxm"\naliases = "x"', "aliases = 'x' has the wrong type"),
        ('base = "h100-sxm"\nlaunch_year = true', "launch_year = True has the wrong type"),
        ('base = "h100-sxm"\npeak_flops = 3', "peak_flops = 3 has the wrong type"),
        ("memory_bytes", "not valid TOML"),
    ],
)
def test_a_bad_file_gets_one_sentence_with_its_place(tmp_path, text, sentence):
    path = write(tmp_path, text)
    with pytest.raises(PlannerError) as refusal:
        accelerator(path)
    assert sentence in str(refusal.value)
    assert str(refusal.value).startswith(path)
    assert "\n" not in str(refusal.value)


WORDS = st.sampled_from([*BOUNDS, "name", "base", "notes", "aliases", "source", "unified_memory", "bf16", "value", "x"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(["80 GiB", "h100-sxm", "1 TB/s", ""]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(WORDS, inner, max_size=4),
    max_leaves=6,
)


@pytest.mark.fuzz
@given(table=st.dictionaries(WORDS, VALUES, max_size=6))
def test_garbage_is_refused_or_a_device(table):
    try:
        built = catalogue._built([({"name": "x", "source": "x", "confidence": "D"} | table, {})], "x.toml")
    except PlannerError:
        return
    assert isinstance(built, Accelerator)
    assert built.memory_bytes > 0


def test_the_table_of_all():
    frame = accelerators()
    assert list(frame["name"]) == list(names())
    row = frame.set_index("name").loc["a100-80gb-sxm"]
    assert row["bf16_flops"] == 312e12
    assert math.isnan(row["fp8_flops"])  # unknown is not 0
    assert row["confidence"] == "A"
    assert frame.attrs["units"]["bandwidth_bytes_per_s"] == "B/s"
    assert not (frame.select_dtypes("number") == 0).any().any()


def test_the_table_is_filtered():
    frame = accelerators(vendor="amd", min_memory_bytes=180 * GIB)
    assert {"mi300x", "mi325x", "mi355x"} <= set(frame["name"])
    assert set(frame["vendor"]) == {"AMD"}
    assert frame["memory_bytes"].min() >= 180 * GIB
    assert accelerators(min_memory_bytes=1e15).empty
    with pytest.raises(UnknownName, match=r"^unknown vendor 'nvidai'; did you mean 'NVIDIA'\?$"):
        accelerators(vendor="nvidai")


def test_every_figure_of_one():
    frame = fact_table(accelerator("l40s")).set_index("figure")
    assert frame.loc["memory_bytes", "provenance"] == "measured"
    assert (frame.loc["peak_flops.fp8", "value"], frame.loc["peak_flops.fp8", "sparse"]) == (733e12, 1466e12)
    assert frame["source"].str.len().min() > 0
