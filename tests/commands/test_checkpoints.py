"""`planner show` of a checkpoint: every tensor, sums, and the comparison with the contract in words and exit status."""

import json

import numpy as np
import pytest

import planner
from planner.cli import main
from planner.printing import WIDTH
from tests.sources.builders import gguf_file, safetensors_file
from tests.sources.test_checkpoint import gpt_oss, shards
from tests.sources.test_hub import ENDS, layer
from tests.test_classic_faults import CONFIGS
from tests.test_sources import CONFIG

TENSORS = [*ENDS, *layer(0), *layer(1)]
TOTAL = 2 * 100 * 64 + 64 + 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64 + 2 * 64)


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


def show(capsys, *argv):
    status = main(["show", *map(str, argv)])
    out, err = capsys.readouterr()
    return status, out, err


def rows(capsys, *argv, status=0):
    found, out, _ = show(capsys, *argv, "--json")
    assert found == status
    return json.loads(out)["rows"]


def test_a_sharded_folder_lists_every_tensor_and_agrees(folder, capsys):
    shards(folder, ENDS, layer(0), layer(1))
    found = rows(capsys, folder)
    assert [(row["name"], tuple(row["shape"])) for row in found] == [(name, shape) for name, _, shape in TENSORS]
    assert sum(row["parameters"] for row in found) == TOTAL == planner.parameters(planner.load(folder))
    assert sum(row["stored_bytes"] for row in found) == 2 * TOTAL
    assert {(row["dtype"], row["format"], row["contract"]) for row in found} == {("BF16", "bf16", "equal")}
    status, out, err = show(capsys, folder)
    assert status == 0
    assert out.splitlines()[-1].split() == ["=", "total", f"{TOTAL:,}", f"{2 * TOTAL:,}"]
    assert f"{TOTAL:,} parameters; {2 * TOTAL:,} B in 21 tensors" in err
    assert f"stored {2 * TOTAL:,} B, weights = bf16 of the contract {2 * TOTAL:,} B: equal" in err
    assert f"tensor by tensor as {folder.name} says: none missing, none extra, no shape differs" in err


def test_an_index_without_its_weights_is_said(folder, capsys):
    shards(folder, ENDS, layer(0), layer(1))
    for file in folder.glob("*.safetensors"):
        file.unlink()
    status, out, err = show(capsys, folder)
    assert (status, out.splitlines()[-1].split()) == (0, ["=", "total", f"{TOTAL:,}"])
    assert f"{folder}: model.safetensors.index.json is there, but no weights; this is what config.json says\n" in err


def test_a_file_a_shard_and_an_index_are_shown_alike(folder, capsys):
    shards(folder, ENDS, layer(0), layer(1))
    expected = rows(capsys, folder)
    assert rows(capsys, folder / "model.safetensors.index.json") == expected
    assert rows(capsys, folder / "model-00002-of-00003.safetensors") == expected


def test_differences_are_named_and_are_exit_status_1(folder, capsys):
    odd = [tensor for tensor in TENSORS if "layers.1.self_attn.q_proj" not in tensor[0]]
    odd = [(name, dtype, (9,) if name == "model.norm.weight" else shape) for name, dtype, shape in odd]
    safetensors_file(folder / "model.safetensors", [*odd, ("surprise", "F32", (3,))])
    status, _, err = show(capsys, folder)
    assert status == 1
    assert "missing: model.layers.1.self_attn.q_proj.weight [64, 64]" in err
    assert "extra: surprise [3]" in err
    assert "shape differs: model.norm.weight [9], not [64]" in err
    said = {row["name"]: row["contract"] for row in rows(capsys, folder, status=1)}
    assert said["model.layers.1.self_attn.q_proj.weight"] == "missing"
    assert said["surprise"] == "extra"
    assert said["model.norm.weight"] == "shape differs: [64]"
    assert said["lm_head.weight"] == "equal"


def test_many_differences_are_counted(folder, capsys):
    safetensors_file(folder / "model.safetensors", ENDS)
    _, _, err = show(capsys, folder)
    assert "missing: layers.0.mixer.q.weight [64, 64]; " in err
    assert "; and 13 more" in err


