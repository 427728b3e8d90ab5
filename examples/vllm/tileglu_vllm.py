"""A vLLM plugin: gated MLPs of unquantised dense models through tileglu.

vLLM calls register() in each of its processes (entry point vllm.general_plugins, see
pyproject.toml beside this file).  From then on each model, once its weights are loaded, is
searched for MLPs of this kind:

    gate_up, _ = self.gate_up_proj(x)     a MergedColumnParallelLinear, not quantised
    h = self.act_fn(gate_up)              SiluAndMul or GeluAndMul
    out, _ = self.down_proj(h)            any RowParallelLinear

and the first two lines, or on one GPU all three, become one call that reads the merged
weight where it lies.  What is left alone is logged with its reason.  docs/vllm.md tells
the steps, and what was tested.
"""

import functools
import logging

import torch

import tileglu

logger = logging.getLogger("vllm.tileglu")

# What the forward of such an MLP names, and nothing else: a norm, a scale or a second
# projection in between would be another name.  The last one merges a quantisation into the
# activation where the down projection wants one, and calls act_fn where not.
NAMES = {"gate_up_proj", "act_fn", "down_proj"}
HARMLESS = {"maybe_fused_act_quant"}


def register():
    """Makes every loader patch what it has loaded.  May be called again."""
    from vllm.model_executor.model_loader.base_loader import BaseModelLoader

    genuine = BaseModelLoader.load_model
    if hasattr(genuine, "_tileglu"):
        return

    @functools.wraps(genuine)
    def load_model(self, *args, **kwargs):
        model = genuine(self, *args, **kwargs)
        patch(model)
        return model

    load_model._tileglu = True
    BaseModelLoader.load_model = load_model


def patch(model):
    """Patches the MLPs of a loaded model; {name: None or the reason it was left alone}."""
    done = {}
    for name, module in model.named_modules():
        if not hasattr(module, "gate_up_proj") or not hasattr(module, "down_proj"):
            continue
        reason = why_not(module) or differs(module)
        if reason is None:
            module.__class__ = fused_class(type(module))
        done[name] = reason
    for reason in dict.fromkeys(done.values()):
        names = [name for name, why in done.items() if why == reason]
        logger.info("tileglu: %d MLPs %s (%s, ...)", len(names),
                    f"left alone: {reason}" if reason else "fused", names[0])
    return done


def activation_of(function):
    """tileglu's name of a vLLM activation, None if it has none."""
    from vllm.model_executor.layers.activation import GeluAndMul, SiluAndMul

    if type(function) is SiluAndMul:
        return "silu"
    if type(function) is GeluAndMul:
        return {"none": "gelu_erf", "tanh": "gelu_tanh"}.get(function.approximate)
    return None


def is_plain(linear, kind):
    """True for an unquantised linear of exactly this class (no LoRA around it)."""
    from vllm.model_executor.layers.linear import UnquantizedLinearMethod

    return type(linear) is kind and type(linear.quant_method) is UnquantizedLinearMethod


def why_not(module):
    """Why this MLP cannot be fused; None if it can."""
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear

    names = set(type(module).forward.__code__.co_names) - HARMLESS
    if names != NAMES:
        return f"the forward of {type(module).__name__} uses {sorted(names ^ NAMES)} besides"
    linear = module.gate_up_proj
    if not is_plain(linear, MergedColumnParallelLinear):
        return f"gate_up_proj is quantised or adapted ({type(linear).__name__}, " \
               f"{type(getattr(linear, 'quant_method', None)).__name__})"
    sizes, weight = linear.output_sizes, linear.weight
    if len(sizes) != 2 or sizes[0] != sizes[1]:
        return f"gate_up_proj has parts of {sizes} rows"
    if weight.dim() != 2 or weight.shape != (sum(sizes) // linear.tp_size, linear.input_size):
        return f"the weight of gate_up_proj was repacked to {list(weight.shape)}"
    if weight.dtype not in (torch.bfloat16, torch.float16):
        return f"its weights are of {weight.dtype}"
    if activation_of(module.act_fn) is None:
        return f"tileglu lacks the activation {type(module.act_fn).__name__}"
    try:
        tileglu.device_info(weight.device)
    except tileglu.Error as error:
        return str(error)
    return None


def fused(module, x):
    from vllm.model_executor.layers.linear import RowParallelLinear

    gate_up, down = module.gate_up_proj, module.down_proj
    weights = {"gate_up": gate_up.weight, "gate_up_bias": gate_up.bias,
               "layout": "stacked_gate_first", "activation": activation_of(module.act_fn)}
    if down.tp_size == 1 and is_plain(down, RowParallelLinear) and \
            down.weight.shape == (x.shape[-1], gate_up.weight.shape[0] // 2):
        return tileglu.mlp(x, down=down.weight, down_bias=down.bias, **weights)
    return down(tileglu.glu(x, **weights))[0]


def differs(module):
    """Tries three tokens both ways; a reason if the results differ by more than rounding."""
    weight = module.gate_up_proj.weight
    x = torch.randn(3, weight.shape[1], dtype=weight.dtype, device=weight.device)
    with torch.inference_mode():
        want, got = module(x).float(), fused(module, x).float()
    off = ((got - want).norm() / want.norm().clamp(min=1e-30)).item()
    return None if off < 0.02 else f"fused and own forward differ by {off:.2g}"


@functools.cache
def fused_class(base):
    """The subclass that a fused MLP gets."""
    from vllm.model_executor.layers.linear import MergedColumnParallelLinear

    def forward(self, x):
        # LoRA puts a wrapper in the linear's place after the model is loaded.
        if type(self.gate_up_proj) is not MergedColumnParallelLinear:
            return base.forward(self, x)
        return fused(self, x)

    return type(base.__name__, (base,), {"forward": forward, "__module__": base.__module__})
