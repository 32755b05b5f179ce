"""Every preset: read strictly, written back, equal to the config it came from, and held to what its makers publish."""

import gzip
import json
from importlib.resources import files
from pathlib import Path

import pytest

import planner
from planner import folds
from planner.accounts import parameters
from planner.errors import InputError, UnknownName
from planner.loading import from_table, parse_toml, to_toml
from planner.sources import make_preset, presets, read
from planner.sources.config_json import read_config
from planner.sources.document import CONFIG, Figure, read_document, write_document

NAMES = presets.names()
COMPARISON_SET = ["mha", "gqa-8", "mqa", "mla"]
DATA = Path(__file__).parent / "data"
PRESET_OF = {presets.load_preset(name).hub: name for name in NAMES}
FOREIGN = {"model_size", "sliding_window_size"}  # keys of those who keep a copy of the file


def configs():
    """Preset -> the config it was written from: of the models counted by another program, and of all others."""
    with gzip.open(DATA / "params.jsonl.gz", "rt", encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            config = {key: value for key, value in row["config"].items() if key not in FOREIGN}
            yield PRESET_OF[row["name"].removesuffix("#text")], {"model_type": row["model_type"], **config}
    for line in (DATA / "configs.jsonl").read_text("utf-8").splitlines():
        row = json.loads(line)
        yield row["preset"], row["config"]


CONFIGS = dict(configs())

# What a published figure may include, and what that amounts to. A vision part is in no contract, so it stays as stated.
EXCESS = {
    "tied head stored twice": lambda model: model.vocab_size * model.d_model,
    "mtp": lambda model: parameters(model, modules=("mtp",)),
    "stored buffers": lambda model: folds.parameters(model.parts(), buffers=False) - parameters(model),
}


def text(name):
    return files(presets.FOLDER).joinpath(f"{name}.toml").read_text("utf-8")


@pytest.fixture(params=NAMES)
def preset(request):
    return presets.load_preset(request.param)


def test_the_catalogue_is_large():
    assert len(NAMES) >= 120


def test_a_preset_is_named_like_its_file(preset):
    assert preset.architecture.name in NAMES
    assert presets.load_preset(preset.architecture.name) is preset
    assert preset.architecture.name == preset.architecture.name.lower()


def test_nothing_is_lost_in_writing(preset):
    assert read_document(write_document(preset), "written") == preset
    assert from_table(parse_toml(to_toml(preset.architecture), "written"), "written") == preset.architecture


def test_every_fact_has_a_source(preset):
    figures = [preset.published.parameters, preset.published.active_parameters]
    used = {CONFIG, *(figure.source for figure in figures if figure)}
    if preset.family == "comparison":
        used |= {"mixer"}
    assert set(preset.sources) == used
    assert all(source.retrieved for source in preset.sources.values())


def test_published_figures_are_met(preset):
    figures = [(preset.published.parameters, False), (preset.published.active_parameters, True)]
    for figure, active in figures:
        if figure is None:
            continue
        counted = parameters(preset.architecture, active=active)
        assert counted + figure.excess == pytest.approx(figure.value, rel=figure.rel, abs=0)
        known = [EXCESS[part](preset.architecture) for part in figure.includes + figure.omits if part in EXCESS]
        assert known in ([], [figure.excess])
        assert set(figure.includes + figure.omits) <= {*EXCESS, "vision"}


def test_without_a_published_total_a_preset_says_so():
    models = [presets.load_preset(name) for name in NAMES if name not in COMPARISON_SET]
    silent = [model for model in models if model.published.parameters is None]
    assert all("published total" in " ".join(model.notes) for model in silent)


@pytest.mark.parametrize("name", CONFIGS)
def test_the_config_says_the_same(name):
    reading = read_config(dict(CONFIGS[name]), name, name)
    assert reading.unknown_keys == ()
    differing = planner.diff(reading.architecture, presets.load_preset(name).architecture)
    assert differing.keys() <= {"title", "weights"}  # the copies of a config say nothing about formats


@pytest.mark.parametrize(
    ("name", "weights"),
    [
        ("deepseek-v3", "fp8-block128"),
        ("deepseek-r1", "fp8-block128"),
        ("deepseek-v3.2", "fp8-block128"),
        ("deepseek-v4-flash", "fp8-block128+experts_routed=mxfp4"),
        ("deepseek-v4-pro", "fp8-block128+experts_routed=mxfp4"),
        ("kimi-k2", "fp8-block128"),
        ("gpt-oss-20b", "mxfp4"),
        ("gpt-oss-120b", "mxfp4"),
    ],
)
def test_weights_that_are_published_quantised(name, weights):
    assert planner.load(name).weights == weights


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("qwen-72b", 1e6),
        ("internlm2-20b", 1e6),
        ("olmo-2-32b", 5e5),
        ("qwen1.5-4b", 5e6),
        ("granite-3.1-3b-a800m", 1e7),
        ("hunyuan-a13b", 11_158_840),  # as a loader of its weights prints it
        ("hunyuan-7b", 10_000 * 1000 ** (128 / 126)),
    ],
)
def test_rotary_bases_as_they_are_published(name, base):
    (layers,) = planner.load(name).layers
    assert layers.mixer.position.base == pytest.approx(base, rel=1e-7)