def test_a_terminal_has_room_for_long_names(tmp_path, capsys):
    name = "model.text_model.layers.0.block_sparse_moe.experts.0.down_proj.weight"
    path = safetensors_file(tmp_path / "x.safetensors", [(name, "BF16", (4096, 28_672))])
    _, out, err = show(capsys, path)
    assert "117,440,512  234,881,024" in out  # 4096 x 28672, and twice as many bytes
    assert max(map(len, out.splitlines())) <= WIDTH
    assert "no room for dtype; --csv has every column" in err


def test_without_a_config_the_header_alone_is_listed(tmp_path, capsys):
    path = safetensors_file(tmp_path / "x.safetensors", TENSORS)
    status, out, err = show(capsys, path)
    assert status == 0
    assert f"{TOTAL:,}" in out
    assert "compared with no contract: " in err
    assert "a checkpoint's header says nothing of heads, masks and positions; put its config.json beside it" in err
    assert {row["contract"] for row in rows(capsys, path)} == {None}
    assert show(capsys, path, "--set", "n_layers=3")[0] == 2


def test_a_config_of_an_unknown_family_is_no_hindrance(folder, capsys):
    (folder / "config.json").write_text('{"model_type": "zebra"}')
    safetensors_file(folder / "model.safetensors", TENSORS)
    status, out, err = show(capsys, folder)
    assert status == 0
    assert "lm_head.weight" in out
    assert "compared with no contract: " in err
    assert "model_type 'zebra' is not known" in err


def test_an_edit_changes_what_is_expected(folder, capsys):
    safetensors_file(folder / "model.safetensors", TENSORS)
    status, _, err = show(capsys, folder, "--set", "layers[0].feed_forward.d_ff=129")
    assert status == 1
    assert "mlp.gate_proj.weight [128, 64], not [129, 64]" in err


def test_a_tied_matrix_that_is_stored_twice_is_counted_once(folder, capsys):
    (folder / "config.json").write_text(json.dumps({**CONFIG, "tie_word_embeddings": True}))
    safetensors_file(folder / "model.safetensors", TENSORS)
    found = rows(capsys, folder)
    assert sum(row["parameters"] for row in found) == TOTAL - 100 * 64 == planner.parameters(planner.load(folder))
    assert {row["name"]: row["contract"] for row in found}["lm_head.weight"] == "the input table again"
    assert "in 21 tensors, one of them the input table again and counted once" in show(capsys, folder)[2]


def test_parts_that_a_contract_leaves_out_are_named_with_their_size(folder, capsys):
    tower = [("vision_tower.patch.weight", "BF16", (10, 30)), ("audio_tower.conv1.weight", "F32", (4, 5))]
    safetensors_file(folder / "model.safetensors", [*TENSORS, *tower])
    status, out, err = show(capsys, folder)
    assert status == 0
    assert "left out: vision, 1 tensors, 300 parameters, 600 B" in err
    assert "left out: audio, 1 tensors, 20 parameters, 80 B" in err
    assert "= vision, left out by the contract" in out


