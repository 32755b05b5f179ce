"""What decides the logits and no count: activations, epsilons, rotations, scales, caps, norms' places, routing.

Expected values are those of the published model code, as the reference program's own notes say them in words.
"""

import gzip
import json
import math
import re
from pathlib import Path

import pytest

from planner.sources.config_json import read_config

DATA = Path(__file__).parents[1] / "data" / "params.jsonl.gz"
ROWS = [json.loads(line) for line in gzip.decompress(DATA.read_bytes()).splitlines()]
CONFIGS = {row["name"]: {**row["config"], "model_type": row["model_type"]} for row in ROWS}

MIXER, FF, LAST = "layers[0].mixer", "layers[0].feed_forward", "layers[1]"

FACTS = [
    ("openai-community/gpt2", f"{FF}.activation", "gelu_tanh"),
    ("openai-community/gpt2", f"{MIXER}.position", None),
    ("EleutherAI/gpt-neo-1.3B", f"{MIXER}.scale", 1.0),
    ("EleutherAI/gpt-neo-1.3B", "pattern", ("global", "local")),
    ("EleutherAI/gpt-neo-1.3B", f"{LAST}.mixer.window", 256),
    ("EleutherAI/gpt-j-6b", f"{MIXER}.position.interleaved", True),
    ("EleutherAI/gpt-j-6b", f"{MIXER}.position.width", 64),
    ("EleutherAI/gpt-j-6b", "layers[0].residual", "parallel"),
    ("EleutherAI/gpt-j-6b", "output.bias", True),
    ("Salesforce/codegen-350M-mono", f"{MIXER}.position.width", 32),
    ("EleutherAI/pythia-160m", f"{MIXER}.position.width", 16),
    ("EleutherAI/pythia-160m", "layers[0].residual", "parallel_two_norms"),
    ("EleutherAI/pythia-160m", f"{FF}.activation", "gelu"),
    ("togethercomputer/RedPajama-INCITE-Base-3B-v1", "layers[0].residual", "pre"),
    ("mosaicml/mpt-7b", f"{MIXER}.position.max_bias", 8.0),
    ("mosaicml/mpt-7b", f"{MIXER}.position.scaled_with_scores", False),
    ("tiiuae/falcon-rw-1b", f"{MIXER}.position.scaled_with_scores", True),
    ("tiiuae/falcon-rw-1b", f"{MIXER}.position.precision", "bf16"),
    ("tiiuae/falcon-rw-1b", "layers[0].residual", "pre"),
    ("tiiuae/falcon-40b", "layers[0].residual", "parallel_two_norms"),
    ("bigscience/bloom-560m", "embedding.norm.kind", "layer"),
    ("facebook/opt-350m", "layers[0].residual", "post"),
    ("facebook/opt-350m", "final_norm", None),
    ("facebook/opt-125m", "embedding.position_offset", 2),
    ("facebook/xglm-564M", "embedding.sinusoidal", True),
    ("facebook/xglm-564M", "embedding.position_offset", 2),
    ("facebook/xglm-564M", "embedding.scale", 32.0),
    ("microsoft/biogpt", "embedding.position_offset", 2),
    ("microsoft/biogpt", "final_norm.eps", 1e-5),
    ("bigcode/starcoder", f"{MIXER}.n_kv_heads", 1),
    ("bigcode/starcoder2-15b", f"{MIXER}.window", 4096),
    ("bigcode/starcoder2-15b", f"{FF}.activation", "gelu_tanh"),
    ("microsoft/phi-2", f"{MIXER}.position.width", 32),
    ("microsoft/phi-2", "layers[0].residual", "parallel"),
    ("stabilityai/stablelm-2-12b", f"{MIXER}.qk_norm_over", "heads"),
    ("stabilityai/stablelm-2-12b", f"{MIXER}.qk_norm.bias", False),
    ("stabilityai/stablelm-3b-4e1t", f"{MIXER}.position.width", 20),
    ("adept/persimmon-8b-base", f"{MIXER}.qk_norm_over", "head"),
    ("adept/persimmon-8b-base", f"{FF}.activation", "relu2"),
    ("CohereLabs/c4ai-command-r-v01", f"{MIXER}.position.interleaved", True),
    ("CohereLabs/c4ai-command-r-v01", "output.scale", 0.0625),
    ("CohereLabs/c4ai-command-a-03-2025", f"{LAST}.mixer.position", None),
    ("CohereLabs/c4ai-command-a-03-2025", f"{MIXER}.position.interleaved", True),
    ("CohereLabs/c4ai-command-a-03-2025", "pattern", ("local", "local", "local", "global")),
    ("meta-llama/Llama-3.1-8B", f"{MIXER}.position.scaling.kind", "llama3"),
    ("meta-llama/Llama-3.1-8B", f"{MIXER}.position.scaling.factor", 8.0),
    ("meta-llama/Llama-3.1-8B", f"{MIXER}.position.base", 500_000.0),
    ("mistralai/Ministral-8B-Instruct-2410", f"{LAST}.mixer.window", 32_768),
    ("mistralai/Ministral-3-3B-Instruct-2512#text", f"{MIXER}.temperature.slope", 0.1),
    ("mistralai/Ministral-3-3B-Instruct-2512#text", f"{MIXER}.temperature.interval", 16_384),
    ("mistralai/Ministral-3-3B-Instruct-2512#text", f"{MIXER}.temperature.first", 0),
    ("mistralai/Ministral-3-3B-Instruct-2512#text", f"{MIXER}.position.scaling.kind", "yarn"),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{LAST}.mixer.temperature.first", 1),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{LAST}.mixer.position", None),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{LAST}.mixer.qk_norm", None),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{MIXER}.temperature", None),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{MIXER}.qk_norm_after_position", True),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{MIXER}.qk_norm.weight", False),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{MIXER}.position.interleaved", True),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{MIXER}.chunk", 8192),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{FF}.scales_input", True),
    ("meta-llama/Llama-4-Scout-17B-16E-Instruct#text", f"{FF}.scoring", "sigmoid"),
    ("google/gemma-2b", f"{FF}.activation", "gelu_tanh"),
    ("google/gemma-2b", "final_norm.unit_offset", True),
    ("google/gemma-2b", "embedding.scale", math.sqrt(2048)),
    ("google/gemma-2-27b", f"{MIXER}.scale", 144**-0.5),
    ("google/gemma-2-27b", f"{MIXER}.soft_cap", 50.0),
    ("google/gemma-2-27b", "output.soft_cap", 30.0),
    ("google/gemma-3-27b-it#text", f"{MIXER}.position.base", 10_000.0),
    ("google/gemma-3-27b-it#text", f"{MIXER}.position.scaling", None),
    ("google/gemma-3-27b-it#text", f"{LAST}.mixer.position.base", 1_000_000.0),
    ("google/gemma-3-27b-it#text", f"{LAST}.mixer.position.scaling.factor", 8.0),
    ("google/gemma-3-27b-it#text", f"{MIXER}.scale", 168**-0.5),
    ("google/gemma-3-27b-it#text", f"{MIXER}.qk_norm.unit_offset", True),
    ("google/gemma-3-27b-it#text", "layers[0].residual", "sandwich"),
    ("google/gemma-4-26B-A4B#text", f"{MIXER}.scale", 1.0),
    ("google/gemma-4-26B-A4B#text", f"{LAST}.mixer.v_from_k", True),
    ("google/gemma-4-26B-A4B#text", f"{LAST}.mixer.position.scaling.pairs", 64),
    ("google/gemma-4-26B-A4B#text", f"{LAST}.mixer.position.width", None),
    ("google/gemma-4-26B-A4B#text", f"{MIXER}.v_norm.weight", False),
    ("google/gemma-4-26B-A4B#text", f"{FF}.mixture.router_scale", 2816**-0.5),
    ("google/gemma-4-26B-A4B#text", "final_norm.unit_offset", False),
    ("zai-org/GLM-4-9B-0414", f"{MIXER}.position.interleaved", True),
    ("zai-org/GLM-4-9B-0414", f"{MIXER}.position.width", 64),
    ("zai-org/GLM-4-9B-0414", "layers[0].residual", "sandwich"),
    ("zai-org/glm-4-9b-chat-hf", "layers[0].residual", "pre"),
    ("zai-org/GLM-4.5", f"{MIXER}.position.interleaved", False),
    ("zai-org/GLM-4.5", f"{MIXER}.position.width", 64),
    ("allenai/OLMo-7B-hf", "final_norm.weight", False),
    ("allenai/OLMo-2-1124-7B", "layers[0].residual", "reordered"),
    ("allenai/OLMo-2-1124-7B", f"{MIXER}.qk_norm_over", "whole"),
    ("allenai/Olmo-3-1025-7B", "pattern", ("local", "local", "local", "global")),
    ("allenai/OLMoE-1B-7B-0924", f"{FF}.normalised", False),
    ("ibm-granite/granite-3.1-8b-base", f"{MIXER}.scale", 0.0078125),
    ("ibm-granite/granite-3.1-8b-base", "layers[0].residual_scale", 0.22),
    ("ibm-granite/granite-3.1-8b-base", "embedding.scale", 12.0),
    ("ibm-granite/granite-3.1-8b-base", "output.scale", 1 / 16),
    ("ibm-granite/granite-3.1-1b-a400m-base", f"{FF}.scoring", "softmax_of_chosen"),
    ("nvidia/Minitron-4B-Base", "final_norm.unit_offset", True),
    ("nvidia/Minitron-4B-Base", f"{MIXER}.position.width", 64),
    ("nvidia/Minitron-4B-Base", f"{FF}.activation", "relu2"),
    ("LGAI-EXAONE/EXAONE-4.0-32B", f"{LAST}.mixer.position", None),
    ("LGAI-EXAONE/EXAONE-4.0-32B", "layers[0].residual", "reordered"),
    ("LGAI-EXAONE/EXAONE-4.0-1.2B", f"{MIXER}.position.base", 1_000_000.0),
    ("HuggingFaceTB/SmolLM3-3B", "pattern", ("rope", "rope", "rope", "nope")),
    ("HuggingFaceTB/SmolLM3-3B", f"{LAST}.mixer.position", None),
    ("databricks/dbrx-base", f"{MIXER}.qkv_clip", 8.0),
    ("databricks/dbrx-base", f"{MIXER}.position.base", 500_000.0),
    ("databricks/dbrx-base", f"{FF}.normalised", True),
    ("microsoft/Phi-3.5-MoE-instruct", f"{FF}.scoring", "sparsemixer"),
    ("microsoft/Phi-3.5-MoE-instruct", f"{FF}.router_jitter", 0.01),
    ("microsoft/Phi-mini-MoE-instruct", f"{MIXER}.window", 2047),
    ("jetmoe/jetmoe-8b", f"{FF}.scoring", "softmax_of_chosen"),
    ("jetmoe/jetmoe-8b", "layers[0].norm.eps", 1e-6),
    ("jetmoe/jetmoe-8b", "final_norm.eps", 1e-5),
    ("MiniMaxAI/MiniMax-M2.5", f"{MIXER}.position.width", 64),
    ("MiniMaxAI/MiniMax-M2.5", f"{MIXER}.qk_norm_over", "whole"),
    ("MiniMaxAI/MiniMax-M2.5", f"{FF}.scoring", "sigmoid"),
    ("baidu/ERNIE-4.5-0.3B-PT", f"{MIXER}.position.interleaved", True),
    ("baidu/ERNIE-4.5-21B-A3B-PT", f"{LAST}.feed_forward.correction_bias", "parameter"),
    ("baidu/ERNIE-4.5-21B-A3B-PT", f"{LAST}.feed_forward.scoring", "softmax"),
    ("tencent/Hunyuan-7B-Instruct", f"{MIXER}.qk_norm_after_position", True),
    ("tencent/Hunyuan-A13B-Instruct", f"{MIXER}.qk_norm_after_position", True),
    ("tencent/Hunyuan-A13B-Instruct", f"{FF}.normalised", True),
    ("rednote-hilab/dots.llm1.inst", f"{MIXER}.qk_norm_after_position", False),
    ("rednote-hilab/dots.llm1.inst", f"{LAST}.feed_forward.routed_scale", 2.5),
    ("arcee-ai/AFM-4.5B", f"{FF}.activation", "relu2"),
    ("swiss-ai/Apertus-8B-2509", f"{FF}.activation", "xielu"),
    ("kyutai/helium-1-preview-2b", f"{MIXER}.position.interleaved", True),
    ("microsoft/bitnet-b1.58-2B-4T", f"{MIXER}.output_norm.eps", 1e-5),
    ("microsoft/bitnet-b1.58-2B-4T", f"{FF}.inner_norm.eps", 1e-5),
    ("facebook/cwm", "pattern", ("global", "local", "local", "local")),
    ("openbmb/MiniCPM3-4B", f"{MIXER}.position.interleaved", False),
    ("openbmb/MiniCPM3-4B", "embedding.scale", 12.0),
    ("openbmb/MiniCPM3-4B", "output.scale", 256 / 2560),
    ("openbmb/MiniCPM3-4B", "layers[0].residual_scale", 1.4 / math.sqrt(62)),
    ("XiaomiMiMo/MiMo-V2-Flash", f"{MIXER}.value_scale", 0.707),
    ("XiaomiMiMo/MiMo-V2-Flash", f"{MIXER}.position.width", 64),
    ("XiaomiMiMo/MiMo-V2-Flash", f"{MIXER}.position.base", 5_000_000.0),
    ("XiaomiMiMo/MiMo-V2-Flash", f"{LAST}.mixer.position.base", 10_000.0),
    ("XiaomiMiMo/MiMo-V2-Flash", f"{LAST}.mixer.sinks", True),
    ("XiaomiMiMo/MiMo-V2-Flash", f"{MIXER}.sinks", False),
    ("openai/gpt-oss-20b", f"{FF}.scoring", "softmax_of_chosen"),
    ("openai/gpt-oss-20b", f"{FF}.clip", 7.0),
    ("openai/gpt-oss-20b", f"{MIXER}.position.scaling.kind", "yarn"),
    ("openai/gpt-oss-20b", "pattern", ("local", "global")),
    ("mistralai/Mixtral-8x7B-v0.1", f"{FF}.normalised", True),
    ("Qwen/Qwen1.5-MoE-A2.7B", f"{FF}.normalised", False),
    ("Qwen/Qwen3-8B", f"{MIXER}.qk_norm_over", "head"),
    ("deepseek-ai/DeepSeek-V3", f"{MIXER}.position.interleaved", True),
    ("deepseek-ai/DeepSeek-V3", f"{MIXER}.latent_norm.eps", 1e-6),
    ("deepseek-ai/DeepSeek-V3", f"{LAST}.feed_forward.group_score", "best_two"),
    ("deepseek-ai/DeepSeek-V3", f"{LAST}.feed_forward.n_groups", 8),
    ("deepseek-ai/DeepSeek-V2-Lite", f"{LAST}.feed_forward.n_groups", None),
    ("deepseek-ai/DeepSeek-V2-Lite", f"{LAST}.feed_forward.group_score", "best"),
    ("deepseek-ai/DeepSeek-V2-Lite", f"{LAST}.feed_forward.normalised", False),
]


