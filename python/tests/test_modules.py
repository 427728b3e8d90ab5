"""GLU and MLP as modules."""

import copy
import pickle

import pytest
import torch

import tileglu
from support import LAYOUTS, Problem, assert_close, merge

P = Problem((2, 5), 64, 48, bias=True)


def llama_like(module, layout):
    """P's weights in a module, as a checkpoint would bring them."""
    state = {"down_proj.weight": P.down, "down_proj.bias": P.down_bias}
    if layout == "separate":
        state.update({"gate_proj.weight": P.gate, "gate_proj.bias": P.gate_bias,
                      "up_proj.weight": P.up, "up_proj.bias": P.up_bias})
    else:
        state.update({"gate_up_proj.weight": merge(P.gate, P.up, layout),
                      "gate_up_proj.bias": merge(P.gate_bias, P.up_bias, layout)})
    if isinstance(module, tileglu.GLU):
        state = {name: value for name, value in state.items() if "down" not in name}
    module.load_state_dict(state)
    return module.eval()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_values(layout):
    glu = llama_like(tileglu.GLU(64, 48, "gelu_tanh", bias=True, layout=layout), layout)
    mlp = llama_like(tileglu.MLP(64, 48, "gelu_tanh", bias=True, layout=layout), layout)
    with torch.no_grad():
        assert_close(glu(P.x), P.glu("gelu_tanh"), 64)
        assert_close(mlp(P.x), P.mlp("gelu_tanh"), 64)
        assert_close(mlp(P.x, P.residual), P.mlp("gelu_tanh", residual=True), 64)


def test_without_bias_and_with_numbers():
    module = tileglu.MLP(64, 48, "swigluoai", alpha=1.5, limit=2.0, offset=0.0)
    assert sorted(module.state_dict()) == ["down_proj.weight", "gate_proj.weight",
                                           "up_proj.weight"]
    with torch.no_grad():
        out = module(P.x)
        want = tileglu.mlp(P.x, module.gate_proj.weight, module.up_proj.weight,
                           module.down_proj.weight, activation="swigluoai", alpha=1.5,
                           limit=2.0, offset=0.0)
    assert torch.equal(out, want)
    assert "swigluoai" in repr(module) and "intermediate=48" in repr(module)


def test_gradient_is_refused_and_copies_work():
    module = tileglu.MLP(64, 48)
    with pytest.raises(RuntimeError, match="no backward pass"):
        module(P.x)
    module.requires_grad_(False)
    want = module(P.x)
    for other in (copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(P.x), want)


def test_moved_and_changed_in_place():
    module = tileglu.MLP(64, 48).requires_grad_(False)
    module(P.x)
    for dtype in (torch.bfloat16, torch.float16, torch.float32):
        module.to(dtype)
        x = P.x.to(dtype)
        want = tileglu.mlp(x, module.gate_proj.weight.clone(), module.up_proj.weight.clone(),
                           module.down_proj.weight.clone())
        assert torch.equal(module(x), want)
    module.gate_proj.weight.mul_(-1)
    changed = module(P.x)
    assert torch.equal(changed, tileglu.mlp(P.x, module.gate_proj.weight.clone(),
                                            module.up_proj.weight, module.down_proj.weight))
    module.gate_proj.weight = torch.nn.Parameter(torch.zeros(48, 64), requires_grad=False)
    assert module(P.x).count_nonzero() == 0


def test_compile():
    torch._dynamo.reset()
    module = llama_like(tileglu.MLP(64, 48, bias=True), "separate").requires_grad_(False)
    compiled = torch.compile(module, fullgraph=True, dynamic=True, backend="aot_eager")
    for tokens in (3, 9):
        x = torch.randn(tokens, 64)
        assert torch.equal(compiled(x, x), module(x, x))


def test_refused_options():
    with pytest.raises(ValueError, match="layout: 'stacked'"):
        tileglu.GLU(8, 4, layout="stacked")
    with pytest.raises(ValueError, match="activation: 'gelu'"):
        tileglu.MLP(8, 4, "gelu")


def test_a_projection_that_is_no_plain_linear_is_refused():
    class Adapter(torch.nn.Linear):
        pass
    module = tileglu.MLP(8, 4).requires_grad_(False)
    module.up_proj = Adapter(8, 4)
    with pytest.raises(TypeError, match="up_proj: is a Adapter; only plain torch.nn.Linear"):
        module(torch.randn(2, 8))
