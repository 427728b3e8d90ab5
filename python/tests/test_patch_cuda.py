"""tileglu.patch on a Hopper GPU.  Skipped where there is none; docs/python.md, "On another
machine", says how to run it elsewhere than it was built."""

import pytest
import torch
from patch_support import Gated, Merged, counted, draw, error, fill
from support import skip_without_gpu

import tileglu

skip_without_gpu()

BOUNDS = {torch.bfloat16: 2 ** -7, torch.float16: 2 ** -10}


def build(kind="separate", dtype=torch.bfloat16, hidden=256, intermediate=512):
    module = Gated(hidden, intermediate) if kind == "separate" else \
        Merged(kind, hidden, intermediate)
    return fill(module).to("cuda", dtype)


def run(module, x):
    with torch.inference_mode():
        return module(x)


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("kind", ["separate", "stacked_gate_first", "interleaved"])
@pytest.mark.parametrize("tokens", [1, 7, 200])
def test_values(monkeypatch, kind, dtype, tokens):
    module = build(kind, dtype)
    x = draw(tokens, 256, dtype=dtype).cuda()
    want = run(module, x)
    report = tileglu.patch(module)
    assert len(report.patched) == 1 and all("sm90" in row for row in
                                            report.patched[0].rows.values()), str(report)
    with counted(monkeypatch) as calls:
        got = run(module, x)
    assert len(calls) == 1 and error(got, want) < BOUNDS[dtype]


def test_moves_between_devices_and_types(monkeypatch):
    module = fill(Gated(256, 512))
    tileglu.patch(module)
    x = draw(5, 256)
    with counted(monkeypatch) as calls:
        want = run(module, x)  # float32 on the CPU
        module.to("cuda")
        unfused = run(module, x.cuda())  # float32 on the GPU: its own forward
        assert len(calls) == 1 and error(unfused.cpu(), want) < 1e-2
        assert "float32 is computed on the CPU only" in tileglu.report(module).patched[0].reason
        module.to(torch.bfloat16)
        fused = run(module, x.cuda().bfloat16())
        assert len(calls) == 2 and error(fused.cpu(), want) < 2 ** -6
    with pytest.raises(RuntimeError):
        run(module, x.bfloat16())  # input on the CPU, as without patch


def test_float32_is_left_alone():
    module = fill(Gated(256, 512)).cuda()
    report = tileglu.patch(module)
    assert "float32 is computed on the CPU only" in report.left_alone[0].reason


def test_in_a_graph():
    """Captured on the first call; replays read the input and the weights of their time."""
    module = build()
    x = draw(4, 256, dtype=torch.bfloat16).cuda()
    other = draw(4, 256, dtype=torch.bfloat16, seed=9).cuda()
    torch.cuda.synchronize()
    with torch.inference_mode():
        tileglu.patch(module)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = module(x)
        for change in (lambda: None, lambda: x.copy_(other),
                       lambda: module.up_proj.weight.mul_(-2)):
            change()
            graph.replay()
            got = y.clone()
            tileglu.unpatch(module)
            want = module(x)
            tileglu.patch(module)
            assert error(got, want) < 2 ** -7


def test_on_another_stream():
    module = build(hidden=2048, intermediate=4096)
    x = draw(64, 2048, dtype=torch.bfloat16).cuda()
    later = draw(64, 2048, dtype=torch.bfloat16, seed=5).cuda()
    want = run(module, later)
    tileglu.patch(module)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(20_000_000)
        x.copy_(later)
        got = run(module, x)
    stream.synchronize()
    assert error(got, want) < 2 ** -7


def test_compiled_whole():
    torch._dynamo.reset()
    module = build()
    tileglu.patch(module)
    compiled = torch.compile(module, fullgraph=True, backend="aot_eager")
    for tokens in (3, 5, 300):
        x = draw(tokens, 256, dtype=torch.bfloat16, seed=tokens).cuda()
        assert error(run(compiled, x), run(module, x)) < 1e-6


@pytest.mark.parametrize("family", ["Qwen2", "Phi3", "Gemma3Text"])
def test_family(monkeypatch, family):
    """No farther from float32 than the unpatched model."""
    transformers = pytest.importorskip("transformers")
    config = getattr(transformers, family + "Config")(
        hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, head_dim=64, vocab_size=160, pad_token_id=0, bos_token_id=1,
        eos_token_id=2)
    model = fill(transformers.AutoModel.from_config(config)).bfloat16()
    tokens = torch.randint(3, 160, (2, 11), generator=torch.Generator().manual_seed(4))
    with torch.inference_mode():
        exact = model.float()(input_ids=tokens).last_hidden_state
        model.bfloat16().cuda()
        before = error(model(input_ids=tokens.cuda()).last_hidden_state.cpu(), exact)
        assert len(tileglu.patch(model).patched) == 2
        with counted(monkeypatch) as calls:
            after = error(model(input_ids=tokens.cuda()).last_hidden_state.cpu(), exact)
    assert len(calls) == 2 and 0 < before < 0.1 and after < 1.2 * before