def at(part, path):
    """The value at a path such as ``layers[0].mixer.window``."""
    for name, index in re.findall(r"(\w+)(?:\[(\d+)\])?", path):
        part = getattr(part, name)
        part = part[int(index)] if index else part
    return part


@pytest.mark.parametrize(("name", "path", "expected"), FACTS, ids=[f"{name}-{path}" for name, path, _ in FACTS])
def test_what_decides_the_logits(name, path, expected):
    found = at(read_config(CONFIGS[name], name).architecture, path)
    assert found == pytest.approx(expected, rel=1e-12) if isinstance(expected, float) else found == expected


def test_yarn_sharpens_the_scores_of_latent_attention():
    mixer = read_config(CONFIGS["deepseek-ai/DeepSeek-V3"], "x").architecture.layers[0].mixer
    assert mixer.scale == pytest.approx(192**-0.5 * (0.1 * math.log(40) + 1) ** 2)


def test_only_global_layers_of_olmo_3_are_stretched():
    scaling = {"rope_type": "yarn", "factor": 8.0, "original_max_position_embeddings": 8192}
    config = {**CONFIGS["allenai/Olmo-3-1025-7B"], "rope_scaling": scaling}
    local, everywhere = read_config(config, "x").architecture.layers
    assert local.mixer.window == 4096
    assert local.mixer.position.scaling is None
    assert everywhere.mixer.position.scaling.factor == 8.0


def test_hunyuan_raises_the_base_once_and_for_all():
    config = {
        **CONFIGS["tencent/Hunyuan-7B-Instruct"],
        "rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0},
    }
    reading = read_config(config, "x")
    position = reading.architecture.layers[0].mixer.position
    assert position.base == pytest.approx(10_000 * 1000 ** (128 / 126))
    assert position.scaling is None
    assert reading.unknown_keys == ()


@pytest.mark.parametrize(
    ("vocab", "width", "unit_rows", "alibi"), [(64_000, 4096, False, False), (125_696, 5120, True, True)]
)
def test_baichuan_tells_its_kinds_apart_by_size(vocab, width, unit_rows, alibi):
    config = {"model_type": "baichuan", "vocab_size": vocab, "hidden_size": width, "num_hidden_layers": 2}
    config |= {"num_attention_heads": width // 128, "intermediate_size": 64}
    architecture = read_config(config, "x").architecture
    assert architecture.output.unit_rows == unit_rows
    assert (architecture.layers[0].mixer.position.kind == "alibi") == alibi
