"""tileglu.patch on tiny random models of the families that it is meant for, and of some
that it must leave alone, all from transformers.  The report of each is printed."""

import pytest
import torch
from patch_support import counted, error, fill

import tileglu

transformers = pytest.importorskip("transformers")

SIZES = {"hidden_size": 64, "intermediate_size": 112, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 160,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}

# (config class, its other settings, layout, activation)
FAMILIES = [
    ("Llama", {}, "separate", "silu"),
    ("Llama", {"mlp_bias": True}, "separate", "silu"),
    ("Qwen2", {}, "separate", "silu"),
    ("Qwen3", {}, "separate", "silu"),
    ("Mistral", {}, "separate", "silu"),
    ("Gemma", {}, "separate", "gelu_tanh"),
    ("Gemma2", {}, "separate", "gelu_tanh"),
    ("Gemma3Text", {}, "separate", "gelu_tanh"),
    ("Phi3", {}, "stacked_gate_first", "silu"),
    ("SmolLM3", {}, "separate", "silu"),
    ("Olmo2", {}, "separate", "silu"),
    ("Granite", {}, "separate", "silu"),
    ("Glm", {}, "stacked_gate_first", "silu"),
    ("Glm4", {}, "stacked_gate_first", "silu"),
    ("Cohere", {}, "separate", "silu"),
    ("Exaone4", {}, "separate", "silu"),
    ("Ernie4_5", {}, "separate", "silu"),
    ("SeedOss", {}, "separate", "silu"),
    ("ModernBert", {"cls_token_id": 1, "sep_token_id": 2}, "stacked_gate_first", "gelu_erf"),
]


def build(family, settings):
    config = getattr(transformers, family + "Config")(**{**SIZES, **settings})
    config._attn_implementation = "eager"
    return fill(transformers.AutoModel.from_config(config), seed=3)


def outputs(model, tokens):
    with torch.inference_mode():
        return model(input_ids=tokens).last_hidden_state


TOKENS = torch.randint(3, 160, (2, 11), generator=torch.Generator().manual_seed(4))


@pytest.mark.parametrize("family, settings, layout, activation", FAMILIES,
                         ids=[family + "".join(settings and "+") for family, settings, *_ in FAMILIES])
def test_family(monkeypatch, family, settings, layout, activation):
    model = build(family, settings)
    layers = model.config.num_hidden_layers
    want = outputs(model, TOKENS)
    report = tileglu.patch(model)
    print(f"\n{family}: {report}")
    assert len(report.patched) == layers and not report.left_alone
    for entry in report.patched:
        assert (entry.layout, entry.activation, entry.hidden, entry.intermediate, entry.reason) \
            == (layout, activation, 64, 112, None)
        assert set(entry.rows) == {1, 512}
    with counted(monkeypatch) as calls:
        got = outputs(model, TOKENS)
    assert len(calls) == layers
    assert got.shape == want.shape and error(got, want) < 1e-5

    # The comparison above sees the MLPs: with gate and up swapped it fails by far.
    with monkeypatch.context() as patcher:
        genuine = tileglu._patch_call._weights

        def swapped(recipe, operands):
            options = genuine(recipe, operands)
            if layout == "separate":
                options.update(gate=options["up"], up=options["gate"],
                               gate_bias=options["up_bias"], up_bias=options["gate_bias"])
            else:
                options.update(layout="stacked_up_first")
            return options

        patcher.setattr(tileglu._patch_call, "_weights", swapped)
        patcher.setattr(tileglu._patch_call, "eager", lambda *args: NotImplemented)
        assert error(outputs(model, TOKENS), want) > 1e-3
    assert len(tileglu.unpatch(model)) == layers
    assert torch.equal(outputs(model, TOKENS), want)


@pytest.mark.parametrize("dtype, bound", [(torch.bfloat16, 2 ** -8), (torch.float16, 2 ** -11)])
@pytest.mark.parametrize("family", ["Qwen2", "Gemma2", "Phi3"])
def test_half_precision(family, dtype, bound):
    """Patched or not, a model is as far from its float32 self; the patched one not farther."""
    model = build(family, {}).to(dtype)
    exact = build(family, {}).to(dtype).float()
    want = outputs(exact, TOKENS)
    before = error(outputs(model, TOKENS), want)
    assert len(tileglu.patch(model).patched) == 3
    after = error(outputs(model, TOKENS), want)
    print(f"\n{family} {dtype}: error {before:.2e} unpatched, {after:.2e} patched")
    assert 0 < before < 20 * bound and after < 1.15 * before


@pytest.mark.parametrize("name, wanted", [
    ("silu", "silu"), ("swish", "silu"), ("gelu", "gelu_erf"), ("gelu_new", "gelu_tanh"),
    ("gelu_fast", "gelu_tanh"), ("gelu_pytorch_tanh", "gelu_tanh"), ("relu", "relu"),
    ("sigmoid", "sigmoid"), ("quick_gelu", "swigluoai(alpha 1.702, no limit, offset 0)"),
    ("gelu_10", None), ("relu2", None), ("relu6", None), ("mish", None), ("tanh", None),
    ("linear", None), ("leaky_relu", None), ("hardswish", None)])