@pytest.mark.parametrize(
    ("name", "kind", "factor", "original"),
    [
        ("afm-4.5b", "Yarn", 20, 4096),
        ("olmo-3-7b", "Yarn", 8, 8192),  # only its full layers
        ("exaone-4.0-32b", "Llama3", 16, 8192),  # only its local layers, the others have no rope
        ("exaone-4.0-1.2b", "Llama3", 16, 8192),
    ],
)
def test_stretched_rotations_as_they_are_published(name, kind, factor, original):
    ropes = [layers.mixer.position for layers in planner.load(name).layers]
    (scaling,) = [rope.scaling for rope in ropes if rope is not None and rope.scaling is not None]
    assert (type(scaling).__name__, scaling.factor, scaling.original_positions) == (kind, factor, original)


def test_half_of_a_head_of_minimax_is_rotated():
    full = next(layers.mixer for layers in planner.load("minimax-text-01").layers if layers.label != "linear")
    assert (full.head_dim, full.position.width) == (128, 64)


@pytest.mark.parametrize(
    ("name", "positions"),
    [("falcon-h1-7b", 262_144), ("falcon-h1-34b", 262_144), ("qwen-72b", 32_768), ("olmo-2-32b", 4096)],
)
def test_positions_as_they_are_published(name, positions):
    assert planner.load(name).max_positions == positions


def test_no_name_means_two_presets():
    heads = [presets.load_preset(name) for name in NAMES]
    names = [other.casefold() for head in heads for other in (head.architecture.name, *head.aliases)]
    hubs = [head.hub for head in heads if head.hub]
    assert len(set(names)) == len(names)
    assert len(set(hubs)) == len(hubs)


@pytest.mark.parametrize(
    ("name", "counted"),
    [("mha", 6_738_415_616), ("gqa-8", 5_933_109_248), ("mqa", 5_698_228_224), ("mla", 6_142_840_832)],
)
def test_the_comparison_set_counts_its_own_parameters_too(name, counted):
    model = planner.load(name)
    assert (parameters(model), model.stated_parameters) == (counted, 7_000_000_000)
    differing = planner.diff(planner.load("mha"), model)
    assert all(path.startswith(("name", "title", "layers[0].mixer.")) for path in differing)


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        ("llama-3.1-8b", 8_030_261_248),
        ("mixtral-8x7b", 46_702_792_704),
        ("deepseek-v3", 671_026_419_200),
        ("gpt2", 124_439_808),
        ("gemma-2-9b", 9_241_705_984),
    ],
)
def test_parameters(name, counted):
    assert parameters(planner.load(name)) == counted


