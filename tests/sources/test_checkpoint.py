"""Checkpoints as people have them: one file, shards with an index, split GGUF; published sizes; refusals."""

import json
import os

import pytest

from planner.errors import InputError
from planner.sources import checkpoint as checkpoint_module
from planner.sources.checkpoint import INDEX, read_checkpoint, read_indexed, reconcile
from tests.sources.builders import gguf_file, in_memory, safetensors_file

LAYER = "model.layers.{}."
TINY = [
    ("model.embed_tokens.weight", "BF16", (50, 8)),
    ("model.layers.0.self_attn.q_proj.weight", "BF16", (8, 8)),
    ("model.norm.weight", "BF16", (8,)),
    ("lm_head.weight", "BF16", (50, 8)),
]
TINY_PARAMETERS = 2 * 400 + 64 + 8


def shards(folder, *parts, index=None):
    """Shards with an index, as frameworks save them."""
    weight_map = {}
    for number, tensors in enumerate(parts, 1):
        name = f"model-{number:05}-of-{len(parts):05}.safetensors"
        safetensors_file(folder / name, tensors)
        weight_map |= {tensor[0]: name for tensor in tensors}
    text = json.dumps({"metadata": {"total_size": 0}, "weight_map": weight_map if index is None else index})
    (folder / INDEX).write_text(text)
    return folder


# ---- published checkpoints, rebuilt from their dimensions ------------------------------------------------------------