def awq(name, outputs, inputs):
    """A matrix as AutoAWQ stores it, in groups of 32."""
    yield f"{name}.qweight", "I32", (inputs, outputs // 8)
    yield f"{name}.qzeros", "I32", (inputs // 32, outputs // 8)
    yield f"{name}.scales", "F16", (inputs // 32, outputs)


def test_packed_matrices_count_unpacked_and_are_compared_unpacked(folder, capsys):
    tensors = []
    for name, dtype, shape in TENSORS:
        packs = "_proj" in name
        tensors += awq(name.removesuffix(".weight"), *shape) if packs else [(name, dtype, shape)]
    safetensors_file(folder / "model.safetensors", tensors)
    found = rows(capsys, folder)
    assert [row["name"] for row in found] == [name for name, *_ in tensors]
    assert sum(row["parameters"] for row in found) == TOTAL
    assert {row["contract"] for row in found} == {"equal"}
    packed = [row for row in found if row["format"] == "awq-g32"]
    assert sum(row["parameters"] for row in packed) == 2 * (2 * 64 * 64 + 2 * 32 * 64 + 3 * 128 * 64)
    assert {row["parameters"] for row in packed if row["name"].endswith((".scales", ".qzeros"))} == {0}
    assert "= awq-g32" in show(capsys, folder)[1]


def test_stored_bytes_are_those_of_the_quantization_config(folder, capsys):
    """gpt-oss 20B, whose model card says 12.8 GiB: header and contract agree to the byte."""
    skipped = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    config = CONFIGS["openai/gpt-oss-20b"]
    config |= {"quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": skipped}}
    (folder / "config.json").write_text(json.dumps(config))
    safetensors_file(folder / "model.safetensors", list(gpt_oss(24, 32)))
    status, out, err = show(capsys, folder)
    assert status == 0
    assert "20,914,757,184 parameters; 13,761,264,768 B in 459 tensors" in err
    assert "stored 13,761,264,768 B, weights = mxfp4 of the contract 13,761,264,768 B: equal" in err
    assert out.splitlines()[-3].split() == ["=", "mxfp4", "19,110,297,600", "10,152,345,600"]


def test_a_packing_that_nobody_knows_is_listed_and_said(folder, capsys):
    safetensors_file(folder / "model.safetensors", [*TENSORS, ("a.W_q", "U8", (4, 4))])
    status, out, err = show(capsys, folder)
    assert status == 1
    assert "a.W_q" in out
    assert (
        "tensor 'a.W_q' of int8 and shape (4, 4) is in no packing that we know, so parameters cannot be counted" in err
    )


def test_many_equal_tensors_are_shown_together_on_a_terminal(tmp_path, capsys):
    tensors = [(f"model.layers.{n}.mlp.experts.{e}.w1.weight", "BF16", (4, 8)) for n in range(60) for e in range(20)]
    path = safetensors_file(tmp_path / "x.safetensors", tensors)
    _, out, _ = show(capsys, path)
    assert len(out.splitlines()) == 5
    assert (
        out.splitlines()[2].split()
        == "model.layers.*.mlp.experts.*.w1.weight 1,200 4 × 8 BF16 bf16 38,400 76,800".split()
    )
    assert len(rows(capsys, path)) == 1200


@pytest.mark.parametrize("suffix", ["csv", "json", "md"])
def test_the_list_goes_to_a_file(folder, capsys, suffix):
    safetensors_file(folder / "model.safetensors", TENSORS)
    path = folder / f"out.{suffix}"
    status, out, _ = show(capsys, folder, "-o", path)
    assert (status, out) == (0, "")
    assert path.read_text("utf-8").count("model.layers.1.mlp.down_proj.weight") == 1


@pytest.mark.parametrize("data", [b"", b"\xff" * 8, b"\x08" + bytes(7) + b"not json", b"GGUF" + b"\xff" * 20])
@pytest.mark.parametrize("suffix", ["safetensors", "gguf", "safetensors.index.json"])
def test_a_broken_file_is_one_sentence(tmp_path, capsys, data, suffix):
    path = tmp_path / f"x.{suffix}"
    path.write_bytes(data)
    for command in ("show", "compare"):
        assert main([command, str(path)]) == 3
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("planner: ")
        assert err.count("\n") == 1


# ---- files as the libraries themselves write them --------------------------------------------------------------------


def test_a_file_of_the_safetensors_library(folder, capsys):
    library = pytest.importorskip("safetensors")
    from safetensors.numpy import save_file

    path = folder / "model.safetensors"
    save_file({name: np.zeros(shape, np.float16) for name, _, shape in TENSORS}, path)
    found = {row["name"]: row for row in rows(capsys, folder)}
    with library.safe_open(path, framework="np") as file:
        names = list(file.keys())
        shapes = {name: file.get_slice(name).get_shape() for name in names}
        assert {name: row["shape"] for name, row in found.items()} == shapes
        assert (
            {row["dtype"] for row in found.values()} == {file.get_slice(name).get_dtype() for name in names} == {"F16"}
        )
        assert sum(row["parameters"] for row in found.values()) == sum(file.get_tensor(name).size for name in names)


LLAMA_GGUF = {
    "embed_tokens": "token_embd",
    "model.norm": "output_norm",
    "lm_head": "output",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}


def gguf_name(name):
    for theirs, own in LLAMA_GGUF.items():
        name = name.replace(theirs, own)
    return name.replace("model.layers.", "blk.").removeprefix("model.")


@pytest.fixture(params=[0, 8], ids=["whole", "split"])
def llama_gguf(tmp_path, request):
    """A small Llama as llama.cpp's own package writes it: matrices in Q8_0 and Q4_0, norms in F32; whole or split."""
    library = pytest.importorskip("gguf")
    types = library.GGMLQuantizationType
    writer = library.GGUFWriter(tmp_path / "tiny.gguf", "llama", split_max_tensors=request.param)
    writer.add_context_length(2048)
    writer.add_embedding_length(64)
    writer.add_block_count(2)
    writer.add_feed_forward_length(128)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_file_type(library.LlamaFileType.MOSTLY_Q4_0)
    for name, _, shape in TENSORS:
        array = np.zeros(shape, np.float32)
        kind = types.F32 if len(shape) == 1 else types.Q8_0 if "lm_head" in name else types.Q4_0
        packed = array if kind == types.F32 else library.quants.quantize(array, kind)
        writer.add_tensor(gguf_name(name), packed, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return sorted(tmp_path.glob("*.gguf"))


def test_a_file_of_the_gguf_package(llama_gguf, capsys):
    library = pytest.importorskip("gguf")
    found = {row["name"]: row for row in rows(capsys, llama_gguf[0])}
    theirs = [tensor for path in llama_gguf for tensor in library.GGUFReader(path).tensors]
    assert len(theirs) == len(TENSORS)
    for tensor in theirs:
        row = found[tensor.name]
        assert row["shape"] == [int(side) for side in reversed(tensor.shape)]
        assert row["format"] == {"F32": "fp32"}.get(tensor.tensor_type.name, tensor.tensor_type.name.lower())
        assert row["stored_bytes"] == int(tensor.n_bytes)
        assert row["parameters"] == int(tensor.n_elements)
    assert {row["contract"] for row in found.values()} == {"equal"}


def test_the_contract_of_a_gguf_file(llama_gguf):
    for place in (llama_gguf[0], llama_gguf[-1], llama_gguf[0].parent):
        model = planner.load(place)
        config = {**CONFIG, "max_position_embeddings": 2048}
        assert planner.diff(model, planner.load(config)).keys() <= {"name", "weights"}
        assert model.weights == "q4_0"
        assert planner.parameters(model) == TOTAL
    assert planner.load(llama_gguf[0]).name == "tiny"


def test_a_gguf_file_whose_type_is_not_stated_is_counted_in_that_of_most_of_its_bytes(tmp_path, capsys):
    metadata = {
        "general.architecture": "llama",
        "llama.context_length": 2048,
        "llama.embedding_length": 64,
        "llama.block_count": 2,
        "llama.feed_forward_length": 128,
        "llama.attention.head_count": 4,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-6,
    }
    tensors = [(gguf_name(name), "F32" if len(shape) == 1 else "Q8_0", shape) for name, _, shape in TENSORS]
    path = gguf_file(tmp_path / "m.gguf", metadata, tensors)
    assert planner.load(path).weights == "q8_0"
    status, _, err = show(capsys, path)
    assert status == 0
    assert "B of q8_0, " in err
    assert "; weights are counted as q8_0" in err
    path = gguf_file(tmp_path / "m.gguf", metadata | {"general.architecture": "zebra"}, tensors)
    status, out, err = show(capsys, path)
    assert status == 0
    assert "blk.1.ffn_norm.weight" in out
    assert "compared with no contract: " in err
    assert "general.architecture = 'zebra' is none of" in err