def test_activation_names(monkeypatch, name, wanted):
    """H43: by what the module computes, so that no name is mistaken for another."""
    model = build("Llama", {"hidden_act": name})
    want = outputs(model, TOKENS)
    report = tileglu.patch(model)
    with counted(monkeypatch) as calls:
        got = outputs(model, TOKENS)
    if wanted is None:
        assert not report.patched and len(report.left_alone) == 3 and not calls
        assert "with an activation of tileglu" in report.left_alone[0].reason
        assert torch.equal(got, want)
    else:
        assert [entry.activation for entry in report.patched] == 3 * [wanted] and len(calls) == 3
        assert error(got, want) < 1e-5


@pytest.mark.parametrize("family, settings, where, reason", [
    ("Mixtral", {}, "mlp.experts", "several experts"),
    ("GptOss", {}, "mlp.experts", "several experts"),
    ("GraniteMoeShared", {}, "block_sparse_moe.experts", "several experts"),
    ("BitNet", {}, "mlp", "more than linears: ffn_sub_norm.weight"),
    ("Starcoder2", {}, "mlp", "other shapes than a gated MLP's: c_fc [112, 64], c_proj [64, 112]"),
    ("GPT2", {"n_embd": 64, "n_head": 4, "n_layer": 3}, "mlp",
     "Conv1D, whose weight lies input-by-output as [64, 256] where [256, 64] is needed"),
    ("FalconH1", {"mlp_multipliers": [0.5, 0.25], "num_hidden_layers": 1, "mamba_d_ssm": 64,
                  "mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_state": 8,
                  "mamba_chunk_size": 16}, "feed_forward", "not down(act(gate) * up)"),
    ("Apertus", {}, "mlp", "other shapes"),
    ("Bloom", {"n_layer": 3, "n_head": 4}, "mlp", "other shapes"),
])
def test_left_alone(family, settings, where, reason):
    model = build(family, settings)
    want = outputs(model, TOKENS)
    report = tileglu.patch(model)
    print(f"\n{family}: {report}")
    assert not report.patched and report.left_alone
    for entry in report.left_alone:
        assert entry.name.endswith(where) and reason in entry.reason
    assert torch.equal(outputs(model, TOKENS), want)


@pytest.mark.parametrize("family, settings, layout", [
    ("Qwen2Moe", {"num_experts": 4, "moe_intermediate_size": 48,
                  "shared_expert_intermediate_size": 80}, "separate"),
    ("GraniteMoeShared", {"shared_intermediate_size": 80}, "stacked_gate_first")])
def test_shared_expert_beside_experts(monkeypatch, family, settings, layout):
    model = build(family, settings)
    want = outputs(model, TOKENS)
    report = tileglu.patch(model)
    print(f"\n{family}: {report}")
    assert {(entry.layout, entry.intermediate) for entry in report.patched} == {(layout, 80)}
    assert len(report.patched) == len(report.left_alone) == 3
    with counted(monkeypatch) as calls:
        assert error(outputs(model, TOKENS), want) < 1e-5
    assert len(calls) == 3


def test_generate_and_compile(monkeypatch):
    """The two ways in which models are run: generate, and a compiled forward."""
    torch._dynamo.reset()
    config = transformers.LlamaConfig(**SIZES)
    model = fill(transformers.AutoModelForCausalLM.from_config(config), seed=5)
    options = {"max_new_tokens": 12, "do_sample": False, "pad_token_id": 0}
    want = model.generate(TOKENS, **options)
    tileglu.patch(model)
    with counted(monkeypatch) as calls:
        got = model.generate(TOKENS, **options)
    assert got.tolist() == want.tolist() and len(calls) == 3 * (want.shape[1] - TOKENS.shape[1])
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    with torch.inference_mode():
        for tokens in (TOKENS, TOKENS[:, :7], TOKENS[:, :1]):
            assert error(compiled(tokens, use_cache=False).logits,
                         model(tokens, use_cache=False).logits) < 1e-5


def test_adapters_of_peft():
    """LoRA on the attention leaves the MLPs patched; on the MLPs, it leaves them alone."""
    peft = pytest.importorskip("peft")
    for targets, patched in ((["q_proj"], 3), (["up_proj"], 0)):
        model = build("Llama", {})
        settings = peft.LoraConfig(target_modules=targets, r=2, init_lora_weights=False)
        model = peft.get_peft_model(model, settings).eval()
        want = outputs(model, TOKENS)
        report = tileglu.patch(model)
        assert len(report.patched) == patched
        assert error(outputs(model, TOKENS), want) < 1e-5
        if not patched:
            assert "up_proj is a peft Linear" in report.left_alone[0].reason