def gpt_oss(n_layers, n_experts):
    """openai/gpt-oss: experts in MXFP4, all else in BF16, biases everywhere, sinks."""
    d, heads, kv, head_dim, vocabulary = 2880, 64, 8, 64, 201_088
    yield "model.embed_tokens.weight", "BF16", (vocabulary, d)
    yield "lm_head.weight", "BF16", (vocabulary, d)
    yield "model.norm.weight", "BF16", (d,)
    for layer in map(LAYER.format, range(n_layers)):
        for name, outputs, inputs in [
            ("q_proj", heads * head_dim, d),
            ("k_proj", kv * head_dim, d),
            ("v_proj", kv * head_dim, d),
            ("o_proj", d, heads * head_dim),
        ]:
            yield f"{layer}self_attn.{name}.weight", "BF16", (outputs, inputs)
            yield f"{layer}self_attn.{name}.bias", "BF16", (outputs,)
        yield f"{layer}self_attn.sinks", "BF16", (heads,)
        yield f"{layer}mlp.router.weight", "BF16", (n_experts, d)
        yield f"{layer}mlp.router.bias", "BF16", (n_experts,)
        for name, outputs in [("gate_up_proj", 2 * d), ("down_proj", d)]:
            yield f"{layer}mlp.experts.{name}_blocks", "U8", (n_experts, outputs, d // 32, 16)
            yield f"{layer}mlp.experts.{name}_scales", "U8", (n_experts, outputs, d // 32)
            yield f"{layer}mlp.experts.{name}_bias", "BF16", (n_experts, outputs)
        yield f"{layer}input_layernorm.weight", "BF16", (d,)
        yield f"{layer}post_attention_layernorm.weight", "BF16", (d,)


@pytest.mark.parametrize(
    ("n_layers", "n_experts", "billions", "gib"),
    [(36, 128, 116.83, 60.8), (24, 32, 20.91, 12.8)],
    ids=["gpt-oss-120b", "gpt-oss-20b"],
)
def test_gpt_oss_has_the_parameters_and_the_size_of_its_model_card(tmp_path, n_layers, n_experts, billions, gib):
    """OpenAI 2025, gpt-oss model card, table 1."""
    checkpoint = read_checkpoint(safetensors_file(tmp_path / "m.safetensors", list(gpt_oss(n_layers, n_experts))))
    assert round(checkpoint.parameters / 1e9, 2) == billions
    assert round(checkpoint.stored_bytes / 2**30, 1) == gib
    assert set(checkpoint.bytes_by_format()) == {"mxfp4", "bf16"}


def scaled(name, outputs, inputs):
    yield f"{name}.weight", "F8_E4M3", (outputs, inputs)
    yield f"{name}.weight_scale_inv", "F32", (-(-outputs // 128), -(-inputs // 128))


def deepseek_v3(layer):
    """deepseek-ai/DeepSeek-V3: one of its 61 layers, or its layer for multi-token prediction, the 62nd."""
    d, heads, vocabulary, name = 7168, 128, 129_280, LAYER.format(layer)
    for projection, outputs, inputs in [
        ("q_a_proj", 1536, d),
        ("q_b_proj", heads * 192, 1536),
        ("kv_a_proj_with_mqa", 576, d),
        ("kv_b_proj", heads * 256, 512),
        ("o_proj", d, heads * 128),
    ]:
        yield from scaled(f"{name}self_attn.{projection}", outputs, inputs)
    norms = [("self_attn.q_a_layernorm", 1536), ("self_attn.kv_a_layernorm", 512), ("input_layernorm", d)]
    norms += [("post_attention_layernorm", d)]
    if layer == 61:
        norms += [("enorm", d), ("hnorm", d), ("shared_head.norm", d)]
        yield f"{name}eh_proj.weight", "BF16", (d, 2 * d)
        yield f"{name}embed_tokens.weight", "BF16", (vocabulary, d)
        yield f"{name}shared_head.head.weight", "BF16", (vocabulary, d)
    for norm, width in norms:
        yield f"{name}{norm}.weight", "BF16", (width,)
    blocks = ["mlp"] if layer < 3 else ["mlp.shared_experts", *(f"mlp.experts.{e}" for e in range(256))]
    width = 18_432 if layer < 3 else 2048
    for block in blocks:
        yield from scaled(f"{name}{block}.gate_proj", width, d)
        yield from scaled(f"{name}{block}.up_proj", width, d)
        yield from scaled(f"{name}{block}.down_proj", d, width)
    if layer >= 3:
        yield f"{name}mlp.gate.weight", "BF16", (256, d)
        yield f"{name}mlp.gate.e_score_correction_bias", "F32", (256,)


@pytest.mark.slow
def test_deepseek_v3_has_the_elements_that_the_hub_shows_for_it(tmp_path):
    """huggingface.co/deepseek-ai/DeepSeek-V3: 680,571,043,840 F8_E4M3, 3,918,786,560 BF16, 41,555,600 F32.

    Its published total leaves out scales, and the layer for multi-token prediction with its copies of both ends.
    """
    ends = [
        ("model.embed_tokens.weight", "BF16", (129_280, 7168)),
        ("model.norm.weight", "BF16", (7168,)),
        ("lm_head.weight", "BF16", (129_280, 7168)),
    ]
    folder = shards(tmp_path, ends, *(list(deepseek_v3(layer)) for layer in range(62)))
    checkpoint = read_checkpoint(folder)
    elements = {"F8_E4M3": 0, "BF16": 0, "F32": 0}
    for tensor in checkpoint.tensors:
        elements[tensor.dtype] += tensor.stored_bytes * 8 // int(tensor.format.bits)
    assert elements == {"F8_E4M3": 680_571_043_840, "BF16": 3_918_786_560, "F32": 41_555_600}
    prediction = sum(w.elements for w in checkpoint.weights if w.name.startswith("model.layers.61."))
    assert checkpoint.parameters - prediction == 671_026_419_200
    assert checkpoint.stored_bytes == sum(checkpoint.bytes_by_format().values())


# ---- where a checkpoint lies -----------------------------------------------------------------------------------------


def test_a_file_a_folder_and_a_shard_of_it_are_the_same_checkpoint(tmp_path):
    alone = tmp_path / "alone"
    alone.mkdir()
    whole = read_checkpoint(safetensors_file(alone / "model.safetensors", TINY))
    folder = tmp_path / "folder"
    folder.mkdir()
    shards(folder, TINY[:2], TINY[2:])
    seen = [
        read_checkpoint(path)
        for path in (alone, folder, str(folder), folder / INDEX, folder / "model-00002-of-00002.safetensors")
    ]
    assert {checkpoint.weights for checkpoint in seen} == {whole.weights}
    assert whole.parameters == TINY_PARAMETERS
    assert whole.stored_bytes == 2 * TINY_PARAMETERS
    (folder / INDEX).unlink()
    assert read_checkpoint(folder).weights == whole.weights


def test_a_matrix_and_its_scales_may_lie_in_different_shards(tmp_path):
    q, scale = scaled("a", 256, 256)
    checkpoint = read_checkpoint(shards(tmp_path, [q], [scale]))
    assert checkpoint.bytes_by_format() == {"fp8-block128": 256 * 256 + 16}


def test_a_split_gguf_is_one_checkpoint(tmp_path):
    metadata = {"general.architecture": "llama", "split.count": 2, "split.tensors.count": 3}
    parts = [[("token_embd.weight", "Q8_0", (50, 64))], [("output.weight", "Q6_K", (50, 256)), ("n", "F32", (64,))]]
    paths = [
        gguf_file(tmp_path / f"m-{i + 1:05}-of-00002.gguf", {**metadata, "split.no": i}, parts[i]) for i in range(2)
    ]
    for path in (*paths, tmp_path):
        checkpoint = read_checkpoint(path)
        assert checkpoint.bytes_by_format() == {"q6_k": 50 * 210, "q8_0": 50 * 2 * 34, "fp32": 256}
        assert checkpoint.parameters == 50 * 64 + 50 * 256 + 64
        assert checkpoint.metadata["general.architecture"] == "llama"


def test_factors_of_rope_in_a_gguf_are_no_parameters(tmp_path):
    path = gguf_file(
        tmp_path / "m.gguf", {}, [("rope_freqs.weight", "F32", (64,)), ("output_norm.weight", "F32", (8,))]
    )
    assert read_checkpoint(path).parameters == 8


def test_any_range_reader_will_do(tmp_path):
    shards(tmp_path, TINY[:2], TINY[2:])
    asked = []

    def open_shard(name):
        file = in_memory((tmp_path / name).read_bytes(), place=f"hub: {name}")
        return type(file)(file.place, file.size, lambda at, n: asked.append((at, n)) or file.open_range(at, n))

    index = in_memory((tmp_path / INDEX).read_bytes())
    assert read_indexed(index, lambda names: map(open_shard, names)).parameters == TINY_PARAMETERS
    assert [offset for offset, _ in asked] == [0, 8, 0, 8]


@pytest.mark.parametrize(
    ("embedding", "head"),
    [
        ("model.embed_tokens.weight", "lm_head.weight"),
        ("token_embd.weight", "output.weight"),
        ("gpt_neox.embed_in.weight", "embed_out.weight"),
        ("transformer.wte.weight", "lm_head.weight"),
        ("transformer.word_embeddings.weight", "lm_head.weight"),
    ],
)
def test_both_ends_are_known_by_their_names(tmp_path, embedding, head):
    tensors = [(embedding, "BF16", (50, 8)), (head, "BF16", (50, 8)), ("w", "BF16", (50, 8))]
    checkpoint = read_checkpoint(safetensors_file(tmp_path / "m.safetensors", tensors))
    assert [weight.name for weight in checkpoint.tied().weights] == [embedding, "w"]
    untied = [(embedding, "BF16", (50, 8)), (head, "BF16", (51, 8))]
    checkpoint = read_checkpoint(safetensors_file(tmp_path / "m.safetensors", untied))
    assert checkpoint.tied() == checkpoint


def test_a_doubled_output_matrix_is_counted_once_when_the_config_ties_it(tmp_path):
    checkpoint = read_checkpoint(safetensors_file(tmp_path / "m.safetensors", TINY))
    assert checkpoint.tied().parameters == TINY_PARAMETERS - 400
    assert checkpoint.tied().stored_bytes == 2 * (TINY_PARAMETERS - 400)
    assert checkpoint.tied().tied() == checkpoint.tied()


def test_parameters_of_an_unknown_packing_are_refused_but_its_tensors_are_shown(tmp_path):
    checkpoint = read_checkpoint(safetensors_file(tmp_path / "m.safetensors", [("a.W_q", "U8", (4, 4))]))
    assert checkpoint.stored_bytes == 16
    with pytest.raises(InputError, match=r"tensor 'a.W_q' of int8 and shape \(4, 4\) is in no packing that we know"):
        _ = checkpoint.parameters


# ---- against what a contract expects ---------------------------------------------------------------------------------


def test_reconcile_names_what_is_missing_extra_and_of_another_shape(tmp_path):
    tensors = [*TINY, ("model.rotary_emb.inv_freq", "F32", (4,))]
    checkpoint = read_checkpoint(safetensors_file(tmp_path / "m.safetensors", tensors))
    expected = {name: shape for name, _, shape in TINY}
    assert reconcile(checkpoint, expected.items()).agree
    del expected["lm_head.weight"]
    expected |= {"model.norm.weight": (9,), "model.norm.bias": (8,)}
    differences = reconcile(checkpoint, expected.items())
    assert not differences.agree
    assert differences.missing == (("model.norm.bias", (8,)),)
    assert differences.extra == (("lm_head.weight", (50, 8)),)
    assert differences.shape_differs == (("model.norm.weight", (9,), (8,)),)


def test_reconcile_sees_packed_matrices_unpacked(tmp_path):
    awq = [("a.qweight", "I32", (256, 16)), ("a.qzeros", "I32", (2, 16)), ("a.scales", "F16", (2, 128))]
    nf4 = [("b.weight", "U8", (128 * 256 // 2, 1)), ("b.weight.absmax", "F32", (512,))]
    checkpoint = read_checkpoint(safetensors_file(tmp_path / "m.safetensors", awq + nf4))
    assert reconcile(checkpoint, [("a.weight", (128, 256)), ("b.weight", (128, 256))]).agree
    assert reconcile(checkpoint, [("a.weight", (128, 256)), ("b.weight", (128, 255))]).shape_differs


# ---- refusals --------------------------------------------------------------------------------------------------------


def refusal(path):
    with pytest.raises(InputError) as error:
        read_checkpoint(path)
    sentence = str(error.value)
    assert sentence.startswith(os.fspath(path.parent)[:20])
    assert sentence.isprintable()
    return sentence


def test_what_is_not_there_or_no_checkpoint(tmp_path):
    assert "cannot be read: No such file or directory" in refusal(tmp_path / "x.safetensors")
    (tmp_path / "x.bin").write_bytes(b"")
    assert "neither .safetensors, .gguf, an index of shards nor a folder of these" in refusal(tmp_path / "x.bin")
    assert "no .safetensors and no .gguf file in this folder" in refusal(tmp_path)
    for name in ("x\0.gguf", "x\n.safetensors", "\x1b[2J"):
        with pytest.raises(InputError) as error:
            read_checkpoint(tmp_path / name)
        assert str(error.value).isprintable()
    os.mkfifo(tmp_path / "pipe.safetensors")
    assert "not a file" in refusal(tmp_path / "pipe.safetensors")


def test_a_folder_with_several_checkpoints(tmp_path):
    safetensors_file(tmp_path / "a.safetensors", TINY)
    safetensors_file(tmp_path / "b.safetensors", TINY)
    assert "2 checkpoints, among them a.safetensors and b.safetensors; name one" in refusal(tmp_path)


def test_a_missing_shard(tmp_path):
    shards(tmp_path, TINY[:2], TINY[2:])
    (tmp_path / "model-00002-of-00002.safetensors").unlink()
    assert "model-00002-of-00002.safetensors: cannot be read: No such file or directory" in refusal(tmp_path)
    (tmp_path / INDEX).unlink()
    assert "model-00002-of-00002.safetensors: cannot be read" in refusal(tmp_path)


def test_a_set_of_no_shards(tmp_path):
    path = safetensors_file(tmp_path / "m-00001-of-00000.safetensors", TINY)
    assert read_checkpoint(path).parameters == TINY_PARAMETERS


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ({}, "weight_map, the table of tensors and their shards, is missing or empty"),
        ([1], "weight_map, the table of tensors and their shards, is missing or empty"),
        (
            {"a": "../secret.safetensors"},
            "names the shard '../secret.safetensors', which is not the name of a safetensors file",
        ),
        ({"a": "/etc/passwd"}, "names the shard '/etc/passwd'"),
        ({"a": 3}, "names the shard '3'"),
        ({"lm_head": "model-00001-of-00001.safetensors"}, "tensor 'lm_head', which the shard does not have"),
        ({"lm_head.weight": "model-00001-of-00001.safetensors"}, ".weight', which the index does not name"),
    ],
    ids=["empty", "list", "outside", "absolute", "number", "absent", "unnamed"],
)
def test_an_index_that_contradicts_its_shards(tmp_path, index, sentence):
    shards(tmp_path, TINY, index=index)
    assert sentence in refusal(tmp_path)


def test_an_index_larger_than_any(tmp_path):
    shards(tmp_path, TINY)
    with (tmp_path / INDEX).open("ab") as file:
        file.truncate(64_000_001)
    assert "an index of 64,000,001 bytes is refused; at most 64,000,000 are read" in refusal(tmp_path)


def test_more_tensors_than_any_checkpoint_has(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_module, "MAX_CHECKPOINT_TENSORS", len(TINY))
    assert read_checkpoint(shards(tmp_path, TINY[:2], TINY[2:])).parameters == TINY_PARAMETERS
    monkeypatch.setattr(checkpoint_module, "MAX_CHECKPOINT_TENSORS", len(TINY) - 1)
    assert "00002.safetensors: with it there are more than 3 tensors, which is refused" in refusal(tmp_path)


def test_a_tensor_in_two_shards(tmp_path):
    for number in (1, 2):
        safetensors_file(tmp_path / f"m-{number:05}-of-00002.safetensors", TINY)
    assert "m-00002-of-00002.safetensors: tensor 'model.embed_tokens.weight' is in " in refusal(tmp_path)


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        ({"split.no": 1, "split.count": 2}, "its metadata say part 1 of 2, but it stands as part 0 of 2"),
        ({"split.no": 0, "split.count": 3}, "its metadata say part 0 of 3, but it stands as part 0 of 2"),
        ({}, "its metadata say part 0 of 1, but it stands as part 0 of 2"),
        ({"split.no": "a", "split.count": [2]}, "its metadata say part 'a' of [2]"),
    ],
)
def test_parts_of_a_split_gguf_that_do_not_belong_together(tmp_path, metadata, sentence):
    for number in (1, 2):
        gguf_file(tmp_path / f"m-{number:05}-of-00002.gguf", metadata, [])
    assert sentence in refusal(tmp_path)


def test_a_split_gguf_without_all_its_tensors(tmp_path):
    for number in (0, 1):
        metadata = {"split.no": number, "split.count": 2, "split.tensors.count": 5}
        gguf_file(tmp_path / f"m-{number + 1:05}-of-00002.gguf", metadata, [(f"w{number}", "F32", (8,))])
    assert "split.tensors.count = 5, but the parts have 2 tensors" in refusal(tmp_path)