@pytest.mark.parametrize(
    ("name", "two_byte"),
    [
        ("mha", 524_288),
        ("gqa-8", 131_072),
        ("mqa", 16_384),
        ("mla", 36_864),
        ("deepseek-v3", 70_272),
        ("qwen2.5-72b", 327_680),
        ("llama-3.1-405b", 516_096),
        ("opt-13b", 819_200),
    ],
)
def test_cache_of_one_token(name, two_byte):
    parts = planner.load(name).parts()
    assert folds.cache_total(parts, [1], lambda entry, positions: 2 * entry.elements * positions) == two_byte


@pytest.mark.parametrize(
    "written",
    [
        "llama-3.1-8b",
        "Llama-3.1-8B",
        " llama 3.1 8b ",
        "meta-llama/Llama-3.1-8B",
        "META-LLAMA/llama-3.1-8b",
        "Llama-3.1-8B-Instruct",
        "meta-llama/Meta-Llama-3.1-8B-Instruct",
    ],
)
def test_names_as_people_write_them(written):
    assert planner.load(written) is planner.load("llama-3.1-8b")


@pytest.mark.parametrize(
    ("written", "sentence"),
    [
        ("llama-3.1-9b", "unknown model or path 'llama-3.1-9b'; did you mean 'llama-3.1-8b'?"),
        (
            "somebody/Llama-3.1-8B",
            "unknown model or path 'somebody/Llama-3.1-8B'; did you mean 'llama-3.1-8b'?; it is not in the hub's "
            "cache, --online or PLANNER_ONLINE=1 asks the hub",
        ),
        ("", "unknown model or path ''; planner models lists those that are known"),
        ("-", "unknown model or path '-'; planner models lists those that are known"),
        ("zzz", "unknown model or path 'zzz'; planner models lists those that are known"),
        ("z" * 10**7, f"unknown model or path '{'z' * 100}'; planner models lists those that are known"),
    ],
)
def test_an_unknown_name(written, sentence):
    with pytest.raises(UnknownName) as error:
        planner.load(written)
    assert str(error.value) == sentence


def test_a_name_is_a_preset_whatever_lies_in_the_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("gpt2").mkdir()
    assert planner.load("gpt2").name == "gpt2"
    with pytest.raises(InputError, match=r"^gpt2: a folder without a config\.json$"):
        planner.load("./gpt2")


def test_the_catalogue_as_a_table():
    frame = presets.catalogue()
    assert list(frame["name"]) == list(NAMES)
    assert (frame["active_parameters"] <= frame["parameters"]).all()
    assert frame["family"].notna().all()


def test_a_published_figure_beside_ours():
    assert read("falcon-180b").against_published(parameters(planner.load("falcon-180b"))) == [
        "published 179,522,565,120 with tied head stored twice (+965,476,352), counted 178,557,088,768: equal"
    ]
    assert read("mha").against_published(1) == []
    assert Figure(value=100, source="x", rel=0.1, note="rounded").against(98) == "published 100, counted 98: -2.000%"


def test_a_preset_is_made_from_a_config(tmp_path, capsys):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(CONFIGS["llama-3.1-8b"]))
    options = {"name": "llama-3.1-8b", "family": "llama", "source": "a file", "parameters": "8030261248"}
    command = [str(path), *(f"--{option}={value}" for option, value in options.items())]
    assert make_preset.main(command) == 0
    made = read_document(capsys.readouterr().out, "made")
    assert planner.diff(made.architecture, planner.load("llama-3.1-8b")).keys() == {"title"}
    assert made.published.parameters.value == 8_030_261_248
    path.write_text(json.dumps({**CONFIGS["llama-3.1-8b"], "hidden_size": None}))
    assert make_preset.main(command) == 3
    assert capsys.readouterr().err == "llama-3.1-8b: hidden_size is missing\n"
